"""Turns with bills of calls whose price is known, and is not."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from gateway.billing.cost import ledger_figures, price_call
from gateway.core.types.bill import PICO, CallCost
from gateway.core.types.turn import TurnCommit
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from tests.integration.commits import turn

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}


PRICES = dict.fromkeys(("input_cost_per_token", "output_cost_per_token"), PICO)


PRICED = price_call("primary", "m", USAGE, PRICES)


PLANNER = price_call("planner", "p", {"prompt_tokens": 2}, PRICES)


UNPRICED = CallCost("primary", "m", {"prompt_tokens": 1, "completion_tokens": 1}, None, None)


DAY = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)


def paid(
    conversation: str, calls: tuple[CallCost, ...] = (PRICED, PLANNER), *, rolled: bool = True, **more: Any
) -> TurnCommit:
    """A turn with a bill of these calls."""
    total = None if any(call.total is None for call in calls) else sum((c.total or 0 for c in calls), Decimal(0))
    usage = calls[0].usage
    entry = {
        "calls": calls,
        "metadata": {"usage": usage, "cost": {"total_cost": total}},
        "created_at": more.pop("created_at", DAY),
        "end_user": more.pop("end_user", "ann"),
    }
    if rolled:
        entry["figures"] = ledger_figures(entry["metadata"], calls)
    return turn(f"t-{conversation}", conversation, entry=entry, **more)


async def conversation(transactions: DatabaseTransactions, conversation_id: str) -> dict[str, Any]:
    """A row of the conversations."""
    query = sa.select(schema.conversations).where(schema.conversations.c.id == conversation_id)
    return (await transactions.run(lambda connection: connection.execute(query).one()))._asdict()
