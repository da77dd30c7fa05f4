"""What `gateway/metrics.py` counts, as plain values: a snapshot of it is what `GET /metrics` writes out."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Histogram:
    """How often a time was within each of `SECONDS`, beyond them last."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Takes a time in."""
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds

    def copy(self) -> "Histogram":
        """As it is now."""
        copied = Histogram()
        copied.counts, copied.total = self.counts.copy(), self.total
        return copied


@dataclass(slots=True)
class Counts:
    """Everything counted since the process began; the keys are the labels' values in the order named."""

    in_flight: int = 0
    requests: Counter[tuple[str, str, str, str, str]] = field(default_factory=Counter)
    """By endpoint, method, model, stream (`true` or `false`) and status; 499: the client left before an answer."""
    durations: dict[tuple[str, str, str], Histogram] = field(default_factory=dict)
    """By endpoint, model and stream."""
    first_chunks: dict[tuple[str], Histogram] = field(default_factory=dict)
    """By model."""
    bills: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By model and the turn's status; a row of the ledger each."""
    unpriced: Counter[tuple[str]] = field(default_factory=Counter)
    """Bills whose model has no known price, by model."""
    tokens: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By model asked for, purpose (`primary`, `planner`, `summarizer`, `embedder`), and kind: `prompt` or
    `completion`."""
    costs: dict[tuple[str, str], Decimal] = field(default_factory=dict)
    """USD, by model asked for and purpose."""
    upstream_errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By model and code."""
    internal_calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By purpose (`planner`, `summarizer`), outcome: `ok`, `cut`, `rubbish`, `cancelled`, else as `fallback_reason`."""
    decisions: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Bills by `planning_reason`, and whether a planner's plan was used (`true` or `false`)."""
    fallbacks: Counter[tuple[str]] = field(default_factory=Counter)
    """By `fallback_reason`."""
    summaries: Counter[tuple[str]] = field(default_factory=Counter)
    """Summaries that plans asked for: `hit` (paid for by somebody else or before) or `miss`."""
