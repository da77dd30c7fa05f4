"""Sums bills by any groups (guarantee §13.1): whole days from the roll-ups; the rest, and groups that roll-ups lack
(conversations, hours, minutes), from the ledger. Exact in both databases: SQLite fails on a sum beyond 64 bits, so it
sums the halves of a figure separately.

Compares the stored sums with the ledger's: a day, and some hundred conversations, in one statement each, which sees one
state of the storage.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa

from gateway.core.frozen_records import record
from gateway.core.tasks import offload_if
from gateway.core.types import bill
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.database.transactions import DatabaseClient, DatabaseTransactions
from gateway.storage.rows import MAX_INT
from gateway.storage.turns.bills import count_older
from gateway.storage.turns.roll_ups import OF_A_CONVERSATION, WHO, add_sums, kept_sums

LEDGER = schema.ledger
DAYS = schema.usage_days
COUNT_COLUMNS = frozenset(
    (
        *("requests", "partial", "failed", "priced", "unpriced", "planning_unpriced", "estimated"),
        *("metered", "held_out_requests", "economised_requests"),
    )
)
"""Figures that grow by one or a few per request: their sums stay within 64 bits."""
HALF = 32
LOW_HALF_MASK = (1 << HALF) - 1
Expression = sa.ColumnElement[Any]


def joined(rows: Iterable[tuple[tuple[str | None, ...], Mapping[str, int]]]) -> tuple[bill.CostRow, ...]:
    """Merges rows with the same names; drops groups whose sums are all 0."""
    found: dict[tuple[str | None, ...], bill.CostSums] = {}
    for names, figures in rows:
        more = bill.CostSums(**figures)
        found[names] = found[names] + more if names in found else more
    return tuple(bill.CostRow(names, found[names]) for names in found if found[names] != bill.CostSums())


def in_order(rows: Iterable[bill.CostRow], by: tuple[str, ...]) -> tuple[bill.CostRow, ...]:
    """Sorts rows: by time where that is a group, then by descending cost, then by name."""
    times = [place for place, group in enumerate(by) if group in bill.TIME_GROUPS]

    def key(row: bill.CostRow) -> tuple[list[str], int, int, tuple[str, ...]]:
        when = [row.names[place] or "" for place in times]
        return when, -row.sums.cost_picousd, -row.sums.requests, tuple(name or "" for name in row.names)

    return tuple(sorted(rows, key=key))


def _flag(condition: Expression) -> Expression:
    return sa.case((condition, sa.literal_column("1")), else_=sa.literal_column("0"))


def _of_ledger() -> dict[str, Expression]:
    """Returns what a ledger row adds to each sum, equal to `turns.roll_ups.sums_of`."""
    columns = LEDGER.c
    same = ("prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens", "planning_cost_picousd")
    bounced = ("bounced_tokens", "bounced_cost_picousd")
    savings = ("saved_picousd", "direct_cost_picousd", "net_saving_picousd", *bounced)
    is_held, is_other = columns.held_out.is_(sa.true()), columns.held_out.is_(sa.false())
    return {
        **{name: columns[name] for name in (*same, "planning_unpriced", *savings)},
        "requests": sa.literal_column("1"),
        "partial": _flag(columns.status == "partial"),
        "failed": _flag(columns.status == "failed"),
        "cost_picousd": columns.known_cost_picousd,
        "priced": _flag(columns.known_cost_picousd.is_not(None)),
        "unpriced": _flag(columns.total_cost_picousd.is_(None)),
        "estimated": _flag(columns.estimated),
        "metered": _flag(columns.net_saving_picousd.is_not(None)),
        "held_out_requests": _flag(is_held),
        "held_out_cost_picousd": sa.case((is_held, columns.known_cost_picousd)),
        "economised_requests": _flag(is_other),
        "economised_cost_picousd": sa.case((is_other, columns.known_cost_picousd)),
    }


OF_LEDGER: Mapping[str, Expression] = _of_ledger()
OF_DAYS: Mapping[str, Expression] = {name: DAYS.c[name] for name in bill.SUM_NAMES}


def summed(dialect: sa.Dialect, figures: Mapping[str, Expression]) -> list[sa.Label[Any]]:
    """Returns columns that sum these figures, in the order of `bill.SUM_NAMES`, for `whole_sums` to read."""
    found = []
    for name in (name for name in bill.SUM_NAMES if name in figures):
        figure = figures[name]
        if dialect.name == "sqlite" and name not in COUNT_COLUMNS:
            found.append(sa.func.sum(figure.op(">>")(sa.literal_column(str(HALF)))).label(f"{name}_high"))
            found.append(sa.func.sum(figure.op("&")(sa.literal_column(str(LOW_HALF_MASK)))).label(f"{name}_low"))
        else:
            found.append(sa.func.sum(figure).label(name))
    return found


def whole_sums(row: Any, names: Any = bill.SUM_NAMES) -> dict[str, int]:
    """Reads the sums from a row of a `summed` query."""
    found = row._mapping
    whole = {name: int(found[name] or 0) for name in names if name in found}
    halves = {
        name: (int(found[f"{name}_high"] or 0) << HALF) + int(found[f"{name}_low"] or 0)
        for name in names
        if f"{name}_low" in found
    }
    return whole | halves


def time_of(dialect: sa.Dialect, unit: str) -> Expression:
    """Selects when a request came, in UTC, as text: `2026-03-01`, `2026-03-01 23`, `2026-03-01 23:59`."""
    if dialect.name == "sqlite":
        size = {"day": 10, "hour": 13, "minute": 16}[unit]
        return sa.func.substr(sa.type_coerce(LEDGER.c.created_at, sa.String), *_constants("1", str(size)))
    form = {"day": "YYYY-MM-DD", "hour": "YYYY-MM-DD HH24", "minute": "YYYY-MM-DD HH24:MI"}[unit]
    zone, shape = _constants("'UTC'", f"'{form}'")
    return sa.func.to_char(sa.func.timezone(zone, LEDGER.c.created_at), shape)


def group_of(dialect: sa.Dialect, table: sa.Table, group: str) -> Expression:
    """Returns the expression that identifies a group, in the roll-ups or in the ledger."""
    if group == "day" and table is DAYS:
        return DAYS.c.day
    if group in ("day", "hour", "minute"):
        return time_of(dialect, group)
    if group == "project_id":
        return sa.func.coalesce(table.c.project, table.c.tenant)
    return table.c[{"key": "key_id", "user": "end_user", "conversation": "conversation_id"}.get(group, group)]


def conditions(table: sa.Table, query: bill.CostQuery) -> list[Expression]:
    """Builds the filters of a query, without its times."""
    columns, found = table.c, []
    if query.tenant is not None:
        found.append(columns.tenant == query.tenant)
    listed = (("model", query.models), ("end_user", query.users), ("agent", query.agents), ("key_id", query.keys))
    found += [columns[name].in_(values) for name, values in listed if values]
    if query.projects:
        found.append(sa.func.coalesce(columns.project, columns.tenant).in_(query.projects))
    if query.endpoints:
        named = [name for name in query.endpoints if name is not None]
        chats = [columns.endpoint.is_(None)] if None in query.endpoints else []
        found.append(sa.or_(columns.endpoint.in_(named), *chats))
    if query.conversation is not None:
        found.append(LEDGER.c.conversation_id == query.conversation)
    return found


def _constants(*texts: str) -> list[Expression]:
    """Returns literals, not parameters: with parameters PostgreSQL would not see that it selects what it groups by."""
    return [sa.literal_column(text) for text in texts]


CONVERSATIONS = schema.conversations
IN_LEDGER_ALONE = frozenset(("hour", "minute", "conversation"))
STRETCH = timedelta(days=31)
"""The time range of the ledger that one transaction sums, so that no statement takes too long."""
LARGE_REPORT_ROWS = 2000
"""Rows from which on sorting runs in a thread, so that streams go on."""
Period = tuple[datetime | None, datetime | None]
Found = tuple[tuple[str | None, ...], dict[str, int]]


class CostReports(DatabaseClient):
    """Sums the bills of one tenant, or of all."""

    async def report(self, query: bill.CostQuery) -> bill.CostReport:
        """Computes the sums by the query's groups, ordered by time, then by descending cost."""
        missing = await count_older(self._transactions, query.tenant)
        if IN_LEDGER_ALONE.isdisjoint(query.by) and query.conversation is None:
            found = await self._transactions.run(partial(_by_days, query))
        else:
            found = await self._by_stretches(query)
        rows_in_order = await offload_if(len(found) > LARGE_REPORT_ROWS, lambda: in_order(joined(found), query.by))
        return bill.CostReport(rows_in_order, missing, query.by)

    async def dearest_conversations(
        self, tenant: str | None, since: datetime | None, limit: int
    ) -> tuple[bill.CostRow, ...]:
        """Lists the dearest `limit` conversations that were active since `since`, with their stored sums: of all their
        requests, whenever these came. Figures that these do not store are 0: cache tokens, savings, failures."""
        columns = CONVERSATIONS.c
        where = [columns.tenant == tenant] if tenant is not None else []
        where += [columns.updated_at >= since] if since is not None else []
        where.append(columns.cost_picousd.is_not(None))
        order = (columns.cost_picousd.desc(), columns.requests.desc(), columns.id)
        kept = (columns[name] for name in OF_A_CONVERSATION)
        query = sa.select(columns.id, *kept).where(*where).order_by(*order).limit(limit)
        found = await self._transactions.run(lambda connection: connection.execute(query).all())
        return tuple(bill.CostRow((row.id,), kept_sums(row)) for row in found)

    async def _by_stretches(self, query: bill.CostQuery) -> list[Found]:
        since, until = query.since, query.until
        if since is None or until is None:
            first, last = await self._transactions.run(partial(_ends, query))
            since, until = since or first, until or last
        found: list[Found] = []
        while since < until:
            end = min(since + STRETCH, until)
            found += await self._transactions.run(partial(_rolled_up_costs, query, (since, end)))
            since = end
        return found


def days_of(since: datetime | None, until: datetime | None) -> tuple[date | None, date | None, list[Period]]:
    """Splits a time range into whole days, from the first to before the last, and the remaining periods beside them."""
    nearly = timedelta(days=1, microseconds=-1)
    latest = datetime.max.replace(tzinfo=UTC) - nearly  # a later day would be none of the calendar's
    first = None if since is None else _day(min(since, latest) + nearly)
    last = None if until is None else _day(until)
    if first is not None and last is not None and first >= last:
        return first, first, [(since, until)]
    beside: list[Period] = []
    if first is not None and since != _midnight(first):
        beside.append((since, _midnight(first)))
    if last is not None and until != _midnight(last):
        beside.append((_midnight(last), until))
    return first, last, beside


def _by_days(query: bill.CostQuery, connection: sa.Connection) -> list[Found]:
    found: list[Found] = []
    first, last, beside = days_of(query.since, query.until)
    if first is None or first != last:
        where = conditions(DAYS, query)
        where += [DAYS.c.day >= first] if first is not None else []
        where += [DAYS.c.day < last] if last is not None else []
        found += _added(connection, DAYS, query.by, where)
    for period in beside:
        found += _rolled_up_costs(query, period, connection)
    return found


def _rolled_up_costs(query: bill.CostQuery, period: Period, connection: sa.Connection) -> list[Found]:
    """Sums only bills that the stored sums include already, as roll-ups do."""
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


def _ends(query: bill.CostQuery, connection: sa.Connection) -> tuple[datetime, datetime]:
    """Returns when the first of these bills came, and the time just after the last."""
    columns = LEDGER.c
    of_tenant = [columns.tenant == query.tenant] if query.tenant is not None else []
    ends = []
    for order in (columns.created_at.asc(), columns.created_at.desc()):
        found = connection.execute(sa.select(columns.created_at).where(*of_tenant).order_by(order).limit(1)).scalar()
        ends.append(rows.utc(found) if found is not None else datetime.min.replace(tzinfo=UTC))
    return ends[0], ends[1] + timedelta(microseconds=1)


def _day(when: datetime) -> date:
    return when.astimezone(UTC).date()


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


PAGE = 500
"""Conversations that one statement compares."""
Names = tuple[str | None, ...]


@record
class SumDifference:
    """A stored sum, and what the ledger adds up to."""

    where: str
    figure: str
    kept: int
    found: int


@record
class ComparedSums:
    """How many sums one statement compared, and which differ."""

    days: int = 0
    conversations: int = 0
    differences: tuple[SumDifference, ...] = ()


async def compare_sums(transactions: DatabaseTransactions) -> AsyncIterator[ComparedSums]:
    """Compares all stored sums with the ledger's, in pieces."""
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
    """Lists each day of the roll-ups or the ledger; takes one index look-up per day of the ledger."""
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
    """Corrects the daily sums to those of the ledger. A previous version that runs beside this one moves bills between
    users without the figures that it does not know. May be run at any time, beside requests and itself."""
    for day in await transactions.run(_days):
        await transactions.run(partial(_set_right, day), write=True)


def _set_right(day: date, connection: sa.Connection) -> None:
    connection.execute(sa.select(schema.schema_revisions).with_for_update()).close()  # one at a time
    missing = {}
    for names, (kept, found) in _sides(day, connection).items():
        if differing := {each.figure: each.found - each.kept for each in _differences("", kept, found)}:
            missing[day, *names] = dict.fromkeys(bill.SUM_NAMES, 0) | differing
    if missing:
        add_sums(connection, missing)


def _sides(day: date, connection: sa.Connection) -> dict[Names, tuple[dict[str, int], dict[str, int]]]:
    """Reads the stored sums of a day and what its bills add up to, by who asked for what."""
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
    nothing = dict.fromkeys(bill.SUM_NAMES, 0)
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
    """Yields differing sums. A figure that fills its column was clamped there, and is not compared."""
    for name, value in kept.items():
        if value != found[name] and abs(value) < MAX_INT:
            yield SumDifference(where, name, value, found[name])


def _described(day: date, names: Names) -> str:
    """Renders the group as the filters of `gateway costs` name it."""
    told = (f"{name}={value}" for name, value in zip(WHO, names, strict=True) if value is not None)
    return " ".join((day.isoformat(), *told))
