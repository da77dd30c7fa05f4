"""Stores things: one row for each thing and place; a thing that is noted again updates its row.

Lists, reads and deletes things, and lists the conversations that are about one (guarantee §11.17).
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from gateway.core import errors, ids, jsons
from gateway.core.frozen_records import record
from gateway.core.types import memory, report_lists
from gateway.storage.cache.deleted_places import ListPlace
from gateway.storage.conversations.delete import forget_blocks
from gateway.storage.database import schema
from gateway.storage.encryption.columns import KeyVault, RowInsert, for_row, vault_of
from gateway.storage.rows import alike, utc

THINGS = schema.things
USERS = THINGS.alias("of_users")
ALIASES = schema.thing_aliases
USER_SCOPE_PREFIX = "user_"
"""The prefix of users' places; all others are conversations."""
BATCH = 500
INSERT_THINGS = RowInsert(THINGS, "ON CONFLICT DO NOTHING")
INSERT_ALIASES = RowInsert(ALIASES, "ON CONFLICT DO NOTHING")
Key = tuple[str, str, str]
"""Place, type and id of a thing."""


@record
class _WantedEntity:
    """Several notes of one thing in one place, merged."""

    place: str
    last: memory.ThingNote
    name: str | None
    aliases: tuple[str, ...]
    times: int
    only_new: bool = False

    def plus(self, note: memory.ThingNote) -> "_WantedEntity":
        aliases = _merged(note.aliases, self.aliases)
        return _WantedEntity(self.place, note, note.name or self.name, aliases, self.times + 1)


def write_things(connection: sa.Connection, tenant: str, noted: memory.NotedThings, now: datetime) -> list[str]:
    """Stores the noted things for each place, in a fixed order, so that two transactions with the same things do not
    deadlock. Returns the ids of the rows."""
    wanted = _wanted(noted)
    if not wanted:
        return []
    expires = now + timedelta(days=noted.days) if noted.days is not None else None
    new_ids = sorted(ids.new_id("mem_") for _ in wanted)  # so that ids of the same moment keep their order
    fresh = {key: _new_row(tenant, each, new_ids.pop(0), now, expires) for key, each in wanted.items()}
    INSERT_THINGS(connection, [fresh[key] for key in sorted(fresh)])
    stored = _stored(connection, wanted)
    for key, row in stored.items():
        if row.id == fresh[key]["id"]:
            _write_aliases(connection, fresh[key])
        elif not wanted[key].only_new:
            _note_again(connection, row, wanted[key], now, expires)
        elif not row.times and row.expires_at is not None and utc(row.expires_at) <= now:  # shown again
            connection.execute(THINGS.update().where(THINGS.c.id == row.id).values(expires_at=expires))
    return [stored[key].id for key in wanted if key in stored]


def are_remembered(connection: sa.Connection, tenant: str, things: Iterable[memory.MemoryEntity]) -> bool:
    """Returns whether none of these things was deleted. Locks them, so that a deletion finds what is written here."""
    names = {thing.memory_id for thing in things}
    own = sa.select(THINGS.c.id).where(THINGS.c.tenant == tenant, THINGS.c.id.in_(names)).order_by(THINGS.c.id)
    return names == set(connection.execute(own.with_for_update(read=True, key_share=True)).scalars())


def thing_of(row: Any) -> memory.MemoryEntity:
    return memory.MemoryEntity(
        **alike(row, memory.MemoryEntity, "memory_id", "scope", "aliases"),
        memory_id=row.id,
        scope="user" if row.conversation_id is None else "conversation",
        aliases=tuple(jsons.loads(row.aliases)),
    )


def thing_row(tenant: str, place: str, thing: memory.MemoryEntity) -> dict[str, Any]:
    same = ("type", "thing_id", "name", "action", "times", "created_at", "mentioned_at", "expires_at")
    return {
        **{name: getattr(thing, name) for name in same},
        "id": thing.memory_id,
        "tenant": tenant,
        "place": place,
        "conversation_id": None if place.startswith(USER_SCOPE_PREFIX) else place,
        "aliases": jsons.dumps_text(thing.aliases),
    }


def alias_rows(vault: KeyVault | None, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Builds the rows by which a thing is found: its aliases, and each word in them; with a key, their keyed
    digests."""
    aliases: list[str] = jsons.loads(row["aliases"])
    shared = {"tenant": row["tenant"], "place": row["place"], "mentioned_at": row["mentioned_at"]}
    keys = [(True, memory.lookup_key(alias)) for alias in aliases]
    keys += [(False, memory.lookup_key(word)) for alias in aliases for word in alias.split(" ")]
    if vault is not None:
        keys = [(whole, vault.word(alias, row["tenant"])) for whole, alias in keys]
    return [{"memory_id": row["id"], "whole": whole, "alias": alias, **shared} for whole, alias in dict.fromkeys(keys)]


def insert_things(connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> None:
    for start in range(0, len(rows), BATCH):
        page = rows[start : start + BATCH]
        INSERT_THINGS(connection, page)
        vault = vault_of(connection.dialect)
        INSERT_ALIASES(connection, [alias for row in page for alias in alias_rows(vault, row)])


def _wanted(noted: memory.NotedThings) -> dict[Key, _WantedEntity]:
    found: dict[Key, _WantedEntity] = {}
    for place in dict.fromkeys(noted.places):
        for note in noted.notes:
            key = (place, *note.key)
            known = found.get(key)
            found[key] = known.plus(note) if known else _WantedEntity(place, note, note.name, note.aliases, 1)
    for thing in noted.recalled:
        note, place = thing.as_note(), noted.places[0]
        found.setdefault((place, *note.key), _WantedEntity(place, note, note.name, note.aliases, 0, only_new=True))
    return found


def _new_row(
    tenant: str, wanted: _WantedEntity, memory_id: str, now: datetime, expires: datetime | None
) -> dict[str, Any]:
    note, place = wanted.last, wanted.place
    thing = memory.MemoryEntity(
        memory_id=memory_id,
        scope="conversation",
        conversation_id=place,
        type=note.type,
        thing_id=note.thing_id,
        name=wanted.name or note.thing_id,
        aliases=wanted.aliases[: memory.MAX_ALIASES],
        action=note.action,
        times=wanted.times,
        created_at=now,
        mentioned_at=now,
        expires_at=expires,
    )
    return thing_row(tenant, place, thing)


def _stored(connection: sa.Connection, keys: Iterable[Key]) -> dict[Key, Any]:
    """Returns the rows of these things, and locks them."""
    wanted = list(keys)
    places, names = {key[0] for key in wanted}, {key[2] for key in wanted}
    query = sa.select(THINGS).where(THINGS.c.place.in_(sorted(places)), THINGS.c.thing_id.in_(sorted(names)))
    ordered = query.order_by(THINGS.c.place, THINGS.c.type, THINGS.c.thing_id)
    found = connection.execute(ordered.with_for_update(key_share=True))  # `are_remembered` need not wait
    by_key = {(row.place, row.type, row.thing_id): row for row in found}
    return {key: by_key[key] for key in wanted if key in by_key}


def _note_again(
    connection: sa.Connection, row: Any, wanted: _WantedEntity, now: datetime, expires: datetime | None
) -> None:
    known = tuple(jsons.loads(row.aliases))
    aliases = _merged(wanted.aliases, known)
    values = {
        "name": wanted.name or row.name,
        "aliases": jsons.dumps_text(aliases),
        "action": wanted.last.action,
        "times": row.times + wanted.times,
        "mentioned_at": now,
        "expires_at": expires,
    }
    connection.execute(THINGS.update().where(THINGS.c.id == row.id).values(**for_row(THINGS, values, row.id)))
    if set(aliases) == set(known):
        own = ALIASES.c.memory_id == row.id
        connection.execute(ALIASES.update().where(own).values(mentioned_at=now))
        return
    connection.execute(ALIASES.delete().where(ALIASES.c.memory_id == row.id))
    _write_aliases(connection, {**row._mapping, **values})


def _write_aliases(connection: sa.Connection, row: dict[str, Any]) -> None:
    INSERT_ALIASES(connection, alias_rows(vault_of(connection.dialect), row))


def _merged(new: Sequence[str], old: Sequence[str]) -> tuple[str, ...]:
    """Merges names, new ones first; old names stay known, as people go on using them."""
    return tuple(dict.fromkeys((*new, *old)))[: memory.MAX_ALIASES]


def read_page(
    connection: sa.Connection, tenant: str, query: memory.ThingQuery, now: datetime, last: ListPlace | None = None
) -> report_lists.QueryPage[memory.MemoryEntity]:
    """Returns a page of things of a tenant, or of one place. `last`: where `after` stood, if it is deleted.
    Raises MemoryNotFound: `after` is none of the tenant's."""
    where = [THINGS.c.tenant == tenant, _valid(now), *_seen(query.own)]
    if query.place is not None:
        where.append(THINGS.c.place == query.place)
    if query.type is not None:
        where.append(THINGS.c.type == query.type)
    if query.after is not None and last is None:
        read_one(connection, tenant, query.after, now, param="after")
    return _page(connection, where, query, query.after)


def read_one(
    connection: sa.Connection,
    tenant: str,
    memory_id: str,
    now: datetime,
    place: str | None = None,
    own: str | None = None,
    *,
    param: str,
) -> memory.MemoryEntity:
    """Returns one thing. Raises MemoryNotFound: the tenant, or the place, has no such memory, or it is of a user's
    place that is not the `own` one."""
    where = [THINGS.c.tenant == tenant, THINGS.c.id == memory_id, _valid(now), *_seen(own)]
    if place is not None:
        where.append(THINGS.c.place == place)
    row = connection.execute(sa.select(THINGS).where(*where)).first()
    if row is None:
        raise errors.MemoryNotFound("No such memory.", param=param)
    return thing_of(row)


def read_conversations(
    connection: sa.Connection,
    tenant: str,
    kind: str,
    thing_id: str,
    query: memory.ThingQuery,
    now: datetime,
    last: ListPlace | None = None,
) -> report_lists.QueryPage[memory.MemoryEntity]:
    """Returns a page of a thing's rows in the conversations about it; `query.after` is a conversation's id, and `last`
    where its row stood, if that is deleted. Raises ConversationNotFound: `after` is none of them."""
    where = [THINGS.c.tenant == tenant, THINGS.c.type == kind, THINGS.c.thing_id == thing_id]
    where += [THINGS.c.conversation_id.is_not(None), _valid(now)]
    behind = None if last is None else last[1]
    if query.after is not None and behind is None:
        behind = connection.execute(sa.select(THINGS.c.id).where(*where, THINGS.c.place == query.after)).scalar()
        if behind is None:
            raise errors.ConversationNotFound("No such conversation.", param="after")
    return _page(connection, where, query, behind)


def _page(
    connection: sa.Connection, where: list[Any], query: memory.ThingQuery, last: str | None
) -> report_lists.QueryPage[memory.MemoryEntity]:
    """Returns the rows behind the one of id `last`, in the order of their ids: that in which they were first noted."""
    if last is not None:
        where = [*where, THINGS.c.id < last if query.newest_first else THINGS.c.id > last]
    order = THINGS.c.id.desc() if query.newest_first else THINGS.c.id
    rows = connection.execute(sa.select(THINGS).where(*where).order_by(order).limit(query.limit + 1)).all()
    return report_lists.QueryPage.of(map(thing_of, rows), query.limit)


def delete_one(
    connection: sa.Connection,
    tenant: str,
    memory_id: str,
    now: datetime,
    place: str | None = None,
    own: str | None = None,
) -> None:
    """Deletes a thing and what was forwarded of it beside questions: for a conversation's thing there, for a user's
    thing in each of the tenant's conversations about it. Those conversations stay, but lose all their blocks;
    conversations that were only shown the thing are not about it any more.
    Raises MemoryNotFound: as `read_one`."""
    thing = read_one(connection, tenant, memory_id, now, place, own, param="memory_id")
    connection.execute(THINGS.delete().where(THINGS.c.id == memory_id))  # first: waits for turns that were shown it
    about: list[Any] = [thing.conversation_id]
    if thing.conversation_id is None:
        where = (THINGS.c.tenant == tenant, THINGS.c.type == thing.type, THINGS.c.thing_id == thing.thing_id)
        about = list(connection.execute(sa.select(THINGS.c.conversation_id).where(*where)).scalars())
        connection.execute(THINGS.delete().where(*where, THINGS.c.conversation_id.is_not(None), THINGS.c.times == 0))
    for conversation_id in sorted(each for each in about if each is not None):
        forget_blocks(connection, tenant, conversation_id, now)


def expire(connection: sa.Connection, now: datetime, most: int) -> int:
    """Deletes expired things, `most` at once. Returns how many were deleted. Where a conversation was only shown a
    thing that a user still has, its row stays: by that the thing's deletion finds the block there."""
    same = (USERS.c.tenant == THINGS.c.tenant, USERS.c.type == THINGS.c.type, USERS.c.thing_id == THINGS.c.thing_id)
    lives = sa.or_(USERS.c.expires_at.is_(None), USERS.c.expires_at > now)
    still = sa.select(USERS.c.id).where(*same, USERS.c.conversation_id.is_(None), lives).exists()
    expired = sa.select(THINGS.c.id).where(THINGS.c.expires_at <= now, sa.or_(THINGS.c.times > 0, sa.not_(still)))
    expired = expired.order_by(THINGS.c.expires_at).limit(most)
    ids = list(connection.execute(expired).scalars())
    if ids:
        connection.execute(THINGS.delete().where(THINGS.c.id.in_(ids)))
    return len(ids)


def _seen(own: str | None) -> list[Any]:
    """Selects what is seen by one whose own place is `own`: all conversations' things, of users' only those."""
    return [] if own is None else [sa.or_(THINGS.c.conversation_id.is_not(None), THINGS.c.place == own)]


def _valid(now: datetime) -> Any:
    return sa.or_(THINGS.c.expires_at.is_(None), THINGS.c.expires_at > now)
