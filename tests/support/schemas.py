"""Databases on the current schema, as copies of one that was migrated: that takes longer than most tests do."""

import asyncio
import contextlib
import functools
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast

import sqlalchemy as sa

from gateway.core.config.settings import StorageSettings
from gateway.storage.database.migrate import migrate, revision_of
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions

T = TypeVar("T")


def sqlite_url(directory: Path) -> str:
    """The URL of a new SQLite file in `directory`, on the current schema."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "gateway.db"
    path.write_bytes(migrated_file())
    return f"sqlite:///{path}"


@contextlib.contextmanager
def locked_file(url: str) -> Iterator[None]:
    """Somebody else writes into an SQLite file, and does not come to an end: all can be read, nothing stored."""
    with contextlib.closing(sqlite3.connect(url.partition(":///")[2], isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


async def bring_up(transactions: DatabaseTransactions) -> None:
    """Brings a database to the current schema."""

    def copy(connection: sa.Connection) -> None:
        with contextlib.closing(sqlite3.connect(":memory:")) as source:
            file = migrated_file()
            source.deserialize(file[:18] + b"\x01\x01" + file[20:])  # it is of a file with a log, as memory has none
            source.backup(cast(sqlite3.Connection, connection.connection.driver_connection))

    if not transactions.remote and await transactions.run(revision_of) is None:
        await transactions.run(copy)
    await migrate(transactions)


@contextlib.asynccontextmanager
async def brought_up(url: str) -> AsyncIterator[DatabaseTransactions]:
    """A database on the current schema, closed at the end."""
    opened = open_transactions(StorageSettings(url=url))
    await bring_up(opened)
    yield opened
    await opened.close()


def migrate_at(url: str) -> None:
    """Brings the database to the current schema; blocks, also inside a loop."""

    async def run() -> None:
        transactions = open_transactions(StorageSettings(url=url))
        await migrate(transactions)
        await transactions.close()

    in_a_thread(run())


def in_a_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end on a loop of its own, since the caller may be inside a running one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@functools.cache
def migrated_file() -> bytes:
    """An SQLite file on the current schema."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gateway.db"
        migrate_at(f"sqlite:///{path}")
        return path.read_bytes()
