"""What is measured: kinds of requests, how many of them, and what a figure is divided by."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.bench.job import Kind

CHUNKS = 200


@dataclass(frozen=True)
class Case:
    """A kind of traffic. `kinds` and `requests` go by the number of connections, and so do the numbers of chunks.

    With `per_chunk`, the figure is the cost of one more chunk: the cost of opening a stream, which the case `open`
    measures, is taken off and the rest divided by the further chunks. `paced`: the mock sets the pace.
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


def _spaced(chunks: int, milliseconds: int) -> Kind:
    return Kind("stream", (chunks, milliseconds))


OPEN = Case("open", "stream opened", _for_all(_spaced(1, 0)), {4: 300, 32: 300, 512: 768})
# Spacing grows with the connections, so that no server is at its limit, and each chunk is a read of its own.
SPACED = {4: _spaced(CHUNKS, 2), 32: _spaced(120, 12), 512: _spaced(32, 160)}
CASES = (
    Case("chat1k", "chat 1 KB", _for_all(Kind("chat")), {4: 800, 32: 800, 512: 1024}),
    Case("chat400k", "chat 400 KB", _for_all(Kind("long_chat")), {4: 48, 32: 64, 512: 512}),
    Case("new400k", "chat 400 KB, all new", {4: Kind("long_chat", (True,))}, {4: 32}),
    OPEN,
    Case("chunk", "chunk, apart", SPACED, {4: 12, 32: 32, 512: 512}, per_chunk=True, paced=True),
    Case("burst", "chunk, at once", _for_all(_spaced(CHUNKS, 0)), {4: 60, 32: 64, 512: 512}, per_chunk=True),
)
