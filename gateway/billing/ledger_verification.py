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
from gateway.core.types import bill, report_lists, turn

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
class AuditTotals:
    """Sums over rows: tokens of primary models, and the cost in USD. Rows without a total are `unpriced`; of these, the
    cost holds the calls that have a price. `is_known`: at least one call in all has."""

    requests: int = 0
    partial: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: Decimal = Decimal(0)
    planning: Decimal = Decimal(0)
    """What the internal models cost; it is part of `cost`."""
    planning_unpriced: int = 0
    """Calls of internal models without a known price."""
    unpriced: int = 0
    estimated: int = 0
    is_known: bool = False
    saved: Decimal = Decimal(0)
    """What leaving out saved, by the bills; an estimate, as no invoice shows it."""
    metered: int = 0
    """Requests whose bills state what they would have cost without a gateway."""
    net_saving: Decimal = Decimal(0)
    """How much less the `metered` requests cost; below 0 where they cost more."""

    def add(self, row: turn.LedgerRow) -> None:
        cost = figures(row, "cost")
        saved = figures(row, "context_utilization", "economics").get("realised_saving")
        self.saved += saved if isinstance(saved, Decimal | int) else 0
        total = cost.get("total_cost")
        if row.net_saving is not None:
            self.metered, self.net_saving = self.metered + 1, self.net_saving + row.net_saving
        self.requests += 1
        self.partial += row.entry.status == "partial"
        self.failed += row.entry.status == "failed"
        self.prompt_tokens += row.prompt_tokens
        self.completion_tokens += row.completion_tokens
        self.estimated += row.estimated
        internal = [call.total for call in row.entry.calls if call.purpose not in bill.MODEL_PURPOSES]
        self.planning = sum((each for each in internal if each is not None), self.planning)
        self.planning_unpriced += internal.count(None)
        if isinstance(total, Decimal | int):
            self.cost, self.is_known = self.cost + total, True
            return
        self.unpriced += 1
        known = [each for call in row.entry.calls if (each := call.total) is not None]
        self.cost, self.is_known = sum(known, self.cost), self.is_known or bool(known)


@dataclass(slots=True)
class LedgerAudit:
    """What the audit has found so far."""

    total: AuditTotals = field(default_factory=AuditTotals)
    by: dict[str, dict[str, AuditTotals]] = field(default_factory=lambda: {"model": {}, "tenant": {}})
    """Sums by each of the groups that were asked for (`AUDIT_GROUPS`), and in it by name."""
    unbalanced: int = 0
    named: list[tuple[str, tuple[AuditDifference, ...]]] = field(default_factory=list)

    def add(self, row: turn.LedgerRow) -> tuple[AuditDifference, ...]:
        """Adds a row; returns the figures in it that do not balance."""
        self.total.add(row)
        for group, totals in self.by.items():
            totals.setdefault(AUDIT_GROUPS[group](row), AuditTotals()).add(row)
        found = differences(row)
        if found:
            self.unbalanced += 1
            if len(self.named) < MAX_NAMED_ROWS:
                self.named.append((row.entry.request_id, found))
        return found


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
