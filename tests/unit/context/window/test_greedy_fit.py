"""The greedy-fit bug: what does not fit was skipped, and older messages were taken in its place (guarantee §4 I2)."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.o200k import prompt_tokens
from tests.unit.making import assistant, build, tool, user

HUGE = "huge3 " * 1200
SMALL = [user("msg1"), assistant("msg2")]
TURNS = {
    "a user's message": [user(HUGE), assistant("fine")],
    "an assistant's message": [user("tell me all"), assistant(HUGE)],
    "a tool's result that cannot shrink enough": [
        user(HUGE[:3000]),
        assistant(None, "c"),
        tool("c", HUGE),
        assistant(HUGE[:3000]),
    ],
}


def plainly(forwarded: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the block of excerpts at the head of the last message."""
    last = forwarded[-1]
    return [*forwarded[:-1], {**last, "content": last["content"].rpartition("</context_data>\n\n")[2]}]


@pytest.mark.parametrize("huge", TURNS.values(), ids=list(TURNS))
async def test_s4_i2_a_message_that_does_not_fit_ends_the_run(huge: list[dict[str, Any]]) -> None:
    msg4 = user("msg4")
    without = prompt_tokens([*SMALL, msg4])
    for budget in (without + 1, without + 20, without + 200):
        built = await build([*SMALL, *huge, msg4], budget)
        (message,) = built.fitted.forwarded.messages
        assert message["role"] == "user"
        assert message["content"].endswith("msg4")
        assert "msg1" not in message["content"] or "[1 user] msg1" in message["content"], "only as an excerpt"
        assert built.utilization.messages_excluded == len(SMALL) + len(huge)
        assert built.utilization.strategy in ("simple", "heuristic")


async def test_the_turns_after_the_one_that_does_not_fit_stay() -> None:
    after = [user("msg4"), assistant("msg5")]
    built = await build([*SMALL, user(HUGE), assistant("no"), *after, user("msg6")], 200)
    assert plainly(built.fitted.forwarded.messages) == [*after, user("msg6")]


async def test_once_the_huge_one_fits_it_is_forwarded_with_all_after_it() -> None:
    messages = [user(HUGE), assistant("ok"), *SMALL, user("msg4")]
    whole = prompt_tokens(messages)
    assert (await build(messages, whole + 20)).fitted.forwarded.messages == messages
    assert plainly((await build(messages, whole - 5)).fitted.forwarded.messages) == messages[2:]


async def test_old_turns_leave_oldest_first_one_by_one() -> None:
    turns = [[user(f"question {n} " + "word " * 50), assistant(f"answer {n}")] for n in range(8)]
    messages = [*(message for turn in turns for message in turn), user("now")]
    lengths = set()
    for budget in range(40, 700, 20):
        forwarded = plainly((await build(messages, budget)).fitted.forwarded.messages)
        assert forwarded == messages[len(messages) - len(forwarded) :]
        assert len(forwarded) % 2 == 1
        lengths.add(len(forwarded))
    assert lengths >= {1, 3, 5, 7, 9, 11, 13, 17}  # of the last that leaves, an excerpt may stand in its place


WORDS = st.sampled_from([1, 1, 3, 20, 120, 700])


@given(turns=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=8), share=st.integers(1, 100))
def test_of_turns_of_any_size_an_unbroken_run_that_fits_is_forwarded(turns: list[tuple[int, int]], share: int) -> None:
    pairs = [(user("a" + " word" * asked), assistant("b" + " word" * said)) for asked, said in turns]
    messages = [*(message for pair in pairs for message in pair), user("now")]
    budget = 20 + prompt_tokens(messages) * share // 100
    forwarded = plainly(asyncio.run(build(messages, budget)).fitted.forwarded.messages)
    runs = [messages[start:] for start in range(0, len(messages), 2)]
    fitting = [run for run in runs if prompt_tokens(run) <= budget]
    assert forwarded in fitting
    if len(fitting) == len(runs):
        assert forwarded == messages
