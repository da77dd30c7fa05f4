"""At most so many turns are forwarded, and summaries stand for what left (guarantee §3.11)."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from gateway.context.manager import BuiltContext
from gateway.context.window.candidates import bounded
from gateway.core.config.settings import ContextSettings
from gateway.core.types.chat import TurnBound
from gateway.core.types.conversation import ConversationHistory, PromptFrame, new_message
from gateway.core.types.memory import MemoryMessage, SummarySegment
from gateway.core.types.tool_steps import turn_starts
from gateway.core.types.window import WindowInputs
from tests.support.marks import some_or_all
from tests.support.strict_chat import violations
from tests.unit.context.window.histories import goes_on, memory_of
from tests.unit.making import assistant, build_of, material_of, stored, system, tool, user

FIFTEEN = TurnBound(15, 9)


def told(number: int) -> list[dict[str, Any]]:
    """A turn: a question and its answer."""
    return [user(f"Question {number}: where is lamp {number}?"), assistant(f"Lamp {number} hangs in hall {number}.")]


def talk(turns: int, **more: Any) -> ConversationHistory:
    """A stored conversation, of which the next turn begins."""
    path = stored([body for number in range(1, turns) for body in told(number)])
    new = new_message(user(f"Question {turns}: and now?"), len(path))
    return ConversationHistory("conv_1", False, (system("Be brief."),), (*path, new), stored=len(path), **more)


def segment(first_turn: int, last_turn: int) -> SummarySegment:
    last = 2 * last_turn - 1
    words = f"Summary of {first_turn} to {last_turn}."
    return SummarySegment(
        f"sum_{first_turn}", 2 * first_turn - 2, last, f"msg_{last}", words, first_turn, last_turn, 900
    )


def turns_of(built: BuiltContext) -> list[str]:
    """The numbers of the turns that are forwarded as messages."""
    contents = [str(m["content"]) for m in built.fitted.forwarded.messages if m["role"] == "user"]
    return [text.split("Question ")[-1].split(":")[0] for text in contents if not text.startswith("<conversation_mem")]


@pytest.mark.parametrize(
    ("most", "share", "kept"), [(15, 0.4, 9), (2, 0.4, 2), (3, 0.4, 2), (10, 0.4, 6), (10, 0.05, 10), (10, 0.95, 1)]
)
def test_one_pass_leaves_room_for_several_turns(most: int, share: float, kept: int) -> None:
    assert TurnBound.of(most, share) == TurnBound(most, kept)
    assert TurnBound.of(None, share) is None


@pytest.mark.parametrize(
    ("turns", "begun", "frame", "segments", "bound", "earliest"),
    [
        (15, False, None, (), FIFTEEN, 0),  # as many as may be
        (16, False, None, (), FIFTEEN, 14),  # one more: nine stay
        (16, False, None, (), None, 0),
        (16, True, None, (), FIFTEEN, 14),  # never more than that, also within a turn
        (20, False, "msg_10", (), FIFTEEN, 10),  # the window as it was still holds fifteen
        (21, False, "msg_10", (), FIFTEEN, 24),
        (12, False, None, (segment(1, 4),), FIFTEEN, 8),  # at 70 per cent: what is told leaves
        (12, False, None, (segment(1, 4),), None, 8),
        (12, True, None, (segment(1, 4),), FIFTEEN, 0),  # but not within a turn
        (12, False, "msg_10", (segment(1, 4),), FIFTEEN, 10),
        (24, False, None, (segment(1, 4),), FIFTEEN, 30),  # a summary that covers too little
        (3, False, None, (segment(1, 9),), FIFTEEN, 4),  # the current turn stays
    ],
)
def test_s3_11_where_the_window_begins(
    turns: int,
    begun: bool,
    frame: str | None,
    segments: tuple[SummarySegment, ...],
    bound: TurnBound | None,
    earliest: int,
) -> None:
    messages = list(talk(turns).messages)
    if begun:
        messages[-1] = replace(messages[-1], message_id="msg_now")
    frozen = PromptFrame(first=frame) if frame else None
    material = WindowInputs((), tuple(messages), len(messages) - 1, frame=frozen, segments=segments)
    found = bounded(material, bound)
    assert found.earliest == earliest
    assert found.moves == (earliest > material.frozen_first)


@pytest.mark.parametrize("budget", [100_000, 700, None])
async def test_s3_11_no_more_turns_than_that_are_forwarded(budget: int | None) -> None:
    """Whatever room there is, also where nobody knows the window; the bill says why."""
    built = await build_of(talk(40), budget, turns=FIFTEEN)
    forwarded = turns_of(built)
    assert forwarded == [str(n) for n in range(41 - len(forwarded), 41)]
    assert len(forwarded) <= 9
    used = built.utilization
    assert (used.strategy, used.left_by, used.messages_excluded) == ("simple", "max_turns", 78 - 2 * len(forwarded) + 2)
    whole = await build_of(talk(15), budget if budget != 700 else 4000, turns=FIFTEEN)
    assert (len(turns_of(whole)), whole.utilization.left_by, whole.utilization.strategy) == (15, None, "passthrough")


async def test_s3_11_what_left_comes_back_where_it_is_needed() -> None:
    asked = user("Question 30: in which hall does lamp 3 hang?")
    history = talk(30)
    history = replace(history, messages=(*history.messages[:-1], new_message(asked, 58)))
    built = await build_of(history, 100_000, turns=FIFTEEN)
    last = str(built.fitted.forwarded.messages[-1]["content"])
    assert "Lamp 3 hangs in hall 3." in last
    assert last.endswith(asked["content"])
    assert built.utilization.strategy == "simple"


async def test_s3_11_its_summary_stands_beside_the_rest() -> None:
    built = await build_of(talk(12, segments=(segment(1, 4),)), 100_000, turns=FIFTEEN)
    assert turns_of(built) == [str(n) for n in range(5, 13)]
    assert "Summary of 1 to 4." in (memory_of(built) or "")
    assert built.utilization.memory is not None
    assert [r.source for r in built.utilization.artifacts_processed if r.strategy == "summarize"] == ["turns:1-4"]
    messages = built.fitted.forwarded.messages
    assert [m["role"] for m in messages[:3]] == ["system", "user", "user"]


async def test_s3_11_what_leaves_for_its_summary_has_nothing_else_made_shorter() -> None:
    """Not even the spaces of JSON: nothing left for want of room (§4 I5)."""
    spaced = tool("c", json.dumps({"halls": list(range(300))}, indent=2))
    history = talk(12, segments=(segment(1, 4),))
    seen = [user("Look."), assistant(None, "c"), spaced, assistant("Seen.")]
    path = stored([*(each.body for each in history.messages[:-1]), *seen])
    messages = (*path, new_message(history.messages[-1].body, len(path)))
    built = await build_of(replace(history, messages=messages, stored=len(path)), 100_000)
    assert turns_of(built)[0] == "5"
    assert spaced in built.fitted.forwarded.messages


@pytest.mark.parametrize(("times", "first"), [(5, 5), (60, 1)])
async def test_s3_11_no_turn_leaves_for_a_summary_that_has_no_room(times: int, first: int) -> None:
    """All would fit; the longer summary takes more than its share of the window."""
    summary = replace(segment(1, 4), text="A lamp hangs. " * times)
    built = await build_of(talk(12, segments=(summary,)), 1500, turns=FIFTEEN)
    assert turns_of(built) == [str(n) for n in range(first, 13)]
    assert (memory_of(built) is None) == (first == 1)


async def test_s3_11_what_is_pinned_stays() -> None:
    history = talk(30)
    path = (replace(history.messages[0], pinned=True), *history.messages[1:])
    built = await build_of(replace(history, messages=path), 100_000, turns=FIFTEEN)
    assert "where is lamp 1?" in (memory_of(built) or "")
    assert turns_of(built) == [str(n) for n in range(22, 31)]


async def test_s3_11_an_attached_document_does_not_leave_with_its_turn() -> None:
    """What an older block showed in full has a place in the new one."""
    from gateway.context.artifacts.collect import attachments_to_artifacts
    from gateway.core.types.artifacts import RequestAttachment

    document = attachments_to_artifacts([RequestAttachment(content="The gate opens with Falkenhorst. " * 20)])
    history, found = talk(2, attachments=tuple(document)), []
    for number in range(3, 20):
        built = await build_of(history, 100_000, turns=FIFTEEN)
        found.append(sum("Falkenhorst" in str(m["content"]) for m in built.fitted.forwarded.messages))
        history, _ = goes_on(history, built, user(f"Question {number}: and now?"))
    assert found == [1] * len(found)


def turn(rng: random.Random, number: int) -> list[dict[str, Any]]:
    asked = user(f"Question {number}: " + "what of it? " * rng.randint(1, 40))
    step = [assistant(None, f"c{number}"), tool(f"c{number}", f"Found {number}: " + "a lamp " * rng.randint(1, 300))]
    return [asked, *(step if rng.random() < 0.3 else []), assistant(f"Answer {number}. " + "It is so. " * 20)]


@pytest.mark.parametrize("seed", some_or_all(range(12), (0, 2, 3, 5)))
async def test_s3_11_the_bound_holds_and_the_beginning_stays_between_passes(seed: int) -> None:
    """I1 to I3 and I7 with random turns, budgets and bounds; summaries come meanwhile or not at all."""
    rng = random.Random(seed)
    most, budget = rng.randint(2, 12), rng.choice((1500, 6000, 100_000))
    bound, summarizes = TurnBound.of(most, 0.4), rng.random() < 0.5
    assert bound is not None
    path = stored([body for number in range(rng.choice((1, 30))) for body in turn(rng, number)])
    history = ConversationHistory("conv_1", False, (system("Be brief."),), tuple(path), stored=len(path))
    before: list[dict[str, Any]] = []
    passes = 0
    for number in range(100, 130):
        history = replace(history, messages=(*history.messages[: history.stored], *_new(rng, history, number)))
        if summarizes and rng.random() < 0.2:
            history = _summarised(rng, history)
        built = await build_of(history, budget, ContextSettings(low_water=0.6), bound)
        messages = built.fitted.forwarded.messages
        assert built.counting is not None
        assert built.counting.total(built.fitted.forwarded) <= budget
        memory = built.fitted.forwarded.memory
        run = [m for m in messages[1:] if memory is None or m is not memory.body]
        assert 1 <= len(turn_starts(m["role"] for m in run)) <= most
        indexes = [i for i in built.fitted.forwarded.indexes if i >= 0]
        assert indexes == list(range(indexes[0], len(history.messages)))
        assert violations({"model": "m", "messages": messages}) == []
        passed = built.fitted.new_pass or built.fitted.moved
        passes += passed
        assert passed or messages[: len(before)] == before
        if summarizes and history.segments and built.fitted.moved and not built.fitted.new_pass:
            first = material_of(built).messages[indexes[0]].sequence_number or 0
            assert all(each.last < first for each in history.segments)
            assert isinstance(memory, MemoryMessage)
            assert history.segments[-1].segment_id in memory.segments
        history, before = goes_on(history, built)
    if budget == 100_000 and not summarizes and most >= 5:
        assert passes <= 2 + 30 // (most - bound.kept)


def _new(rng: random.Random, history: ConversationHistory, number: int) -> list[Any]:
    return [new_message(user(f"Question {number}: " + "and now? " * rng.randint(1, 20)), len(history.messages))]


def _summarised(rng: random.Random, history: ConversationHistory) -> ConversationHistory:
    """With one more summary of the oldest turns that have none."""
    first = history.segments[-1].last + 1 if history.segments else 0
    messages = history.messages[: history.stored]
    ends = [n - 1 for n in turn_starts(m.role for m in messages) if n > first][:-1]
    if not ends:
        return history
    last = ends[min(len(ends) - 1, rng.randint(0, 3))]
    new = SummarySegment(f"sum_{first}", first, last, f"msg_{last}", f"Summary {first}.", 1, 2, 900)
    return replace(history, segments=(*history.segments, new))
