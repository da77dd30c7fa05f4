"""What the load generator is told, and what it tells."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from benchmarks.connection import Answer


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
    """What came of a job. Pairs of ms are p50 and p99: of a request, until the first event of a stream, between two
    reads of its middle (the first waits for other streams to open, the last for usage and bill).
    `failed` were cut off, or got a 5xx; `refused` got a 4xx; `dropped` were hung up on.

    The window lasts from when every connection has the first read of a stream until the first stream ends: within it,
    nothing but chunks is paid for. It is empty unless each connection has one stream.
    """

    requests: int = 0
    failed: int = 0
    refused: int = 0
    dropped: int = 0
    events: int = 0
    reads: int = 0
    cpu_ns: int = 0
    window_cpu_ns: int = 0
    window_events: int = 0
    own_cpu_ns: int = 0
    seconds: float = 0.0
    latency_ms: tuple[float, float] = (0.0, 0.0)
    first_ms: tuple[float, float] = (0.0, 0.0)
    gap_ms: tuple[float, float] = (0.0, 0.0)


@dataclass
class Window:
    """The time in which all `streams` of a job run, none having ended: what it costs by `clock` (ns), and how many
    events it has."""

    clock: Callable[[], int]
    streams: int
    begun_at: int | None = None
    closed: bool = False
    cpu_ns: int = 0
    events: int = 0

    def read(self, first: bool, events: int) -> None:
        """A stream brought so many events, its first or further ones."""
        if self.closed:
            return
        if first:
            self.streams -= 1
            self.begun_at = self.clock() if self.streams == 0 else None
        elif self.begun_at is not None:
            self.events += events

    def stream_ended(self) -> None:
        """The first one to end closes the window."""
        if not self.closed and self.begun_at is not None:
            self.cpu_ns = self.clock() - self.begun_at
        self.closed = True


@dataclass
class Gathered:
    """Figures of the answers as they come."""

    result: Result
    latency: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    window: Window | None = None

    def add(self, answer: Answer) -> None:
        """Count one answer."""
        result = self.result
        if self.window is not None:
            self.window.stream_ended()
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
            self.gaps.extend(b - a for a, b in pairwise(answer.reads[1:-2]))

    def summed(self) -> Result:
        """The result with its percentiles."""
        if self.window is not None and self.window.events:
            self.result.window_cpu_ns, self.result.window_events = self.window.cpu_ns, self.window.events
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
