"""Cost per request before and after thousands of streams whose clients left, and what is left of them upstream.

python -m benchmarks.cancelled [--streams 5000] [--bare] [--store]
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from benchmarks import servers
from benchmarks.job import Kind
from benchmarks.measure import load
from benchmarks.processor import open_sockets, rss_mb
from benchmarks.servers import Server

CONNECTIONS = 32
REQUESTS = 1500
ROUNDS = 5
LEAVES = tuple(Kind("stream", (400, 20), drop_after=reads) for reads in (0, 1, 3, 10))


def costs_us(pair: Sequence[Server]) -> list[float]:
    """Microseconds of processor time per small chat of each server: medians of measurements in turn.
    Raises RuntimeError: a request failed."""
    found: list[list[float]] = [[] for _ in pair]
    for _ in range(ROUNDS):
        for server, costs in zip(pair, found, strict=True):
            result = load(server, CONNECTIONS, REQUESTS, [Kind("chat")])
            if result.failed:
                raise RuntimeError(f"{result.failed} requests failed at {server.name}")
            costs.append(result.cpu_ns / 1000 / result.requests)
    return [statistics.median(costs) for costs in found]


def told(when: str, costs: list[float], server: Server) -> None:
    """Print one line about the server."""
    print(f"{when}: {costs[0]:,.0f} µs a request (control {costs[1]:,.0f}), ", end="")
    print(f"{rss_mb(server.pid):.0f} MB, {open_sockets(server.pid)} sockets")


def settled(mock: Server, seconds: float = 10.0) -> dict[str, int]:
    """What the mock says once no stream runs, or after so many seconds."""
    deadline = time.monotonic() + seconds
    while (seen := servers.stats(mock))["streams"] and time.monotonic() < deadline:
        time.sleep(0.02)
    return seen


def main() -> int:
    """Prints a line per step; 1 if a stream is left upstream."""
    servers.end_on_sigterm()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cancelled", description=__doc__)
    parser.add_argument("--streams", type=int, default=5000, help="how many are left by their clients (5000)")
    parser.add_argument("--bare", action="store_true", help="the bare relay instead of the gateway")
    parser.add_argument("--store", action="store_true", help="with storing on")
    given = parser.parse_args()
    with ExitStack() as running, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        mock = running.enter_context(servers.mock(Path(folder)))
        pair = [running.enter_context(_server(mock, Path(folder, name), given)) for name in ("left", "control")]
        for server in pair:
            load(server, CONNECTIONS, 200, [Kind("chat"), Kind("stream", (20, 1))])
        before = costs_us(pair)
        told("before", before, pair[0])
        left = load(pair[0], 64, given.streams, LEAVES)
        began = time.monotonic()
        seen = settled(mock)
        gone = time.monotonic() - began
        print(f"{left.dropped} streams left, {left.cpu_ns / 1000 / left.requests:,.0f} µs each; ", end="")
        print(f"upstream, {gone:.2f} s later: {seen['streams']} still run, {seen['cut']} were cut")
        after = costs_us(pair)
        told("after", after, pair[0])
        print(f"after/before: {after[0] / before[0]:.2f} (control {after[1] / before[1]:.2f})")
    return 1 if seen["streams"] else 0


def _server(mock: Server, folder: Path, given: argparse.Namespace) -> AbstractContextManager[Server]:
    folder.mkdir()
    return servers.bare(mock.port, folder) if given.bare else servers.gateway(mock.port, folder, given.store)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
