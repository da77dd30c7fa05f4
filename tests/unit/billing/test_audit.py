"""Adding the ledger up again finds what does not balance, and nothing else (guarantee §6); also where a bill gets
further calls after its answer (§11.13)."""

import csv
import io
from dataclasses import fields, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.billing.cost import price_call
from gateway.billing.ledger_verification import MAX_NAMED_ROWS, LedgerAudit, differences
from gateway.billing.metadata import amended, amended_once
from gateway.core.printing import csv_line
from gateway.core.types.bill import CallCost
from gateway.core.types.turn import LARGEST_KEPT, LedgerEntry, LedgerFigures, LedgerRow
from gateway.operations.audit import AUDIT_CSV, csv_row, summary
from tests.support.ledger_rows import call, calls, entry, prices, row_of, usages

PRICES = {"input_cost_per_token": Decimal("2.5e-06"), "output_cost_per_token": Decimal("1e-05")}

primaries = st.builds(
    lambda usage, known, estimated: price_call("primary", "m", usage, known, estimated=estimated),
    usages,
    prices,
    st.booleans(),
)


NOTHING = "0.000000000000"


@given(primaries, st.lists(calls, max_size=3))
def test_whatever_was_billed_balances(primary: CallCost, internal: list[CallCost]) -> None:
    """§6: totals equal their parts exactly, whatever the usage and the prices are."""
    assert differences(row_of(primary, *internal)) == ()


@given(st.lists(calls, min_size=1, max_size=3))
def test_a_bill_of_internal_calls_alone_balances(internal: list[CallCost]) -> None:
    """§5: a dry run, or an answer that failed before its model was called."""
    assert differences(row_of(*internal)) == ()


FIGURES = [
    *(("usage", name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")),
    *(("cost", f"{name}_cost") for name in ("prompt", "completion", "planning", "total")),
    *(("cost", name) for name in ("priced", "estimated", "currency")),
    *(("context_utilization", "planning_cost", f"{name}_cost") for name in ("planner", "summarizer", "total")),
]


@pytest.mark.parametrize("path", FIGURES)
@pytest.mark.parametrize("wrong", [Decimal("0.000000000001"), 1, None, "1", "gone"])
def test_a_tampered_figure_of_the_metadata_is_named(path: tuple[str, ...], wrong: Any) -> None:
    """A picodollar, a token or a flag: nothing is too small to be found."""
    made = price_call("primary", "m", {"prompt_tokens": 1000, "completion_tokens": 10}, PRICES)
    planner = price_call("planner", "p", {"prompt_tokens": 100, "completion_tokens": 1}, PRICES)
    row = row_of(made, planner, figures=None)  # its columns are compared below
    where = row.entry.metadata
    for name in path[:-1]:
        where = where[name]
    value = where[path[-1]]
    if wrong == "gone":
        del where[path[-1]]
    elif isinstance(wrong, Decimal | int) and isinstance(value, Decimal | int):
        where[path[-1]] = (not value) if isinstance(value, bool) else value + wrong
    else:
        where[path[-1]] = wrong
    assert [each.figure for each in differences(row)] == [".".join(path)]


@pytest.mark.parametrize(
    ("change", "figures"),
    [
        ({"prompt_cost": Decimal("0.002500000001")}, ["calls[0].prompt_cost"]),
        ({"completion_cost": None}, ["calls[0].completion_cost"]),
        ({"estimated": True}, ["ledger.estimated", "cost.estimated"]),
    ],
)
def test_a_tampered_call_is_named(change: dict[str, Any], figures: list[str]) -> None:
    made = price_call("primary", "m", {"prompt_tokens": 1000, "completion_tokens": 10}, PRICES)
    row = row_of(made)
    row = replace(row, entry=replace(row.entry, calls=(replace(row.entry.calls[0], **change),)))
    assert [each.figure for each in differences(row)] == figures


@pytest.mark.parametrize("rates", [{}, {"input_cost_per_token": "rubbish"}, {"input_cost_per_token": None}])
def test_rates_that_are_gone_or_spoilt_are_found(rates: dict[str, Any]) -> None:
    made = price_call("primary", "m", {"prompt_tokens": 1000, "completion_tokens": 10}, PRICES)
    row = row_of(made)
    row = replace(row, entry=replace(row.entry, calls=(replace(row.entry.calls[0], rates=rates),)))
    assert {"calls[0].prompt_cost", "cost.total_cost", "cost.priced"} <= {each.figure for each in differences(row)}


def test_a_row_without_calls_does_not_balance() -> None:
    row = row_of(price_call("primary", "m", {}, PRICES))
    assert [each.figure for each in differences(replace(row, entry=replace(row.entry, calls=())))] == ["calls"]


def test_columns_of_the_row_are_compared() -> None:
    row = row_of(price_call("primary", "m", {"prompt_tokens": 1000, "completion_tokens": 10}, PRICES))
    wrongs: tuple[tuple[str, Any], ...] = (
        ("prompt_tokens", 1),
        ("completion_tokens", 1),
        ("total_cost", None),
        ("estimated", True),
    )
    for name, wrong in wrongs:
        assert [each.figure for each in differences(replace(row, **{name: wrong}))] == [f"ledger.{name}"]


@pytest.mark.parametrize("stored", [None, "-0.0025", "0.3"])
def test_s6_the_net_saving_is_the_columns_by_which_reports_add_up(stored: str | None) -> None:
    """Where an older version left it empty, the bill is in no net saving; else it is what the bill says."""
    calls = [price_call(purpose, "m", {"prompt_tokens": 1000}, PRICES) for purpose in ("primary", "planner")]
    row = row_of(*calls)
    assert row.entry.figures is not None
    figures = replace(row.entry.figures, net_saving=None if stored is None else Decimal(stored))
    row = replace(row, entry=replace(row.entry, figures=figures))
    found = LedgerAudit()
    differing = found.add(row)
    assert (found.total.metered, found.total.net_saving) == (int(stored is not None), stored and Decimal(stored))
    assert [each.figure for each in differing] == (["ledger.net_saving"] if stored == "0.3" else [])


@pytest.mark.parametrize("column", [field.name for field in fields(LedgerFigures)])
def test_s6_a_column_by_which_reports_add_up_is_not_believed(column: str) -> None:
    """Whoever changes it, and the sum of its day with it, is found by the calls and the bill."""
    row = row_of(price_call("primary", "m", {"prompt_tokens": 1000, "completion_tokens": 10}, PRICES))
    assert row.entry.figures is not None
    stored = getattr(row.entry.figures, column)
    wrong: dict[str, Any] = {column: True if column == "held_out" else (stored or 0) + 1}
    figures = replace(row.entry.figures, **wrong)
    tampered = replace(row, entry=replace(row.entry, figures=figures))
    assert [each.figure for each in differences(tampered)] == [f"ledger.{column}"]


def test_a_bill_beyond_what_a_column_holds_is_exact_all_the_same() -> None:
    """§6: totals equal their parts exactly; 12345678.12… USD is more than 2**63 picodollars and than 15 digits."""
    rate = {"input_cost_per_token": Decimal("12345678.123456789012"), "output_cost_per_token": Decimal(0)}
    row = row_of(price_call("primary", "m", {"prompt_tokens": 1, "completion_tokens": 1}, rate))
    assert row.entry.metadata["cost"]["total_cost"] == Decimal("12345678.123456789012")
    assert row.total_cost == LARGEST_KEPT == Decimal("9223372.036854775807")
    assert differences(row) == ()
    assert csv_row(row, balanced=True).split(",")[13] == "12345678.123456789012"


def test_planning_is_a_part_of_the_cost() -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 10}
    found = LedgerAudit(by={"user": {}})
    calls = [price_call(purpose, "m", usage, PRICES) for purpose in ("primary", "planner", "summarizer")]
    found.add(row_of(*calls, end_user="ann"))
    assert (found.total.cost, found.total.planning) == (3 * Decimal("0.0026"), 2 * Decimal("0.0026"))
    assert found.by == {"user": {"ann": found.total}}


def test_totals() -> None:
    """By model and tenant; what has no price is counted, not added as 0."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 10}
    found = LedgerAudit()
    found.add(row_of(price_call("primary", "m", usage, PRICES)))
    found.add(row_of(price_call("primary", "m", usage, PRICES, estimated=True), status="partial", tenant="u"))
    found.add(row_of(price_call("primary", "x", usage, {}), model="x", status="failed"))
    assert found.total.cost == found.by["model"]["m"].cost == 2 * Decimal("0.0026")
    assert (found.total.requests, found.total.unpriced, found.total.estimated) == (3, 1, 1)
    assert (found.total.partial, found.total.failed, found.by["tenant"]["u"].requests) == (1, 1, 1)
    assert found.total.prompt_tokens == 3000
    lines = list(summary(found))
    assert lines[-1] == "all 3 rows balance"
    assert any(
        line.split() == ["total", "3", "1", "1", "3000", "30", ">=0.005200000000", NOTHING, "1", "1"] for line in lines
    )


def test_a_sum_that_lacks_something_says_so() -> None:
    """What a planner without a price cost is not known: of that row the priced calls are in the sum, marked as the
    least that it can be. Where nothing has a price there is no sum, and no 0."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 10}
    found = LedgerAudit()
    calls = price_call("primary", "m", usage, PRICES), price_call("planner", "local", usage, {})
    found.add(row_of(*calls))
    found.add(row_of(price_call("primary", "x", usage, {}), model="x"))
    found.add(row_of(price_call("primary", "y", usage, PRICES), model="y"))
    cells = {
        line.split()[0]: line.split()[6:9] for line in summary(found) if line.startswith(("m ", "x ", "y ", "tot"))
    }
    assert cells == {
        "m": [">=0.002600000000", "unknown", "1"],
        "x": ["unknown", NOTHING, "1"],
        "y": ["0.002600000000", NOTHING, "0"],
        "total": [">=0.005200000000", "unknown", "2"],
    }


def test_what_does_not_balance_is_named_in_bounded_memory() -> None:
    row = row_of(price_call("primary", "m", {"prompt_tokens": 1000}, PRICES))
    found = LedgerAudit()
    for _ in range(MAX_NAMED_ROWS + 5):
        found.add(replace(row, total_cost=Decimal("0.3")))
    lines = list(summary(found))
    assert f"{MAX_NAMED_ROWS + 5} of {MAX_NAMED_ROWS + 5} rows do not balance:" in lines
    assert "  req_1  ledger.total_cost: stored 0.3, adds up to 0.002500000000" in lines
    assert lines[-1] == "  … and 5 more; --csv names them all"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝"])
def test_no_cell_is_a_formula(start: str) -> None:
    """What clients name ends in an operator's spreadsheet."""
    evil = f'{start}HYPERLINK("http://evil", "a,b")\nnext'
    line = csv_line([evil, 1, None, False])
    assert next(csv.reader(io.StringIO(line, newline=""))) == [f"'{evil}", "1", "", "false"]


@pytest.mark.parametrize(
    ("evil", "cell"),
    [
        ("a;=1+1;b", "a;'=1+1;b"),
        ('a;""=1+1;b', 'a;""\'=1+1;b'),
        ("a\t@x", "a\t'@x"),
        ("a\r\n-1", "a\r\n'-1"),
        ("\t=1", "'\t'=1"),
        ("a; b-c=d", "a; b-c=d"),
        (" =1+1", " '=1+1"),
        ("\u00a0@x", "\u00a0'@x"),
        ("a; \u3000+1", "a; \u3000'+1"),
        ("\ufeff\u200b-1", "\ufffd\ufffd-1"),
    ],
)
def test_no_cell_is_a_formula_where_other_signs_part_cells(evil: str, cell: str) -> None:
    """Spreadsheets of many countries part cells by semicolons, and then know none of our quotes."""
    assert next(csv.reader(io.StringIO(csv_line([evil]), newline=""))) == [cell]


def test_s13_9_no_cell_controls_a_terminal() -> None:
    """Nor the direction of writing; blanks of all kinds and line breaks stay."""
    assert csv_line(["\x1b[2J\x00\x9b\x0b\u202eevil\ud800"]) == "\ufffd[2J\ufffd\ufffd\ufffd\ufffdevil\ufffd\n"
    assert csv_line(["a\u00a0b\u3000c\td"]) == "a\u00a0b\u3000c\td\n"


def test_a_csv_row() -> None:
    unpriced = row_of(price_call("primary", "m", {"prompt_tokens": 3, "completion_tokens": 2}, {}), model="=1+1")
    zone = datetime.fromisoformat("2026-11-22T01:00:00.5+01:00")
    unpriced = replace(unpriced, entry=replace(unpriced.entry, created_at=zone))
    cells = dict(zip(AUDIT_CSV, next(csv.reader([csv_row(unpriced, balanced=True)])), strict=True))
    assert cells == {
        "request_id": "req_1",
        "completion_id": "chatcmpl-1",
        "created_at": "2026-11-22T00:00:00.500000Z",
        "tenant": "t",
        "conversation_id": "",
        "model": "'=1+1",
        "status": "complete",
        "stream": "false",
        "prompt_tokens": "3",
        "completion_tokens": "2",
        "prompt_cost": "",
        "completion_cost": "",
        "planning_cost": "0.000000000000",
        "total_cost": "",
        "currency": "USD",
        "priced": "false",
        "estimated": "false",
        "balanced": "true",
        "user": "",
        "agent": "",
        "endpoint": "chat",
    }


def test_a_terminal_obeys_no_name() -> None:
    found = LedgerAudit()
    found.add(row_of(price_call("primary", "m", {}, PRICES), model="\x1b[2Jevil", tenant="t\nall 9 rows balance"))
    text = "\n".join(summary(found))
    assert "\x1b" not in text
    assert "\nall 9 rows" not in text


def unbalanced(bill: LedgerEntry) -> tuple[object, ...]:
    """What an audit finds in the row that the bill becomes."""
    total = bill.metadata["cost"]["total_cost"]
    usage = bill.metadata["usage"]
    estimated = any(each.estimated for each in bill.calls)
    return differences(LedgerRow(bill, usage["prompt_tokens"], usage["completion_tokens"], total, estimated))


@pytest.mark.parametrize("direct", [None, Decimal("0.0004"), Decimal("0.000000000001")])
def test_s6_what_is_paid_behind_the_answer_is_in_the_net_saving(direct: Decimal | None) -> None:
    """A summary that was paid later lowers what was saved, also below 0; where nothing was left out it is a loss."""
    bill, further = entry(call("primary", 1001)), [call("summarizer", 333)]
    if direct is not None:
        told = {"economics": {"direct_cost": f"{direct:f}", "billed_cost": "1", "net_saving": "1"}}
        bill = replace(bill, metadata=bill.metadata | told)
    after = amended(bill, further)
    total, summary = after.metadata["cost"]["total_cost"], further[0].total or 0
    assert after.figures is not None
    assert after.figures.net_saving == (-summary if direct is None else direct - total)
    if direct is not None:
        economics = after.metadata["economics"]
        assert Decimal(economics["billed_cost"]) == total
        assert Decimal(economics["net_saving"]) == direct - total


def test_s6_a_bill_that_is_in_no_net_saving_stays_out_of_it() -> None:
    bill = replace(entry(call("primary", 1001)), figures=LedgerFigures())
    after = amended(bill, [call("summarizer", 333)])
    assert after.figures is not None
    assert (after.figures.direct_cost, after.figures.net_saving) == (None, None)
    assert after.figures.planning_cost > 0


@pytest.mark.parametrize(
    "before",
    [
        [call("primary", 1001)],
        [call("primary", 1001), call("planner", 7), call("summarizer", 9)],
        [call("primary", 1001), call("embedder", 70)],
        [call("primary", 1001, {})],
    ],
)
def test_s6_an_amended_bill_adds_up(before: list[CallCost]) -> None:
    bill = entry(*before)
    assert not unbalanced(bill)
    further = [call("summarizer", 333), call("summarizer", 12, estimated=True)]
    after = amended(bill, further)
    assert not unbalanced(after)
    assert list(after.calls) == [*before, *further]
    assert after.metadata["cost"]["estimated"] is True
    was, used = bill.metadata["context_utilization"], after.metadata["context_utilization"]
    assert used["planning_usage"]["summarizer"]["calls"] == was["planning_usage"]["summarizer"].get("calls", 0) + 2
    assert used.keys() == was.keys()
    assert ("embedder" in used["planning_usage"]) == any(each.purpose == "embedder" for each in before)
    assert {**after.metadata, "cost": 0, "context_utilization": 0} == {
        **bill.metadata,
        "cost": 0,
        "context_utilization": 0,
    }


def test_s6_a_further_call_without_a_price_makes_the_sum_unknown() -> None:
    after = amended(entry(call("primary", 5)), [call("summarizer", 7, {})])
    assert not unbalanced(after)
    assert after.metadata["cost"]["total_cost"] is None
    assert after.metadata["cost"]["prompt_cost"] is not None


def test_a_bill_that_has_its_further_calls_gets_them_once() -> None:
    further = [call("summarizer", 333)]
    bill = entry(call("primary", 5))
    once = amended_once(bill, further)
    assert once == amended(bill, further)
    assert amended_once(once, further) is once
    assert amended_once(bill, [*further, *further]).calls == (*bill.calls, *further, *further)
