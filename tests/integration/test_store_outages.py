"""`ports.ConversationStore`: a storage that cannot be used is `StorageUnavailable`, soon, and heals by itself."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.errors import StorageUnavailable
from gateway.core.types.conversation import ConversationRef
from gateway.storage.database.sqlite import open_transactions
from gateway.storage.store import ConversationStore
from tests.integration.commits import contents, listed, rebuilt, turn
from tests.support.process import free_port
from tests.support.schemas import bring_up


@contextmanager
def opened(url: str) -> Iterator[ConversationStore]:
    yield ConversationStore(open_transactions(StorageSettings(url=url, timeout=0.3)), SystemClock())


def unusable_addresses(directory: Path, postgres_url: str) -> dict[str, str]:
    folder = directory / "folder"
    folder.mkdir()
    nonsense = directory / "nonsense.db"
    nonsense.write_bytes(b"this is no database, but some text that is long enough " * 40)
    host = f"postgresql+asyncpg://postgres@127.0.0.1:{free_port()}/none"
    return {
        "a folder": f"sqlite:///{folder}",
        "no database": f"sqlite:///{nonsense}",
        "nobody listens": host,
        "no such database": postgres_url.rsplit("/", 1)[0] + "/there_is_none",
        "no such user": postgres_url.replace("postgres@", "nobody_known@"),
    }


@pytest.mark.parametrize("kind", ["a folder", "no database", "nobody listens", "no such database", "no such user"])
async def test_every_question_to_a_storage_that_is_not_there_says_so(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres").admin_url
    with opened(unusable_addresses(tmp_path, url)[kind]) as store:
        for ask in (
            lambda: store.find_conversation("t", ConversationRef("conv_1"), max_bytes=None),
            lambda: store.claim_session("t", "s", "conv_1"),
            lambda: store.commit(turn("t", "conv_1", created=True)),
            store.ready,
            store.secret,
        ):
            with pytest.raises(StorageUnavailable) as raised:
                await ask()
            assert "postgres" not in str(raised.value)


async def test_a_storage_that_is_locked_is_waited_for_and_then_unavailable_and_heals(
    store: ConversationStore, tenant: str, module_storage_url: str
) -> None:
    await store.commit(turn(tenant, "conv_" + tenant, created=True))
    free, held = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    locker = open_transactions(StorageSettings(url=module_storage_url))

    def hold(connection: sa.Connection) -> None:
        connection.execute(sa.text("UPDATE conversations SET attachments = 0 WHERE id = :id"), {"id": "conv_" + tenant})
        loop.call_soon_threadsafe(held.set)
        _wait(connection, free)

    holding = asyncio.ensure_future(locker.run(hold, write=True))
    await held.wait()
    impatient = ConversationStore(
        open_transactions(StorageSettings(url=module_storage_url, timeout=0.2)), SystemClock()
    )
    async with asyncio.timeout(20):  # so that a test of endless waiting ends
        with pytest.raises(StorageUnavailable):
            await impatient.commit(turn(tenant, "conv_" + tenant, "q2", ["a2"]))
    free.set()
    await holding
    await impatient.commit(turn(tenant, "conv_" + tenant, "q3", ["a3"]))
    found = await rebuilt(store, tenant, "conv_" + tenant)
    assert contents(found) == ["question", "answer", "q3", "a3"]
    assert len(await listed(store, tenant, "conv_" + tenant)) == 2
    await impatient._transactions.close()
    await locker.close()


async def test_reads_pass_writes_that_wait_for_another_process(tmp_path: Path) -> None:
    """§3.7: who waits for a lock keeps nobody from reading; they are written in their order, cancelled or not."""
    transactions = open_transactions(StorageSettings(url=f"sqlite:///{tmp_path / 'gateway.db'}", timeout=60))

    def read(connection: sa.Connection) -> list[int]:
        return list(connection.execute(sa.text("SELECT number FROM numbers ORDER BY rowid")).scalars())

    def insert(number: int) -> Callable[[sa.Connection], object]:
        return lambda connection: connection.execute(sa.text(f"INSERT INTO numbers VALUES ({number})"))

    await transactions.run(lambda connection: connection.execute(sa.text("CREATE TABLE numbers (number)")), write=True)
    locker = sqlite3.connect(tmp_path / "gateway.db", isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    writes = [asyncio.ensure_future(transactions.run(insert(number), write=True)) for number in range(3)]
    async with asyncio.timeout(30):  # half of what a writer waits
        while len(transactions._waiting) < len(writes):  # type: ignore[attr-defined]
            assert await transactions.run(read) == []
        writes[1].cancel()
        assert await transactions.run(read) == []
    closing = asyncio.ensure_future(transactions.close())
    locker.execute("ROLLBACK")
    found = await asyncio.gather(*writes, return_exceptions=True)
    assert isinstance(found[1], asyncio.CancelledError)
    await closing
    assert locker.execute("SELECT number FROM numbers ORDER BY rowid").fetchall() == [(0,), (1,), (2,)]
    locker.close()


async def test_a_writer_of_sqlites_file_is_in_no_readers_way(tmp_path: Path) -> None:
    """§3.6: a request that only reads does not wait for whoever else writes to the file, a new process included."""
    url = f"sqlite:///{tmp_path / 'gateway.db'}"
    first = ConversationStore(open_transactions(StorageSettings(url=url)), SystemClock())
    await bring_up(first._transactions)
    secret = await first.secret()
    await first.commit(turn("t", "conv_t", created=True))
    locker = sqlite3.connect(tmp_path / "gateway.db", isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    locker.execute("UPDATE conversations SET attachments = 7")
    with opened(url) as store:
        assert await store.ready()
        assert await store.secret() == secret
        assert contents(await rebuilt(store, "t", "conv_t")) == [
            "question",
            "answer",
        ]
        assert len(await listed(store, "t", "conv_t")) == 1
        with pytest.raises(StorageUnavailable):
            await store.commit(turn("t", "conv_t", "q2", ["a2"]))
        locker.execute("ROLLBACK")
        await store.commit(turn("t", "conv_t", "q3", ["a3"]))
        assert len(await listed(store, "t", "conv_t")) == 2
        await store._transactions.close()
    locker.close()
    await first._transactions.close()


def _wait(connection: sa.Connection, event: asyncio.Event) -> None:
    """Keeps the transaction open until the event, whichever way this storage runs its work."""
    if connection.dialect.name == "sqlite":
        while not event.is_set():
            time.sleep(0.01)
        return
    while not event.is_set():
        connection.execute(sa.text("SELECT pg_sleep(0.02)"))


async def test_the_error_of_a_failed_statement_holds_no_content(store: ConversationStore, tenant: str) -> None:
    first = turn(tenant, "conv_" + tenant, "the user's secret words", created=True)
    await store.commit(first)
    assert first.turn is not None
    again = turn(tenant, "conv_" + tenant, new_messages=first.turn.new_messages)
    with pytest.raises(sa.exc.IntegrityError) as raised:
        await store.commit(again)
    assert "secret words" not in str(raised.value)
