"""Things as they are listed, read and deleted, and the conversations that are about one (guarantee §11.17)."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.core.errors import ConversationNotFound, MemoryNotFound
from gateway.core.types.entities import MemoryEntity, ThingPage, ThingQuery
from gateway.storage.conversations.delete import forget_blocks
from gateway.storage.database import schema
from gateway.storage.entities.write_entities import thing_of

THINGS = schema.things


def read_page(connection: sa.Connection, tenant: str, query: ThingQuery, now: datetime) -> ThingPage:
    """A page of a tenant's things, or of those of one place.

    Raises:
        MemoryNotFound: `after` is none of them.
    """
    where = [THINGS.c.tenant == tenant, _valid(now)]
    if query.place is not None:
        where.append(THINGS.c.place == query.place)
    if query.type is not None:
        where.append(THINGS.c.type == query.type)
    if query.after is not None:
        read_one(connection, tenant, query.after, now, param="after")
    return _page(connection, where, query, query.after)


def read_one(
    connection: sa.Connection, tenant: str, memory_id: str, now: datetime, place: str | None = None, *, param: str
) -> MemoryEntity:
    """
    Raises:
        MemoryNotFound: the tenant, or the place, has no such memory.
    """
    where = [THINGS.c.tenant == tenant, THINGS.c.id == memory_id, _valid(now)]
    if place is not None:
        where.append(THINGS.c.place == place)
    row = connection.execute(sa.select(THINGS).where(*where)).first()
    if row is None:
        raise MemoryNotFound("No such memory.", param=param)
    return thing_of(row)


def read_conversations(
    connection: sa.Connection, tenant: str, kind: str, thing_id: str, query: ThingQuery, now: datetime
) -> ThingPage:
    """The rows of a thing in the conversations that are about it; `query.after` is the id of a conversation.

    Raises:
        ConversationNotFound: `after` is none of them.
    """
    where = [THINGS.c.tenant == tenant, THINGS.c.type == kind, THINGS.c.thing_id == thing_id]
    where += [THINGS.c.conversation_id.is_not(None), _valid(now)]
    last = None
    if query.after is not None:
        last = connection.execute(sa.select(THINGS.c.id).where(*where, THINGS.c.place == query.after)).scalar()
        if last is None:
            raise ConversationNotFound("No such conversation.", param="after")
    return _page(connection, where, query, last)


def _page(connection: sa.Connection, where: list[Any], query: ThingQuery, last: str | None) -> ThingPage:
    """The rows behind the one of id `last`, in the order of their ids: that in which they were noted first."""
    if last is not None:
        where = [*where, THINGS.c.id < last if query.newest_first else THINGS.c.id > last]
    order = THINGS.c.id.desc() if query.newest_first else THINGS.c.id
    rows = connection.execute(sa.select(THINGS).where(*where).order_by(order).limit(query.limit + 1)).all()
    return ThingPage(tuple(map(thing_of, rows[: query.limit])), len(rows) > query.limit)


def delete_one(connection: sa.Connection, tenant: str, memory_id: str, now: datetime, place: str | None = None) -> None:
    """Deletes a thing, and what was forwarded of it beside questions: that of a conversation there, that of a user in
    each conversation of the tenant that is about it. Their other blocks go with it, and the conversations stay; those
    that were only shown it are not about it any more.

    Raises:
        MemoryNotFound: the tenant, or the place, has no such memory.
    """
    thing = read_one(connection, tenant, memory_id, now, place, param="memory_id")
    about: list[Any] = [thing.conversation_id]
    if thing.conversation_id is None:
        where = (THINGS.c.tenant == tenant, THINGS.c.type == thing.type, THINGS.c.thing_id == thing.thing_id)
        about = list(connection.execute(sa.select(THINGS.c.conversation_id).where(*where)).scalars())
        connection.execute(THINGS.delete().where(*where, THINGS.c.conversation_id.is_not(None), THINGS.c.times == 0))
    connection.execute(THINGS.delete().where(THINGS.c.id == memory_id))
    for conversation_id in sorted(each for each in about if each is not None):
        forget_blocks(connection, conversation_id, now)


def expire(connection: sa.Connection, now: datetime, most: int) -> int:
    """Deletes things whose time is over, `most` at once. Returns how many were deleted."""
    expired = sa.select(THINGS.c.id).where(THINGS.c.expires_at <= now).order_by(THINGS.c.expires_at).limit(most)
    ids = list(connection.execute(expired).scalars())
    if ids:
        connection.execute(THINGS.delete().where(THINGS.c.id.in_(ids)))
    return len(ids)


def _valid(now: datetime) -> Any:
    return sa.or_(THINGS.c.expires_at.is_(None), THINGS.c.expires_at > now)
