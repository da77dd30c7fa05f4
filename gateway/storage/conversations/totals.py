"""What a conversation has taken so far: its turns, their tokens and cost (guarantee §6)."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.core.types.bill import OF_MODELS
from gateway.core.types.records import ConversationTotals, RequestSpending, TurnTotal
from gateway.core.types.tool_steps import in_loop_after
from gateway.storage import rows
from gateway.storage.database import schema

LISTED = 100
"""Turns that are listed one by one: the latest."""
LEDGER, CALLS, MESSAGES = schema.ledger, schema.ledger_calls, schema.messages


@dataclass(slots=True)
class _TurnRequests:
    """The requests of one turn: its first, and those of its tool loop."""

    spent: RequestSpending
    requests: list[str]
    status: str
    created_at: datetime


def read_totals(connection: sa.Connection, tenant: str, conversation_id: str) -> ConversationTotals:
    """Of a conversation that the tenant has. A request without a stored message (a dry run, one whose turn could not be
    stored) counts in the sums and makes no turn."""
    begun_by = _first_requests(connection, conversation_id)
    total, turns = RequestSpending(), dict[str, _TurnRequests]()
    by_agent: dict[str | None, RequestSpending] = {}
    for row in _bills(connection, tenant, conversation_id):
        spent = _spending(row)
        total = total.plus(spent)
        by_agent[row.agent] = by_agent.get(row.agent, RequestSpending()).plus(spent)
        first = begun_by.get(row.request_id)
        if first is None:
            continue
        turn = turns.setdefault(first, _TurnRequests(RequestSpending(), [], row.status, rows.utc(row.created_at)))
        turn.spent, turn.status = turn.spent.plus(spent), row.status
        turn.requests.append(row.request_id)
    listed = list(enumerate(turns.values(), 1))[-LISTED:]
    each = (TurnTotal(n, tuple(turn.requests), turn.status, turn.created_at, turn.spent) for n, turn in listed)
    return ConversationTotals(len(turns), total, tuple(each), by_agent)


def read_spending(connection: sa.Connection, tenant: str, conversation_id: str) -> dict[str, RequestSpending]:
    """What each request of a conversation took, by its id."""
    return {row.request_id: _spending(row) for row in _bills(connection, tenant, conversation_id)}


def _first_requests(connection: sa.Connection, conversation_id: str) -> dict[str, str]:
    """For each request that stored a message, the request that began its turn: the one of the user message above that
    did (`turn_starts`)."""
    columns = (MESSAGES.c.id, MESSAGES.c.parent_id, MESSAGES.c.role, MESSAGES.c.request_id)
    query = sa.select(*columns).where(MESSAGES.c.conversation_id == conversation_id)
    first_of: dict[str, str] = {}  # by message
    in_loop: dict[str | None, bool] = {}
    found: dict[str, str] = {}
    for row in connection.execute(query.order_by(MESSAGES.c.sequence_number)):
        before = in_loop.get(row.parent_id, False)
        in_loop[row.id] = in_loop_after(row.role, before=before)
        above = None if row.role == "user" and not before else first_of.get(row.parent_id)
        first_of[row.id] = above or row.request_id
        found[row.request_id] = first_of[row.id]
    return found


def _bills(connection: sa.Connection, tenant: str, conversation_id: str) -> Iterable[Any]:
    """The conversation's rows of the ledger as their requests arrived, each with what its internal calls cost."""
    cost = CALLS.c.prompt_cost_picousd + CALLS.c.completion_cost_picousd
    internal = sa.select(CALLS.c.request_id, sa.func.sum(cost).label("planning"))
    internal = internal.join(LEDGER, LEDGER.c.request_id == CALLS.c.request_id)
    of_it = (LEDGER.c.tenant == tenant, LEDGER.c.conversation_id == conversation_id)
    planned = internal.where(*of_it, CALLS.c.purpose.not_in(OF_MODELS)).group_by(CALLS.c.request_id).subquery()
    names = ("request_id", "status", "created_at", "prompt_tokens", "completion_tokens", "total_cost_picousd", "agent")
    columns = (*(LEDGER.c[name] for name in names), LEDGER.c.estimated, planned.c.planning)
    joined = LEDGER.outerjoin(planned, planned.c.request_id == LEDGER.c.request_id)
    query = sa.select(*columns).select_from(joined).where(*of_it)
    return connection.execute(query.order_by(LEDGER.c.created_at, LEDGER.c.request_id))


def _spending(row: Any) -> RequestSpending:
    planning = rows.usd(int(row.planning or 0))
    cost = rows.usd(row.total_cost_picousd)
    tokens = (row.prompt_tokens, row.completion_tokens)
    return RequestSpending(1, *tokens, cost, planning if cost is not None else None, estimated=bool(row.estimated))
