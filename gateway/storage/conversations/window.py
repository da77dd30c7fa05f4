"""What the latest answered request left of a conversation's window (guarantee §11.8)."""

from typing import Any

import sqlalchemy as sa

from gateway.models.memory import SummarySegment
from gateway.models.records import WindowRecord
from gateway.models.turn import LedgerEntry
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.lookup.find import turns_before
from gateway.storage.lookup.segments import segments_before
from gateway.storage.lookup.walk import MESSAGES, upwards
from gateway.storage.turns.standing import whole_entries

LEDGER, CONVERSATIONS = schema.ledger, schema.conversations
ANSWERED = ("complete", "partial")


def read_window(connection: sa.Connection, tenant: str, conversation_id: str, model: str | None) -> WindowRecord:
    """Of a conversation that the tenant has. The bill is found by an index; the path is walked only where artifacts of
    old messages stand in the window.

    Args:
        model: the model that was asked for; None: any.
    """
    where = [LEDGER.c.tenant == tenant, LEDGER.c.conversation_id == conversation_id, LEDGER.c.status.in_(ANSWERED)]
    if model is not None:
        where.append(LEDGER.c.model == model)
    latest = sa.select(LEDGER).where(*where).order_by(LEDGER.c.created_at.desc(), LEDGER.c.request_id.desc()).limit(1)
    row = connection.execute(latest).first()
    if row is None:
        return WindowRecord()
    (entry,) = whole_entries(connection, [rows.entry_of(row)])
    segments = _segments(connection, conversation_id, entry)
    return WindowRecord(entry, _turns_excluded(connection, entry), segments, _things(connection, conversation_id))


def _segments(connection: sa.Connection, conversation_id: str, entry: LedgerEntry) -> tuple[SummarySegment, ...]:
    """The summaries of old turns on the way to the request's answer."""
    query = sa.select(CONVERSATIONS.c.summarized, CONVERSATIONS.c.head_id).where(CONVERSATIONS.c.id == conversation_id)
    found = connection.execute(query).one()
    if not found.summarized:
        return ()
    own = connection.execute(_OWN, {"request": entry.request_id}).scalar()
    return segments_before(connection, conversation_id, own or found.head_id)


def _things(connection: sa.Connection, conversation_id: str) -> int:
    """How many things the conversation is about."""
    query = sa.select(sa.func.count()).where(schema.things.c.conversation_id == conversation_id)
    return int(connection.execute(query).scalar_one())


def _turns_excluded(connection: sa.Connection, entry: LedgerEntry) -> int | None:
    """How many turns began before the first message that was forwarded: a path's messages are numbered from 0 on."""
    utilization: Any = entry.metadata.get("context_utilization")
    excluded = utilization.get("messages_excluded") if isinstance(utilization, dict) else None
    if not isinstance(excluded, int) or not excluded:
        return 0
    first = _numbered(connection, entry, excluded)
    return None if first is None else turns_before(connection, first)


def _numbered(connection: sa.Connection, entry: LedgerEntry, number: int) -> Any:
    """The message of that number on the path of a request; walked up to only where branches have one each."""
    bounds = {"conversation": entry.conversation_id, "number": number}
    found = connection.execute(_NUMBERED, bounds).all()
    if len(found) < 2:
        return found[0] if found else None
    own = connection.execute(_OWN, {"request": entry.request_id}).scalar()
    name = connection.execute(_ABOVE, {**bounds, "from": own}).scalar() if own is not None else None
    return next((row for row in found if row.id == name), None)


def _above_query() -> sa.Select[Any]:
    """From `:from` upwards, the message of the number `:number`."""
    inside = MESSAGES.c.sequence_number >= sa.bindparam("number", type_=sa.Integer)
    here = MESSAGES.c.conversation_id == sa.bindparam("conversation", type_=sa.String)
    chain = upwards(MESSAGES.c.sequence_number, first=sa.and_(here, inside), onwards=lambda _: inside)
    return sa.select(chain.c.id).where(chain.c.sequence_number == sa.bindparam("number", type_=sa.Integer))


_NUMBERED = sa.select(
    MESSAGES.c.id, MESSAGES.c.parent_id, MESSAGES.c.conversation_id, MESSAGES.c.sequence_number
).where(
    MESSAGES.c.conversation_id == sa.bindparam("conversation", type_=sa.String),
    MESSAGES.c.sequence_number == sa.bindparam("number", type_=sa.Integer),
)
_OWN = sa.select(sa.func.max(MESSAGES.c.id)).where(MESSAGES.c.request_id == sa.bindparam("request", type_=sa.String))
_ABOVE = _above_query()
