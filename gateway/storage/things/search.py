"""Finds things by the words of a question: each run of its words is looked up in an index, and leads to the latest few
things that are called so. However many things there are, a question reads a bounded number of rows (ADR 24)."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.base import jsons
from gateway.models.things import MOST_RECALLED, Phrases, Thing
from gateway.storage.database import schema
from gateway.storage.things.write import thing_of

THINGS, ALIASES = schema.things, schema.thing_aliases
OF_EACH = 2 * MOST_RECALLED
"""Things that one run of words leads to at most: some may be in two places, or may have expired."""
MOST_FOUND = 30
"""Things that are read for one question: those that the longest of its runs lead to."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose things are searched: those of a place, or of a whole tenant."""

    tenant: str
    place: str | None = None


def find_things(
    connection: sa.Connection,
    owners: Iterable[Owner],
    phrases: Phrases,
    now: datetime,
    of_each: int = OF_EACH,
    most: int = MOST_FOUND,
) -> tuple[Thing, ...]:
    """The things that the phrases lead to: of each the latest `of_each`; `most` in all, those first that a whole
    alias leads to, by its words, then those of which most words were sought."""
    worth: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for owner in owners:
        for phrase, ids in _ids(connection, owner, phrases.whole, whole=True, of_each=of_each):
            size = phrase.count(" ") + 1
            worth |= {each: (max(size, worth[each][0]), 0) for each in ids}
        for _, ids in _ids(connection, owner, phrases.words, whole=False, of_each=of_each):
            worth |= {each: (worth[each][0], worth[each][1] + 1) for each in ids}
    if not worth:
        return ()
    best = sorted(worth, key=lambda each: worth[each], reverse=True)[:most]
    return tuple(map(thing_of, connection.execute(_READ, {"ids": best, "now": now})))


def lookup_query(dialect: str, *, whole: bool, by_place: bool) -> sa.Select[Any]:
    """For each phrase of `:phrases` (a JSON list) the ids of the latest `:of_each` things, with blanks between."""
    as_rows = sa.func.json_each if dialect == "sqlite" else sa.func.json_array_elements_text
    phrases = as_rows(sa.bindparam("phrases", type_=sa.Text) if dialect == "sqlite" else _as_json())
    each = phrases.table_valued("value").alias("each")
    column = ALIASES.c.place if by_place else ALIASES.c.tenant
    latest = (
        sa.select(ALIASES.c.memory_id)
        .where(column == sa.bindparam("owner"), ALIASES.c.whole.is_(whole), ALIASES.c.alias == each.c.value)
        .order_by(ALIASES.c.mentioned_at.desc(), ALIASES.c.memory_id.desc())
        .limit(sa.bindparam("of_each", type_=sa.Integer))
        .correlate(each)
        .subquery("latest")
    )
    ids = sa.select(sa.func.aggregate_strings(latest.c.memory_id, " ")).scalar_subquery()
    return sa.select(each.c.value, ids).select_from(each)


def _as_json() -> Any:
    return sa.cast(sa.bindparam("phrases", type_=sa.Text), sa.JSON)


def _ids(
    connection: sa.Connection, owner: Owner, phrases: Sequence[str], *, whole: bool, of_each: int
) -> list[tuple[str, list[str]]]:
    """Each phrase that leads to anything, with the ids of the things."""
    if not phrases:
        return []
    by_place = owner.place is not None
    values = {"phrases": jsons.dumps_text(phrases), "owner": owner.place or owner.tenant, "of_each": of_each}
    found = connection.execute(_query(connection.dialect.name, whole=whole, by_place=by_place), values)
    return [(phrase, ids.split(" ")) for phrase, ids in found if ids]


def _read_query() -> sa.Select[Any]:
    """The things of `:ids` whose time is not over at `:now`."""
    now = sa.bindparam("now", type_=THINGS.c.expires_at.type)
    valid = sa.or_(THINGS.c.expires_at.is_(None), THINGS.c.expires_at > now)
    return sa.select(THINGS).where(THINGS.c.id.in_(sa.bindparam("ids", expanding=True)), valid)


_READ = _read_query()
_QUERIES: dict[tuple[str, bool, bool], sa.Select[Any]] = {}


def _query(dialect: str, *, whole: bool, by_place: bool) -> sa.Select[Any]:
    key = (dialect, whole, by_place)
    if key not in _QUERIES:
        _QUERIES[key] = lookup_query(dialect, whole=whole, by_place=by_place)
    return _QUERIES[key]
