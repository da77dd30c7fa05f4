"""When old turns are summarized, and which (guarantee §11.13)."""

from typing import Any

import pytest

from gateway.core.config.settings import MemorySettings
from gateway.core.types.memory import OldMessage
from gateway.pipeline.features.rolling_summaries import (
    SummaryFacts,
    oldest_turns,
    should_summarize,
    summary_tokens,
    turns_of,
)

FULL: dict[str, Any] = {"memory": "summary", "tokens_used": 700, "budget": 1000, "turns": 10, "tokens": 700}
FIFTEEN = MemorySettings(max_turns=15)


@pytest.mark.parametrize(
    ("use", "reason", "facts", "settings"),
    [
        (False, "extracts", {"memory": "extracts"}, MemorySettings()),
        (False, "mode", {"mode": "simple"}, MemorySettings()),
        (False, "mode", {"mode": "off"}, MemorySettings()),
        (False, "not_stored", {"stored": False}, MemorySettings()),
        (False, "agent_sections", {"has_sections": True}, MemorySettings()),
        (False, "not_shown", {"is_shown": False}, MemorySettings()),
        (False, "not_shown", {"is_shown": False, "turns": 99}, FIFTEEN),
        (False, "room", {"tokens_used": 699}, MemorySettings()),
        (False, "room", {"tokens_used": None}, MemorySettings()),
        (False, "room", {"budget": None}, MemorySettings()),
        (False, "unread", {"turns": None}, MemorySettings()),
        (False, "room", {"tokens_used": 699, "turns": None}, MemorySettings()),
        (False, "unread", {"tokens_used": 1, "turns": None}, FIFTEEN),
        (False, "no_old_turns", {"turns": 1}, MemorySettings()),
        (True, "max_turns", {"tokens_used": 1, "turns": 11}, FIFTEEN),
        (False, "room", {"tokens_used": 1, "turns": 10}, FIFTEEN),
        (True, "max_turns", {"budget": None, "turns": 11}, FIFTEEN),
        (True, "window", {}, MemorySettings()),
        (True, "window", {}, FIFTEEN),
        (True, "window", {"memory": "both"}, MemorySettings()),
        (False, "covered", {"tokens": 699}, MemorySettings()),
        (True, "window", {"tokens": 500, "overhead": 200}, MemorySettings()),
        (True, "window", {"tokens_used": 500, "tokens": 500}, MemorySettings(threshold=0.5)),
    ],
)
def test_s11_13_a_summary_is_due(use: bool, reason: str, facts: dict[str, Any], settings: MemorySettings) -> None:
    due = should_summarize(SummaryFacts(**{**FULL, **facts}), settings)
    assert (due.use, due.reason) == (use, reason)
    assert due.may_be == (use or reason == "unread")


def messages(*roles: str, weight: int = 400) -> list[OldMessage]:
    return [OldMessage(f"msg_{n}", n, role, weight) for n, role in enumerate(roles)]


def test_a_turn_begins_with_a_users_message() -> None:
    path = messages("assistant", "user", "assistant", "tool", "assistant", "user", "user", "assistant")
    assert [[m.number for m in turn] for turn in turns_of(path)] == [[0, 1, 2, 3, 4], [5], [6, 7]]
    amid = messages("user", "assistant", "tool", "user", "assistant", "user", "assistant")
    assert [[m.number for m in turn] for turn in turns_of(amid)] == [[0, 1, 2, 3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("turns", "weight", "budget", "covered"),
    [
        (10, 100, 10_000, 4),  # the oldest 40 per cent
        (11, 100, 10_000, 4),
        (2, 100, 10_000, 1),  # at least one
        (1, 100, 10_000, 0),  # never the latest
        (10, 4000, 10_000, 2),  # of a turn of 2,000 tokens as many as 40 per cent of the budget hold
        (10, 40_000, 1000, 1),  # and one that is longer than that
        (200, 400, None, 32),  # of an unknown window's as well
    ],
)
def test_the_oldest_turns(turns: int, weight: int, budget: int | None, covered: int) -> None:
    path = messages(*("user", "assistant") * turns, weight=weight)
    found = oldest_turns(turns_of(path), budget, MemorySettings())
    assert found == path[: 2 * covered]


@pytest.mark.parametrize(("weight", "tokens"), [(10, 80), (8000, 500), (80_000, 700)])
def test_a_summary_takes_an_eighth(weight: int, tokens: int) -> None:
    assert summary_tokens(messages("user", "assistant", weight=weight)) == tokens
