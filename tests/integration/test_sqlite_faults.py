"""SQLite's file: full, locked, removed, replaced or spoilt while it is in use (guarantee §3.6)."""

# ruff: noqa: ASYNC240 - files of a few pages
import asyncio
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.errors import StorageReadOnly, StorageUnavailable
from gateway.core.types.turn import OpenCallRow
from gateway.storage.database.migrate import migrate
from gateway.storage.database.sqlite import PAGE_BYTES, open_transactions
from gateway.storage.database.transactions import Work
from gateway.storage.store import ConversationStore, write_open
from tests.integration.commits import contents, listed, rebuilt, turn
from tests.support.schemas import bring_up


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateway.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[ConversationStore]:
    """A store with one turn in it."""
    transactions = open_transactions(StorageSettings(url=f"sqlite:///{file}", timeout=0.2))
    await bring_up(transactions)
    made = ConversationStore(transactions, SystemClock())
    await made.commit(turn("t", "conv_t", created=True))
    yield made
    await transactions.close()


async def history(store: ConversationStore) -> list[str]:
    return contents(await rebuilt(store, "t", "conv_t"))


async def refuses(store: ConversationStore) -> None:
    """Reading and writing."""
    with pytest.raises(StorageUnavailable):
        await history(store)
    with pytest.raises(StorageUnavailable):
        await store.commit(turn("t", "conv_t", "lost", ["lost"]))
    with pytest.raises(StorageUnavailable):
        await store.ready()


async def test_a_full_disk_takes_nothing_keeps_what_is_there_and_heals(store: ConversationStore) -> None:
    """§3.6: no half turn; what is stored can be read meanwhile."""

    async def set_pages(number: int) -> None:
        await store._transactions.run(lambda c: c.execute(sa.text(f"PRAGMA max_page_count = {number}")).close())

    await set_pages(1)  # SQLite makes it the number of pages that there are
    store.check_writable()
    with pytest.raises(StorageReadOnly, match="cannot be written"):
        await store.commit(turn("t", "conv_t", "lost" * 20_000, ["lost"]))
    assert await history(store) == ["question", "answer"]
    assert len(await listed(store, "t", "conv_t")) == 1
    with pytest.raises(StorageReadOnly):
        store.check_writable()
    with pytest.raises(StorageReadOnly):
        await store.ready()
    await set_pages(1_000_000)
    assert await store.ready()
    store.check_writable()
    await store.commit(turn("t", "conv_t", "q2", ["a2"]))
    assert await history(store) == ["question", "answer", "q2", "a2"]


async def test_a_file_that_was_removed_is_not_written_to_and_is_used_again_when_it_is_back(
    store: ConversationStore, file: Path
) -> None:
    """§3.6: an acknowledged turn is in the file that has the name; none is made in its place."""
    aside = file.with_name("aside")
    aside.mkdir()
    parts = [path for path in file.parent.iterdir() if path.is_file()]
    for path in parts:
        path.rename(aside / path.name)
    await refuses(store)
    assert not file.exists()
    for path in parts:
        (aside / path.name).rename(path)
    await store.commit(turn("t", "conv_t", "q2", ["a2"]))
    assert await history(store) == ["question", "answer", "q2", "a2"]


async def test_a_file_that_was_replaced_is_not_mixed_with_the_log_of_the_old_one(
    store: ConversationStore, file: Path
) -> None:
    """§3.6: a backup that was put back under a running server waits for its end (docs/operations.md)."""
    backup, old = file.with_name("backup.db"), file.with_name("old.db")
    source, target = sqlite3.connect(file), sqlite3.connect(backup)
    source.backup(target)
    source.close()
    target.close()
    whole = backup.read_bytes()
    file.rename(old)
    backup.rename(file)
    await refuses(store)
    assert file.read_bytes() == whole
    old.rename(file)
    await store.commit(turn("t", "conv_t", "q2", ["a2"]))
    assert await history(store) == ["question", "answer", "q2", "a2"]


async def test_a_spoilt_file_is_unavailable_until_it_is_mended(store: ConversationStore, file: Path) -> None:
    """§3.6: a 503, no 500, and no restart needed afterwards."""
    await store._transactions.run(lambda c: c.execute(sa.text("PRAGMA wal_checkpoint(TRUNCATE)")).close())
    whole = file.read_bytes()
    spoil(file, b"\0" * len(whole))
    await store._transactions.run(lambda c: c.execute(sa.text("PRAGMA shrink_memory")).close())
    await refuses(store)
    spoil(file, whole)
    await store.commit(turn("t", "conv_t", "q2", ["a2"]))
    assert await history(store) == ["question", "answer", "q2", "a2"]


def spoil(file: Path, content: bytes) -> None:
    """Writes over a file that is open elsewhere."""
    with file.open("r+b") as opened:
        opened.write(content)


@pytest.mark.parametrize("way", ["emptied", "removed beside its log"])
async def test_s3_10_a_file_that_was_emptied_between_two_starts_is_told_and_not_made_anew(
    store: ConversationStore, file: Path, way: str
) -> None:
    """§3.10: what was lost is not hidden by a new database, nor is a log that is left beside it thrown away."""
    other = file.parent / "other"
    shutil.copytree(file.parent, other)
    file = other / file.name
    whole = file.read_bytes()
    assert file.with_name("gateway.db-wal").stat().st_size
    if way == "emptied":
        file.write_bytes(b"")
    else:
        file.unlink()
    transactions = open_transactions(StorageSettings(url=f"sqlite:///{file}", timeout=0.2))
    with pytest.raises(StorageUnavailable, match="put back a backup"):
        await migrate(transactions)
    file.write_bytes(whole)
    await migrate(transactions)
    assert await history(ConversationStore(transactions, SystemClock())) == ["question", "answer"]
    await transactions.close()


async def test_tables_that_are_gone_are_told_at_the_start(store: ConversationStore) -> None:
    """§3.10: of a database that says it is on the current schema."""
    await store._transactions.run(lambda c: c.execute(sa.text("DROP TABLE claims")).close(), write=True)
    with pytest.raises(StorageUnavailable, match=r"lost tables of schema .*: claims"):
        await migrate(store._transactions)


async def test_a_folder_that_cannot_be_used_is_unavailable(store: ConversationStore, file: Path) -> None:
    """§3.6: also where the whole folder is gone."""
    moved = file.parent.with_name(file.parent.name + "-moved")
    file.parent.rename(moved)
    await refuses(store)
    moved.rename(file.parent)
    await store.commit(turn("t", "conv_t", "q2", ["a2"]))
    assert await history(store) == ["question", "answer", "q2", "a2"]


async def test_cancelled_requests_leave_nothing_open(store: ConversationStore, file: Path) -> None:
    """§3.6, §3.7: two thousand requests cancelled at random moments: each write is done whole, nothing is queued,
    and nobody holds the file."""
    transactions = store._transactions
    await transactions.run(lambda c: c.execute(sa.text("CREATE TABLE pairs (n INTEGER)")).close(), write=True)
    chance = random.Random(4)

    def twice(number: int) -> Work[None]:
        def work(connection: sa.Connection) -> None:
            for _ in range(2):
                connection.execute(sa.text("INSERT INTO pairs VALUES (:n)"), {"n": number})

        return work

    async def one(number: int) -> None:
        write = number % 3 == 0
        work = twice(number) if write else _count
        task = asyncio.ensure_future(transactions.run(work, write=write))
        await asyncio.sleep(chance.random() * 0.02)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled() or task.exception() is None

    for first in range(0, 2000, 20):
        await asyncio.gather(*(one(number) for number in range(first, first + 20)))
    assert await transactions.run(_count) == 2 * len(range(0, 2000, 3))
    impatient = sqlite3.connect(file, isolation_level=None, timeout=0)
    impatient.execute("BEGIN IMMEDIATE")
    impatient.close()
    await store.commit(turn("t", "conv_t", "q2", ["a2"]))
    assert await history(store) == ["question", "answer", "q2", "a2"]


def _count(connection: sa.Connection) -> int:
    return int(connection.execute(sa.text("SELECT count(*) FROM pairs")).scalar_one())


def times_slept() -> int:
    """How often this thread has given its processor away of itself, as who waits for a lock does again and again."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


async def test_s6_10_who_is_about_to_ask_a_model_waits_for_no_lock_on_the_loop(
    store: ConversationStore, file: Path
) -> None:
    """§6.10: at once where the file is free; while another process writes, requests and reads go on beside it."""
    transactions = store._transactions

    def write(name: str) -> Work[None]:
        return lambda connection: write_open(connection, [OpenCallRow(name, "p", {})])

    assert transactions.at_once(write("req_free"))
    with sqlite3.connect(file, isolation_level=None) as other:
        assert other.execute("SELECT request_id FROM open_calls").fetchall() == [("req_free",)]
        other.execute("BEGIN IMMEDIATE")
        slept = times_slept()
        assert not any(transactions.at_once(write("req_late")) for _ in range(100))
        assert times_slept() - slept < 100
        opening = asyncio.ensure_future(store.open_call(OpenCallRow("req_late", "p", {})))
        assert await history(store) == ["question", "answer"]
        other.execute("COMMIT")
        await opening
        assert other.execute("SELECT count(*) FROM open_calls").fetchone() == (2,)
    (synced,) = await transactions.run(lambda c: tuple(c.exec_driver_sql("PRAGMA synchronous").scalars()))
    assert synced == 2  # turns wait for the disk as before


LEAVES = """
import asyncio, sys, time
from gateway.core.config.settings import StorageSettings
from gateway.storage.database.sqlite import PAGE_BYTES, open_transactions

def slowly(connection):
    time.sleep(0.3)
    connection.exec_driver_sql("INSERT INTO pairs VALUES (1)")

async def main():
    transactions = open_transactions(StorageSettings(url=f"sqlite:///{sys.argv[1]}"))
    await transactions.run(lambda c: c.exec_driver_sql("CREATE TABLE pairs (n)"), write=True)
    asyncio.ensure_future(transactions.run(slowly, write=True))
    await asyncio.sleep(0.1)
    raise SystemExit(3)  # nothing is closed

asyncio.run(main())
"""


def test_a_write_that_was_begun_is_done_though_the_process_ends_and_closes_nothing(file: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", LEAVES, str(file)], check=False, timeout=60)
    assert ended.returncode == 3
    with sqlite3.connect(file) as found:
        assert found.execute("SELECT n FROM pairs").fetchall() == [(1,)]


@pytest.mark.parametrize(("found", "size"), [(None, PAGE_BYTES), (4096, 4096)])
async def test_a_file_has_small_pages_and_an_older_one_keeps_its_own(file: Path, found: int | None, size: int) -> None:
    """Also once the log and all pages were written anew."""
    if found is not None:
        with closing(sqlite3.connect(file)) as older:
            older.execute(f"PRAGMA page_size = {found}")
            older.execute("PRAGMA journal_mode = WAL")
            older.execute("CREATE TABLE kept (name TEXT)")
            older.commit()
    transactions = open_transactions(StorageSettings(url=f"sqlite:///{file}"))
    try:
        await migrate(transactions)
        store = ConversationStore(transactions, SystemClock())
        await store.commit(turn("t", "conv_t", "x" * 100_000, created=True))
        await transactions.wipe()
        assert await history(store) == ["x" * 100_000, "answer"]
        assert (
            await transactions.run(lambda connection: connection.exec_driver_sql("PRAGMA page_size").scalar()) == size
        )
    finally:
        await transactions.close()
