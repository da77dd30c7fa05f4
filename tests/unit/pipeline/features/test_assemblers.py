"""The assemblers: sections, their order, empty ones, and the one trimmer (guarantee §11)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types.agents import AssemblerInput, AssemblerOutput, PromptContextMessage
from gateway.pipeline.features.agent_sections import (
    BUILT_IN,
    AssemblerRegistry,
    claude_code,
    google_gemini,
    openai_codex,
    plain,
)

HELLO = (PromptContextMessage("ann", "Hi"), PromptContextMessage("max", "Hello!"))
ENOUGH = 768 * 1024


def given_input(
    context: tuple[PromptContextMessage, ...] = HELLO,
    message: str = "Go on.",
    *,
    task: str | None = "Ship it.",
    instruction: str | None = "Be brief.",
    file_text: str | None = "You know lamps.",
    max_bytes: int = ENOUGH,
) -> AssemblerInput:
    return AssemblerInput(context, message, task, instruction, file_text, max_bytes)


def test_claude_has_its_instruction_apart() -> None:
    made = claude_code(given_input())
    assert made.system_flag == "Be brief.\n\nYou know lamps."
    assert made.prompt == "[TEAM_TASK]\nShip it.\n\n[CONTEXT]\nann: Hi\nmax: Hello!\n\n[MESSAGE]\nGo on."


def test_codex_has_all_sections_in_the_prompt() -> None:
    made = openai_codex(given_input())
    assert made.system_flag is None
    assert made.prompt == (
        "[SYSTEM]\nBe brief.\n\nYou know lamps.\n\n[TEAM_TASK]\nShip it.\n\n"
        "[CONTEXT]\nann: Hi\nmax: Hello!\n\n[MESSAGE]\nGo on."
    )


def test_gemini_has_no_brackets() -> None:
    made = google_gemini(given_input(task=None))
    assert made.system_flag is None
    assert made.prompt == (
        "Instructions:\nBe brief.\n\nYou know lamps.\n\n"
        "Conversation so far:\nann: Hi\nmax: Hello!\n\nUser message:\nGo on."
    )
    assert "[" not in google_gemini(given_input()).prompt


def test_plain_text_has_no_headers() -> None:
    made = plain(given_input(task=None, file_text=None))
    assert made == AssemblerOutput("Be brief.\n\nann: Hi\nmax: Hello!\n\nGo on.")


@pytest.mark.parametrize(
    ("instruction", "file_text", "body"),
    [
        (None, None, None),
        ("", "  \n", None),
        (" Be brief. ", None, "Be brief."),
        (None, "\nYou know lamps.", "You know lamps."),
        (" Be brief.\n", " You know lamps. ", "Be brief.\n\nYou know lamps."),
    ],
)
def test_instructions_are_trimmed_and_joined(instruction: str | None, file_text: str | None, body: str | None) -> None:
    assert claude_code(given_input(instruction=instruction, file_text=file_text)).system_flag == body


@pytest.mark.parametrize("name", BUILT_IN)
def test_empty_sections_are_not_emitted(name: str) -> None:
    bare = given_input((), "", task=" ", instruction=" ", file_text=None)
    assert BUILT_IN[name](bare) == AssemblerOutput("")
    made = BUILT_IN[name](given_input((), "Hi", task="", instruction=None, file_text=""))
    assert made.prompt.split("\n")[-1] == "Hi"
    assert made.prompt.count("\n\n") == 0


TEXTS = st.text(max_size=40)
MESSAGES = st.lists(st.builds(PromptContextMessage, st.sampled_from(["ann", "max", "日本"]), TEXTS), max_size=12)


@pytest.mark.parametrize("name", BUILT_IN)
@given(context=MESSAGES, message=TEXTS, task=TEXTS, instruction=TEXTS, most=st.integers(1, 400))
def test_the_oldest_context_leaves_and_nothing_else(
    name: str, context: list[PromptContextMessage], message: str, task: str, instruction: str, most: int
) -> None:
    """All sections together are within the bytes, or no context is left; no more leaves than has to."""

    def made_of(count: int, max_bytes: int) -> AssemblerOutput:
        kept = tuple(context[len(context) - count :])
        return BUILT_IN[name](given_input(kept, message, task=task, instruction=instruction, max_bytes=max_bytes))

    def size(made: AssemblerOutput) -> int:
        return len(made.prompt.encode()) + len((made.system_flag or "").encode())

    made = made_of(len(context), most)
    kept = len(context) - made.dropped
    assert made.prompt == made_of(kept, 10**9).prompt
    assert size(made) <= most or not kept
    assert not made.dropped or size(made_of(kept + 1, 10**9)) > most


def test_nobody_knows_an_unknown_type() -> None:
    found = AssemblerRegistry()
    assert found.of("cobol-writer") is None
    assert found.of("claude-code") is claude_code
