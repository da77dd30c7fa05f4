"""Many streams at once: all whole, how long until their first chunk, how even their chunks, what memory they take.

python -m benchmarks.many_streams [--streams 512] [--chunks 50] [--spacing 200] [--store]
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks import servers
from benchmarks.job import Kind
from benchmarks.measure import load
from benchmarks.processor import rss_mb


def main() -> int:
    """Prints a line per server; 1 unless each stream of the gateway came whole."""
    servers.end_on_sigterm()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_streams", description=__doc__)
    parser.add_argument("--streams", type=int, default=512, help="how many at once (512)")
    parser.add_argument("--chunks", type=int, default=50, help="content chunks of each (50)")
    parser.add_argument("--spacing", type=int, default=200, help="milliseconds between two chunks (200)")
    parser.add_argument("--store", action="store_true", help="with storing on")
    given = parser.parse_args()
    kind = Kind("stream", (given.chunks, given.spacing, given.streams))
    broken = 0
    with ExitStack() as running, tempfile.TemporaryDirectory(prefix="bench-") as name:
        begin, folder = running.enter_context, Path(name)
        mock = begin(servers.mock(folder))
        for server in (
            begin(servers.bare(mock.port, folder, connections=2 * given.streams)),
            begin(servers.gateway(mock.port, folder, given.store)),
        ):
            load(server, 8, 64, [Kind("stream", (20, 0))])
            before = rss_mb(server.pid)
            result = load(server, given.streams, given.streams, [kind])
            whole = result.requests - result.failed
            missing = given.streams * (given.chunks + 1) - result.events
            print(
                f"{server.name}: {whole} of {given.streams} whole, {missing} chunks missing; first chunk p50 ", end=""
            )
            print(f"{result.first_ms[0]:,.0f} p99 {result.first_ms[1]:,.0f} ms; ", end="")
            print(f"gaps p50 {result.gap_ms[0]:,.1f} p99 {result.gap_ms[1]:,.1f} ms; ", end="")
            print(f"{result.window_cpu_ns / 1000 / max(1, result.window_events):,.1f} µs a chunk; ", end="")
            print(f"{before:.0f} MB before, {rss_mb(server.pid):.0f} MB after", flush=True)
            broken += server.name != "bare" and (result.failed + abs(missing))
    return 1 if broken else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
