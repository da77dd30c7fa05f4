"""What is measured: kinds of requests, how many of them, and what a figure is divided by."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.job import Kind

CHUNKS = 200


@dataclass(frozen=True)
class Case:
    """A kind of traffic. `kinds` and `requests` go by the number of connections, and so do the numbers of chunks.

    With `per_chunk`, the figure is the cost of one more chunk. Of `paced` streams, in which the mock sets the pace, it
    is measured while all of them run; from others, the cost of opening a stream is taken off, as the case `open`
    measures it, and the rest divided by the further chunks.
    """

    name: str
    title: str
    kinds: Mapping[int, Kind]
    requests: Mapping[int, int]
    per_chunk: bool = False
    paced: bool = False

    def connections(self) -> tuple[int, ...]:
        """Numbers of connections for which the case is meant."""
        return tuple(self.kinds)


def _for_all(kind: Kind) -> dict[int, Kind]:
    return dict.fromkeys((4, 32, 512), kind)


def _burst(chunks: int) -> Kind:
    return Kind("stream", (chunks, 0))


OPEN = Case("open", "stream opened", _for_all(_burst(1)), {4: 250, 32: 250, 512: 512})
# Spacing grows with the connections, so that no server is at its limit, and each chunk is a read of its own.
SPACED = {
    c: Kind("stream", (chunks, spacing, c)) for c, chunks, spacing in ((4, 500, 2), (32, 100, 12), (512, 20, 160))
}
CASES = (
    Case("chat1k", "chat 1 KB", {1: Kind("chat"), **_for_all(Kind("chat"))}, {1: 300, 4: 500, 32: 500, 512: 768}),
    Case("chat400k", "chat 400 KB", _for_all(Kind("long_chat")), {4: 32, 32: 48, 512: 512}),
    Case("new400k", "chat 400 KB, all new", {4: Kind("long_chat", (True,))}, {4: 32}),
    Case("agent400k", "agent step of 400 KB", {1: Kind("session"), 32: Kind("session")}, {1: 30, 32: 96}),
    Case("agent-new", "agent of 400 KB, all new", {1: Kind("session", (True,))}, {1: 24}),
    OPEN,
    Case("chunk", "chunk, apart", SPACED, {4: 4, 32: 32, 512: 512}, per_chunk=True, paced=True),
    Case("burst", "chunk, at once", _for_all(_burst(CHUNKS)), {4: 60, 32: 64, 512: 512}, per_chunk=True),
)
