"""What a client could do without a gateway: keep the end, or the beginning and the end."""

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
PromptCount = Callable[[list[Json]], int]


def tail(messages: list[Json], budget: int, count: PromptCount) -> list[Json]:
    """System messages and as many of the last messages as fit."""
    return _fitting(messages, budget, count, head=0.0)


def middle_out(messages: list[Json], budget: int, count: PromptCount) -> list[Json]:
    """System messages, the first messages for a third of the rest, and the last ones for what is left."""
    return _fitting(messages, budget, count, head=1 / 3)


BASELINES = {"keep the tail": tail, "middle-out": middle_out}


def _fitting(messages: list[Json], budget: int, count: PromptCount, head: float) -> list[Json]:
    """Takes messages from both ends; what would be half a tool step at the cut counts all the same: they are given
    every advantage."""
    systems = [m for m in messages if m["role"] in ("system", "developer")]
    rest = [m for m in messages if m["role"] not in ("system", "developer")]
    costs = [count([m]) for m in rest]
    room = budget - count(systems)
    first, used = 0, 0
    while first < len(rest) - 1 and used + costs[first] <= room * head:
        used += costs[first]
        first += 1
    last = len(rest)
    while last > first and used + costs[last - 1] <= room:
        last -= 1
        used += costs[last]
    return [*systems, *rest[:first], *rest[last:]]
