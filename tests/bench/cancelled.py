"""Cost per request before and after thousands of streams whose clients left, and what is left of them upstream.

python -m tests.bench.cancelled [--streams 5000] [--bare] [--store]
"""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench import servers
from tests.bench.job import Kind
from tests.bench.measure import load
from tests.bench.processor import open_sockets, rss_mb
from tests.bench.servers import Server

CONNECTIONS = 32
REQUESTS = 1000
LEAVES = tuple(Kind("stream", (400, 20), drop_after=reads) for reads in (0, 1, 3, 10))


def cost_us(server: Server) -> tuple[float, int]:
    """Microseconds of processor time per small chat, and how many failed."""
    result = load(server, CONNECTIONS, REQUESTS, [Kind("chat")])
    return result.cpu_ns / 1000 / result.requests, result.failed


def settled(mock: Server, seconds: float = 10.0) -> dict[str, int]:
    """What the mock says once no stream runs, or after so many seconds."""
    deadline = time.monotonic() + seconds
    while (seen := servers.stats(mock))["streams"] and time.monotonic() < deadline:
        time.sleep(0.02)
    return seen


def main() -> int:
    """Prints a line per step; 1 if a request failed or a stream is left upstream."""
    servers.end_on_sigterm()
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cancelled", description=__doc__)
    parser.add_argument("--streams", type=int, default=5000, help="how many are left by their clients (5000)")
    parser.add_argument("--bare", action="store_true", help="the bare relay instead of the gateway")
    parser.add_argument("--store", action="store_true", help="with storing on")
    given = parser.parse_args()
    with ExitStack() as running, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        mock = running.enter_context(servers.mock(Path(folder)))
        start = servers.bare(mock.port, Path(folder)) if given.bare else None
        server = running.enter_context(start or servers.gateway(mock.port, Path(folder), given.store))
        load(server, CONNECTIONS, 200, [Kind("chat"), Kind("stream", (20, 1))])
        before, failed_before = cost_us(server)
        print(f"before: {before:,.0f} µs a request, {rss_mb(server.pid):.0f} MB, {open_sockets(server.pid)} sockets")
        left = load(server, 64, given.streams, LEAVES)
        began = time.monotonic()
        seen = settled(mock)
        gone = time.monotonic() - began
        print(f"{left.dropped} streams left: {left.cpu_ns / 1000 / left.requests:,.0f} µs each; upstream {gone:.2f} s")
        print(f"later: {seen['streams']} still run, {seen['cut']} were cut, {seen['connections']} connections")
        after, failed_after = cost_us(server)
        print(f"after: {after:,.0f} µs a request, {rss_mb(server.pid):.0f} MB, {open_sockets(server.pid)} sockets")
        print(f"after/before: {after / before:.2f}; failed: {failed_before + failed_after}")
    return 1 if failed_before or failed_after or seen["streams"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
