"""A conversation stays at one deployment, so that the provider's prompt cache is of use (guarantee §12.5).

By weights nothing is remembered: a digest of the conversation and the deployment says where it belongs, on each replica
alike (rendezvous hashing). What depends on the moment, or goes on behind a completion, a process remembers for itself.
"""

import hashlib
import random
from collections import OrderedDict
from collections.abc import Iterable
from typing import Literal

from gateway.models.exchange import ModelFacts
from gateway.ports import Clock
from gateway.upstream.routing.choice import Draw

MOST_PLACED = 20_000
"""Conversations and completions whose deployment is remembered."""
PLACED_SECONDS = 3600.0
"""Providers keep prompts for an hour at most, if nobody pays for more."""


def sticks(setting: Literal["auto", "always", "never"], models: Iterable[ModelFacts]) -> bool:
    """Whether conversations stay at a deployment of these: `auto` is where any of them may cache prompts. An unknown
    model may: most servers do."""
    if setting == "auto":
        return any(facts.supports_prompt_caching is not False for facts in models)
    return setting == "always"


def draws_of(key: str) -> Draw:
    """Numbers that are always the same for a conversation."""

    def draw(name: str) -> float:
        raw = hashlib.blake2b(f"{key}\n{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return ((int.from_bytes(raw) >> 11) + 0.5) / 2**53

    return draw


def draws_by_chance(chance: random.Random) -> Draw:
    """Numbers of chance."""
    return lambda _: 1.0 - chance.random()  # never 0


class Placements:
    """Where conversations were asked last, by what names them. Forgotten after an hour without a request."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def get(self, name: str) -> str | None:
        """The id of the deployment, if it is known."""
        kept = self._kept.get(name)
        if kept is None or kept[1] <= self._clock.monotonic():
            return None
        return kept[0]

    def put(self, name: str, deployment: str) -> None:
        """It was asked there."""
        self._kept[name] = deployment, self._clock.monotonic() + PLACED_SECONDS
        self._kept.move_to_end(name)
        while len(self._kept) > MOST_PLACED:
            self._kept.popitem(last=False)
