"""Opens the storage for reading alone, and reads the ledger for an audit beside a running server."""

import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.pool import StaticPool

from gateway.core import errors
from gateway.core.config.settings import StorageSettings
from gateway.core.types import bill, turn
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.database.migrate import require_current
from gateway.storage.database.postgres import PostgresTransactions
from gateway.storage.database.sqlite import DatabaseTransactions, SqliteTransactions, open_transactions
from gateway.storage.database.transactions import T, Work
from gateway.storage.keyed_hashes import names_of_user
from gateway.storage.turns.bills import calls_of
from gateway.storage.turns.roll_ups import OF_A_CONVERSATION

PAGE = 500
"""Rows of the ledger that one transaction reads."""
Position = tuple[datetime, str]
"""Arrival and id of a request, the order of the ledger."""


def open_ledger(settings: StorageSettings) -> DatabaseTransactions:
    """Opens the database that `storage.url` names, for reading.
    Raises ValueError: the URL is invalid or names an unsupported database, or keys cannot be used; StorageUnavailable:
    there is no such SQLite file."""
    return open_transactions(settings, ReadOnlySqlite, ReadOnlyPostgres)


async def ledger_pages(
    transactions: DatabaseTransactions, query: turn.LedgerQuery
) -> AsyncIterator[list[turn.LedgerRow]]:
    """Yields the ledger's rows in pages, in order of their requests' arrival. Each page is a transaction of its own,
    since one over all pages would keep the database from cleaning up behind the server.
    Raises StorageUnavailable: the storage cannot be reached, or is not on this version's schema."""
    await require_current(transactions)
    names: Sequence[str] = ()
    if (user := query.end_user) is not None:
        names = await transactions.run(lambda connection: names_of_user(connection, user))
    last: Position | None = None
    while True:
        page = await transactions.run(lambda connection, after=last: _page(connection, query, names, after))  # type: ignore[misc]
        if page:
            last = (page[-1].entry.created_at, page[-1].entry.request_id)
            yield page
        if len(page) < PAGE:
            return


class ReadOnlySqlite(SqliteTransactions):
    """One connection that can only read; it neither creates a file nor waits for a writer."""

    def __init__(self, url: URL, timeout: float) -> None:
        path = Path(url.database or "")
        if not path.is_file():
            raise errors.StorageUnavailable(f"There is no database file at {path}.")

        def connect() -> sqlite3.Connection:
            name = f"file:{quote(str(path.absolute()))}?mode=ro"
            return sqlite3.connect(name, uri=True, timeout=timeout, check_same_thread=False, isolation_level=None)

        engine = sa.create_engine("sqlite+pysqlite://", creator=connect, hide_parameters=True, poolclass=StaticPool)
        self._use(engine, str(path), timeout)


class ReadOnlyPostgres(PostgresTransactions):
    """Transactions that can only read."""

    async def run(self, work: Work[T], *, write: bool = False, synced: bool = True) -> T:
        """Runs `work` in one read-only transaction."""

        def reading(connection: sa.Connection) -> T:
            connection.execute(sa.text("SET TRANSACTION READ ONLY"))
            return work(connection)

        return await super().run(reading, write=write, synced=synced)


def _page(
    connection: sa.Connection, query: turn.LedgerQuery, names: Sequence[str], after: Position | None
) -> list[turn.LedgerRow]:
    table = schema.ledger
    named = ((name, getattr(query, name)) for name in ("model", "tenant", "conversation_id", "agent"))
    where = [table.c[name] == value for name, value in named if value is not None]
    if names:
        where.append(table.c.end_user.in_(names))
    if query.since is not None:
        where.append(table.c.created_at >= query.since)
    if query.until is not None:
        where.append(table.c.created_at < query.until)
    if after is not None:
        later = sa.or_(table.c.created_at > after[0], table.c.request_id > after[1])
        where.append(sa.and_(table.c.created_at >= after[0], later))
    order = (table.c.created_at, table.c.request_id)
    found = connection.execute(sa.select(table).where(*where).order_by(*order).limit(PAGE)).all()
    calls = calls_of(connection, [row.request_id for row in found])
    return [_row(row, tuple(calls.get(row.request_id, ()))) for row in found]


def _row(row: Any, calls: tuple[bill.CallCost, ...]) -> turn.LedgerRow:
    return turn.LedgerRow(
        entry=rows.entry_of(row, calls),
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        total_cost=rows.usd(row.total_cost_picousd),
        estimated=row.estimated,
    )


# What SQLite accepts and PostgreSQL refuses when somebody bypasses the gateway to write: unreadable values, and calls
# without a bill (guarantee §6).

MAX_SPOILT = 100
"""The most findings of each kind that are listed."""
LAST_DAY = "9999-12-31"
"""No arithmetic is possible with times of this day."""
COLUMNS_READ = (
    *schema.admin_events.c,
    *schema.ledger.c,
    *schema.ledger_calls.c,
    *schema.usage_days.c,
    *(schema.conversations.c[name] for name in ("id", "tenant", *OF_A_CONVERSATION)),
)


def spoilt_values(connection: sa.Connection) -> list[str]:
    """Lists unreadable values of bills, sums and events, by table, row and column; `MAX_SPOILT` at most."""
    return list(islice(_spoilt(connection), MAX_SPOILT)) if connection.dialect.name == "sqlite" else []


def calls_of_no_bill(connection: sa.Connection) -> list[str]:
    """Lists the requests that have calls but no bill; `MAX_SPOILT` at most."""
    if connection.dialect.name != "sqlite":
        return []
    calls, bills = schema.ledger_calls.c.request_id, schema.ledger.c.request_id
    query = sa.select(calls).where(~sa.exists().where(bills == calls)).distinct().limit(MAX_SPOILT)
    return [str(each) for each in connection.execute(query).scalars()]


def _spoilt(connection: sa.Connection) -> Iterator[str]:
    for column in COLUMNS_READ:
        row = sa.type_coerce(next(iter(column.table.primary_key)), sa.LargeBinary)  # as stored
        for name in connection.execute(sa.select(sa.cast(row, sa.Text)).where(~_readable(column)).limit(MAX_SPOILT)):
            yield f"{column.table.name} {name[0]!s}: {column.name}"


def _readable(column: sa.Column[object]) -> sa.ColumnElement[bool]:
    kind = sa.func.typeof(column)
    if isinstance(column.type, sa.Date | sa.DateTime):
        when = sa.type_coerce(column, sa.Text)
        return sa.and_(kind == "text", sa.func.date(when).is_not(None), when < LAST_DAY)
    if isinstance(column.type, sa.Integer | sa.Boolean):
        return kind.in_(("integer", "null"))
    return kind.in_(("blob" if isinstance(column.type, sa.LargeBinary) else "text", "null"))
