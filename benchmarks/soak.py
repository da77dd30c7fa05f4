"""Memory over tens of thousands of requests of mixed kinds: plain, streamed, long, refused, failed, left by clients.

python -m benchmarks.soak [--requests 50000] [--store]
"""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks import servers
from benchmarks.job import Kind
from benchmarks.measure import load
from benchmarks.processor import open_sockets, rss_mb

CONNECTIONS = 32
STEP = 5000
MIXED = (
    Kind("chat", weight=60),
    Kind("stream", (20, 0), weight=15),
    Kind("stream", (10, 2), weight=8),
    Kind("stream", (50, 10), weight=4, drop_after=2),
    Kind("stream", (50, 10), weight=2, drop_after=0),
    Kind("refused", (429,), weight=5),
    Kind("refused", (500,), weight=3),
    Kind("malformed", weight=2),
    Kind("long_chat", weight=1),
)


def main() -> int:
    """Prints a line every 5,000 requests; 1 if memory grew by more than a tenth after the first of them."""
    servers.end_on_sigterm()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--requests", type=int, default=50_000, help="how many in all (50000)")
    parser.add_argument("--store", action="store_true", help="with storing on")
    given = parser.parse_args()
    memory: list[float] = []
    began = time.monotonic()
    with ExitStack() as running, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        mock = running.enter_context(servers.mock(Path(folder)))
        server = running.enter_context(servers.gateway(mock.port, Path(folder), given.store))
        for done in range(STEP, given.requests + 1, STEP):
            result = load(server, CONNECTIONS, STEP, MIXED)
            memory.append(rss_mb(server.pid))
            each = result.cpu_ns / 1000 / STEP
            print(f"{done:6d} requests in {time.monotonic() - began:.0f} s: {memory[-1]:.1f} MB, ", end="")
            print(
                f"{open_sockets(server.pid)} sockets, {each:,.0f} µs each; {result.dropped} left by the client, ",
                end="",
            )
            print(f"{result.refused} answered 4xx, {result.failed} 5xx", flush=True)
    return 1 if memory[-1] > memory[0] * 1.1 else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
