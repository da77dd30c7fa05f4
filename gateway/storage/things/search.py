"""Finds things by the words of a question: each run of its words is looked up in an index, and leads to the latest few
things that are called so. However many things there are, a question reads a bounded number of rows (ADR 24)."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from functools import cache
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


def find_things(
    connection: sa.Connection,
    tenant: str,
    places: Sequence[str] | None,
    phrases: Phrases,
    now: datetime,
    of_each: int = OF_EACH,
    most: int = MOST_FOUND,
) -> tuple[Thing, ...]:
    """The things that the phrases lead to: of each the latest `of_each`; `most` in all, those first that a whole
    alias leads to, by its words, then those of which most words were sought.

    Args:
        places: where; None: in all places of the tenant.
    """
    found = _looked_up(connection, tenant, places, phrases, of_each)
    if not found:
        return ()
    worth: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for whole, phrase, ids in found:
        size = phrase.count(" ") + 1
        for each in ids:
            words, single = worth[each]
            worth[each] = (max(size, words), single) if whole else (words, single + 1)
    best = sorted(worth, key=lambda each: worth[each], reverse=True)[:most]
    return tuple(map(thing_of, connection.execute(_READ, {"ids": best, "now": now})))


def _looked_up(
    connection: sa.Connection, tenant: str, places: Sequence[str] | None, phrases: Phrases, of_each: int
) -> list[tuple[bool, str, list[str]]]:
    """Each phrase that leads to anything, whether as a whole alias, and the ids of the things."""
    owners = (tenant,) if places is None else places
    if not (owners and (phrases.whole or phrases.words)):
        return []
    given = {"owners": owners, "phrases": phrases.whole, **({"words": phrases.words} if phrases.words else {})}
    values = {name: jsons.dumps_text(each) for name, each in given.items()} | {"of_each": of_each}
    query = lookup_query(connection.dialect.name, words=bool(phrases.words), by_place=places is not None)
    rows = connection.execute(query, values)
    return [(bool(whole), phrase, ids.split(" ")) for whole, phrase, ids in rows if ids]


@cache
def lookup_query(dialect: str, *, words: bool, by_place: bool) -> sa.Select[Any] | sa.CompoundSelect[Any]:
    """For each of `:owners` and each of `:phrases` (JSON lists) the ids of the latest `:of_each` things, with blanks
    between; with `words` also for each of `:words`."""
    column = ALIASES.c.place if by_place else ALIASES.c.tenant
    whole = _of_kind(dialect, column, "phrases", whole=True)
    return sa.union_all(whole, _of_kind(dialect, column, "words", whole=False)) if words else whole


def _of_kind(dialect: str, column: sa.Column[Any], name: str, *, whole: bool) -> sa.Select[Any]:
    owner, phrase = _members(dialect, "owners"), _members(dialect, name)
    latest = (
        sa.select(ALIASES.c.memory_id)
        .where(column == owner.c.value, ALIASES.c.whole.is_(whole), ALIASES.c.alias == phrase.c.value)
        .order_by(ALIASES.c.mentioned_at.desc(), ALIASES.c.memory_id.desc())
        .limit(sa.bindparam("of_each", type_=sa.Integer))
        .correlate(owner, phrase)
        .subquery("latest")
    )
    ids = sa.select(sa.func.aggregate_strings(latest.c.memory_id, " ")).scalar_subquery()
    return sa.select(sa.literal_column("1" if whole else "0"), phrase.c.value, ids).select_from(
        sa.join(owner, phrase, sa.true())
    )


def _members(dialect: str, name: str) -> Any:
    """The members of a JSON list as rows."""
    given: Any = sa.bindparam(name, type_=sa.Text)
    if dialect == "sqlite":
        return sa.func.json_each(given).table_valued("value").alias(f"each_of_{name}")
    return sa.func.json_array_elements_text(sa.cast(given, sa.JSON)).table_valued("value").alias(f"each_of_{name}")


def _read_query() -> sa.Select[Any]:
    """The things of `:ids` whose time is not over at `:now`."""
    now = sa.bindparam("now", type_=THINGS.c.expires_at.type)
    valid = sa.or_(THINGS.c.expires_at.is_(None), THINGS.c.expires_at > now)
    return sa.select(THINGS).where(THINGS.c.id.in_(sa.bindparam("ids", expanding=True)), valid)


_READ = _read_query()
