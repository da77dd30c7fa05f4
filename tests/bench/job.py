"""What the load generator is told, and what it tells."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.bench.connection import Answer


@dataclass(frozen=True)
class Kind:
    """A sort of request: a function of `traffic` with its arguments, `weight` times in each cycle of a job, hung up
    on after `drop_after` reads of its body."""

    make: str
    arguments: Sequence[Any] = ()
    weight: int = 1
    drop_after: int | None = None


@dataclass(frozen=True)
class Job:
    """What to send where: `requests` in all over `connections`, to the server of that port and process id; requests
    are numbered from `first_number`."""

    port: int
    pid: int
    connections: int
    requests: int
    kinds: Sequence[Kind]
    first_number: int = 1


@dataclass
class Result:
    """What came of a job. Pairs of ms are p50 and p99: of a request, until the first read of a stream, between two
    of its reads. `failed` were cut off, or got a 5xx; `refused` got a 4xx; `dropped` were hung up on."""

    requests: int = 0
    failed: int = 0
    refused: int = 0
    dropped: int = 0
    events: int = 0
    reads: int = 0
    cpu_ns: int = 0
    own_cpu_ns: int = 0
    seconds: float = 0.0
    latency_ms: tuple[float, float] = (0.0, 0.0)
    first_ms: tuple[float, float] = (0.0, 0.0)
    gap_ms: tuple[float, float] = (0.0, 0.0)


@dataclass
class Gathered:
    """Figures of the answers as they come."""

    result: Result
    latency: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    def add(self, answer: Answer) -> None:
        """Count one answer."""
        result = self.result
        result.requests += 1
        result.dropped += answer.dropped
        result.refused += 400 <= answer.status < 500
        result.failed += not answer.dropped and (not answer.whole or answer.status >= 500 or answer.status < 200)
        result.events += answer.events
        result.reads += len(answer.reads)
        if answer.dropped:
            return
        self.latency.append(answer.seconds)
        if answer.reads:
            self.first.append(answer.reads[0])
            self.gaps.extend(b - a for a, b in zip(answer.reads, answer.reads[1:], strict=False))

    def summed(self) -> Result:
        """The result with its percentiles."""
        self.result.latency_ms = percentiles(self.latency)
        self.result.first_ms = percentiles(self.first)
        self.result.gap_ms = percentiles(self.gaps)
        return self.result


def percentiles(seconds: list[float]) -> tuple[float, float]:
    """p50 and p99 in ms; zeros of nothing."""
    ordered = sorted(seconds)
    if not ordered:
        return 0.0, 0.0
    last = len(ordered) - 1
    return round(ordered[round(last * 0.5)] * 1000, 3), round(ordered[round(last * 0.99)] * 1000, 3)
