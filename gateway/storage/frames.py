"""What a model was sent of a conversation: a row where it is not what the messages say (contract §4 I7, ADR 12)."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway import jsons
from gateway.ids import new_id
from gateway.models.conversation import ConversationMessage
from gateway.models.frames import Frame, NewFrame, body_of, frame_of
from gateway.storage import schema
from gateway.storage.inserts import RowInsert

MOST_READ = 200
"""So many rows are looked through, the latest first, for the full one that counts; `turns.MOST_ADDITIONS` is less."""
MOST_TRIED = 3
INSERT_FRAMES = RowInsert(schema.frames)


def read_frame(
    connection: sa.Connection, conversation_id: str, model: str, path: Sequence[ConversationMessage]
) -> Frame | None:
    """What was sent to a model along a path: the latest full frame on it and what was added since. Where the client
    has gone back on its path, that of the branch that it leaves counts, as far as it is shared.

    Rows of other branches are passed over by their ids; only those that count are read.
    """
    if not path:
        return None
    rows = connection.execute(_LATEST, {"conversation": conversation_id, "model": model}).all()
    here = {message.message_id for message in path}
    beyond = _beyond(connection, rows, path[-1])
    if beyond:
        found = _read(connection, rows, here | beyond)
        if found is not None and (found.first is None or found.first in here):
            return found
    return _read(connection, rows, here)


def _beyond(connection: sa.Connection, rows: Sequence[Any], last: ConversationMessage) -> set[str]:
    """Messages on the way from the end of a path to where it was last forwarded from: a client that changes a message
    leaves them, but what was forwarded before that message stays as it was then."""
    number = last.sequence_number or 0
    later = sorted((row for row in rows if row.sequence_number > number), key=lambda row: row.created_at, reverse=True)
    for row in later[:MOST_TRIED]:
        where = {"from": row.message_id, "floor": number}
        way = {each.id: each.parent_id for each in connection.execute(_UPWARDS, where)}
        if last.message_id in way.values():
            return set(way)
    return set()


def _read(connection: sa.Connection, rows: Sequence[Any], here: AbstractSet[str | None]) -> Frame | None:
    ids: list[str] = []
    for row in rows:
        if row.message_id in here:
            ids.append(row.id)
            if row.full:
                break
    if not ids:
        return None
    bodies = {row.id: row.body for row in connection.execute(_BODIES, {"ids": ids})}
    found: Frame | None = None
    for each in reversed(ids):
        frame = frame_of(jsons.loads_stored(bodies[each]))
        found = frame if found is None else found.followed_by(frame)
    return found


def write_frame(
    connection: sa.Connection, conversation_id: str, anchor: str | None, number: int, new: NewFrame, now: datetime
) -> None:
    """Stores a frame behind the message `anchor`, the last that was forwarded; `number` is its place in its chain."""
    if anchor is not None:
        INSERT_FRAMES(connection, [frame_row(conversation_id, anchor, number, new, now)])


def frame_row(conversation_id: str, anchor: str, number: int, new: NewFrame, now: datetime) -> dict[str, Any]:
    """The row of a frame."""
    return {
        "id": new_id("frame_"),
        "conversation_id": conversation_id,
        "model": new.model,
        "message_id": anchor,
        "sequence_number": number,
        "full": new.full,
        "body": jsons.dumps_stored(body_of(new.frame)),
        "created_at": now,
    }


def _latest_query() -> sa.Select[tuple[Any, ...]]:
    table = schema.frames
    where = (
        table.c.conversation_id == sa.bindparam("conversation", type_=sa.String),
        table.c.model == sa.bindparam("model", type_=sa.String),
    )
    order = (table.c.sequence_number.desc(), table.c.created_at.desc(), table.c.id.desc())
    columns = (table.c.id, table.c.message_id, table.c.full, table.c.sequence_number, table.c.created_at)
    return sa.select(*columns).where(*where).order_by(*order).limit(MOST_READ)


def _bodies_query() -> sa.Select[tuple[Any, ...]]:
    table = schema.frames
    return sa.select(table.c.id, table.c.body).where(table.c.id.in_(sa.bindparam("ids", expanding=True)))


def _upwards_query() -> sa.Select[tuple[Any, ...]]:
    """From `:from` upwards, messages whose place in their chain is behind `:floor`."""
    table = schema.messages
    columns = (table.c.id, table.c.parent_id)
    behind = table.c.sequence_number > sa.bindparam("floor", type_=sa.Integer)
    first = sa.select(*columns).where(table.c.id == sa.bindparam("from", type_=sa.String), behind)
    cte = first.cte("upwards", recursive=True)
    cte = cte.union_all(sa.select(*columns).where(table.c.id == cte.c.parent_id, behind))
    return sa.select(cte.c.id, cte.c.parent_id)


_LATEST = _latest_query()
_UPWARDS = _upwards_query()
_BODIES = _bodies_query()
