"""The second half of a migration, after the last older version has stopped: `gateway migrate --finish` (ADR 10, 19)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import sqlalchemy as sa

from gateway.core.types import tool_steps
from gateway.core.types.conversation import ConversationMessage
from gateway.storage import rows
from gateway.storage.conversations.delete import forget_failures
from gateway.storage.conversations.item_store import open_step
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions, insert_if_new
from gateway.storage.encryption.columns import for_row
from gateway.storage.lookup.locate import MESSAGES, whole_messages
from gateway.storage.reports.costs import set_right
from gateway.storage.turns.steps import SINCE, step_rows

BATCH = 200
"""Rows that one transaction moves, and so the most that a writer waits for."""
REVISIONS = schema.schema_revisions
Batch = Callable[..., tuple[int, str | None]]
"""Changes some messages behind the one called `after`; see `_move`."""


async def finish(transactions: DatabaseTransactions, told: Callable[[int], None] | None = None) -> int:
    """Completes a migration: forbids older versions from now on, adds what they left out of the daily sums, moves the
    results of tool steps to `reasoning_events`, and deletes upstream errors that may quote what an older version
    deleted. It may be interrupted at any time, and continues when it is run again.

    Returns how many results it moved; `told` is called with the size of each batch.
    Raises StorageUnavailable: the storage cannot be reached; earlier batches stay moved."""
    await transactions.run(lambda connection: connection.execute(_CLOSE).close(), write=True)
    await set_right(transactions)
    moved = await _in_batches(transactions, _move, told)
    await _in_batches(transactions, _forget)
    await _in_batches(transactions, _forget_failures)
    return moved


async def _in_batches(
    transactions: DatabaseTransactions, batch: Batch, told: Callable[[int], None] | None = None
) -> int:
    """Goes through all rows once, however many there are; returns how many were changed."""
    changed, last = 0, ""
    while True:
        count, end = await transactions.run(partial(batch, after=last), write=True)
        changed += count
        if told is not None:
            told(count)
        if end is None:
            return changed
        last = end


def _move(connection: sa.Connection, after: str) -> tuple[int, str | None]:
    """Moves a batch of results behind the message `after`. Returns how many, and the last of them; None at the end."""
    found = connection.execute(_RESULTS, {"after": after, "limit": BATCH}).all()
    for row in found:
        step = for_row(STEPS, _step(connection, row))
        connection.execute(insert_if_new(connection, schema.reasoning_events), step)
        of_it = (STEPS.c.conversation_id == row.conversation_id, STEPS.c.message_id == row.id)
        connection.execute(STEPS.update().where(*of_it).values(result=step["result"]))
        connection.execute(MESSAGES.update().where(MESSAGES.c.id == row.id).values(body=""))
    return len(found), found[-1].id if found else None


def _forget(connection: sa.Connection, after: str) -> tuple[int, str | None]:
    """Clears a batch of what the previous version noted of steps with answers: the messages hold all of it."""
    found = connection.execute(_NOTED, {"after": after, "limit": BATCH}).scalars().all()
    connection.execute(MESSAGES.update().where(MESSAGES.c.id.in_(found)).values(reasoning_events=None))
    return len(found), found[-1] if found else None


def _forget_failures(connection: sa.Connection, after: str) -> tuple[int, str | None]:
    """Clears a batch of failures that are older than a deletion in their conversation, or whose conversation is gone:
    older versions did not know them. Returns as `_move`."""
    found = connection.execute(_QUOTING, {"after": after, "limit": BATCH}).scalars().all()
    forget_failures(connection, schema.ledger.c.request_id.in_(found))
    return len(found), found[-1] if found else None


def _step(connection: sa.Connection, row: Any) -> dict[str, Any]:
    message: ConversationMessage = rows.message_of(row)
    before = open_step(connection, row.parent_id)
    answer = connection.execute(_ANSWER, {"request": row.request_id, "conversation": row.conversation_id}).scalar()
    place = {"id": row.id, "conversation_id": row.conversation_id, "created_at": rows.utc(row.created_at)}
    (step,) = step_rows(before, [(message, {**place, "body": row.body})], answer, apart=True)
    return step


STEPS = schema.reasoning_events
_CLOSE = REVISIONS.update().where(REVISIONS.c.revision >= SINCE, REVISIONS.c.oldest < SINCE).values(oldest=SINCE)
_RESULTS = (
    whole_messages()
    .where(MESSAGES.c.id > sa.bindparam("after", type_=sa.String))
    .where(MESSAGES.c.role.in_(tool_steps.RESULT_ROLES), MESSAGES.c.body != "")
    .order_by(MESSAGES.c.id)
    .limit(sa.bindparam("limit"))
    .with_for_update(of=MESSAGES)
)
_ANSWER = (
    sa.select(MESSAGES.c.id)
    .where(MESSAGES.c.request_id == sa.bindparam("request"), MESSAGES.c.choice.is_not(None))
    .where(MESSAGES.c.conversation_id == sa.bindparam("conversation"))
    .order_by(MESSAGES.c.choice)
    .limit(1)
)
_KEPT = (
    sa.select(schema.conversations.c.id)
    .where(schema.conversations.c.id == schema.ledger.c.conversation_id)
    .where(
        sa.or_(
            schema.conversations.c.forgotten_at.is_(None),
            schema.conversations.c.forgotten_at < schema.ledger.c.created_at,
        )
    )
)
_QUOTING = (
    sa.select(schema.ledger.c.request_id)
    .where(schema.ledger.c.request_id > sa.bindparam("after", type_=sa.String))
    .where(schema.ledger.c.failure.is_not(None), schema.ledger.c.conversation_id.is_not(None), ~_KEPT.exists())
    .order_by(schema.ledger.c.request_id)
    .limit(sa.bindparam("limit"))
)
_NOTED = (
    sa.select(MESSAGES.c.id)
    .where(MESSAGES.c.id > sa.bindparam("after", type_=sa.String), MESSAGES.c.reasoning_events.is_not(None))
    .order_by(MESSAGES.c.id)
    .limit(sa.bindparam("limit"))
)
