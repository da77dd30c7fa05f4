"""Finds things by the words of a question: each run of its words is looked up in an index, and leads to the latest few
things that are called so. However many things there are, a question reads a bounded number of rows (ADR 24)."""

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
MOST_FOUND = 200
"""Things that are read for one question, those with the longest aliases first."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose things are searched: those of a place, or of a whole tenant."""

    tenant: str
    place: str | None = None


def find_things(
    connection: sa.Connection, owners: Iterable[Owner], phrases: Phrases, now: datetime, of_each: int = OF_EACH
) -> tuple[Thing, ...]:
    """The things that the phrases lead to: of each the latest `of_each`; those with the longest aliases first."""
    found: dict[str, None] = {}
    for owner in owners:
        for whole, words in ((True, phrases.whole), (False, phrases.words)):
            if words:
                found |= dict.fromkeys(_ids(connection, owner, words, whole=whole, of_each=of_each))
    if not found:
        return ()
    valid = sa.or_(THINGS.c.expires_at.is_(None), THINGS.c.expires_at > now)
    rows = connection.execute(sa.select(THINGS).where(THINGS.c.id.in_(list(found)[:MOST_FOUND]), valid))
    return tuple(thing_of(row) for row in rows)


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
    return sa.select(sa.select(sa.func.aggregate_strings(latest.c.memory_id, " ")).scalar_subquery()).select_from(each)


def _as_json() -> Any:
    return sa.cast(sa.bindparam("phrases", type_=sa.Text), sa.JSON)


def _ids(connection: sa.Connection, owner: Owner, phrases: Sequence[str], *, whole: bool, of_each: int) -> list[str]:
    by_place = owner.place is not None
    values = {"phrases": jsons.dumps_text(phrases), "owner": owner.place or owner.tenant, "of_each": of_each}
    found = connection.execute(_query(connection.dialect.name, whole=whole, by_place=by_place), values).scalars()
    return [memory_id for ids in found if ids for memory_id in ids.split(" ")]


_QUERIES: dict[tuple[str, bool, bool], sa.Select[Any]] = {}


def _query(dialect: str, *, whole: bool, by_place: bool) -> sa.Select[Any]:
    key = (dialect, whole, by_place)
    if key not in _QUERIES:
        _QUERIES[key] = lookup_query(dialect, whole=whole, by_place=by_place)
    return _QUERIES[key]
