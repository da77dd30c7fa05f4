"""A figure beside its target, and how samples become one."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

Json = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A share (0.8: 80 %) and the target that it is to be above or below. `timed` ones depend on the machine; `detail`
    says what was measured."""

    name: str
    share: float
    target: float
    better: Literal["above", "below"]
    detail: str
    timed: bool = False

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return self.share > self.target if self.better == "above" else self.share < self.target

    def as_json(self) -> Json:
        """All of it."""
        fields = ("name", "share", "target", "better", "detail", "timed", "met")
        return {name: getattr(self, name) for name in fields}


def hit_rate(before: Json, after: Json) -> float:
    """Of what was looked for between two readings of the statistics, how much was there."""
    hits, misses = (after[kind] - before[kind] for kind in ("hits", "misses"))
    return hits / (hits + misses) if hits + misses else 0.0


def faster(with_cache: Sequence[float], without: Sequence[float]) -> float:
    """How much less time the median takes with the cache: 0.5 is half."""
    return 1 - median(with_cache) / median(without)


def overhead(on: Sequence[float], off: Sequence[float], trip: Sequence[float]) -> float:
    """How much more the median request takes of the gateway's time with storing on: 1.0 is twice as much.
    `trip`: the same requests without the gateway, which are in both."""
    own = median(off) - median(trip)
    return (median(on) - median(off)) / own if own > 0 else float("inf")


def saved(profiles: Sequence[Json]) -> float:
    """What profiles took less than the guidance of all modes, of what that would have taken."""
    whole = sum(each["tokens"] + each["saved_tokens"] for each in profiles)
    return sum(each["saved_tokens"] for each in profiles) / whole if whole else 0.0


def table(found: Sequence[Figure]) -> str:
    """For a person."""
    lines = [f"{'':34}{'measured':>10}{'target':>12}"]
    for each in found:
        sign = ">" if each.better == "above" else "<"
        mark = "met" if each.met else "missed"
        lines.append(f"{each.name:34}{each.share:>10.0%}{f'{sign} {each.target:.0%}':>12}  {mark:8}{each.detail}")
    return "\n".join(lines)
