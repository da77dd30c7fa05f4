"""Whether the sums that are kept are those of the ledger: the daily roll-ups, and the sums of conversations (§13.1);
and the end of an upgrade, which makes them so.

A day, and some hundred conversations, are compared in one statement each: it sees one state of the storage, so that
what a server writes meanwhile is on both sides or on neither.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial

import sqlalchemy as sa

from gateway.core.types.costs import FIGURES
from gateway.storage.database import schema
from gateway.storage.database.engine import DatabaseTransactions
from gateway.storage.reports.sums import OF_DAYS, OF_LEDGER, summed, time_of, whole_sums
from gateway.storage.rows import MOST
from gateway.storage.turns.roll_ups import OF_A_CONVERSATION, WHO, add_sums

LEDGER, DAYS, CONVERSATIONS = schema.ledger, schema.usage_days, schema.conversations
PAGE = 500
"""Conversations that one statement compares."""
Names = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class SumDifference:
    """A sum that is kept, and what the ledger adds up to."""

    where: str
    figure: str
    kept: int
    found: int


@dataclass(frozen=True, slots=True)
class ComparedSums:
    """How many were compared with one statement, and what differs."""

    days: int = 0
    conversations: int = 0
    differences: tuple[SumDifference, ...] = ()


async def compare_sums(transactions: DatabaseTransactions) -> AsyncIterator[ComparedSums]:
    """Compares all of them, piece by piece.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    for day in await transactions.run(_days):
        yield await transactions.run(partial(_compare_day, day))
    after = ""
    while True:
        ids, found = await transactions.run(partial(_compare_conversations, after))
        yield found
        if len(ids) < PAGE:
            return
        after = ids[-1]


def _days(connection: sa.Connection) -> list[date]:
    """Each day that either has, one look at an index for a day of the ledger."""
    found = set(connection.execute(sa.select(DAYS.c.day).distinct()).scalars())
    came = LEDGER.c.created_at
    when = time_of(connection.dialect, "day")
    after = datetime.min.replace(tzinfo=UTC)
    while (
        text := connection.execute(sa.select(when).where(came >= after).order_by(came).limit(1)).scalar()
    ) is not None:
        found.add(day := date.fromisoformat(text))
        after = _midnight(day + timedelta(days=1))
    return sorted(found)


def _compare_day(day: date, connection: sa.Connection) -> ComparedSums:
    differences = [
        each
        for names, (kept, found) in _sides(day, connection).items()
        for each in _differences(_described(day, names), kept, found)
    ]
    return ComparedSums(days=1, differences=tuple(sorted(differences, key=lambda each: (each.where, each.figure))))


async def set_right(transactions: DatabaseTransactions) -> None:
    """Makes the sums of days those of the ledger. A version before, while it runs beside this one, moves bills from one
    user to another without the figures that it does not know. May be run at any time, beside requests and itself.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    for day in await transactions.run(_days):
        await transactions.run(partial(_set_right, day), write=True)


def _set_right(day: date, connection: sa.Connection) -> None:
    connection.execute(sa.select(schema.schema_revisions).with_for_update()).close()  # one at a time
    missing = {}
    for names, (kept, found) in _sides(day, connection).items():
        if differing := {each.figure: each.found - each.kept for each in _differences("", kept, found)}:
            missing[day, *names] = dict.fromkeys(FIGURES, 0) | differing
    if missing:
        add_sums(connection, missing)


def _sides(day: date, connection: sa.Connection) -> dict[Names, tuple[dict[str, int], dict[str, int]]]:
    """What is kept of a day, and what its bills add up to, by who asked for what."""
    dialect = connection.dialect
    came = LEDGER.c.created_at
    within = (LEDGER.c.rolled_up, came >= _midnight(day), came < _midnight(day + timedelta(days=1)))
    halves = [
        sa.select(sa.literal_column(name), *groups, *summed(dialect, figures)).where(*where).group_by(*groups)
        for name, groups, figures, where in (
            ("'kept'", [DAYS.c[each] for each in WHO], OF_DAYS, (DAYS.c.day == day,)),
            ("'found'", [LEDGER.c[each] for each in WHO], OF_LEDGER, within),
        )
    ]
    sides: dict[str, dict[Names, dict[str, int]]] = {"kept": {}, "found": {}}
    for row in connection.execute(sa.union_all(*halves)):
        sides[row[0]][tuple(row[1 : 1 + len(WHO)])] = whole_sums(row)
    kept, found = sides["kept"], sides["found"]
    nothing = dict.fromkeys(FIGURES, 0)
    return {names: (kept.get(names, nothing), found.get(names, nothing)) for names in kept.keys() | found.keys()}


def _compare_conversations(after: str, connection: sa.Connection) -> tuple[list[str], ComparedSums]:
    columns = [CONVERSATIONS.c[name].label(f"kept_{name}") for name in OF_A_CONVERSATION]
    page = (
        sa.select(CONVERSATIONS.c.id, CONVERSATIONS.c.tenant, *columns)
        .where(CONVERSATIONS.c.id > after)
        .order_by(CONVERSATIONS.c.id)
        .limit(PAGE)
        .subquery()
    )
    its = sa.and_(LEDGER.c.tenant == page.c.tenant, LEDGER.c.conversation_id == page.c.id, LEDGER.c.rolled_up)
    figures = {name: OF_LEDGER[name] for name in OF_A_CONVERSATION if name != "requests"}
    figures["requests"] = sa.case((LEDGER.c.request_id.is_not(None), 1), else_=0)
    figures["unpriced"] = sa.case((LEDGER.c.request_id.is_(None), 0), else_=OF_LEDGER["unpriced"])
    kept = [page.c[f"kept_{name}"] for name in OF_A_CONVERSATION]
    joined = sa.outerjoin(page, LEDGER, its)
    query = sa.select(page.c.id, *kept, *summed(connection.dialect, figures)).select_from(joined)
    ids: list[str] = []
    differences: list[SumDifference] = []
    for row in connection.execute(query.group_by(page.c.id, *kept).order_by(page.c.id)):
        ids.append(row.id)
        stored = {name: row._mapping[f"kept_{name}"] or 0 for name in OF_A_CONVERSATION}
        differences += _differences(row.id, stored, whole_sums(row, OF_A_CONVERSATION))
    return ids, ComparedSums(conversations=len(ids), differences=tuple(differences))


def _differences(where: str, kept: dict[str, int], found: dict[str, int]) -> Iterator[SumDifference]:
    """A figure that fills its column was cut there, and is compared no further."""
    for name, value in kept.items():
        if value != found[name] and abs(value) < MOST:
            yield SumDifference(where, name, value, found[name])


def _described(day: date, names: Names) -> str:
    """Of whom, as the filters of `gateway costs` have it."""
    told = (f"{name}={value}" for name, value in zip(WHO, names, strict=True) if value is not None)
    return " ".join((day.isoformat(), *told))


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
