"""Adds to the sums what is in none yet: rows of the ledger that an older version wrote (guarantee §13.1, ADR 26)."""

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.types.costs import MAX_COUNTED
from gateway.core.types.turn import LedgerEntry
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.database.engine import DatabaseTransactions
from gateway.storage.encryption.columns import for_row
from gateway.storage.turns.bills import calls_of, figure_columns
from gateway.storage.turns.questions import FORGOTTEN, question_columns
from gateway.storage.turns.roll_ups import add_to_conversation, add_to_days

BATCH = 200
"""Rows that one transaction adds: writers wait for no more than that."""
LEDGER, CONVERSATIONS, MESSAGES = schema.ledger, schema.conversations, schema.messages
WithFigures = Callable[[LedgerEntry], LedgerEntry]


async def count_older(transactions: DatabaseTransactions, tenant: str | None = None) -> int:
    """How many rows of the ledger are in no sums yet; `MAX_COUNTED` are looked at, at most.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    few = sa.select(LEDGER.c.tenant).where(LEDGER.c.rolled_up.is_(None)).limit(MAX_COUNTED).subquery()
    query = sa.select(sa.func.count()).select_from(few)
    if tenant is not None:
        query = query.where(few.c.tenant == tenant)
    return await transactions.run(lambda connection: int(connection.execute(query).scalar_one()))


async def add_older(transactions: DatabaseTransactions, with_figures: WithFigures) -> int:
    """Adds a batch of them; any number of processes may do this at once. Returns how many it added.

    Args:
        with_figures: gives a bill its figures (`billing.cost`).

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    return await transactions.run(lambda connection: _add(connection, with_figures), write=True)


def _add(connection: sa.Connection, with_figures: WithFigures) -> int:
    query = sa.select(LEDGER).where(LEDGER.c.rolled_up.is_(None)).order_by(LEDGER.c.request_id).limit(BATCH)
    found = connection.execute(query.with_for_update(skip_locked=True)).all()
    calls = calls_of(connection, [row.request_id for row in found])
    fresh: list[dict[str, Any]] = []
    for row in found:
        entry = with_figures(rows.entry_of(row, tuple(calls.get(row.request_id, ()))))
        figures = figure_columns(entry)
        connection.execute(LEDGER.update().where(LEDGER.c.request_id == row.request_id).values(**figures))
        fresh.append({**row._asdict(), **figures})
    add_to_days(connection, fresh)
    for each in fresh:
        add_to_conversation(connection, each)
    _name(connection, fresh)
    return len(fresh)


def _name(connection: sa.Connection, bills: Sequence[dict[str, Any]]) -> None:
    """Tells of the conversations of these bills how they begin, and who went on with them, where that is not known."""
    latest = {bill["conversation_id"]: bill for bill in sorted(bills, key=lambda bill: rows.utc(bill["created_at"]))}
    unnamed = sa.select(CONVERSATIONS.c.id).where(
        CONVERSATIONS.c.id.in_([each for each in latest if each is not None]), CONVERSATIONS.c.question.is_(None)
    )
    for conversation_id in list(connection.execute(unnamed.with_for_update()).scalars()):
        bill = latest[conversation_id]
        told = {name: bill[name] for name in ("model", "end_user")} | _question(connection, conversation_id)
        told = for_row(CONVERSATIONS, told, conversation_id)
        connection.execute(CONVERSATIONS.update().where(CONVERSATIONS.c.id == conversation_id).values(**told))


def _question(connection: sa.Connection, conversation_id: str) -> dict[str, str | None]:
    of_it = (MESSAGES.c.conversation_id == conversation_id, MESSAGES.c.role == "user", MESSAGES.c.body != "")
    first = sa.select(MESSAGES.c.body).where(*of_it).order_by(MESSAGES.c.sequence_number).limit(1)
    body = connection.execute(first).scalar()
    found = question_columns([jsons.loads_stored(body)] if body else [])
    return found if found["question"] else FORGOTTEN
