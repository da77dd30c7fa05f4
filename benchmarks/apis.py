"""An agent's step of 400 KB by each API, beside the same step by chat completions. `python -m benchmarks.apis --help`.

Every way has a session of its own at one gateway; they take turns, so that what else runs disturbs them alike.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import servers
from benchmarks.job import Kind
from benchmarks.measure import load
from benchmarks.report import machine

APIS = ("chat", "responses", "by id", "messages")
STEPS = 20
"""Requests of each way in a round."""


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apis", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often all is measured in turn (5)")
    parser.add_argument("--store", choices=("true", "false", "both"), default="both", help="what is stored (both)")
    parser.add_argument("--json", type=Path, help="where all figures go as JSON")
    return parser.parse_args()


def measure(folder: Path, rounds: int, *, store: bool) -> list[dict[str, Any]]:
    """Processor time of the gateway per step, in ms, by API, plain and streamed; and its ratio to a chat's.
    Raises RuntimeError: a request was not answered."""
    ways = [(api, stream) for stream in (False, True) for api in APIS if store or api != "by id"]
    found: dict[tuple[str, bool], list[float]] = {way: [] for way in ways}
    with ExitStack() as running:
        mock = running.enter_context(servers.mock(folder))
        server = running.enter_context(servers.gateway(mock.port, folder, store))
        for turn in range(rounds + 1):  # the first warms up
            for api, stream in ways if turn % 2 else reversed(ways):
                result = load(server, 1, STEPS, [Kind("session", (False, api, stream))])
                if result.failed or result.refused:
                    raise RuntimeError(f"{api}: {result.failed + result.refused} requests failed")
                if turn:
                    found[api, stream].append(result.cpu_ns / 1e6 / result.requests)
    return [
        {
            "api": api,
            "stream": stream,
            "store": store,
            "ms": round(min(costs), 3),
            "to_chat": round(statistics.median(a / b for a, b in zip(costs, found["chat", stream], strict=True)), 3),
        }
        for (api, stream), costs in found.items()
    ]


def table(figures: Sequence[dict[str, Any]]) -> str:
    """For a person."""
    lines = ["an agent's step of 400 KB          ms of processor time   times a chat's"]
    for each in figures:
        how = f"{each['api']}{', streamed' if each['stream'] else ''}{'' if each['store'] else ', store: false'}"
        lines.append(f"{how:<32}{each['ms']:>22.2f} {each['to_chat']:>16.2f}")
    return "\n".join(lines)


def main() -> int:
    """Measures, prints the table and writes the JSON."""
    servers.end_on_sigterm()
    given = options()
    kinds = {"true": (True,), "false": (False,), "both": (True, False)}[given.store]
    figures: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for store in kinds:
            own = Path(folder, str(store))
            own.mkdir()
            figures += measure(own, given.rounds, store=store)
    print(table(figures))
    if given.json:
        given.json.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=1))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
