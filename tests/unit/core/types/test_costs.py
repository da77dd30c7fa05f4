"""Sums, their order and their limit; and how they are written as CSV and JSON (guarantee §13.1)."""

import csv
import io
from decimal import Decimal

from gateway.billing.cost import as_csv, as_json
from gateway.core.types.bill import CostReport, CostRow, CostSums
from gateway.storage.reports.costs import in_order, joined

DAYS = [
    CostRow((f"2026-03-0{day}",), CostSums(requests=day, cost_picousd=cost)) for day, cost in ((2, 5), (1, 9), (3, 1))
]


def test_s13_1_days_stand_in_their_order_and_the_latest_are_kept() -> None:
    report = CostReport(in_order(DAYS, ("day",)), by=("day",))
    kept, others, left = report.at_most(2)
    assert [row.names[0] for row in kept] == ["2026-03-02", "2026-03-03"]
    assert (others.requests, left, report.total.requests) == (1, 1, 6)
    assert report.at_most(3)[1:] == (CostSums(), 0)


def test_s13_1_anything_else_stands_with_the_dearest_first() -> None:
    rows = [CostRow((name,), CostSums(requests=1, cost_picousd=cost)) for name, cost in (("a", 1), (None, 7), ("b", 1))]
    report = CostReport(in_order(rows, ("user",)), by=("user",))
    assert [row.names[0] for row in report.rows] == [None, "a", "b"]
    assert [row.names[0] for row in report.at_most(1)[0]] == [None]


def test_s13_1_rows_of_one_name_are_joined_and_what_adds_up_to_nothing_goes() -> None:
    found = joined([(("ann",), {"requests": 1}), (("bob",), {"requests": 1}), (("ann",), {"requests": -1})])
    assert [(row.names, row.sums.requests) for row in found] == [(("bob",), 1)]


def test_s13_1_what_is_not_known_is_empty_and_no_cell_is_a_formula() -> None:
    unknown = CostRow(("=HYPERLINK(1)",), CostSums(requests=1, unpriced=1, saved_picousd=-3))
    partly = CostRow((None,), CostSums(requests=2, priced=1, unpriced=1, cost_picousd=10**16 + 1))
    lines = "".join(as_csv({("user",): [unknown, partly]}))
    first, second = csv.DictReader(io.StringIO(lines))
    assert (first["by"], first["user"], first["cost"], first["at_least"]) == ("user", "'=HYPERLINK(1)", "", "true")
    assert first["saved"] == "-0.000000000003"
    assert (second["user"], second["cost"], second["at_least"]) == ("", "10000.000000000001", "true")
    table = as_json(("user",), [unknown, partly])
    assert [row["cost"] for row in table["rows"]] == [None, Decimal("10000.000000000001")]


def test_s13_1_chats_are_named_in_every_form_as_in_lists_of_requests() -> None:
    rows = [CostRow((day, name), CostSums(requests=1)) for day, name in (("2026-03-01", None), (None, "responses"))]
    lines = csv.DictReader(io.StringIO("".join(as_csv({("day", "endpoint"): rows}))))
    assert [(line["day"], line["endpoint"]) for line in lines] == [("2026-03-01", "chat"), ("", "responses")]
    table = as_json(("day", "endpoint"), rows)
    assert [(row["day"], row["endpoint"]) for row in table["rows"]] == [("2026-03-01", "chat"), (None, "responses")]
