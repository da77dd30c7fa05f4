"""Adds the ledger up again: prices each call from the usage and the rates stored with it, and computes each sum again.

Pure: rows go in, differences and totals come out (guarantee §6).
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC
from decimal import Decimal, InvalidOperation
from typing import Any

from gateway.billing.cost import ledger_figures, price_call, primary_usage, total_cost
from gateway.core.frozen_records import record
from gateway.core.types import bill, keys, report_lists, turn

MAX_NAMED_ROWS = 1000
"""Rows that do not balance are named one by one up to this number, so that memory stays flat."""

UNNAMED_GROUP = "(none)"
AUDIT_GROUPS: dict[str, Callable[[turn.LedgerRow], str]] = {
    "day": lambda row: row.entry.created_at.astimezone(UTC).date().isoformat(),
    "model": lambda row: row.entry.model,
    "tenant": lambda row: row.entry.tenant,
    "user": lambda row: row.entry.end_user or UNNAMED_GROUP,
    "agent": lambda row: row.entry.agent or UNNAMED_GROUP,
    "endpoint": lambda row: row.entry.endpoint or report_lists.CHAT_ENDPOINT,
}
"""Groups by which rows can be added up. A day is one in UTC; the user is the one that the request named; the endpoint
is the API that was called."""


CHECKED_FIGURES = (
    *("cached_tokens", "cache_write_tokens", "known_cost", "planning_cost", "planning_unpriced"),
    *("saved", "bounced_tokens", "bounced_cost"),
)
METERED = ("direct_cost", "net_saving", "held_out")
"""The ledger's columns by which reports add up beside tokens and totals."""


@record
class AuditDifference:
    """A figure of the ledger that differs from the sum of its parts."""

    figure: str
    stored: Any
    found: Any


@dataclass(slots=True)
class LedgerAudit:
    """What the audit has found so far."""

    total: bill.CostSums = field(default_factory=bill.CostSums)
    by: dict[str, dict[str, bill.CostSums]] = field(default_factory=lambda: {"model": {}, "tenant": {}})
    """Sums by each of the groups that were asked for (`AUDIT_GROUPS`), and in it by name."""
    unbalanced: int = 0
    named: list[tuple[str, tuple[AuditDifference, ...]]] = field(default_factory=list)

    def add(self, row: turn.LedgerRow) -> tuple[AuditDifference, ...]:
        """Adds a row; returns the figures in it that do not balance."""
        sums = _sums_of(row)
        self.total += sums
        for group, totals in self.by.items():
            name = AUDIT_GROUPS[group](row)
            totals[name] = totals.get(name, bill.CostSums()) + sums
        found = differences(row)
        if found:
            self.unbalanced += 1
            if len(self.named) < MAX_NAMED_ROWS:
                self.named.append((row.entry.request_id, found))
        return found


def _sums_of(row: turn.LedgerRow) -> bill.CostSums:
    """Computes what a row adds to the totals: its cost and what leaving out saved as its bill states them."""
    total, calls = figures(row, "cost").get("total_cost"), row.entry.calls
    saved = figures(row, "context_utilization", "economics").get("realised_saving")
    internal = [call.total for call in calls if call.purpose not in bill.MODEL_PURPOSES]
    is_priced = isinstance(total, Decimal | int)
    costs = [total] if is_priced else [call.total for call in calls]
    return bill.CostSums(
        requests=1,
        partial=int(row.entry.status == "partial"),
        failed=int(row.entry.status == "failed"),
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        cost_picousd=_picousd(costs),
        priced=int(any(each is not None for each in costs)),
        unpriced=int(not is_priced),
        planning_cost_picousd=_picousd(internal),
        planning_unpriced=internal.count(None),
        estimated=int(row.estimated),
        saved_picousd=_picousd([saved if isinstance(saved, Decimal | int) else None]),
        metered=int(row.net_saving is not None),
        net_saving_picousd=_picousd([row.net_saving]),
    )


def _picousd(amounts: Iterable[Decimal | int | None]) -> int:
    return sum(keys.picousd(Decimal(each)) for each in amounts if each is not None)


def repriced(call: bill.CallCost, lines: list[bill.PriceLine] | None = None) -> bill.CallCost:
    """Prices the call again, by the usage and the rates that were stored with it.
    `lines`: receives each product that is added up."""
    prices = {name: price for name, rate in call.rates.items() if (price := _price(rate)) is not None}
    return price_call(call.purpose, call.model, call.usage, prices, estimated=call.estimated, lines=lines)


def differences(row: turn.LedgerRow) -> tuple[AuditDifference, ...]:
    """Returns the figures of a row that differ from what its calls add up to; empty if it balances."""
    if not row.entry.calls:
        return (AuditDifference("calls", "none", "at least one"),)
    return tuple(AuditDifference(*each) for each in _compared(row) if not _equal(*each[1:]))


def figures(row: turn.LedgerRow, *path: str) -> dict[str, Any]:
    """Returns an object inside the row's `response_metadata`; {} where there is none."""
    found: Any = row.entry.metadata
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _compared(row: turn.LedgerRow) -> Iterable[tuple[str, Any, Any]]:
    """Yields each figure of a row by its name: as stored, and as found by adding up."""
    calls = tuple(repriced(call) for call in row.entry.calls)
    for number, (call, again) in enumerate(zip(row.entry.calls, calls, strict=True)):
        yield f"calls[{number}].prompt_cost", call.prompt_cost, _kept(again.prompt_cost)
        yield f"calls[{number}].completion_cost", call.completion_cost, _kept(again.completion_cost)
    cost, planning = total_cost(calls)
    usage = bill.usage_of(primary_usage(calls))
    yield "ledger.prompt_tokens", row.prompt_tokens, usage.prompt_tokens
    yield "ledger.completion_tokens", row.completion_tokens, usage.completion_tokens
    yield "ledger.total_cost", row.total_cost, _kept(cost.total_cost)
    yield "ledger.estimated", row.estimated, cost.estimated
    if (counted := row.entry.figures) is not None:
        told = ledger_figures(row.entry.metadata, calls)
        # Without a net saving an older version wrote it, or nobody knows.
        for name in CHECKED_FIGURES if counted.net_saving is None else (*CHECKED_FIGURES, *METERED):
            yield f"ledger.{name}", getattr(counted, name), _kept(getattr(told, name))
    parts = {"usage": asdict(usage), "cost": asdict(cost)}
    if row.entry.metadata.get("managed") is not False:  # what is relayed uses no window
        parts["context_utilization.planning_cost"] = asdict(planning)
    for path, found in parts.items():
        kept = figures(row, *path.split("."))
        for name, value in found.items():
            yield f"{path}.{name}", kept.get(name), value
    for purpose, stored in figures(row, "context_utilization", "planning_usage").items():
        internal = [bill.usage_of(call.usage) for call in calls if call.purpose == purpose]
        for name in ("prompt_tokens", "completion_tokens"):
            if isinstance(stored, dict) and name in stored:
                yield f"planning_usage.{purpose}.{name}", stored[name], sum(getattr(each, name) for each in internal)


def _kept(value: Any) -> Any:
    """Returns the value as its column stores it: bounded by the largest number that fits."""
    return max(-turn.LARGEST_KEPT, min(value, turn.LARGEST_KEPT)) if isinstance(value, Decimal) else value


def _equal(stored: Any, expected: Any) -> bool:
    if isinstance(expected, bool) or isinstance(stored, bool) or expected is None or isinstance(expected, str):
        return stored is expected or (isinstance(expected, str) and stored == expected)
    return isinstance(stored, Decimal | int) and stored == expected


def _price(rate: Any) -> Decimal | None:
    try:
        price = Decimal(rate)
    except (InvalidOperation, TypeError, ValueError):
        return None
    return price if price.is_finite() else None
