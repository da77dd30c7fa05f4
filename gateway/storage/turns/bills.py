"""Writes bills and the keyed digests of chains, which outlive the content (guarantee §3.2, §6), and reads the ledger
for an audit beside a running server."""

import sqlite3
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.pool import StaticPool

from gateway.base import jsons
from gateway.config.settings import StorageSettings
from gateway.errors import StorageUnavailable
from gateway.models.bill import CallCost
from gateway.models.turn import LedgerEntry, LedgerQuery, LedgerRow, TurnCommit
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.database.engine import Transactions, parse_url
from gateway.storage.database.migrate import require_current
from gateway.storage.database.postgres import PostgresTransactions
from gateway.storage.database.sqlite import SqliteTransactions
from gateway.storage.database.transactions import RowInsert
from gateway.storage.rows import pico, whole

PAGE = 500
"""Rows of the ledger that one transaction reads."""
Position = tuple[datetime, str]
"""Arrival and id of a request, the order of the ledger."""


class ReadOnlySqlite(SqliteTransactions):
    """One connection that can only read; it neither makes a file nor waits for a writer."""

    def __init__(self, url: URL, timeout: float) -> None:
        path = Path(url.database or "")
        if not path.is_file():
            raise StorageUnavailable(f"There is no database file at {path}.")

        def connect() -> sqlite3.Connection:
            name = f"file:{quote(str(path.absolute()))}?mode=ro"
            return sqlite3.connect(name, uri=True, timeout=timeout, check_same_thread=False, isolation_level=None)

        engine = sa.create_engine("sqlite+pysqlite://", creator=connect, hide_parameters=True, poolclass=StaticPool)
        self._use(engine, str(path), timeout)


def open_ledger(settings: StorageSettings) -> Transactions:
    """The database that `storage.url` names, for reading.

    Raises:
        ValueError: the URL is none, or of a database that is not supported.
        StorageUnavailable: there is no such SQLite file.
    """
    url = parse_url(settings.url)
    if url.get_backend_name() == "sqlite":
        return ReadOnlySqlite(url, settings.timeout)
    return PostgresTransactions(url, settings)


async def ledger_pages(transactions: Transactions, query: LedgerQuery) -> AsyncIterator[list[LedgerRow]]:
    """The rows in the order in which their requests arrived; each page is a transaction of its own, since one over
    all of them would keep the database from tidying up behind the server.

    Raises:
        StorageUnavailable: it cannot be reached, or is not on this version's schema.
    """
    await require_current(transactions)
    last: Position | None = None
    while True:
        page = await transactions.run(lambda connection, after=last: _page(connection, query, after))  # type: ignore[misc]
        if page:
            last = (page[-1].entry.created_at, page[-1].entry.request_id)
            yield page
        if len(page) < PAGE:
            return


def _page(connection: sa.Connection, query: LedgerQuery, after: Position | None) -> list[LedgerRow]:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SET TRANSACTION READ ONLY"))
    table = schema.ledger
    where = [column == value for column, value in _equalities(query) if value is not None]
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


def _equalities(query: LedgerQuery) -> tuple[tuple[sa.Column[Any], str | None], ...]:
    columns = schema.ledger.c
    return (
        (columns.model, query.model),
        (columns.tenant, query.tenant),
        (columns.conversation_id, query.conversation_id),
    )


def calls_of(connection: sa.Connection, request_ids: list[str]) -> dict[str, list[CallCost]]:
    """The priced calls of these requests, in the order in which they were made."""
    table = schema.ledger_calls
    query = sa.select(table).where(table.c.request_id.in_(request_ids)).order_by(table.c.request_id, table.c.number)
    found: dict[str, list[CallCost]] = {}
    for row in connection.execute(query) if request_ids else ():
        found.setdefault(row.request_id, []).append(rows.call_of(row))
    return found


def _row(row: Any, calls: tuple[CallCost, ...]) -> LedgerRow:
    return LedgerRow(
        entry=rows.entry_of(row, calls),
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        total_cost=rows.usd(row.total_cost_picousd),
        estimated=row.estimated,
    )


INSERT_LEDGER = RowInsert(schema.ledger)
INSERT_CALLS = RowInsert(schema.ledger_calls)
INSERT_CHAINS = RowInsert(schema.chains, "ON CONFLICT DO NOTHING")
Row = dict[str, Any]


def write_bills(connection: sa.Connection, commits: Sequence[TurnCommit], now: datetime) -> None:
    """The bills of these requests and the digests of their chains."""
    INSERT_LEDGER(connection, [_ledger_row(commit.ledger) for commit in commits])
    INSERT_CALLS(connection, [row for commit in commits for row in _call_rows(commit.ledger)])
    INSERT_CHAINS(connection, _chain_rows(commits, now))


def _chain_rows(commits: Sequence[TurnCommit], now: datetime) -> list[Row]:
    """In one order for all, so that transactions that leave the same do not wait for each other crosswise."""
    found = {
        (key.digest, key.calls, commit.turn.conversation_id if commit.turn else ""): commit.ledger.tenant
        for commit in commits
        for key in commit.chains
    }
    names = ("digest", "calls", "conversation_id")
    return [{**dict(zip(names, key, strict=True)), "tenant": found[key], "created_at": now} for key in sorted(found)]


def _storable(text: str) -> str:
    """PostgreSQL takes no NUL in a text; everything else that is kept stands in JSON, which escapes it."""
    return text.replace("\x00", "\ufffd")


def _ledger_row(entry: LedgerEntry) -> dict[str, Any]:
    usage = entry.metadata.get("usage") or {}
    total = entry.metadata.get("cost", {}).get("total_cost")
    return {
        "request_id": entry.request_id,
        "tenant": entry.tenant,
        "conversation_id": entry.conversation_id,
        "completion_id": entry.completion_id,
        "model": _storable(entry.model),
        "status": entry.status,
        "stream": entry.stream,
        "error_code": _storable(entry.error_code) if entry.error_code else None,
        "prompt_tokens": whole(usage.get("prompt_tokens", 0)),
        "completion_tokens": whole(usage.get("completion_tokens", 0)),
        "total_cost_picousd": pico(total),
        "estimated": any(call.estimated for call in entry.calls),
        "response_metadata": entry.document.decode() if entry.document else jsons.dumps_text(entry.metadata),
        "created_at": entry.created_at,
    }


def _call_rows(entry: LedgerEntry) -> list[dict[str, Any]]:
    return [
        {
            "request_id": entry.request_id,
            "number": number,
            "purpose": call.purpose,
            "model": _storable(call.model),
            "usage": jsons.dumps_text(call.usage),
            "rates": jsons.dumps_text(call.rates),
            "prompt_cost_picousd": pico(call.prompt_cost),
            "completion_cost_picousd": pico(call.completion_cost),
            "estimated": call.estimated,
        }
        for number, call in enumerate(entry.calls)
    ]
