"""The ledger read again, page by page and without writing, on both storages."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import sqlalchemy as sa

from gateway.core.config.settings import StorageSettings
from gateway.core.errors import StorageUnavailable
from gateway.core.types.bill import CallCost
from gateway.core.types.turn import LARGEST_KEPT, LedgerQuery, LedgerRow, TurnCommit
from gateway.storage import ledger
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.ledger import ledger_pages, open_ledger
from gateway.storage.store import ConversationStore
from tests.integration.commits import NOW, bill
from tests.support.process import PATIENCE

pytestmark = pytest.mark.usefixtures("transactions")


@pytest.fixture
async def reader(module_storage_url: str, transactions: DatabaseTransactions) -> AsyncIterator[DatabaseTransactions]:
    """The module's database, as an audit opens it beside a running server."""
    opened = open_ledger(StorageSettings(url=module_storage_url))
    yield opened
    await opened.close()


async def read(reader: DatabaseTransactions, **query: object) -> list[LedgerRow]:
    """All rows of a query."""
    pages = ledger_pages(reader, LedgerQuery(**query))  # type: ignore[arg-type]
    return [row async for page in pages for row in page]


async def test_every_row_comes_once_however_many_share_a_moment(
    reader: DatabaseTransactions, store: ConversationStore, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages neither skip nor repeat rows that arrived at the same time."""
    monkeypatch.setattr(ledger, "PAGE", 3)
    made = [bill(tenant, None, created_at=NOW + timedelta(seconds=n // 5)) for n in range(17)]
    for entry in made:
        await store.commit(TurnCommit(entry))
    found = await read(reader, tenant=tenant)
    assert [r.entry.request_id for r in found] == [
        e.request_id for e in sorted(made, key=lambda e: (e.created_at, e.request_id))
    ]
    assert all(len(row.entry.calls) == 1 for row in found)
    assert found[0].total_cost == found[0].entry.metadata["cost"]["total_cost"] == Decimal("0.000047500001")


async def test_rows_are_found_by_time_model_tenant_and_conversation(
    reader: DatabaseTransactions, store: ConversationStore, tenant: str
) -> None:
    """From `since` on, before `until`, in whatever zone they are named."""
    early, late = bill(tenant, "conv_a"), bill(tenant, "conv_b", created_at=NOW + timedelta(hours=1), model="other")
    for entry in (early, late, bill("somebody-else", None)):
        await store.commit(TurnCommit(entry))

    async def ids(**query: object) -> list[str]:
        return [row.entry.request_id for row in await read(reader, tenant=tenant, **query)]

    assert await ids(since=NOW, until=late.created_at) == [early.request_id]
    assert await ids(since=NOW + timedelta(microseconds=1)) == [late.request_id]
    assert await ids(model="other") == [late.request_id]
    assert await ids(conversation_id="conv_a") == [early.request_id]
    assert await ids(conversation_id="conv_c") == []


async def test_costs_beyond_a_column_keep_their_exact_figure(
    reader: DatabaseTransactions, store: ConversationStore, tenant: str
) -> None:
    """§6: more than 2**63 picodollars, and more digits than a double has, stand in the metadata as they are."""
    cost = Decimal("12345678.123456789012")
    call = CallCost("primary", "m", {"prompt_tokens": 1}, cost, Decimal(0), False, {"input_cost_per_token": str(cost)})
    entry = bill(tenant, None, calls=(call,), metadata={"cost": {"total_cost": cost}, "timing": 0.1})
    await store.commit(TurnCommit(entry))
    (row,) = await read(reader, tenant=tenant)
    assert row.entry.metadata == {"cost": {"total_cost": cost}, "timing": Decimal("0.1")}
    assert row.total_cost == row.entry.calls[0].prompt_cost == LARGEST_KEPT
    found = await store.find_completion(tenant, entry.request_id)
    assert found is not None
    assert found.ledger.metadata["cost"]["total_cost"] == cost


async def test_a_spoilt_row_is_read_all_the_same(
    reader: DatabaseTransactions, transactions: DatabaseTransactions, store: ConversationStore, tenant: str
) -> None:
    """An audit has to come to the rows behind it."""
    await store.commit(TurnCommit(bill(tenant, None)))
    table = schema.ledger

    def spoil(connection: sa.Connection) -> None:
        connection.execute(table.update().where(table.c.tenant == tenant).values(response_metadata="no JSON"))
        mine = sa.select(table.c.request_id).where(table.c.tenant == tenant)
        calls = schema.ledger_calls
        connection.execute(calls.update().where(calls.c.request_id.in_(mine)).values(usage="[]", rates=""))

    await transactions.run(spoil, write=True)
    (row,) = await read(reader, tenant=tenant)
    assert row.entry.metadata == row.entry.calls[0].usage == row.entry.calls[0].rates == {}


async def test_an_audit_writes_nothing_and_waits_for_no_writer(
    reader: DatabaseTransactions, transactions: DatabaseTransactions, store: ConversationStore, tenant: str
) -> None:
    """It runs beside a server whose transaction is open, and cannot change a row."""
    await store.commit(TurnCommit(bill(tenant, None)))

    def read_only(connection: sa.Connection) -> None:
        ledger._page(connection, LedgerQuery(), (), None)
        connection.execute(schema.ledger.delete())

    with pytest.raises((StorageUnavailable, sa.exc.DBAPIError)):
        await reader.run(read_only)

    begun, seen = threading.Event(), threading.Event()

    def write(connection: sa.Connection) -> bool:
        connection.execute(schema.ledger.update().where(schema.ledger.c.tenant == tenant).values(status="failed"))
        begun.set()
        return seen.wait(PATIENCE) if not transactions.remote else True

    writing = asyncio.ensure_future(transactions.run(write, write=True))
    await asyncio.to_thread(begun.wait, 10)
    assert len(await read(reader, tenant=tenant)) == 1
    seen.set()
    assert await writing


async def test_no_storage_and_no_schema_are_told_apart(tmp_path: Path) -> None:
    """Reading makes no file; an empty database is not taken for one that balances."""
    missing = tmp_path / "none" / "gateway.db"
    with pytest.raises(StorageUnavailable, match="no database file"):
        open_ledger(StorageSettings(url=f"sqlite:///{missing}"))
    assert not missing.parent.exists()
    empty = tmp_path / "empty.db"
    empty.touch()
    opened = open_ledger(StorageSettings(url=f"sqlite:///{empty}"))
    with pytest.raises(StorageUnavailable, match=r"empty \(0 bytes\)"):
        await anext(ledger_pages(opened, LedgerQuery()))
    await opened.close()
    with sqlite3.connect(empty) as connection:
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    opened = open_ledger(StorageSettings(url=f"sqlite:///{empty}"))
    with pytest.raises(StorageUnavailable, match=r"no schema; .* `gateway migrate`"):
        await anext(ledger_pages(opened, LedgerQuery()))
    await opened.close()
