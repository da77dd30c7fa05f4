"""What a model was sent of a conversation: a row where messages do not show it (guarantee §4 I7, ADR 12)."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.core import ids, jsons
from gateway.core.types import conversation
from gateway.core.types.conversation import ConversationMessage, NewFrame, PromptFrame
from gateway.storage.database import schema
from gateway.storage.encryption.columns import RowInsert
from gateway.storage.lookup.locate import MESSAGES, upwards

FEW_READ, MAX_READ = 8, 200
"""Rows that are read, latest first, to find the full frame: a few, and if it is not among them the most that can matter
(`pipeline.frames.MAX_ADDITIONS` is less). A long conversation may have more."""
MAX_TRIED = 3
"""Frames of a branch that the client has left that are tried, latest first, to find where it was left."""
UNDECIDED = PromptFrame(additions=-1)
"""More rows are needed to decide."""
INSERT_FRAMES = RowInsert(schema.frames)


def read_frame(
    connection: sa.Connection, conversation_id: str, model: str, path: Sequence[ConversationMessage]
) -> PromptFrame | None:
    """Reads what a model was sent along a path: the latest full frame on it and all additions since; None if there is
    none. If the client has gone back, frames of the branch that it left count as far as their messages are shared.

    Frames of other branches are skipped by their ids; only bodies of frames that count are read."""
    if not path:
        return None
    here = {message.message_id for message in path}
    where = {"conversation": conversation_id, "model": model}
    few = connection.execute(_LATEST, {**where, "rows": FEW_READ}).all()
    found = _found(connection, few, here, path[-1], is_all=len(few) < FEW_READ)
    if found is UNDECIDED:
        rows = connection.execute(_LATEST, {**where, "rows": MAX_READ}).all()
        found = _found(connection, rows, here, path[-1], is_all=True)
    return found


def read_frame_then(
    connection: sa.Connection, conversation_id: str, model: str, way: AbstractSet[str | None], at: datetime
) -> PromptFrame | None:
    """Reads what a model had been sent along a path at a given time, by the frames of that path alone.
    `way`: the ids of the path's messages."""
    rows = connection.execute(_THEN, {"conversation": conversation_id, "model": model, "at": at, "rows": MAX_READ})
    ids, _ = _since_full(rows.all(), way)
    return _read(connection, ids)


def _found(
    connection: sa.Connection, rows: Sequence[Any], here: set[str | None], last: ConversationMessage, *, is_all: bool
) -> PromptFrame | None:
    """Builds the frame from the latest rows; `UNDECIDED` if older rows are needed, too."""
    if not is_all and rows[-1].sequence_number > (last.sequence_number or 0):
        return UNDECIDED
    beyond = _beyond(connection, rows, last)
    for way in (here | beyond, here) if beyond else (here,):
        ids, is_whole = _since_full(rows, way)
        if not (is_whole or is_all):
            return UNDECIDED
        found = _read(connection, ids)
        if way is here:
            return found
        if found is not None and (found.first is None or found.first in here):
            is_borrowed = any(row.message_id not in here for row in rows if row.id in ids)
            return replace(found.of(here), borrowed=True) if is_borrowed else found
    return None


def _beyond(connection: sa.Connection, rows: Sequence[Any], last: ConversationMessage) -> set[str]:
    """Returns the messages between the end of a path and where it was last forwarded: a client that changes a message
    leaves them, but what was forwarded before that message stays as it was."""
    number = last.sequence_number or 0
    later = sorted((row for row in rows if row.sequence_number > number), key=lambda row: row.created_at, reverse=True)
    for row in later[:MAX_TRIED]:
        where = {"from": row.message_id, "floor": number}
        way = {each.id: each.parent_id for each in connection.execute(_UPWARDS, where)}
        if last.message_id in way.values():
            return set(way)
    return set()


def _since_full(rows: Sequence[Any], way: AbstractSet[str | None]) -> tuple[list[str], bool]:
    """Returns the ids of a path's frames, latest first, down to the full one; and whether that is among them."""
    ids: list[str] = []
    for row in rows:
        if row.message_id in way:
            ids.append(row.id)
            if row.full:
                return ids, True
    return ids, False


def _read(connection: sa.Connection, ids: Sequence[str]) -> PromptFrame | None:
    if not ids:
        return None
    bodies = {row.id: row.body for row in connection.execute(_BODIES, {"ids": list(ids)})}
    found: PromptFrame | None = None
    for each in reversed(ids):
        frame = conversation.frame_of(jsons.loads_stored(bodies[each]))
        found = frame if found is None else found.followed_by(frame)
    return found


def write_frame(
    connection: sa.Connection, conversation_id: str, anchor: str | None, number: int, new: NewFrame, now: datetime
) -> None:
    """Stores a frame at the last forwarded message `anchor` (None: nowhere), whose sequence number is `number`."""
    if anchor is None:
        return
    row = {
        "id": ids.new_id("frame_"),
        "conversation_id": conversation_id,
        "model": new.model,
        "message_id": anchor,
        "sequence_number": number,
        "full": new.full,
        "body": jsons.dumps_stored(conversation.frame_body(new.frame)),
        "created_at": now,
    }
    INSERT_FRAMES(connection, [row])


def _latest_query() -> sa.Select[tuple[Any, ...]]:
    table = schema.frames
    where = (
        table.c.conversation_id == sa.bindparam("conversation", type_=sa.String),
        table.c.model == sa.bindparam("model", type_=sa.String),
    )
    order = (table.c.sequence_number.desc(), table.c.created_at.desc(), table.c.id.desc())
    columns = (table.c.id, table.c.message_id, table.c.full, table.c.sequence_number, table.c.created_at)
    return sa.select(*columns).where(*where).order_by(*order).limit(sa.bindparam("rows", type_=sa.Integer))


def _upwards_query() -> sa.Select[Any]:
    """Selects, from `:from` upwards, messages whose sequence number exceeds `:floor`."""
    behind = MESSAGES.c.sequence_number > sa.bindparam("floor", type_=sa.Integer)
    chain = upwards(first=behind, onwards=lambda _: behind)
    return sa.select(chain.c.id, chain.c.parent_id)


_LATEST = _latest_query()
_THEN = _latest_query().where(schema.frames.c.created_at <= sa.bindparam("at", type_=sa.DateTime(timezone=True)))
_UPWARDS = _upwards_query()
_BODIES = sa.select(schema.frames.c.id, schema.frames.c.body).where(
    schema.frames.c.id.in_(sa.bindparam("ids", expanding=True))
)
