"""Finds things by the words of a question: each run of its words is looked up in an index, and leads to the latest few
things that are called so. However many things there are, a question reads a bounded number of rows (ADR 24)."""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from gateway.base import jsons
from gateway.models.things import MOST_RECALLED, Phrases, Thing
from gateway.storage.database import schema
from gateway.storage.encryption.columns import vault_of
from gateway.storage.things.write import thing_of

THINGS, ALIASES = schema.things, schema.thing_aliases
OF_EACH = MOST_RECALLED + 1
"""Things that one run of words leads to in each place at most: one more than are shown, so that what many things are
called is told from what few are."""
MOST_FOUND = 4 * MOST_RECALLED
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
    owners = (tenant,) if places is None else places
    if not (owners and (phrases.whole or phrases.words)):
        return ()
    given = {"owners": owners, "phrases": phrases.whole, **({"words": phrases.words} if phrases.words else {})}
    if (vault := vault_of(connection.dialect)) is not None:
        sought = {name: each for name, each in given.items() if name != "owners"}
        given |= {name: [word for one in each for word in vault.words(one, tenant)] for name, each in sought.items()}
    values = {name: jsons.dumps_text(each) for name, each in given.items()}
    kind, by_words, by_place = connection.dialect.name, bool(phrases.words), places is not None
    query = lookup_query(kind, of_each, most, words=by_words, by_place=by_place)
    return tuple(map(thing_of, connection.execute(query, {**values, "now": now})))


@cache
def lookup_query(dialect: str, of_each: int, most: int, *, words: bool, by_place: bool) -> sa.Select[Any]:
    """The `most` best of the things that `:phrases` of `:owners` lead to (JSON lists), of each the latest `of_each`;
    with `words` also those that `:words` lead to. None whose time is over at `:now`.

    The limits stand in the text: of a parameter PostgreSQL expects a tenth of all rows, and would read tables whole.
    """
    column = ALIASES.c.place if by_place else ALIASES.c.tenant
    found: Any = _hits(dialect, column, "phrases", of_each, whole=True)
    if words:
        found = sa.union_all(found, _hits(dialect, column, "words", of_each, whole=False))
    hits = found.subquery("hits")
    worth = (sa.func.max(hits.c.size).desc(), sa.func.sum(hits.c.single).desc(), hits.c.memory_id.desc())
    best = sa.select(hits.c.memory_id).group_by(hits.c.memory_id).order_by(*worth)
    chosen = best.limit(sa.literal_column(str(most))).subquery("best")
    now = sa.bindparam("now", type_=THINGS.c.expires_at.type)
    valid = sa.or_(THINGS.c.expires_at.is_(None), THINGS.c.expires_at > now)
    return sa.select(THINGS).join(chosen, chosen.c.memory_id == THINGS.c.id).where(valid)


def _hits(dialect: str, column: sa.Column[Any], name: str, of_each: int, *, whole: bool) -> sa.Select[Any]:
    """The ids that each phrase leads to; how many words it has, or that it is a single word."""
    owner, phrase = _members(dialect, "owners"), _members(dialect, name)
    latest = (
        sa.select(ALIASES.c.memory_id)
        .where(column == owner.c.value, ALIASES.c.whole.is_(whole), ALIASES.c.alias == phrase.c.value)
        .order_by(ALIASES.c.mentioned_at.desc(), ALIASES.c.memory_id.desc())
        .limit(sa.literal_column(str(of_each)))
        .correlate(owner, phrase)
    )
    memory_id, rows = _for_each(dialect, latest)
    blanks = sa.func.length(phrase.c.value) - sa.func.length(sa.func.replace(phrase.c.value, " ", ""))
    none, one = sa.literal_column("0", sa.Integer), sa.literal_column("1", sa.Integer)
    size: Any = blanks + 1 if whole else none
    single: Any = none if whole else one
    every = sa.join(sa.join(owner, phrase, sa.true()), rows, sa.true())
    return sa.select(memory_id.label("memory_id"), size.label("size"), single.label("single")).select_from(every)


def _for_each(dialect: str, latest: sa.Select[Any]) -> tuple[Any, Any]:
    """The column and the rows of a query that is made for each row before it: a lateral join, which SQLite has for
    functions alone."""
    if dialect != "sqlite":
        rows: Any = latest.lateral("latest")
        return rows.c.memory_id, rows
    own = latest.subquery("latest")
    ids = sa.select(sa.func.json_group_array(own.c.memory_id)).scalar_subquery()
    rows = sa.func.json_each(ids).table_valued("value").alias("each_latest")
    return rows.c.value, rows


def _members(dialect: str, name: str) -> Any:
    """The members of a JSON list as rows."""
    given: Any = sa.bindparam(name, type_=sa.Text)
    if dialect == "sqlite":
        return sa.func.json_each(given).table_valued("value").alias(f"each_of_{name}")
    return sa.func.json_array_elements_text(sa.cast(given, sa.JSON)).table_valued("value").alias(f"each_of_{name}")
