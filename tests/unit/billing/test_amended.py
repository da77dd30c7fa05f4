"""A bill that gets further calls after its answer (guarantee §6, §11.13)."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from gateway.billing.cost import price_call, total_cost
from gateway.billing.ledger_verification import differences
from gateway.billing.metadata import add_bill, amended, amended_once, response_metadata
from gateway.core import jsons
from gateway.core.types.bill import CallCost, ContextUtilizationMetadata, ResponseMetadata
from gateway.core.types.turn import LedgerEntry, LedgerFigures, LedgerRow
from tests.unit.making import NOW

PRICES = {"input_cost_per_token": Decimal("1.1e-07"), "output_cost_per_token": Decimal("3.3e-07")}


def call(purpose: str, tokens: int, prices: dict[str, Decimal] | None = None, *, estimated: bool = False) -> CallCost:
    usage = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}
    return price_call(purpose, "m", usage, PRICES if prices is None else prices, estimated=estimated)


def entry(*calls: CallCost) -> LedgerEntry:
    """A bill as it is read from the storage."""
    known = ResponseMetadata(
        "req_1", None, None, "m", ["m"], None, None, ContextUtilizationMetadata("m"), {"total": 1.5}
    )
    add_bill(known, calls, total_cost(calls))
    metadata: dict[str, Any] = jsons.loads_decimal(jsons.dumps_text(response_metadata(known)))
    return LedgerEntry("req_1", "t", None, None, "m", "complete", False, NOW, metadata, calls)


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
