"""What memory, caches, profiles and storing are worth, each beside its target.

python -m benchmarks.memory [--quick] [--json FILE]
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.memory.figures import table
from benchmarks.memory.measured import measure
from benchmarks.report import machine
from benchmarks.servers import end_on_sigterm


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer requests where time is measured")
    parser.add_argument("--json", type=Path, help="where all figures go as JSON")
    return parser.parse_args()


def main() -> int:
    """Measures, prints the table and writes the JSON; 1 if a target that does not depend on the machine is missed."""
    end_on_sigterm()
    given = options()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        found = list(measure(Path(folder), quick=given.quick))
    print(table(found))
    if given.json:
        figures = {"machine": machine(), "figures": [each.as_json() for each in found]}
        given.json.write_text(json.dumps(figures, indent=1))
    return 1 if any(not each.met and not each.timed for each in found) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
