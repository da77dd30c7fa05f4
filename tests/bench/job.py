"""What the load generator is told, and what it tells."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.bench.connection import Answer
from tests.bench.processor import cpu_ns


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
    of its later reads. `failed` were cut off, or got a 5xx; `refused` got a 4xx; `dropped` were hung up on.

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
    """The time in which all streams of a job run, none having ended: what it costs, and how many events it has."""

    pid: int
    streams: int
    begun_cpu_ns: int = 0
    cpu_ns: int = 0
    events: int = 0

    def read(self, first: bool, events: int) -> None:
        """A stream brought so many events, its first or further ones."""
        if first:
            self.streams -= 1
            if self.streams == 0 and self.cpu_ns == 0:
                self.begun_cpu_ns = cpu_ns(self.pid)
        elif self.begun_cpu_ns and not self.cpu_ns:
            self.events += events

    def stream_ended(self) -> None:
        """The first one to end closes the window."""
        if not self.cpu_ns:
            self.cpu_ns = cpu_ns(self.pid) - self.begun_cpu_ns if self.begun_cpu_ns else -1


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
            self.gaps.extend(b - a for a, b in zip(answer.reads[1:], answer.reads[2:], strict=False))

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
