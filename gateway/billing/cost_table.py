"""Sums over bills as CSV and as JSON, for commands and pages alike: every digit, and what is not known left empty."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gateway.core.printing import csv_line
from gateway.core.types.costs import CostRow, CostSums

CURRENCY = "USD"
FIGURES = (
    *("requests", "partial", "failed", "prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens"),
    *("cost", "planning_cost", "net_saving", "direct_cost", "unmetered", "saved"),
    *("unpriced", "planning_unpriced", "estimated", "at_least", "currency"),
)
"""Names of what is told of each group. `cost` holds `planning_cost`; `net_saving`: `direct_cost`, which clients would
have paid without a gateway, less what was billed, of all requests but the `unmetered`; `saved`: of what was left out
alone, without what that cost; `at_least`: a call in it has no known price."""


def figures_of(sums: CostSums) -> dict[str, Any]:
    """The sums by the names of `FIGURES`; a cost of which nothing is known is None."""
    told = {
        "cost": sums.known_cost,
        "planning_cost": sums.known_planning,
        "net_saving": sums.net_saving,
        "direct_cost": sums.direct,
        "saved": sums.saved,
        "at_least": bool(sums.unpriced or sums.planning_unpriced),
        "currency": CURRENCY,
    }
    return {name: told[name] if name in told else getattr(sums, name) for name in FIGURES}


def as_csv(tables: Mapping[tuple[str, ...], Sequence[CostRow]]) -> Iterator[str]:
    """Lines of CSV: `by` says which groups a line tells apart, its names stand in a column for each of them."""
    groups = list(dict.fromkeys(group for by in tables for group in by))
    yield csv_line(("by", *groups, *FIGURES))
    for by, rows in tables.items():
        for row in rows:
            names = dict(zip(by, row.names, strict=True))
            yield csv_line(("+".join(by), *(names.get(group) for group in groups), *figures_of(row.sums).values()))


def as_json(by: Sequence[str], rows: Iterable[CostRow]) -> dict[str, Any]:
    """A table: its groups, and for each row their names with its figures."""
    listed = [{**dict(zip(by, row.names, strict=True)), **figures_of(row.sums)} for row in rows]
    return {"by": list(by), "rows": listed}
