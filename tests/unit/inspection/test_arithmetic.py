"""The arithmetic that is shown is the one that is stored, to the last digit (guarantee §6)."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import given

from gateway.billing.cost import price_call, rounded, total_cost
from gateway.billing.metadata import add_bill, response_metadata
from gateway.core import jsons
from gateway.core.types.bill import CallCost, ContextUtilizationMetadata, ResponseMetadata
from gateway.core.types.past_turns import INSTRUCTION, SentMessages
from gateway.core.types.turn import LedgerEntry
from gateway.inspection.explained_request import explained_bill
from gateway.inspection.prefix import SYSTEM_CHANGED, WINDOW_MOVED, divergence
from tests.support.answers import there
from tests.support.ledger_rows import prices, row_of, usages

PRICES = {
    "input_cost_per_token": Decimal("0.0000025"),
    "cache_read_input_token_cost": Decimal("0.00000125"),
    "output_cost_per_token": Decimal("0.00001"),
}


def entry(*calls: CallCost, request_id: str = "req_1") -> LedgerEntry:
    bill = ResponseMetadata(request_id, None, None, "m", ["m"], None, None, ContextUtilizationMetadata("m"))
    add_bill(bill, calls, total_cost(calls))
    metadata = jsons.loads_decimal(jsons.dumps(response_metadata(bill)))
    return LedgerEntry(
        request_id, "t", None, None, "m", "complete", False, datetime(2026, 1, 1, tzinfo=UTC), metadata, calls
    )


@given(usages, prices)
def test_the_lines_of_any_call_add_up_to_its_stored_costs(usage: dict[str, Any], known: dict[str, Decimal]) -> None:
    known = {**PRICES, **known}
    call = price_call("primary", "m", usage, known)
    bill = explained_bill(row_of(call).entry)
    assert bill.balances
    (found,) = bill.calls
    for lines, cost in ((found.prompt, call.prompt_cost), (found.completion, call.completion_cost)):
        assert rounded(sum((line.cost for line in lines), Decimal(0))) == cost
        assert all(line.cost == line.rate * line.tokens for line in lines if line.tokens < 10**9)


def test_each_kind_of_token_has_its_line_and_internal_calls_come_after() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}
    planner = price_call("planner", "p", {"prompt_tokens": 10, "completion_tokens": 1}, PRICES)
    bill = explained_bill(entry(planner, price_call("primary", "m", usage, PRICES)))
    primary, second = bill.calls
    assert [(line.kind, line.tokens) for line in primary.prompt] == [("cached_input", 60), ("input", 40)]
    assert primary.prompt_cost == Decimal("0.000175")
    assert second.purpose == "planner"
    assert bill.cost.total_cost == sum(call.total or 0 for call in bill.calls)


def test_a_figure_that_somebody_changed_is_named() -> None:
    stored = entry(price_call("primary", "m", {"prompt_tokens": 100, "completion_tokens": 7}, PRICES))
    stored.metadata["cost"]["total_cost"] += Decimal("0.000000000001")
    bill = explained_bill(stored)
    assert not bill.balances
    assert "cost.total_cost" in [each.figure for each in bill.differences]


def test_a_call_without_a_price_has_no_arithmetic_and_no_cost() -> None:
    (call,) = explained_bill(entry(price_call("primary", "m", {"prompt_tokens": 100}, {}))).calls
    assert (call.prompt, call.completion, call.total) == ((), (), None)


def priced(cached: int, request_id: str = "req_1") -> LedgerEntry:
    usage = {"prompt_tokens": 1000, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": cached}}
    return entry(price_call("primary", "m", usage, PRICES), request_id=request_id)


def sent(*texts: str, system: int = 1, reason: str | None = None) -> SentMessages:
    names = tuple(INSTRUCTION if number < system else text for number, text in enumerate(texts))
    return SentMessages([{"role": "user", "content": text} for text in texts], reason, names)


def test_a_prompt_that_begins_as_the_one_before_did_not_diverge() -> None:
    assert divergence((priced(0), sent("S", "a")), (priced(0), sent("S", "a", "b"))) is None
    assert divergence((priced(0), sent("S", "a")), (priced(0), sent("S", "a"))) is None


def test_where_a_prefix_ends_it_says_what_that_cost() -> None:
    """Half of the prompt before was the message that is another now."""
    found = there(divergence((priced(500, "req_0"), sent("S", "aaaa", "bbbb")), (priced(0), sent("S", "aaaa", "cccc"))))
    assert (found.index, found.why, found.previous_request_id) == (2, WINDOW_MOVED, "req_0")
    assert 300 < found.lost_tokens < 400
    assert found.kept_tokens + found.lost_tokens == 1000
    assert found.cost == found.lost_tokens * Decimal("0.00000125")
    assert not found.is_todays_rate


def test_a_rate_that_is_on_no_bill_is_today_s_or_unknown() -> None:
    requests = ((priced(0), sent("S", "a")), (priced(0), sent("T", "a")))
    found = there(divergence(*requests))
    assert (found.index, found.why, found.cost) == (0, SYSTEM_CHANGED, None)
    again = there(divergence(*requests, lambda: PRICES))
    assert again.is_todays_rate
    assert again.cost == 1000 * Decimal("0.00000125")


def test_what_is_not_known_exactly_is_not_compared() -> None:
    unknown = sent("S", "x", reason="item_deleted_since")
    assert divergence((priced(0), unknown), (priced(0), sent("T"))) is None
    assert divergence((priced(0), SentMessages(None, "x")), (priced(0), sent("T"))) is None
