"""By how much a model's own count of tokens exceeds the gateway's, learned from its upstream's reports (ADR 13)."""

from dataclasses import dataclass, replace
from datetime import datetime

LEAST_MARGIN, MOST_MARGIN = 0.5, 3.0
LEAST_PLAUSIBLE, MOST_PLAUSIBLE = 0.4, 4.0
"""A report beyond these times the count is not of that prompt: of several calls, or of a part of it."""
LARGE, LARGE_SHARE = 4000, 0.25
"""Tokens, or the share of a small window, from which a prompt teaches: what providers add to each dominates smaller."""
RAISED, LOWERED = 0.5, 0.05
"""Of the way to what was reported: quickly up, since an overflow costs a call, slowly down."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """`margin`: the model's tokens for one token as counted. `samples`: how many reports it was learned from."""

    margin: float
    samples: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one prompt.

    `counted`: its tokens by the gateway, exactly and without any margin. `reported`: by upstream, cached tokens
    included. `budget`: those that it was to fit. `window`: the model's. `cached`: whether some came from a cache (some
    upstreams leave them out of the sum). `refused`: upstream said that it, or a longer form of it, overflows.
    """

    counted: int
    reported: int
    budget: int
    window: int | None = None
    cached: bool = False
    refused: bool = False

    @property
    def is_large(self) -> bool:
        """Whether the texts of the prompt make up most of it."""
        return self.counted >= min(LARGE, LARGE_SHARE * (self.window or self.budget))


def calibrated(known: Calibration, report: Report, now: datetime, *, exact: bool = False) -> Calibration:
    """What is known after one more report.

    Args:
        known: what was known until now.
        exact: the model's own tokenizer counted: only an overflow shows that it is another, and nothing lowers it.
    """
    if report.counted <= 0 or report.reported <= 0:
        return known
    margin = _margin(known.margin, report, exact=exact)
    margin = min(MOST_MARGIN, max(1.0 if exact else LEAST_MARGIN, margin))
    return known if margin == known.margin else Calibration(margin, known.samples + 1, now)


def _margin(margin: float, report: Report, *, exact: bool) -> float:
    ratio = report.reported / report.counted
    if report.refused:
        return max(margin, ratio)
    if not LEAST_PLAUSIBLE <= ratio <= MOST_PLAUSIBLE or not report.is_large:
        return margin
    if report.reported > report.budget:
        return max(margin, ratio)
    if ratio > margin:
        return margin if exact else margin + RAISED * (ratio - margin)
    return margin if report.cached else margin - LOWERED * (margin - ratio)


def merged(mine: Calibration, base: Calibration | None, stored: Calibration | None) -> Calibration:
    """What this process learned since it last looked, and what another did in the meantime: the larger margin, so that
    nobody forgets an overflow.

    Args:
        base: what was stored when this process last looked.
    """
    if stored is None or stored == base:
        return mine
    return replace(mine, margin=max(mine.margin, stored.margin), samples=max(mine.samples, stored.samples))
