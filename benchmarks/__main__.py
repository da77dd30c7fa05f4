"""Cost per request and per streamed chunk, beside a bare relay and nginx. `python -m benchmarks --help`."""

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import first, servers, start
from benchmarks.cases import CASES
from benchmarks.report import figures, machine, table
from benchmarks.rounds import Bench, Plan


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round at 1 and 4 connections, about a minute")
    parser.add_argument("--rounds", type=int, help="how often all is measured in turn (3); medians are printed")
    parser.add_argument("--minutes", type=float, default=5, help="start no measurement later than this (5)")
    parser.add_argument("--only", action="append", choices=[case.name for case in CASES], help="this case alone")
    parser.add_argument("--connections", action="append", type=int, choices=(1, 4, 32, 512), help="this number alone")
    parser.add_argument("--server", action="append", help="this server alone, beside the bare relay")
    parser.add_argument("--no-start", action="store_true", help="leave out start time, memory and first requests")
    parser.add_argument("--json", type=Path, help="where all figures go as JSON")
    return parser.parse_args()


def main() -> int:
    """Measures, prints the table and writes the JSON; 1 if the gateway failed a request."""
    servers.end_on_sigterm()
    given = options()
    plan = Plan(
        rounds=given.rounds or (1 if given.quick else 3),
        connections=tuple(given.connections or ((1, 4) if given.quick else (1, 4, 32, 512))),
        seconds=60 * given.minutes,
        cases=tuple(case for case in CASES if not given.only or case.name in given.only),
    )
    with ExitStack() as running, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        bench = running.enter_context(Bench(Path(folder), given.server))
        samples = bench.run(plan)
        memory = bench.memory()
    found: dict[str, Any] = {"machine": machine(), "figures": figures(samples), "memory_mb": memory}
    if not given.no_start:
        found["start"] = start.measure(runs=3 if given.quick else 7)
        found["first"] = first.measure()
    print(table(found))
    if "first" in found:
        print(first.table(found["first"]))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    return 1 if any(sample.result.failed for sample in samples if sample.server.startswith("gateway")) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
