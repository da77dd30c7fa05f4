"""Evidence recall under a token budget. `python -m evals --help`."""

import argparse
import json
import random
import sys
from pathlib import Path

from evals.cases import Case, load
from evals.made import made
from evals.measure import Result, measuring
from evals.report import figures, table

SEED = 7


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m evals", description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder of SUITE….jsonl(.gz) instead of the project's own cases")
    parser.add_argument("--suites", type=lambda text: text.split(","), help="these alone")
    parser.add_argument("--limit", type=int, help="so many cases of each suite")
    parser.add_argument("--once", action="store_true", help="do not send each request twice to compare")
    parser.add_argument("--misses", action="store_true", help="name the cases that were lost")
    parser.add_argument("--json", type=Path, help="where all figures go as JSON")
    return parser.parse_args()


def chosen(cases: list[Case], suites: list[str] | None, limit: int | None) -> list[Case]:
    """The cases to measure: of each suite the same ones every time."""
    found: list[Case] = []
    for suite in dict.fromkeys(case.suite for case in cases):
        group = [case for case in cases if case.suite == suite]
        if suites is None or suite in suites:
            found += random.Random(SEED).sample(group, limit) if limit and limit < len(group) else group
    return found


def main() -> int:
    """Measures and prints; 1 if anything was over budget, invalid, or another on the second run."""
    given = options()
    cases = chosen(list(load(given.data)) if given.data else made(), given.suites, given.limit)
    with measuring() as gateway:
        results = list(gateway.results(cases, twice=not given.once))
    print(table(results))
    faulty = [result for result in results if result.faulty]
    for result in faulty:
        print(f"FAULT {result.case.identity} at {result.budget}: {_fault(result)}")
    for result in results if given.misses else ():
        if not result.won:
            case = result.case
            print(f"missed {case.identity} ({case.kind}) at {result.budget}: {case.question[:150]}")
    if given.json:
        given.json.write_text(json.dumps(_as_json(results), indent=1))
    return 1 if faulty or not results else 0


def _fault(result: Result) -> str:
    over = f"{result.forwarded} tokens" if result.over else ""
    return ", ".join(filter(None, [over, *result.invalid, "differs on the second run" if result.differs else ""]))


def _as_json(results: list[Result]) -> dict[str, object]:
    groups = sorted({(r.case.suite, r.budget) for r in results})
    return {f"{s} {b}": figures([r for r in results if (r.case.suite, r.budget) == (s, b)]) for s, b in groups}


if __name__ == "__main__":
    sys.exit(main())
