"""What one bill adds to sums (guarantee §13.1): by the rules by which an audit adds up the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from gateway.accounting.cost import cache_tokens
from gateway.models.bill import CallCost
from gateway.models.turn import LedgerEntry, LedgerFigures

ZERO = Decimal(0)


def ledger_figures(metadata: Mapping[str, Any], calls: Sequence[CallCost]) -> LedgerFigures:
    """The figures of a bill.

    Args:
        metadata: its `response_metadata`, with numbers as they are written.
    """
    cached, written = 0, 0
    known: Decimal | None = None
    planning, unpriced = ZERO, 0
    for call in calls:
        total = call.total
        if total is not None:
            known = total if known is None else known + total
        if call.purpose == "primary":
            cached, written = cache_tokens(call.usage)
        elif total is None:
            unpriced += 1
        else:
            planning += total
    return LedgerFigures(cached, written, known, planning, unpriced, _saved(metadata))


def with_figures(entry: LedgerEntry) -> LedgerEntry:
    """A stored bill with its figures, also where an older version wrote it without."""

    return replace(entry, figures=ledger_figures(entry.metadata, entry.calls))


def _saved(metadata: Mapping[str, Any]) -> Decimal:
    used = metadata.get("context_utilization")
    economics = used.get("economics") if isinstance(used, dict) else None
    saved = economics.get("realised_saving") if isinstance(economics, dict) else None
    return Decimal(saved) if isinstance(saved, Decimal | int) and not isinstance(saved, bool) else ZERO
