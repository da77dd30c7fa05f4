"""Compares the bills of planned requests with the accounts of all models that were called for them."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import httpx

from tests.chaos.audit import rows
from tests.support.answers import as_told, exact
from tests.support.balance import picos
from tests.support.command import gateway_command
from tests.support.documents import prompt_tokens
from tests.support.gateway_process import GatewayProcess
from tests.support.mixed_requests import CHARGED, LATE, LEFT, UNCHARGED, Seen
from tests.support.planned_requests import PlannedProvider
from tests.support.process import wait_until
from tests.support.provider_account import PICO, PRICES, UNPRICED, picodollars

LEDGER = "SELECT request_id, model, status, estimated, total_cost_picousd, response_metadata FROM ledger"
CALLS = """SELECT request_id, purpose, usage, prompt_cost_picousd, completion_cost_picousd, estimated
    FROM ledger_calls ORDER BY request_id, number"""
INTERNAL = ("planner", "summarizer")
COUNTED_ALIKE = 3
"""Tokens by which two counts of the same messages may differ."""
Rows = dict[str, list[dict[str, Any]]]


def check_planned_balance(
    gateways: Sequence[GatewayProcess], storage_url: str, provider: PlannedProvider, seen: Sequence[Seen]
) -> None:
    """One row for each request; one call for each that a model got; firm calls as charged, to the last digit, and the
    others told apart: estimated, by the prompt that was sent."""
    requests = provider.requests
    wait_until(lambda: len(rows(storage_url, LEDGER)) >= len(requests), "the last bill", interval=0.1)
    ledger = {row["request_id"]: row for row in rows(storage_url, LEDGER)}
    calls: Rows = defaultdict(list)
    for row in rows(storage_url, CALLS):
        calls[row["request_id"]].append({**row, "usage": json.loads(row["usage"])})
    assert len(ledger) == len(requests)
    assert calls.keys() == ledger.keys()
    every = [call for made in calls.values() for call in made]
    _check_counts(provider, every)
    _check_sums(provider, every)
    _check_estimates(provider, every)
    for request_id, row in ledger.items():
        _check_row(row, calls[request_id])
    _check_told(gateways, seen, ledger, calls)
    _check_audit(gateways[0], ledger)


def _check_counts(provider: PlannedProvider, calls: list[dict[str, Any]]) -> None:
    found = Counter(call["purpose"] for call in calls)
    assert found["primary"] == len(provider.account.calls), "of calls that were tried once more, or refitted, the last"
    for purpose in INTERNAL:
        assert found[purpose] == len(provider.asked[purpose]) > 0, purpose


def _check_sums(provider: PlannedProvider, calls: list[dict[str, Any]]) -> None:
    firm = [call for call in calls if not call["estimated"]]
    assert sum(_cost(call) or 0 for call in firm if call["purpose"] == "primary") == provider.account.total
    charged = provider.planner.charged * PICO
    assert sum(_cost(call) or 0 for call in firm if call["purpose"] in INTERNAL) == int(charged) == charged


def _check_estimates(provider: PlannedProvider, calls: list[dict[str, Any]]) -> None:
    """Of internal calls nothing came: what was sent is what they cost."""
    estimated = [call for call in calls if call["estimated"] and call["purpose"] in INTERNAL]
    counted = sorted(call["usage"]["prompt_tokens"] for call in estimated)
    sent = sorted(prompt_tokens({"messages": body["messages"]}) for body in provider.unreported)
    assert len(counted) == len(sent) > 5
    assert max(abs(one - other) for one, other in zip(counted, sent, strict=True)) <= COUNTED_ALIKE
    for call in estimated:
        assert call["usage"]["completion_tokens"] == 0
        assert _cost(call) == call["usage"]["prompt_tokens"] * int(Decimal("1.5e-7") * PICO)


def _check_row(row: dict[str, Any], calls: list[dict[str, Any]]) -> None:
    costs = [_cost(call) for call in calls]
    known = [cost for cost in costs if cost is not None]
    assert row["total_cost_picousd"] == (sum(known) if len(known) == len(costs) else None)
    assert bool(row["estimated"]) == any(call["estimated"] for call in calls)
    planning = json.loads(row["response_metadata"], parse_float=Decimal)["cost"]["planning_cost"]
    assert picos(planning) == sum(_cost(call) or 0 for call in calls if call["purpose"] in INTERNAL)
    for call in calls:
        if call["purpose"] == "primary" and call["estimated"]:
            model = "plain" if row["model"] == LATE else row["model"]
            prices = None if model == UNPRICED else PRICES[model]
            tiers = {None, *prices.tiers} if prices else {None}
            fits = {sum(picodollars(prices, call["usage"], tier)) for tier in tiers} if prices else {None}
            assert _cost(call) in fits, "its figures and its cost fit each other by the price list"


def _check_told(
    gateways: Sequence[GatewayProcess], seen: Sequence[Seen], ledger: dict[str, dict[str, Any]], calls: Rows
) -> None:
    known = [each for each in seen if each.request_id]
    with httpx.Client(trust_env=False, timeout=30, headers={"authorization": "Bearer sk-test"}) as client:
        for number, each in enumerate(known):
            answer = client.get(f"{gateways[number % len(gateways)].base_url}/chat/completions/{each.request_id}")
            metadata = exact(answer.text)["response_metadata"]
            assert all(bill == as_told(metadata) for bill in each.bills), "the answer, its usage chunk and the ledger"
            primary = [call for call in calls[each.request_id or ""] if call["purpose"] == "primary"]
            assert [bool(call["estimated"]) for call in primary] == [each.request.fate not in CHARGED | UNCHARGED], each
    unknown = ledger.keys() - {each.request_id for each in known}
    assert len(unknown) == sum(each.request.fate in LEFT for each in seen) > 5
    assert {ledger[request_id]["status"] for request_id in unknown} == {"failed"}
    for fate in LEFT:
        assert any(each.request.fate == fate for each in seen), fate


def _check_audit(gateway: GatewayProcess, ledger: dict[str, dict[str, Any]]) -> None:
    done = gateway_command("audit", "--config", str(gateway.config_path), directory=gateway.directory)
    assert done.returncode == 0, done.stdout + done.stderr
    (total,) = [line.split() for line in done.stdout.splitlines() if line.startswith("total ")]
    unpriced = sum(row["total_cost_picousd"] is None for row in ledger.values())
    assert [int(total[1]), *map(int, total[8:10])] == [
        len(ledger),
        unpriced,
        sum(bool(row["estimated"]) for row in ledger.values()),
    ]


def _cost(call: dict[str, Any]) -> int | None:
    parts = (call["prompt_cost_picousd"], call["completion_cost_picousd"])
    return None if None in parts else sum(map(int, parts))
