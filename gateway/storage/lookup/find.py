"""Reads what a request needs of a stored conversation: the end of the path that leads to where it continues."""

from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from gateway.base import jsons
from gateway.models.artifacts import Artifact
from gateway.models.conversation import (
    NOWHERE,
    ConversationMessage,
    ConversationRef,
    Lookup,
    ResumePoint,
    StoredConversation,
)
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.lookup.frames import read_frame
from gateway.storage.lookup.recognise import MARKED, locate, place_behind, recognised


def find(
    connection: sa.Connection,
    tenant: str,
    ref: ConversationRef,
    sought: Lookup | None,
    max_bytes: int | None,
    model: str | None = None,
) -> StoredConversation | None:
    """The conversation that is named, or else the one that is recognised; see `ports.ConversationStore`."""
    if sought is not None and sought.keys:
        conversation_id = recognised(connection, tenant, sought.keys)
        if conversation_id is None:
            return None
        ref = ConversationRef(conversation_id)
    row = conversation_row(connection, tenant, ref)
    if row is None:
        return None
    place = place_behind(row)
    if sought is not None:
        place = locate(connection, row.id, row.head_id, sought) or (place if sought.maybe_delta else NOWHERE)
    found = _load(connection, row, place, sought, max_bytes, framed=bool(row.framed) and model is not None)
    frame = read_frame(connection, row.id, model, found.path) if row.framed and model is not None else None
    return replace(found, frame=frame, updated_at=rows.utc(row.updated_at))


def conversation_row(connection: sa.Connection, tenant: str, ref: ConversationRef) -> Any:
    """The row of a tenant's conversation, by id or by session, with the marks of its head; None if there is none."""
    if "\x00" in f"{ref.conversation_id}{ref.session}":  # PostgreSQL takes no NUL, and nothing has such a name
        return None
    table = schema.conversations
    joined = table.outerjoin(schema.messages, schema.messages.c.id == table.c.head_id)
    if ref.conversation_id is None:
        joined = joined.join(schema.sessions, schema.sessions.c.conversation_id == table.c.id)
    query = sa.select(table, *MARKED).select_from(joined).where(table.c.tenant == tenant)
    if ref.conversation_id is not None:
        query = query.where(table.c.id == ref.conversation_id)
    else:
        named = sa.and_(schema.sessions.c.tenant == tenant, schema.sessions.c.name == ref.session)
        query = query.where(named)
    return connection.execute(query).first()


def _load(
    connection: sa.Connection,
    row: Any,
    place: ResumePoint,
    sought: Lookup | None,
    max_bytes: int | None,
    *,
    framed: bool,
) -> StoredConversation:
    """`framed`: what was sent of it before may be something else, so its messages have to be looked at."""
    attached: tuple[Artifact, ...] = ()
    if row.attachments:
        documents = schema.attachments
        query = sa.select(documents).where(documents.c.conversation_id == row.id)
        attached = tuple(rows.attachment_of(r) for r in connection.execute(query.order_by(documents.c.number)))
    brief = sought is not None and sought.brief and not (attached or framed) and place.holds_as_sent(sought)
    if brief and sought is not None and sought.instructed:
        return StoredConversation(row.id, row.head_id, place=place, read=False)
    instructions = _instructions(connection, row, place.message_id or row.head_id)
    if brief and not instructions:
        return StoredConversation(row.id, row.head_id, place=place, read=False)
    path = _path(connection, place.message_id, max_bytes)
    return StoredConversation(row.id, row.head_id, path, instructions, attached, place)


def _instructions(connection: sa.Connection, row: Any, message_id: str | None) -> tuple[dict[str, Any], ...]:
    """The system messages in force at a message; before the first one those that the conversation itself names."""
    messages, table = schema.messages, schema.instructions
    digest: Any = row.instructions_digest
    if message_id is not None:
        digest = sa.select(messages.c.instructions_digest).where(messages.c.id == message_id).scalar_subquery()
    elif digest is None:
        return ()
    query = sa.select(table.c.body).where(table.c.conversation_id == row.id, table.c.digest == digest)
    body = connection.execute(query).scalar()
    return tuple(jsons.loads_stored(body)) if body is not None else ()


def _path(connection: sa.Connection, last: str | None, max_bytes: int | None) -> tuple[ConversationMessage, ...]:
    """The messages that end with `last`, oldest first: all of them, or as many as take up `max_bytes` in a window."""
    if last is None:
        return ()
    limit = max_bytes if max_bytes is not None else 2**62
    found = connection.execute(_PATH_QUERY, {"head": last, "limit": limit}).all()
    results: dict[str, object] = {}
    return tuple(rows.message_of(row, results) for row in reversed(found))


def _path_query() -> sa.Select[tuple[object, ...]]:
    """Walks up from `:head` over small columns while the weights add up to no more than `:limit`, and on to the user
    message that begins the turn it is in; only then reads the bodies."""
    table = schema.messages
    depth = sa.literal(1).label("depth")
    weight = sa.cast(table.c.weight, sa.BigInteger).label("total")
    walk = sa.select(table.c.id, table.c.parent_id, table.c.role, depth, weight)
    cte = walk.where(table.c.id == sa.bindparam("head", type_=sa.String)).cte("path", recursive=True)
    total = cte.c.total + table.c.weight
    within = sa.or_(total <= sa.bindparam("limit", type_=sa.BigInteger), cte.c.role != "user")
    step = sa.select(table.c.id, table.c.parent_id, table.c.role, cte.c.depth + 1, total)
    cte = cte.union_all(step.where(sa.and_(table.c.id == cte.c.parent_id, within)))
    return sa.select(table).join(cte, cte.c.id == table.c.id).order_by(cte.c.depth)


_PATH_QUERY = _path_query()
