"""The order in which things leave: compaction, old blocks, old artifacts, current ones, old turns (guarantee §4 I5)."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from gateway.context.manager import BuiltContext
from gateway.core.config.settings import ContextSettings
from gateway.core.types.conversation import ConversationHistory, ConversationMessage
from tests.support.o200k import prompt_tokens
from tests.unit.making import assistant, build, build_of, stored, tool, user

FULL = ContextSettings(low_water=1)
BESIDE = 40
"""What the gateway's count of calls may be higher by."""
RECORDS = [{"id": n, "name": f"part {n}", "value": n * 17} for n in range(120)]
SPACED, COMPACT = json.dumps(RECORDS, indent=4), json.dumps(RECORDS, separators=(",", ":"))
OLD = "\n".join(f"old line {n}: the value of lamp {n} is {n * 19}" for n in range(150))
NEW = "\n".join(f"new line {n}: a weather report without any news from harbour {n}" for n in range(150))
ASK = user("What is the value of lamp 77?")


def result(call: str, text: str) -> list[dict[str, Any]]:
    return [assistant(None, call), tool(call, text)]


def strategies(built: BuiltContext) -> dict[str, str]:
    return {record.source: record.strategy for record in built.utilization.artifacts_processed}


@pytest.mark.parametrize("pasted", [False, True], ids=["result", "document in a message"])
async def test_s4_i5_first_json_loses_its_spaces_and_nothing_else_happens(pasted: bool) -> None:
    words = f"Read this:\n\n```json\n{SPACED}\n```\n\nWhat does it say?" if pasted else "What does it say?"
    spaced = [user("hi"), assistant("hello"), user(words), *([] if pasted else result("c0", SPACED))]
    messages = [*spaced, assistant("Parts."), user("And how many parts?")]
    compact = json.loads(json.dumps(messages).replace(json.dumps(SPACED)[1:-1], json.dumps(COMPACT)[1:-1]))
    budget = prompt_tokens(compact) + BESIDE
    assert budget < prompt_tokens(messages)
    built = await build(messages, budget, settings=FULL)
    assert built.fitted.forwarded.messages == compact
    assert set(strategies(built).values()) == {"include_full"}


async def test_s4_i5_then_old_blocks_leave_and_no_artifact_is_reduced() -> None:
    block = "<context_data>\n" + "what was recalled " * 300 + "\n</context_data>\n\n"
    path = stored([user("lamps?"), *result("c0", OLD), assistant("so"), user("and?"), assistant("so so"), ASK])
    asked = path[4].body
    path[4] = replace(path[4], rendered={**asked, "content": f"{block}{asked['content']}"})
    new: list[ConversationMessage] = [*path[:-1], replace(path[-1], message_id=None)]
    plain = [message.body for message in new]
    built = await build_of(
        ConversationHistory("conv_1", False, (), tuple(new), stored=6), prompt_tokens(plain) + BESIDE
    )
    assert built.fitted.forwarded.messages == plain
    assert set(strategies(built).values()) == {"include_full"}


@pytest.mark.parametrize("share", [0.75, 0.85, 0.95])
async def test_s4_i5_then_old_artifacts_are_reduced_and_current_ones_stay(share: float) -> None:
    """Although the question is about the old one."""
    messages = [user("lamps?"), *result("c0", OLD), assistant("so it is"), ASK, *result("c1", NEW)]
    built = await build(messages, int(share * prompt_tokens(messages)), settings=FULL)
    forwarded = built.fitted.forwarded.messages
    assert [m["role"] for m in forwarded] == [m["role"] for m in messages]
    assert strategies(built) == {"history:msg_2:search": "rag_extract", "step_1:search": "include_full"}
    assert forwarded[-1] == messages[-1]
    assert "the value of lamp 77 is 1463" in forwarded[2]["content"]


async def test_s4_i5_then_current_artifacts_are_reduced_and_old_turns_stay() -> None:
    messages = [user("lamps?"), *result("c0", OLD), assistant("so it is"), ASK, *result("c1", NEW)]
    built = await build(messages, int(0.4 * prompt_tokens(messages)), settings=FULL)
    forwarded = built.fitted.forwarded.messages
    assert [m["role"] for m in forwarded] == [m["role"] for m in messages]
    assert len(forwarded[-1]["content"]) < len(NEW)
    assert len(forwarded[2]["content"]) < len(OLD)
    assert [m for m in forwarded if m["role"] != "tool"] == [m for m in messages if m["role"] != "tool"]


async def test_s4_i5_old_turns_leave_last_and_the_oldest_first() -> None:
    """While they take no more than their share (`context.history_share`), it is the results that give way."""
    turns = [[user(f"asked {n} " + "word " * 12), assistant(f"said {n} " + "word " * 12)] for n in range(12)]
    messages = [*(m for turn in turns for m in turn), ASK, *result("c1", NEW)]
    left = []
    for budget in range(2600, 300, -200):
        built = await build(messages, budget, settings=FULL)
        forwarded = built.fitted.forwarded.messages
        kept = forwarded[:-3]
        assert kept == messages[len(messages) - 3 - len(kept) : len(messages) - 3]
        left.append(len(messages) - len(forwarded))
        assert not left[-1] or strategies(built)["step_1:search"] != "include_full"
    assert left == sorted(left)
    assert left[0] == 0 < left[-1]


def log(chars: int, words: str) -> str:
    """A log with these words in each line."""
    random = Random(words)
    line = f"12:{{:02}}:{{:02}} {words} block {{:06}}"
    lines = [line.format(n // 60 % 60, n % 60, random.randrange(10**6)) for n in range(chars // 20)]
    return "\n".join(lines)[:chars]


@pytest.mark.long
@pytest.mark.parametrize(("old", "new", "budget"), [(30_000, 100_041, 30_000), (9_000, 30_000, 6_000)])
async def test_s4_i5_a_fresh_result_is_not_cut_for_an_old_one(old: int, new: int, budget: int) -> None:
    """The old one keeps what the question needs at most, although its every line has more words of the question."""
    ask = user("Now read the log. Which errors does it hold?")
    told = [
        user("Read the other log."),
        *result("c0", log(old, "the errors that a log holds, now read")),
        assistant("It is read."),
    ]
    built = await build([*told, ask, *result("c1", log(new, "ERROR read"))], budget)
    shown = {r.source: r.processed_size_chars for r in built.utilization.artifacts_processed}
    assert 0 < shown["history:msg_2:search"] < 0.6 * old
    assert shown["step_1:search"] > 2000


@pytest.mark.long
async def test_s4_i6_what_gets_no_shorter_in_tokens_stays_whole() -> None:
    """A label takes tokens as well: of two results one goes up whole rather than as nearly all of it."""
    texts = ["\n\n".join(f"part {n} of {name}: " + "lamp harbour kettle " * 20 for n in range(4)) for name in "ab"]
    messages = [user("What about part 3 of b?"), *result("c0", texts[0]), *result("c1", texts[1])]
    whole = prompt_tokens(messages)
    reduced = 0
    for budget in range(whole - 1, whole // 3, -7):
        built = await build(messages, budget, settings=FULL)
        forwarded = built.fitted.forwarded
        for sent, was in ((m, messages[i]) for m, i in zip(forwarded.messages, forwarded.indexes, strict=True)):
            if sent["role"] == "tool" and sent != was:
                reduced += 1
                assert prompt_tokens([sent]) < prompt_tokens([was]), f"at a budget of {budget}"
    assert reduced > 10


@pytest.mark.parametrize(("words", "over"), [(150, 150), (150, 250), (300, 250)])
async def test_s4_i5_a_passage_that_is_too_long_fills_what_room_there_is(words: int, over: int) -> None:
    """Labels are guessed for results that need none, so that room is left after the first count: a longer part of the
    same passage has it."""
    calls = [f"c{n}" for n in range(30)]
    results = [tool(call, f"lamp {n}: " + " ".join(f"w{n}x{k}" for k in range(40))) for n, call in enumerate(calls)]
    line = " ".join(f"gauge{n} is {n * 7}" for n in range(words))
    loop = [user("What is the state of lamp 3?"), assistant(None, *calls), *results, *result("z", line)]
    budget = prompt_tokens([*loop, assistant("so far")]) - over
    built = await build([*loop, assistant("so far")], budget)
    assert 0.99 * budget <= built.fitted.tokens <= budget
