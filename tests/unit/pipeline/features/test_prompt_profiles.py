"""Which mode a conversation has, and what its system message is (guarantee §11.7)."""

import pytest

from gateway.core.config.loading import load_settings
from gateway.core.config.settings import PromptModes, PromptProfiles
from gateway.core.jsons import Json
from gateway.pipeline.features.prompt_profiles import PROFILE_MODES, composed, inferred, monolith
from tests.support.o200k import text_tokens

TOLD: Json = {"role": "tool", "tool_call_id": "update_task", "content": "done"}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def used(*tools: str) -> Json:
    calls = [{"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in tools]
    return {"role": "assistant", "content": None, "tool_calls": calls}


EXAMPLE = load_settings("examples/prompt_profiles/workflows.yaml", {}).prompt_profiles


@pytest.mark.parametrize(
    ("mode", "tokens", "question"),
    [
        ("general", 400, "Good morning, what are you for?"),
        ("creation", 700, "Please build a workflow that approves invoices above 500 euros."),
        ("search", 650, "Which workflows of mine have failed since Monday?"),
        ("modification", 600, "Rename the second step to 'Check the amount'."),
        ("analysis", 550, "Why does the refund workflow take four days?"),
    ],
)
def test_the_example_has_a_text_of_its_size_for_each_mode(mode: str, tokens: int, question: str) -> None:
    """§11.7: each a tenth around what it is said to take, and two fifths less at least than all together."""
    assert EXAMPLE is not None
    assert inferred([user(question)], None)[0] == mode
    taken = text_tokens(composed(EXAMPLE, mode))
    assert abs(taken - tokens) <= tokens / 10
    assert taken <= 0.6 * text_tokens(monolith(EXAMPLE))


@pytest.mark.parametrize(
    ("messages", "before", "found"),
    [
        ([], None, ("general", "default")),
        ([user("Hello")], None, ("general", "default")),
        ([user("Hello")], "search", ("search", "conversation")),
        ([user("CREATE a workflow")], "search", ("creation", "message")),
        ([user("find and list what to update")], None, ("search", "message")),
        ([user("Re-analyze the creation of it")], None, ("analysis", "message")),
        ([user("a"), used("update_task"), user("ok")], "search", ("modification", "tools")),
        ([user("a"), used("update_task"), user("explain")], None, ("analysis", "message")),
        ([user("a"), used("update_task")], None, ("general", "default")),
        ([user("a"), used("update_task"), user("b"), user("c")], None, ("modification", "conversation")),
        ([user("a"), used("update_task"), user("b"), user("c")], "search", ("search", "conversation")),
        ([user("create"), user("b"), user("c")], None, ("creation", "conversation")),
        ([user("analyze"), used("update_task"), TOLD, user("create")], None, ("analysis", "message")),
        ([user("a"), used("update_task"), TOLD, user("b"), user("c")], None, ("general", "default")),
        ([user("a"), used("update_task"), TOLD, user("b"), used(), user("c")], None, ("modification", "tools")),
        ([user("x" * 5000 + " create")], None, ("general", "default")),
    ],
)
def test_the_mode(messages: list[Json], before: str | None, found: tuple[str, str]) -> None:
    assert inferred(messages, before) == found


def test_the_mode_of_another_branch() -> None:
    """What the messages themselves show goes before the mode of a branch that they do not continue."""
    assert inferred([user("create"), user("b")], "search", is_latest=False) == ("creation", "conversation")
    assert inferred([user("a"), user("b")], "search", is_latest=False) == ("search", "conversation")
    assert inferred([user("create"), user("b")], "search") == ("search", "conversation")


def test_the_system_message() -> None:
    modes = PromptModes(general=" Be kind.\n", search="Look.")
    profiles = PromptProfiles(core="You keep lamps.", modes=modes, error_handling="Say so.")
    assert composed(profiles, "search") == "You keep lamps.\n\nLook.\n\nSay so."
    assert composed(profiles, "analysis") == "You keep lamps.\n\nSay so."
    assert monolith(profiles) == "You keep lamps.\n\nBe kind.\n\nLook.\n\nSay so."
    assert set(PROFILE_MODES) == set(PromptModes.model_fields)
