"""Stores a summary of old turns, once for each turn (guarantee §11.13)."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.core.types.memory import NewSegment
from gateway.storage.database import schema
from gateway.storage.database.sqlite import insert_if_new
from gateway.storage.encryption.columns import for_row
from gateway.storage.lookup.segments import Segments, all_segments, end_before
from gateway.storage.rows import utc
from gateway.storage.turns.message_rows import leads_to

CONVERSATIONS = schema.conversations


def locked(connection: sa.Connection, tenant: str, conversation_id: str) -> Any:
    """The row of a tenant's conversation, locked; None if it is gone. Of two replicas that summarize the same turns the
    second one finds the segment of the first; a deletion, which rewrites bills, comes before or after."""
    columns = (CONVERSATIONS.c.id, CONVERSATIONS.c.forgotten_at)
    where = (CONVERSATIONS.c.tenant == tenant, CONVERSATIONS.c.id == conversation_id)
    return connection.execute(sa.select(*columns).where(*where).with_for_update()).first()


def write_segment(connection: sa.Connection, row: Any, request_id: str, new: NewSegment, now: datetime) -> bool:
    """Stores a segment of a conversation whose row is `locked`. False where it must not be: an item was deleted since
    its turns were read, or one of these is covered by now."""
    if _at(row.forgotten_at) != _at(new.uncovered.forgotten_at):
        return False
    segment, segments = new.segment, all_segments(connection, row.id)
    if end_before(connection, segment.last_message_id, segments) != new.uncovered.after:
        return False
    if _is_covered(connection, new, segments):
        return False
    values = {
        "conversation_id": row.id,
        "last_message_id": segment.last_message_id,
        "id": segment.segment_id,
        "after_message_id": new.uncovered.after,
        "first_number": segment.first,
        "last_number": segment.last,
        "first_turn": segment.first_turn,
        "last_turn": segment.last_turn,
        "size": segment.size_chars,
        "text": segment.text.replace("\x00", "\ufffd"),  # PostgreSQL takes no NUL
        "prompt_version": new.prompt_version,
        "request_id": request_id,
        "created_at": now,
    }
    new_row = for_row(schema.summaries, values)
    stored = connection.execute(insert_if_new(connection, schema.summaries), new_row).rowcount == 1
    connection.execute(CONVERSATIONS.update().where(CONVERSATIONS.c.id == row.id).values(summarized=True))
    return stored


def _is_covered(connection: sa.Connection, new: NewSegment, segments: Segments) -> bool:
    """Whether a segment that goes on further on the same branch covers its last message. One that ends on another
    branch, behind what this one shares with it, does not hold here."""
    segment, path = new.segment, {each.message_id for each in new.uncovered.messages}
    longer = [s for s in segments.values() if s.first_number <= segment.last < s.last_number]
    end = new.uncovered.messages[-1].message_id
    return any(s.last_message_id in path or leads_to(connection, end, s.last_message_id) for s in longer)


def _at(value: datetime | None) -> datetime | None:
    return None if value is None else utc(value)
