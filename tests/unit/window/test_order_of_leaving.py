"""The order in which things leave: compaction, old blocks, old artifacts, current ones, old turns (guarantee §4 I5)."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.config.settings import ContextSettings
from gateway.context.manager import BuiltContext
from gateway.models.conversation import ConversationMessage, History
from tests.unit.making import assistant, build, build_of, stored, tool, user
from tests.unit.o200k import prompt_tokens

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
    built = await build_of(History("conv_1", False, (), tuple(new), stored=6), prompt_tokens(plain) + BESIDE)
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
