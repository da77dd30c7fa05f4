"""A bill with its arithmetic: tokens by kind times rate, each sum, and whether that is what is stored.

Prices are those that were stored with each call, the sums are `accounting`'s: what an audit adds up is what is shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gateway.billing.cost import ledger_figures, primary_usage, total_cost
from gateway.billing.ledger_verification import AuditDifference, differences, repriced
from gateway.core.types.bill import CallCost, CostMetadata, PriceLine, usage_of
from gateway.core.types.turn import LARGEST_KEPT, LedgerEntry, LedgerRow

OF_COMPLETION = ("output", "reasoning", "audio_output", "image_output")
"""Kinds of tokens on the completion's side; all others are on the prompt's."""


@dataclass(frozen=True, slots=True)
class ExplainedCall:
    """One priced call: its products, the exact sum of each side, and what that is when it is rounded to 12 decimals
    (half-even). A call without known prices has no lines, and its costs are None."""

    purpose: str
    model: str
    usage: Mapping[str, Any]
    prompt: tuple[PriceLine, ...]
    completion: tuple[PriceLine, ...]
    prompt_cost: Decimal | None
    completion_cost: Decimal | None
    total: Decimal | None
    estimated: bool


@dataclass(frozen=True, slots=True)
class ExplainedBill:
    """The calls, the primary model's first, their sums, and what of the stored figures is not what they add up to."""

    calls: tuple[ExplainedCall, ...]
    cost: CostMetadata
    differences: tuple[AuditDifference, ...]
    planning: Decimal | None
    realised_saving: Decimal | None
    """Of what was left out, without what that cost."""
    direct_cost: Decimal | None = None
    """What the client's own request would have cost; None where nobody knows."""
    net_saving: Decimal | None = None
    """How much less was billed, below 0 where it was more."""
    held_out: bool | None = None

    @property
    def balances(self) -> bool:
        """Whether the stored figures are these."""
        return not self.differences


def explained_bill(entry: LedgerEntry) -> ExplainedBill:
    """The arithmetic of a stored bill."""
    calls = tuple(sorted(entry.calls, key=lambda call: call.purpose != "primary"))
    again = tuple(map(repriced, calls))
    cost, planning = total_cost(again)
    economics = (entry.metadata.get("context_utilization") or {}).get("economics") or {}
    saved = economics.get("realised_saving")
    told = entry.figures or ledger_figures(entry.metadata, calls)
    return ExplainedBill(
        tuple(map(_explained, calls)),
        cost,
        differences(_row(entry, again)),
        planning.total_cost,
        saved if isinstance(saved, Decimal) else Decimal(saved) if isinstance(saved, int) else None,
        told.direct_cost,
        told.net_saving,
        told.held_out,
    )


def _explained(call: CallCost) -> ExplainedCall:
    lines: list[PriceLine] = []
    again = repriced(call, lines)
    prompt = tuple(line for line in lines if line.kind not in OF_COMPLETION and line.tokens)
    completion = tuple(line for line in lines if line.kind in OF_COMPLETION and line.tokens)
    costs = (again.prompt_cost, again.completion_cost, again.total)
    return ExplainedCall(call.purpose, call.model, call.usage, prompt, completion, *costs, call.estimated)


def _row(entry: LedgerEntry, calls: Sequence[CallCost]) -> LedgerRow:
    """The bill as an audit reads it; the columns of the ledger are what its document says."""
    usage = entry.metadata.get("usage") or {}
    cost = entry.metadata.get("cost") or {}
    total = cost.get("total_cost")
    known = usage_of(primary_usage(calls))
    return LedgerRow(
        entry,
        int(usage.get("prompt_tokens", known.prompt_tokens)),
        int(usage.get("completion_tokens", known.completion_tokens)),
        min(Decimal(total), LARGEST_KEPT) if isinstance(total, Decimal | int) else None,
        bool(cost.get("estimated")),
    )
