"""An agent's session of ten turns with 200 KB of tool results: how much of each prompt a provider's cache has.

python -m benchmarks.session [--window 32000] [--json FILE]
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.servers import end_on_sigterm
from benchmarks.session.figures import summary
from benchmarks.session.measured import measure
from benchmarks.session.report import line, shares, title
from benchmarks.session.talk import TURNS, turns

WINDOWS = (120_000, 48_000, 24_000)


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.session", description=__doc__)
    parser.add_argument("--window", action="append", type=int, help=f"tokens to forward at most {WINDOWS}")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"turns of the session ({TURNS})")
    parser.add_argument("--json", type=Path, help="where all figures go as JSON")
    return parser.parse_args()


def main() -> int:
    """Measures, prints the table and writes the JSON; 1 if a prompt with room was not appended to."""
    end_on_sigterm()
    given = options()
    found = []
    print(title())
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for each in measure(list(turns(given.turns)), tuple(given.window or WINDOWS), Path(folder)):
            found.append({"name": each.name, "window": each.window, **summary(each.prompts)})
            print(line(found[-1]), flush=True)
    print(shares([each for each in found if each["name"] == "gateway"]))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    return 1 if any(each["name"] == "gateway" and each["share_with_room"] < 0.95 for each in found) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
