"""Why a provider's prompt cache was of no use (guarantee §6)."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.billing.prompt_cache import MAX_MESSAGES, are_marked, breakpoints_in, broke_at, fell_short, sent_prompt
from gateway.core.types.bill import SentPrompt
from gateway.core.types.prompt_digests import PromptDigests
from tests.support.answers import Json, user

TOOLS = [{"type": "function", "function": {"name": "read"}}]
SAID = [{"role": "system", "content": "Be brief."}, *(user(f"question {n}") for n in range(20))]
MARKED = {"cache_control": {"type": "ephemeral"}}


def prompt(messages: list[Json] = SAID, tools: Any = TOOLS, route: str = "openai/m") -> SentPrompt:
    return replace(sent_prompt(route, tools, PromptDigests().followed_by(messages)), at=1000, lifetime=300, kept=9000)


def changed(number: int) -> list[Json]:
    """The same messages, of which that one, counted from 1, is another."""
    return [{**each, "content": "other"} if n == number else each for n, each in enumerate(SAID, 1)]


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (prompt([*SAID, user("more")]), "provider"),
        (replace(prompt([*SAID, user("more")]), at=1301), "ttl"),
        (replace(prompt([*SAID, user("more")]), at=1300), "provider"),
        (replace(prompt(changed(2), tools=[]), at=1301), "ttl"),
        (prompt(changed(1)), "system"),
        (prompt(changed(2)), "message 2"),
        (prompt(changed(21)), "message 21"),
        (prompt(SAID[:12]), "message 13"),
        (prompt(SAID[:5] + SAID[8:]), "message 6"),
        (prompt(tools=[]), "tools"),
        (prompt(changed(1), tools=[*TOOLS, *TOOLS]), "tools"),
        (prompt(route="openai/n"), "model"),
    ],
)
def test_s6_what_changed_is_told(now: SentPrompt, told: str) -> None:
    assert broke_at(prompt(), now, is_same_model=True) == told
    assert broke_at(prompt(), now, is_same_model=False) == "model"
    assert SentPrompt.of_list(now.as_list()) == now


def test_s6_marks_of_prompt_caches_change_nothing() -> None:
    part = {"type": "text", "text": SAID[4]["content"]}
    marked = [*SAID[:4], {"role": "user", "content": [{**part, **MARKED}]}, *SAID[5:]]
    plain = [*SAID[:4], {"role": "user", "content": [part]}, *SAID[5:]]
    assert prompt(marked) == prompt(plain) == prompt()
    assert prompt(tools=[{**TOOLS[0], **MARKED}]) == prompt()


def test_s6_of_long_conversations_the_latest_messages_are_told_apart() -> None:
    many = [user(str(n)) for n in range(2 * MAX_MESSAGES)]
    before = prompt(many)
    assert (before.count, len(before.as_list()[4])) == (len(many), 684)
    at = len(many) - 10
    assert (
        broke_at(before, prompt([*many[:at], user("other"), *many[at + 1 :]]), is_same_model=True)
        == f"message {at + 1}"
    )
    assert broke_at(before, prompt([*many, *many[:9]]), is_same_model=True) == "provider"


@pytest.mark.parametrize(("cached", "short"), [(9000, False), (8750, False), (8700, True), (0, True)])
def test_s6_a_block_less_is_no_break(cached: int, short: bool) -> None:
    assert fell_short(9000, cached) is short


MARK: Json = {"cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize(
    ("message", "is_marked"),
    [
        ({**user("a"), **MARK}, True),
        (user([{"type": "text", "text": "a"}, {"type": "text", "text": "b", **MARK}]), True),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "c", **MARK}]}, True),
        ({"role": "assistant", "content": "a", "native_blocks": [{"type": "text", "text": "a", **MARK}]}, True),
        (user("cache_control"), False),
        (user(["cache_control", {"type": "text", "text": "cache_control"}]), False),
        ({"role": "assistant", "content": None, "tool_calls": None}, False),
    ],
)
def test_marks_are_found_wherever_a_message_may_have_them(message: Json, is_marked: bool) -> None:
    assert are_marked([user("before"), message, user("behind")]) is is_marked
    assert bool(breakpoints_in(message)) is is_marked
    assert not are_marked([])
