"""What requests' prompts have in common, and what a provider asks for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.support.agent_session import prefix

Json = dict[str, Any]
PromptCount = Callable[[Json], int]
ROOM = 0.98
"""A window is full with less than the rest of it free: a new question needs some room for what it recalls."""


@dataclass(frozen=True)
class Prompt:
    """One request: its tokens, those of the request before, how many at the beginning of both are the same, and whether
    the request before and all that the client added to it have room in the window: nothing has to leave."""

    tokens: int
    shared: int
    before: int
    had_room: bool

    @property
    def share(self) -> float:
        """What part of the request before it begins with: a provider's cache has that much of it."""
        return self.shared / self.before if self.before else 1.0


@dataclass(frozen=True)
class Tariff:
    """A provider's prices per million prompt tokens. `least`: a shorter prompt is not cached."""

    name: str
    plain: Decimal
    read: Decimal
    write: Decimal
    least: int = 1024

    def cost(self, prompts: Sequence[Prompt], *, caching: bool = True) -> Decimal:
        """Dollars for the prompts of a session within the time for which the provider keeps its cache."""
        if not caching:
            return sum(prompt.tokens for prompt in prompts) * self.plain / 10**6
        return sum((self._cached(prompt) for prompt in prompts), Decimal(0)) / 10**6

    def _cached(self, prompt: Prompt) -> Decimal:
        read = prompt.shared if prompt.shared >= self.least else 0
        return read * self.read + (prompt.tokens - read) * (self.write if prompt.tokens >= self.least else self.plain)


TARIFFS = (
    Tariff("gpt-4o", Decimal("2.50"), Decimal("1.25"), Decimal("2.50")),
    Tariff("claude-sonnet-4", Decimal("3.00"), Decimal("0.30"), Decimal("3.75")),
)


def prompts(
    forwarded: Sequence[Sequence[Json]], new: Sequence[Sequence[Json]], window: int | None, count: PromptCount
) -> list[Prompt]:
    """The prompts of a session's requests, in order.
    `new`: what the client added to the conversation before each request, answers included; `window`: tokens that may be
    forwarded; None: as many as there are; `count`: tokens of one message; tools are the same in all requests and left
    out."""
    found: list[Prompt] = []
    before: Sequence[Json] = ()
    for messages, added in zip(forwarded, new, strict=True):
        last = found[-1].tokens if found else 0
        shared = sum(map(count, messages[: prefix(before, messages)]))
        had_room = window is None or last + sum(map(count, added)) <= ROOM * window
        found.append(Prompt(sum(map(count, messages)), shared, last, had_room))
        before = messages
    return found


def summary(found: Sequence[Prompt]) -> Json:
    """Shares, tokens and dollars of a session. `share`: of the request before, the least where nothing had to leave,
    where something had to, and the mean of all; `from_cache`: of all prompts' tokens."""
    later = found[1:]
    total = sum(prompt.tokens for prompt in found)
    return {
        "requests": len(found),
        "left": sum(not prompt.had_room for prompt in later),
        "share_with_room": min((prompt.share for prompt in later if prompt.had_room), default=None),
        "share_without": min((prompt.share for prompt in later if not prompt.had_room), default=None),
        "share_mean": sum(prompt.share for prompt in later) / len(later),
        "prompt_tokens": total,
        "from_cache": sum(prompt.shared for prompt in found) / total,
        "cost": {tariff.name: float(tariff.cost(found)) for tariff in TARIFFS},
        "cost_without_caching": {tariff.name: float(tariff.cost(found, caching=False)) for tariff in TARIFFS},
        "shares": [round(prompt.share, 3) for prompt in later],
    }
