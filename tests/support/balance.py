"""Compares every bill with the provider's own account, to the last digit."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import httpx

from tests.chaos.audit import rows
from tests.support.answers import Json, exactly
from tests.support.gateway_process import GatewayProcess
from tests.support.mixed_requests import CHARGED, LATE, UNCHARGED, Provider, Request, Seen
from tests.support.process import wait_until
from tests.support.provider_account import PICO, PRICES, UNPRICED, Account, picodollars

LEDGER = "SELECT request_id, status, estimated, total_cost_picousd FROM ledger"
CALLS = "SELECT request_id, prompt_cost_picousd, completion_cost_picousd, estimated FROM ledger_calls"
PARTIAL = {"error event", "left in the middle"}


def check_balance(
    gateways: Sequence[GatewayProcess], storage_url: str, provider: Provider, seen: Sequence[Seen]
) -> None:
    """Every request has one bill; each bill is what the provider reckons; and so are their sums.

    A call that was cut off has no usage that the provider could know of: its bill says `estimated`, and its figures
    and its cost fit each other by the provider's price list.
    """
    requests, books = provider.requests, provider.account
    wait_until(lambda: len(rows(storage_url, LEDGER)) >= len(requests), "the last bill", interval=0.1)
    ledger = {row["request_id"]: row for row in rows(storage_url, LEDGER)}
    calls = {row["request_id"]: row for row in rows(storage_url, CALLS)}
    assert len(ledger) == len(calls) == len(requests), "one row for each request, whatever became of it"
    known = [each for each in seen if each.request_id]
    with httpx.Client(trust_env=False, timeout=30, headers={"authorization": "Bearer sk-test"}) as client:
        for number, each in enumerate(known):
            gateway = gateways[number % len(gateways)]  # any of them can tell
            _check_one(client, gateway, each, books, ledger)
    unknown = ledger.keys() - {each.request_id for each in known}
    assert len(unknown) == sum(each.request.fate == "left early" for each in seen)
    for request_id in unknown:
        assert (ledger[request_id]["status"], bool(ledger[request_id]["estimated"])) == ("failed", True)
    firm = [row for row in ledger.values() if not row["estimated"]]
    assert _sum(row["total_cost_picousd"] for row in firm) == books.total, "the sum of all firm bills"
    told = [each.bill["cost"]["total_cost"] for each in known if each.bill and not each.bill["cost"]["estimated"]]
    assert sum(picos(cost) or 0 for cost in told) == books.total, "the sum of what clients were told"
    for request_id, row in calls.items():
        parts = (row["prompt_cost_picousd"], row["completion_cost_picousd"])
        assert _sum(parts) == (ledger[request_id]["total_cost_picousd"] or 0), "a total is the sum of its parts"


def _check_one(
    client: httpx.Client, gateway: GatewayProcess, seen: Seen, books: Account, ledger: Mapping[str, Any]
) -> None:
    request = seen.request
    bill = _stored(client, gateway, seen.request_id or "")
    metadata, row = bill["response_metadata"], ledger[seen.request_id or ""]
    cost = metadata["cost"]
    assert seen.done == (request.fate in CHARGED or request.fate in ("no usage", "usage refused")), seen
    assert bill["status"] == ("complete" if seen.done else "partial" if _delivered(request) else "failed"), seen
    assert row["status"] == bill["status"]
    for told in seen.bills:
        assert told == metadata, "the answer, its usage chunk and the ledger tell the same"
    if seen.completion_id:
        assert _stored(client, gateway, seen.completion_id)["response_metadata"] == metadata
    assert bool(row["estimated"]) == cost["estimated"] == (request.fate not in CHARGED | UNCHARGED), seen
    assert row["total_cost_picousd"] == picos(cost["total_cost"])
    if request.fate in CHARGED:
        expected = books.charged[request.number].costs
        assert metadata["usage"] == {name: request.usage[name] for name in metadata["usage"]}
    elif request.model == UNPRICED:
        expected = (0, 0) if request.fate in UNCHARGED else None
    else:
        prices = PRICES["plain" if request.model == LATE else request.model]
        expected = picodollars(prices, metadata["usage"], request.tier if _tier_was_told(request) else None)
    assert cost["priced"] == (expected is not None)
    assert (picos(cost["prompt_cost"]), picos(cost["completion_cost"])) == (expected or (None, None)), seen
    assert picos(cost["total_cost"]) == (sum(expected) if expected else None)
    if request.fate in UNCHARGED:
        assert sum(metadata["usage"].values()) == 0


def _delivered(request: Request) -> bool:
    return request.fate in PARTIAL or (request.fate == "cut" and request.stream)


def _tier_was_told(request: Request) -> bool:
    return request.fate in ("no usage", "usage refused", "left in the middle") or (
        request.fate == "cut" and request.stream
    )


def _stored(client: httpx.Client, gateway: GatewayProcess, name: str) -> Json:
    return exactly(client.get(f"{gateway.base_url}/chat/completions/{name}"))


def picos(cost: Decimal | int | None) -> int | None:
    """Whole picodollars; an assertion fails if it is not a whole number of them."""
    if cost is None:
        return None
    scaled = Decimal(cost) * PICO
    assert scaled == int(scaled)
    return int(scaled)


def _sum(values: Iterable[int | None]) -> int:
    return sum(value or 0 for value in values)
