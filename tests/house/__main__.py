"""Prints how livable the code is: what one request visits, sizes of modules and functions, names used twice."""

import asyncio
import tempfile
from pathlib import Path

from tests.house.measure import LONG_FUNCTION, MANY_PARAMETERS, MAX_LINES, measure
from tests.house.trace import visits_by_request
from tests.reference.pages import DOCS, words_by_hand


def main() -> None:
    house = measure()
    print(f"modules {len(house.sizes)}, lines {sum(house.sizes.values()):,}, in the root {house.root}")
    print(f"lines of a module: median {house.median:.0f}, longest {max(house.sizes.values())}")
    print(f"over {MAX_LINES} lines: " + ", ".join(f"{name} {size}" for name, size in house.too_long.items()))
    print(f"functions over {LONG_FUNCTION} lines: {len(house.long_functions)}  " + ", ".join(house.long_functions))
    print(f"with more than {MANY_PARAMETERS} parameters: {len(house.many_parameters)}")
    print(f"public functions documented: {100 * house.documented / house.public:.0f} %")
    print(f"with one reader, beside them: {len(house.one_reader)}  " + ", ".join(house.one_reader))
    words = sum(words_by_hand(page.read_text()) for page in DOCS.rglob("*.md"))
    print(f"words of the docs, without code and what is generated: {words:,}")
    print("file names used twice: " + ", ".join(f"{name} {count}" for name, count in sorted(house.names_twice.items())))
    print()
    print(f"{'one request':12}{'modules':>9}{'calls':>8}{'changes':>9}{'returns':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name, visits in asyncio.run(visits_by_request(Path(folder))).items():
            print(f"{name:12}{visits.modules:9}{visits.calls.total():8}{visits.changes:9}{visits.returns:9}")


if __name__ == "__main__":
    main()
