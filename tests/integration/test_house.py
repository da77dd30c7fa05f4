"""A request travels no further through the code than it did (ADR 1). `make house` prints the figures."""

import asyncio
from pathlib import Path

from tests.house.trace import visits_by_request


def test_modules_that_one_request_visits(tmp_path: Path) -> None:
    visits = asyncio.run(visits_by_request(tmp_path))
    modules = {name: each.modules for name, each in visits.items()}
    assert modules["plain"] <= 55, sorted(visits["plain"].calls)
    assert modules["follow-up"] <= 73, sorted(visits["follow-up"].calls)
    assert modules["reduced"] <= 83, sorted(visits["reduced"].calls)
    assert visits["reduced"].calls.total() <= 3_000, visits["reduced"].calls.most_common(20)
