"""Random conversations with pins and summaries that come meanwhile: the budget, one memory message at its place,
nothing twice, and a beginning that stays between the passes (guarantee §4, §11)."""

import random
from dataclasses import replace
from typing import Any

import pytest

from gateway.context.manager import BuiltContext
from gateway.core.config.settings import ContextSettings
from gateway.core.errors import ContextLengthExceeded
from gateway.core.types.conversation import ConversationHistory, new_message
from gateway.core.types.memory import SummarySegment
from tests.support.marks import few_or_many
from tests.unit.context.window.test_memory import goes_on
from tests.unit.making import assistant, build_of, material_of, stored, system, tool, user

WORDS = [a + b + c for a in "bdfglmnprstv" for b in ("a", "e", "oi") for c in ("lamp", "ster", "nok", "wind", "rel")]
TURNS = 8


def words(rng: random.Random, most: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def turn(rng: random.Random, number: int) -> list[dict[str, Any]]:
    """A question, perhaps a tool step, and the answer. Each message can be told from all others."""
    found = [user(f"asked {number}: {words(rng, 40)}")]
    if rng.random() < 0.3:
        name = f"c{number}"
        found += [assistant(None, name), tool(name, f"found {number}: {words(rng, 150)}")]
    return [*found, assistant(f"said {number}: {words(rng, 60)}")]


def begun(rng: random.Random) -> ConversationHistory:
    path = stored([body for number in range(rng.choice((4, 30, 60, 120))) for body in turn(rng, number)])
    path = [replace(message, pinned=rng.random() < 0.05) for message in path]
    new = new_message(user(f"asked 100: {words(rng, 12)}"), len(path))
    return ConversationHistory("conv_1", False, (system("Be brief."),), (*path, new), stored=len(path))


def summarised(rng: random.Random, history: ConversationHistory) -> ConversationHistory:
    """The conversation with one more summary, of some turns behind those that have one."""
    first = history.segments[-1].last + 1 if history.segments else 0
    ends = [
        message.sequence_number or 0
        for message in history.messages[: history.stored]
        if message.role == "assistant" and not message.body.get("tool_calls")
    ]
    ends = [end for end in ends if end >= first][:-2]
    if not ends:
        return history
    last = rng.choice(ends)
    text = f"summary {first}-{last}: {words(rng, 60)}"
    new = SummarySegment(f"sum_{first}", first, last, f"msg_{last}", text, 1, 2, size_chars=9000)
    return replace(history, segments=(*history.segments, new))


def check(history: ConversationHistory, built: BuiltContext, budget: int) -> tuple[int, bool]:
    """How many summaries were shown, and whether there was a memory message."""
    material, forwarded = material_of(built), built.fitted.forwarded
    assert built.counting is not None
    assert built.counting.total(forwarded) <= budget
    contents = [str(message["content"]) for message in forwarded.messages]
    memories = [n for n, content in enumerate(contents) if content.startswith("<conversation_memory")]
    assert memories == ([1] if forwarded.memory is not None else [])
    memory = contents[1] if memories else ""
    first = material.messages[built.fitted.selection.first].sequence_number or 0
    shown = [segment for segment in history.segments if f"{segment.text}\n" in memory]
    begins = history.segments.index(shown[0]) if shown else 0
    assert shown == list(history.segments[begins : begins + len(shown)])
    assert all(segment.last < first for segment in shown)
    for index, message in enumerate(history.messages):
        is_pinned = message.pinned or (message.role == "tool" and history.messages[index - 1].pinned)
        if is_pinned and (text := message.body["content"]):
            inside = sum(text in content for content in contents[1 + len(memories) :])
            assert (text in memory) + inside == 1, text
    return len(shown), bool(memories)


async def play(seed: int) -> list[tuple[int, bool]]:
    """What `check` says of each request of a conversation."""
    rng = random.Random(seed)
    budget, history = rng.choice((1000, 2500, 5000)), begun(rng)
    before: list[dict[str, Any]] = []
    found: list[tuple[int, bool]] = []
    for number in range(101, 101 + TURNS):
        if rng.random() < 0.4:
            history = summarised(rng, history)
        if rng.random() < 0.2:
            pinned = rng.randrange(history.stored)
            messages = [replace(m, pinned=m.pinned or n == pinned) for n, m in enumerate(history.messages)]
            history = replace(history, messages=tuple(messages))
        try:
            built = await build_of(history, budget, ContextSettings(low_water=0.75))
        except ContextLengthExceeded:
            return found
        found.append(check(history, built, budget))
        if not (built.fitted.new_pass or built.fitted.moved):
            assert built.fitted.forwarded.messages[: len(before)] == before
        history, before = goes_on(history, built, user(f"asked {number}: {words(rng, 12)}"))
    return found


@pytest.mark.long
@few_or_many(8, 200)
async def test_s11_12_the_window_with_pins_and_summaries(number: int) -> None:
    played = [await play(seed) for seed in range(number)]
    requests = [each for found in played for each in found]
    assert len(requests) > 0.8 * number * TURNS  # the others were refused: too much is pinned
    assert sum(shown > 0 for shown, _ in requests) > len(requests) / 10
    assert sum(there for _, there in requests) > len(requests) / 2
