"""In which order the deployments of a group are tried: a pure function of facts (guarantee §12.5)."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

Strategy = Literal["weighted", "latency", "least_busy"]
Draw = Callable[[str], float]
"""A number within (0, 1) for the id of a deployment: by chance, or always the same for a conversation."""
AS_QUICK = 1.1
"""Deployments are as quick as the quickest up to this many times its latency: differences below are chance."""


@dataclass(frozen=True, slots=True)
class DeploymentRank:
    """How a deployment stands. `order` is infinite where none is configured; `weight`, `rpm` and `tpm` are LiteLLM's, 0
    where they are not configured; `rest` are the seconds that it still rests, `latency` those until its answers begin,
    None: not known of late."""

    id: str
    order: float = math.inf
    weight: float = 0.0
    rpm: float = 0.0
    tpm: float = 0.0
    rest: float = 0.0
    full: bool = False
    in_flight: int = 0
    latency: float | None = None

    @property
    def tier(self) -> int:
        """0: may be asked; 1: at one of its limits; 2: rests."""
        return 2 if self.rest > 0 else int(self.full)


def ranked(
    states: Sequence[DeploymentRank], strategy: Strategy, draw: Draw, placed: str | None = None
) -> list[DeploymentRank]:
    """Best first: those that may be asked before those that may not, then the lowest `order`, then by the strategy.
    Of those that rest, whose rest is over first.

    Args:
        placed: where the conversation was before; it goes first among those that are as good by health and order.
    """
    found: list[DeploymentRank] = []
    for (tier, _), group in groupby(sorted(states, key=_rank), key=_rank):
        equals = list(group)
        if tier == 2:
            found += sorted(equals, key=lambda state: state.rest)
            continue
        best = [*_by_strategy(equals, strategy, draw)]
        best.sort(key=lambda state: state.id != placed)
        found += best
    return found


def _rank(state: DeploymentRank) -> tuple[int, float]:
    return state.tier, state.order


def _by_strategy(states: list[DeploymentRank], strategy: Strategy, draw: Draw) -> Iterator[DeploymentRank]:
    if len(states) == 1:
        yield from states
        return
    weights = weights_of(states)
    scores = {state.id: score(weight, draw(state.id)) for state, weight in zip(states, weights, strict=True)}
    if strategy == "least_busy":
        yield from sorted(states, key=lambda state: (state.in_flight, scores[state.id]))
    elif strategy == "latency":
        slowness = _slowness(states)
        yield from sorted(states, key=lambda state: (slowness[state.id], scores[state.id]))
    else:
        yield from sorted(states, key=lambda state: scores[state.id])


def weights_of(states: Sequence[DeploymentRank]) -> list[float]:
    """As LiteLLM's simple shuffle: by the first of `weight`, `rpm` and `tpm` that any of them has; those without it are
    asked where nothing else is left. Equal where none has any."""
    for weights in ([s.weight for s in states], [s.rpm for s in states], [s.tpm for s in states]):
        if any(weights):
            return weights
    return [1.0] * len(states)


def score(weight: float, drawn: float) -> tuple[bool, float]:
    """By which a deployment is the least of all as often as its weight is of the sum of weights (weighted rendezvous
    hashing). Another deployment changes nothing of it: where one leaves, only what was its own goes elsewhere."""
    return weight <= 0, -math.log(drawn) / (weight if weight > 0 else 1.0)


def _slowness(states: Sequence[DeploymentRank]) -> dict[str, float]:
    """0 for one that nobody has asked of late, so that somebody does; then 1 for the quickest and those as quick; then
    the others by how slow they are. One that is being asked for the first time counts as quick."""
    known = [state.latency for state in states if state.latency is not None]
    best = min(known, default=0.0)

    def of(state: DeploymentRank) -> float:
        if state.latency is None:
            return 1.0 if state.in_flight else 0.0
        return 1.0 if state.latency <= best * AS_QUICK else 2.0 + state.latency

    return {state.id: of(state) for state in states}
