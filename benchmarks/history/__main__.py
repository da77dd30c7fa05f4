"""A turn of a conversation of 10,000 messages beside one of 20: time, rows read, bytes written, and their ratios.

python -m benchmarks.history [--quick] [--database sqlite] [--only all] [--json FILE]
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.history.databases import opened
from benchmarks.history.forms import FORMS
from benchmarks.history.measured import Plan, measure
from benchmarks.history.report import figure, table
from benchmarks.report import machine
from benchmarks.servers import end_on_sigterm

DATABASES = ("sqlite", "postgres")


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--rounds", type=int, help="how often all is measured in turn (5); medians are printed")
    parser.add_argument("--turns", type=int, default=8, help="turns of each conversation a round (8)")
    parser.add_argument("--long", type=int, default=10_000, help="messages of the long conversation (10,000)")
    parser.add_argument("--database", action="append", choices=DATABASES, help="this one alone")
    parser.add_argument("--only", action="append", choices=[form.name for form in FORMS], help="this form alone")
    parser.add_argument("--json", type=Path, help="where all figures go as JSON")
    return parser.parse_args()


def main() -> int:
    """Measures, prints the table and writes the JSON."""
    end_on_sigterm()
    given = options()
    plan = Plan(rounds=given.rounds or (1 if given.quick else 5), turns=given.turns, long=given.long)
    forms = [form for form in FORMS if not given.only or form.name in given.only]
    figures = []
    for name in given.database or DATABASES:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder, opened(name, Path(folder)) as database:
            pairs = measure(database, forms, plan, Path(folder), lambda line: print(line, file=sys.stderr))
            figures += [figure(pair, database) for pair in pairs]
    print(table(figures))
    if given.json:
        given.json.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=1))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
