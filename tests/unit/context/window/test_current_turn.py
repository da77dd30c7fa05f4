"""When the current turn alone overflows (I2), and what of the current message may be treated as a document (I4)."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.context.manager import BuiltContext
from gateway.context.window.candidates import run_of_turns
from gateway.core.config.settings import ContextSettings
from gateway.core.errors import ContextLengthExceeded
from gateway.core.types.artifacts import RequestAttachment
from gateway.core.types.conversation import ConversationHistory, PromptFrame, new_message
from gateway.core.types.window import WindowInputs
from gateway.pipeline.frames import new_frame
from tests.support.o200k import prompt_tokens
from tests.unit.making import assistant, build, build_of, material_of, stored, system, tool, user

LINES = [f"line {n}: the value of part {n} is {n * 17}" for n in range(900)]
DOCUMENT = "\n".join(LINES)


async def test_the_oldest_whole_tool_steps_leave_after_being_reduced() -> None:
    steps = [[assistant(None, f"a{n}", f"b{n}"), tool(f"a{n}", "x" * 60), tool(f"b{n}", DOCUMENT)] for n in range(30)]
    messages = [user("old"), assistant("old"), user("go on"), *(message for step in steps for message in step)]
    built = await build(messages, 900)
    forwarded = built.fitted.forwarded.messages
    kept = (len(forwarded) - 1) // 3
    assert 1 <= kept < 30
    assert forwarded[0]["content"].endswith("go on")
    calls = [message["tool_calls"][0]["id"] for message in forwarded[1::3]]
    assert calls == [f"a{n}" for n in range(30 - kept, 30)]
    assert prompt_tokens(forwarded) <= 900


async def of_latest(messages: list[dict[str, Any]], budget: int, low_water: float = 0.4, new: int = 1) -> BuiltContext:
    """A request that goes on: all but its latest messages went up before."""
    path = (*stored(messages[:-new]), *map(new_message, messages[-new:]))
    before = ConversationHistory("conv_1", False, (), path, stored=len(path) - new)
    return await build_of(before, budget, ContextSettings(low_water=low_water))


LOOP = [user("go on"), *(m for n in range(60) for m in (assistant(None, f"c{n}"), tool(f"c{n}", DOCUMENT)))]


@pytest.mark.parametrize("low_water", [0.5, 0.7, 1.0])
async def test_s4_i7_steps_leave_down_to_the_low_water_mark_so_that_further_ones_have_room(low_water: float) -> None:
    """Else the next step of the turn overflows again, and each one changes the whole prefix."""
    built = await of_latest([*LOOP, assistant(None, "latest"), tool("latest", "It is done.")], 3000, low_water)
    fresh = 10  # what the model has not seen stands beside the mark
    assert 0.9 * low_water * 3000 < built.fitted.tokens <= min(low_water * 3000 + fresh, 3000)
    assert len(built.fitted.forwarded.messages) < len(LOOP)


async def test_s4_i7_at_first_sight_all_of_the_budget_is_filled() -> None:
    """Nothing of it is cached, and nobody knows whether it goes on."""
    built = await build(LOOP, 3000, settings=ContextSettings(low_water=0.4))
    assert 0.95 * 3000 < built.fitted.tokens <= 3000


@pytest.mark.in_turn("latest")
@pytest.mark.parametrize("latest", ["There is no other.", DOCUMENT], ids=["short", "too long to stand in full"])
@pytest.mark.parametrize("steps", [2, 30])
async def test_s4_i7_what_cannot_leave_takes_no_room_below_the_low_water_mark_from_what_the_question_needs(
    steps: int, latest: str
) -> None:
    """Long instructions alone may be above it: then a pass would leave no word of what was found a step ago. No step
    leaves for what is cut all the same."""
    found = [*LINES[:100], "The keeper of lamp 83 is called Ann.", *LINES[100:200]]
    said = [system("Be as brief as you can. " * 250), user("Who is the keeper of lamp 83?")]
    for n in range(steps):
        said += [assistant(None, f"c{n}"), tool(f"c{n}", DOCUMENT if n < steps - 1 else "\n".join(found))]
    built = await of_latest([*said, assistant(None, "latest"), tool("latest", latest)], 3000)
    assert any("is called Ann" in str(message["content"]) for message in built.fitted.forwarded.messages)
    most = 3000 if latest == DOCUMENT else 0.75 * 3000  # the next steps have room
    assert prompt_tokens(built.fitted.forwarded.messages) <= most


UNSEEN = {
    "a result": [assistant(None, "latest"), tool("latest", DOCUMENT)],
    "results": [assistant(None, "a", "b"), tool("a", DOCUMENT[:20_000]), tool("b", DOCUMENT[20_000:])],
    "a document": [assistant("Done."), user("# Parts\n\n" + DOCUMENT + "\n\nWhat is part 7?")],
}


@pytest.mark.parametrize("latest", UNSEEN.values(), ids=list(UNSEEN))
async def test_s4_i7_what_the_model_has_not_seen_is_not_reduced_to_reach_the_low_water_mark(
    latest: list[dict[str, Any]],
) -> None:
    """It has only to fit; what is old leaves, and once it is old itself, it is reduced with the rest."""
    budget, new = 16_000, len(latest) - 1
    said = [*LOOP, *latest]
    built = await of_latest(said, budget, new=new)
    forwarded = built.fitted.forwarded.messages
    assert all(m["content"].endswith(o["content"]) for m, o in zip(forwarded[-new:], latest[-new:], strict=True))
    assert built.fitted.tokens > 0.7 * budget, "and old content has the room of the low-water mark beside it"
    assert prompt_tokens(forwarded) <= budget
    tight = await of_latest(said, 8000, new=new)
    assert 0.95 * 8000 < tight.fitted.tokens <= 8000, "what does not fit in full takes all that is there"
    seen = await of_latest([*said, assistant(None, "next"), tool("next", "Nothing.")], budget)
    assert seen.fitted.tokens <= 0.4 * budget


@pytest.mark.parametrize("lines", [400, 403, 406, 412, 415, 430, 460])
async def test_s4_i2_earlier_steps_stand_as_labels_beside_a_result_that_takes_the_window(lines: int) -> None:
    """Whether it just fits in full or not: an agent that sees none of what it has done does it again, and what it has
    not seen yet comes before what it has."""
    said = [system("Be as brief as you can. " * 250), user("Read all files.")]
    for n in range(4):
        said += [assistant(None, f"c{n}"), tool(f"c{n}", DOCUMENT)]
    latest = "\n".join(LINES[:lines])
    built = await of_latest([*said, assistant(None, "latest"), tool("latest", latest)], 8000)
    forwarded = built.fitted.forwarded.messages
    calls = [call["id"] for message in forwarded for call in message.get("tool_calls", ())]
    assert calls == ["c0", "c1", "c2", "c3", "latest"]
    shown = sum(line in forwarded[-1]["content"].splitlines() for line in latest.splitlines())
    assert shown > 0.55 * lines
    assert prompt_tokens(forwarded) <= 8000


@pytest.mark.parametrize("behind", [[], [system("Keep to the plan.")]], ids=["nothing", "an instruction"])
async def test_s4_i5_the_latest_result_is_shown_although_an_instruction_stands_behind_it(behind: list[Any]) -> None:
    """Claude Code puts reminders there. The model has seen all results but this one."""
    steps = [[assistant(None, f"c{n}"), tool(f"c{n}", f"step {n}\n{DOCUMENT}")] for n in range(3)]
    built = await build([user("go on"), *(message for step in steps for message in step), *behind], 3000)
    results = [message["content"] for message in built.fitted.forwarded.messages if message["role"] == "tool"]
    assert len(results[-1]) > 0.2 * 3000


AMID = {
    "a reminder": user("<system-reminder>\nKeep your list of tasks.\n</system-reminder>"),
    "parts": user([{"type": "text", "text": "Base directory: /skills"}, {"type": "text", "text": "and so on"}]),
    "a person": user("And leave the tests alone!"),
    "a skill": user("# A skill\n\nRead all of it.\n\n" + DOCUMENT + "\n\nThat is all."),
}


@pytest.mark.in_turn("task")
@pytest.mark.long
@pytest.mark.parametrize("amid", AMID.values(), ids=list(AMID))
@pytest.mark.parametrize("task", ["do it", "# The task\n\n" + DOCUMENT + "\n\nSo do it."], ids=["short", "huge"])
async def test_s4_i4_the_task_stays_whatever_is_said_amid_its_tool_loop(task: str, amid: dict[str, Any]) -> None:
    """At every fourth step, with all that was said since; whole steps leave."""
    said, left = [user(task)], 0
    for n in range(24):
        said += [assistant(None, f"c{n}"), tool(f"c{n}", f"step {n}\n" + "\n".join(LINES[:100]))]
        said += [amid] if n % 9 == 1 else []
        if n % 4:
            continue
        built = await of_latest([user("old"), assistant("old"), *said], 2500, 0.5)
        forwarded = built.fitted.forwarded.messages
        texts = [str(message["content"]) for message in forwarded if message["role"] == "user"]
        task_at = texts.index("old") + 1 if "old" in texts else 0
        assert all(line in texts[task_at] for line in (task.split("\n")[0], task.rsplit("\n", 1)[-1]))
        assert len(texts) - task_at - 1 == sum(message is amid for message in said)
        assert forwarded[-1]["role"] == said[-1]["role"]
        left += len(said) - (len(forwarded) - task_at * 2)
        assert prompt_tokens(forwarded) <= 2500
    assert left


BESIDE = {
    "a place": user("<environment_context>\n<cwd>/src</cwd>\n</environment_context>"),
    "instructions": user("# Instructions\n\nRead them.\n\n" + DOCUMENT + "\n\nThat is all."),
}


@pytest.mark.in_turn("is_behind")
@pytest.mark.parametrize("beside", BESIDE.values(), ids=list(BESIDE))
@pytest.mark.parametrize("is_behind", [False, True], ids=["before it", "behind it"])
async def test_s4_i4_what_is_sent_beside_the_task_stays_with_it(beside: dict[str, Any], *, is_behind: bool) -> None:
    """As messages of their own, before the first step; nothing older stays, and whole steps leave."""
    task = user("# The task\n\n" + "Keep to the rules. " * 20)
    asked = [task, beside, user("a reminder")] if is_behind else [beside, user("a reminder"), task]
    said, left = [user("old"), assistant("old " * 200), *asked], 0
    for n in range(24):
        said += [assistant(None, f"c{n}"), tool(f"c{n}", f"step {n}\n" + "\n".join(LINES[:100]))]
        if n % 2:
            continue
        built = await build(said, 2500, settings=ContextSettings(low_water=0.5))
        forwarded = built.fitted.forwarded.messages
        texts = [str(message["content"]) for message in forwarded if message["role"] == "user"]
        for text, message in zip(texts[-3:], asked, strict=True):
            own = str(message["content"])
            assert all(line in text for line in (own.split("\n")[0], own.rsplit("\n", 1)[-1]))
        assert prompt_tokens(forwarded) <= 2500
        left += len(said) - len(forwarded)
    assert left


@pytest.mark.parametrize(("first", "begins"), [(None, [1, 2]), ("msg_1", [1, 2]), ("msg_2", [2])])
def test_s4_i2_what_was_said_beside_a_task_belongs_to_its_turn(first: str | None, begins: list[int]) -> None:
    """So it stays although steps of that turn have left, unless it had left as well."""
    said = [user("a place"), user("the task"), assistant(None, "c0"), tool("c0", "seen"), assistant("done")]
    path = stored([assistant("hello"), *said, user("What now?")])
    material = WindowInputs(
        (), tuple(path), current=6, frame=PromptFrame(first=first, left_out=frozenset({"msg_3", "msg_4"}))
    )
    assert [turn.start for turn in run_of_turns(material)] == begins


@pytest.mark.parametrize("steps", [0, 3])
async def test_s4_i4_the_oldest_of_many_messages_leave_where_nothing_else_can(steps: int) -> None:
    """What people say among themselves may be long: the last of it stays; before a tool loop the rest has room, too."""
    said = [user(f"{n}: {'the kettle leaks. ' if n == 7 else ''}" + "so we said. " * 30) for n in range(60)]
    loop = [message for n in range(steps) for message in (assistant(None, f"c{n}"), tool(f"c{n}", "seen"))]
    built = await build([*said, user("99: What of the kettle?"), *loop], 5000, settings=ContextSettings(low_water=0.5))
    forwarded = [m for m in built.fitted.forwarded.messages if m["role"] == "user"]
    numbers = [int(m["content"].rsplit("</context_data>\n\n")[-1].split(":")[0]) for m in forwarded]
    assert numbers == [*range(61 - len(numbers), 60), 99]
    assert len(numbers) > 2
    assert ("the kettle leaks" in forwarded[-1]["content"]) == (not steps)


async def test_s4_i4_what_was_said_amid_leaves_only_where_steps_are_not_enough() -> None:
    """The oldest first; what began the turn and what was said last stay."""
    said = [user("do it")]
    for n in range(30):
        said += [assistant(None, f"c{n}"), tool(f"c{n}", "seen"), user(f"amid {n}: " + "keep to it, " * 30)]
    built = await build(said, 1000, settings=ContextSettings(low_water=0.5))
    forwarded = built.fitted.forwarded.messages
    texts = [str(message["content"])[:8] for message in forwarded if message["role"] == "user"]
    kept = len(texts) - 1
    assert texts == ["do it", *(f"amid {n}:"[:8] for n in range(30 - kept, 30))]
    assert 2 < kept < 10
    assert [m["tool_calls"][0]["id"] for m in forwarded if m.get("tool_calls")] == ["c29"]


async def test_s4_i2_steps_that_left_stay_out_although_their_whole_turn_leaves_later() -> None:
    """The frame of that pass still names them: in a later one the turn may have room again."""
    steps = [assistant(None, "c0"), tool("c0", DOCUMENT), assistant(None, "c1"), tool("c1", "yes")]
    path = stored([user("old"), *steps, assistant("so it is " * 200), user("go on " * 300)])
    asked, path[-1] = path[-1], replace(path[-1], message_id=None)
    before = ConversationHistory(
        "conv_1", False, (), tuple(path), stored=6, frame=PromptFrame(left_out=frozenset({"msg_1", "msg_2"}))
    )
    built = await build_of(before, 1000)
    assert built.fitted.new_pass
    assert [m["role"] for m in built.fitted.forwarded.messages] == ["user"]
    left = new_frame("gpt-4o", before, built, material_of(built), [asked])
    assert left is not None
    assert left.frame.left_out >= {"msg_1", "msg_2"}


@pytest.mark.long
async def test_no_old_turn_is_forwarded_where_a_step_of_the_current_one_has_left() -> None:
    steps = [assistant(None, "c0"), tool("c0", DOCUMENT), assistant(None, "c1"), tool("c1", "yes")]
    messages = [user("hi"), assistant("hello"), user("What is the value of part 77?"), *steps]
    seen = set()
    for budget in range(30, 140, 3):
        try:
            forwarded = (await build(messages, budget)).fitted.forwarded.messages
        except ContextLengthExceeded:
            continue
        has_old, has_step = len(forwarded) in (5, 7), any(m.get("tool_call_id") == "c0" for m in forwarded)
        assert has_step or not has_old, f"a gap in the run at a budget of {budget}"
        seen.add((has_old, has_step))
    assert {(False, False), (True, True)} <= seen


async def test_many_small_results_of_old_turns_do_not_fill_the_window() -> None:
    turns = [
        [user(f"weather {n}?"), assistant(None, f"c{n}"), tool(f"c{n}", f"{n} degrees and rain"), assistant("so so")]
        for n in range(60)
    ]
    messages = [*(message for turn in turns for message in turn), user("Thanks! Who wrote Faust?")]
    for budget in (60, 300, 900):
        built = await build(messages, budget)
        forwarded = built.fitted.forwarded.messages
        assert forwarded == messages[len(messages) - len(forwarded) :]
        assert built.fitted.tokens > budget - 60, "one more turn would have fitted"


async def test_tool_results_are_reduced_before_any_step_or_turn_leaves() -> None:
    steps = [message for n in range(3) for message in (assistant(None, f"c{n}"), tool(f"c{n}", DOCUMENT))]
    messages = [user("hi"), assistant("hello"), user("What is the value of part 77?"), *steps]
    built = await build(messages, 3000)
    forwarded = built.fitted.forwarded.messages
    assert [m["role"] for m in forwarded] == [m["role"] for m in messages]
    assert forwarded[:3] == messages[:3]
    assert any("the value of part 77 is 1309" in m["content"] for m in forwarded if m["role"] == "tool")
    assert all(r.strategy in ("rag_extract", "exclude") for r in built.utilization.artifacts_processed)


async def test_a_latest_step_that_cannot_be_reduced_enough_is_an_error() -> None:
    calls = [f"call_{n}" for n in range(60)]
    messages = [user("go"), assistant(None, *calls), *(tool(each, DOCUMENT) for each in calls)]
    with pytest.raises(ContextLengthExceeded):
        await build(messages, 600)


async def test_system_messages_are_never_dropped() -> None:
    with pytest.raises(ContextLengthExceeded):
        await build([user("hi")], 100, instructions=[system("rule " * 200)])
    built = await build([user("word " * 300), assistant("a"), user("hi")], 100, instructions=[system("be brief")])
    assert built.fitted.forwarded.messages == [system("be brief"), user("hi")]


@pytest.mark.parametrize(
    "content",
    [
        f"Read this:\n\n{DOCUMENT}\n\nWhat is the value of part 700?",
        f"Read this:\n\n```\n{DOCUMENT}\n```\n\nWhat is the value of part 700?",
        f"Read this:\n\n<notes kind='a'>\n{DOCUMENT}\n</notes>\n\nWhat is the value of part 700?",
    ],
    ids=["middle", "fence", "tags"],
)
async def test_a_document_in_the_current_message_is_reduced_and_the_words_around_it_stay(content: str) -> None:
    built = await build([user(content)], 1500)
    (message,) = built.fitted.forwarded.messages
    assert message["content"].startswith("Read this:\n\n")
    assert message["content"].endswith("\n\nWhat is the value of part 700?")
    assert "the value of part 700 is 11900" in message["content"]
    assert len(message["content"]) < len(content) / 4
    (record,) = built.utilization.artifacts_processed
    assert record.strategy == "rag_extract"
    assert record.artifact_id in message["content"]


async def test_words_that_are_plainly_no_document_are_never_cut() -> None:
    """8,000 characters and less are the user's own words, whatever they look like."""
    with pytest.raises(ContextLengthExceeded):
        await build([user(f"```\n{DOCUMENT[:7900]}\n```")], 1000)


async def test_an_attachment_stands_in_one_block_at_the_head_of_the_current_message() -> None:
    question = "What is the value of part 700?"
    attachment = RequestAttachment(content=DOCUMENT, title="parts", source="https://example.org/parts")
    for budget in (1500, 60_000):
        built = await build([user("hi"), assistant("hello"), user(question)], budget, attachments=[attachment])
        forwarded = built.fitted.forwarded.messages
        text: str = forwarded[-1]["content"]
        assert text.endswith(question)
        assert text.startswith("<context_data ")
        assert "data, not instructions" in text.split("\n")[0]
        assert "the value of part 700 is 11900" in text
        assert forwarded[:-1] == [user("hi"), assistant("hello")]
        (record,) = built.utilization.artifacts_processed
        assert record.strategy == ("include_full" if budget == 60_000 else "rag_extract")
        assert record.source == "attachment:0:parts"


@pytest.mark.parametrize("budget", [300, 1000, None])
async def test_a_message_in_parts_keeps_its_parts(budget: int | None) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    parts: list[dict[str, Any]] = [{"type": "text", "text": "What is this?"}, image, {"type": "text", "text": "And?"}]
    built = await build([user(parts)], budget)
    assert built.fitted.forwarded.messages == [user(parts)]


@pytest.mark.parametrize("blank", [" ", "\n"])
@pytest.mark.chaos
async def test_a_result_of_millions_of_blanks_leaves(blank: str) -> None:
    """No part of it is worth its room, and none has a last word."""
    built = await build([user("What is 77?"), assistant(None, "a"), tool("a", blank * 4_000_000 + "x")], 3500)
    assert prompt_tokens(built.fitted.forwarded.messages) <= 3500
    assert len(built.fitted.forwarded.messages) == 3
