"""What bills add up to, by any groups (guarantee §13.1): whole days from the roll-ups, the rest from the ledger.

What the roll-ups do not tell apart, conversations, hours and minutes, is read from the ledger.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa

from gateway.core.tasks import offload_if
from gateway.core.types.costs import CostQuery, CostReport, CostRow, CostSums, in_order, joined
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.database.engine import DatabaseTransactions
from gateway.storage.reports.sums import OF_DAYS, OF_LEDGER, conditions, group_of, summed, whole_sums
from gateway.storage.turns.older_bills import count_older
from gateway.storage.turns.roll_ups import OF_A_CONVERSATION

LEDGER, DAYS, CONVERSATIONS = schema.ledger, schema.usage_days, schema.conversations
IN_LEDGER_ALONE = frozenset(("hour", "minute", "conversation"))
STRETCH = timedelta(days=31)
"""Of the ledger that one transaction adds up: no statement takes endless."""
MANY = 2000
"""Rows that are put in order in a thread: streams run meanwhile."""
Period = tuple[datetime | None, datetime | None]
Found = tuple[tuple[str | None, ...], dict[str, int]]


class CostReports:
    """Adds up bills of one tenant, or of all."""

    def __init__(self, transactions: DatabaseTransactions) -> None:
        self._transactions = transactions

    async def report(self, query: CostQuery) -> CostReport:
        """The sums by the groups of the query, in order of time, then the dearest first.

        Raises:
            StorageUnavailable: the storage cannot be reached.
        """
        missing = await count_older(self._transactions, query.tenant)
        if IN_LEDGER_ALONE.isdisjoint(query.by) and query.conversation is None:
            found = await self._transactions.run(partial(_by_days, query))
        else:
            found = await self._by_stretches(query)
        rows_in_order = await offload_if(len(found) > MANY, lambda: in_order(joined(found), query.by))
        return CostReport(rows_in_order, missing, query.by)

    async def dearest_conversations(
        self, tenant: str | None, since: datetime | None, limit: int
    ) -> tuple[CostRow, ...]:
        """So many conversations that were active since then, with the sums that are kept with them: of all their
        requests, whenever these came. What is not kept of a conversation is 0: tokens of caches, savings, failures.

        Raises:
            StorageUnavailable: the storage cannot be reached.
        """
        columns = CONVERSATIONS.c
        where = [columns.tenant == tenant] if tenant is not None else []
        where += [columns.updated_at >= since] if since is not None else []
        where.append(columns.cost_picousd.is_not(None))
        order = (columns.cost_picousd.desc(), columns.requests.desc(), columns.id)
        kept = (columns[name] for name in OF_A_CONVERSATION)
        query = sa.select(columns.id, *kept).where(*where).order_by(*order).limit(limit)
        found = await self._transactions.run(lambda connection: connection.execute(query).all())
        return tuple(CostRow((row.id,), _kept_sums(row)) for row in found)

    async def _by_stretches(self, query: CostQuery) -> list[Found]:
        since, until = query.since, query.until
        if since is None or until is None:
            first, last = await self._transactions.run(partial(_ends, query))
            since, until = since or first, until or last
        found: list[Found] = []
        while since < until:
            end = min(since + STRETCH, until)
            found += await self._transactions.run(partial(_of_ledger, query, (since, end)))
            since = end
        return found


def days_of(since: datetime | None, until: datetime | None) -> tuple[date | None, date | None, list[Period]]:
    """The whole days of a time, from the first on and before the last, and what of it lies beside them."""
    first = None if since is None else _day(since + timedelta(days=1, microseconds=-1))
    last = None if until is None else _day(until)
    if first is not None and last is not None and first >= last:
        return first, first, [(since, until)]
    beside: list[Period] = []
    if first is not None and since != _midnight(first):
        beside.append((since, _midnight(first)))
    if last is not None and until != _midnight(last):
        beside.append((_midnight(last), until))
    return first, last, beside


def _by_days(query: CostQuery, connection: sa.Connection) -> list[Found]:
    found: list[Found] = []
    first, last, beside = days_of(query.since, query.until)
    if first is None or first != last:
        where = conditions(DAYS, query)
        where += [DAYS.c.day >= first] if first is not None else []
        where += [DAYS.c.day < last] if last is not None else []
        found += _added(connection, DAYS, query.by, where)
    for period in beside:
        found += _of_ledger(query, period, connection)
    return found


def _of_ledger(query: CostQuery, period: Period, connection: sa.Connection) -> list[Found]:
    """What is in the sums already, as it is with roll-ups."""
    since, until = period
    where = [LEDGER.c.rolled_up, *conditions(LEDGER, query)]
    where += [LEDGER.c.created_at >= since] if since is not None else []
    where += [LEDGER.c.created_at < until] if until is not None else []
    return list(_added(connection, LEDGER, query.by, where))


def _added(connection: sa.Connection, table: sa.Table, by: tuple[str, ...], where: Iterable[Any]) -> Iterator[Found]:
    dialect = connection.dialect
    groups = [group_of(dialect, table, group).label(f"group_{place}") for place, group in enumerate(by)]
    figures = summed(dialect, OF_DAYS if table is DAYS else OF_LEDGER)
    query = sa.select(*groups, *figures).where(*where).group_by(*groups)
    for row in connection.execute(query):
        names = tuple(None if row[place] is None else str(row[place]) for place in range(len(by)))
        yield names, whole_sums(row)


def _ends(query: CostQuery, connection: sa.Connection) -> tuple[datetime, datetime]:
    """When the first and the last of these bills came; the second just behind."""
    columns = LEDGER.c
    of_tenant = [columns.tenant == query.tenant] if query.tenant is not None else []
    ends = []
    for order in (columns.created_at.asc(), columns.created_at.desc()):
        found = connection.execute(sa.select(columns.created_at).where(*of_tenant).order_by(order).limit(1)).scalar()
        ends.append(rows.utc(found) if found is not None else datetime.min.replace(tzinfo=UTC))
    return ends[0], ends[1] + timedelta(microseconds=1)


def _kept_sums(row: Any) -> CostSums:
    """A conversation that has a cost has a price; one without may be of free models, or of unknown ones."""
    kept = {name: row._mapping[name] or 0 for name in OF_A_CONVERSATION}
    return CostSums(**kept, priced=int(kept["cost_picousd"] > 0 or kept["unpriced"] < kept["requests"]))


def _day(when: datetime) -> date:
    return when.astimezone(UTC).date()


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
