"""Runs short transactions: SQLite on a thread of its own, PostgreSQL over asyncpg. The queries are the same functions.

A query is a plain function of a SQLAlchemy `Connection`. So one transaction costs one hop to SQLite's thread, not one
for each statement, and PostgreSQL runs the very same code under SQLAlchemy's greenlet bridge.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from gateway.errors import StorageUnavailable
from gateway.settings import StorageSettings

T = TypeVar("T")
Work = Callable[[sa.Connection], T]


class Transactions(Protocol):
    """One database. `run` is one transaction: committed if `work` returns, rolled back if it raises."""

    remote: bool

    async def run(self, work: Work[T], *, write: bool = False) -> T: ...

    async def wipe(self) -> bool:
        """Takes what deleted rows said out of the files that lie beside the tables, too. False: not possible now, as
        somebody else is reading."""
        ...

    async def close(self) -> None: ...


LIBPQ_ONLY = ("sslmode", "channel_binding", "gssencmode", "target_session_attrs", "connect_timeout", "options")


def open_transactions(settings: StorageSettings) -> Transactions:
    """The database that `storage.url` names; nothing is connected yet.

    Raises:
        ValueError: the URL is none, or of a database that is not supported. The message holds no password.
    """
    url = parse_url(settings.url)
    if url.get_backend_name() == "sqlite":
        return SqliteTransactions(url, settings.timeout)
    return PostgresTransactions(url, settings)


def parse_url(text: str) -> URL:
    """`storage.url` with its driver: `sqlite:///FILE`, `postgresql+asyncpg://…` (also `postgres://`)."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # ValueError: a port that is none, with the password beside it
        raise ValueError("storage.url is not a database URL") from None
    backend = url.drivername.partition("+")[0]
    if backend == "sqlite":
        return url.set(drivername="sqlite+pysqlite")
    if backend in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+asyncpg")
        mode = url.query.get("sslmode")  # libpq's name, which hosted databases hand out
        if mode is not None and "ssl" not in url.query:
            url = url.update_query_dict({"ssl": mode})
        return url.difference_update_query(LIBPQ_ONLY)
    raise ValueError(f"storage.url: {backend!r} is not supported; sqlite or postgresql+asyncpg are")


def insert_for(dialect: sa.Dialect, table: sa.Table) -> Any:
    """An insert that can say what happens on a conflict; only the dialect in use is loaded."""
    if dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert

        return insert(table)
    from sqlalchemy.dialects.postgresql import insert as postgresql_insert

    return postgresql_insert(table)


def insert_if_new(connection: sa.Connection, table: sa.Table) -> Any:
    """An insert that leaves a row alone that is there already."""
    return insert_for(connection.dialect, table).on_conflict_do_nothing()


BEGIN_READ = "BEGIN"
"""Whoever else writes to the file, what was committed can be read."""
BEGIN_WRITE = "BEGIN IMMEDIATE"
"""Asks for the writer's place at once: a transaction that has read before can no longer wait for it."""


WIPE_MILLISECONDS = 200
"""How long others are waited for when the log is to be emptied: so long nobody else gets the thread."""


class SqliteTransactions:
    """One connection on one thread: SQLite has one writer anyway. Every commit is synced to disk."""

    remote = False

    def __init__(self, url: URL, timeout: float) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="sqlite")
        self._timeout = timeout
        if url.database and url.database != ":memory:":
            try:
                Path(url.database).parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ValueError(f"storage.url: {error.filename}: {error.strerror}") from None
        self._engine = sa.create_engine(
            url,
            hide_parameters=True,
            poolclass=StaticPool,
            connect_args={"timeout": timeout, "check_same_thread": False},
        )
        sa.event.listen(self._engine, "connect", _prepare_sqlite)
        self._connection: sa.Connection | None = None

    async def run(self, work: Work[T], *, write: bool = False) -> T:
        """One transaction on SQLite's thread. It runs to its end even if the caller is cancelled meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._transaction, work, write)

    def _transaction(self, work: Work[T], write: bool) -> T:
        try:
            return self._run(work, BEGIN_WRITE if write else BEGIN_READ)
        except (OperationalError, sqlite3.OperationalError) as error:
            raise StorageUnavailable("The storage cannot be used right now.") from error
        except (DatabaseError, sqlite3.DatabaseError) as error:
            if type(error) not in (DatabaseError, sqlite3.DatabaseError):
                raise
            raise StorageUnavailable("The storage's file is no usable database.") from error

    def _run(self, work: Work[T], begin: str) -> T:
        """Begins and ends the transaction with the driver itself, on one connection that stays: what SQLAlchemy does
        around a transaction costs more than a small one."""
        if self._connection is None:
            self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        connection = self._connection
        driver: Any = connection.connection.driver_connection
        driver.execute(begin).close()
        try:
            result = work(connection)
            driver.execute("COMMIT").close()
        except BaseException:
            if driver.in_transaction:
                driver.execute("ROLLBACK").close()
            raise
        return result

    async def wipe(self) -> bool:
        """Empties the write-ahead log, which would keep old pages for a while."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._wipe)

    def _wipe(self) -> bool:
        if self._connection is None:
            return True
        driver: Any = self._connection.connection.driver_connection
        try:
            driver.execute(f"PRAGMA busy_timeout = {WIPE_MILLISECONDS}").close()
            try:
                busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                driver.execute(f"PRAGMA busy_timeout = {int(1000 * self._timeout)}").close()
        except sqlite3.Error:
            return False
        return not busy

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, self._close)
        self._executor.shutdown()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._engine.dispose()


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions are begun here, not by the driver
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}").close()


class PostgresTransactions:
    """A pool of asyncpg connections."""

    remote = True

    def __init__(self, url: URL, settings: StorageSettings) -> None:
        from sqlalchemy.ext.asyncio import create_async_engine

        self._timeout = settings.timeout
        self._writes: set[asyncio.Future[Any]] = set()
        self._free = asyncio.Semaphore(settings.pool_size)
        self._engine = create_async_engine(
            url,
            hide_parameters=True,  # parameters are what people wrote, and errors are logged
            pool_size=settings.pool_size,
            max_overflow=0,
            pool_timeout=settings.timeout,
            pool_use_lifo=True,
            pool_pre_ping=True,
            connect_args={"timeout": settings.timeout, "command_timeout": 4 * settings.timeout},
        )

    async def run(self, work: Work[T], *, write: bool = False) -> T:
        """One transaction. A write runs to its end even if the caller is cancelled meanwhile; a read is given up."""
        if not write:
            return await self._transaction(work)
        task = asyncio.ensure_future(self._transaction(work))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return await asyncio.shield(task)

    async def _transaction(self, work: Work[T]) -> T:
        try:
            async with self._turn(), self._engine.begin() as connection:
                return await connection.run_sync(work)
        except (OSError, TimeoutError, OperationalError, InterfaceError, TypeError) as error:
            # TypeError: asyncpg's word for a parameter of the URL that it does not know
            raise StorageUnavailable("The storage cannot be reached.") from error
        except DBAPIError as error:
            if error.connection_invalidated or _is_outage(error):
                raise StorageUnavailable("The storage cannot be reached.") from error
            raise
        except SQLAlchemyError as error:
            if isinstance(error, sa.exc.TimeoutError):
                raise StorageUnavailable("The storage's connections are all in use.") from error
            raise

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """First come, first served: in SQLAlchemy's own queue who comes later can overtake, and under load the one
        overtaken waits until its time is over.

        Raises:
            StorageUnavailable: no connection became free in time.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await self._free.acquire()
        except TimeoutError:
            raise StorageUnavailable("The storage's connections are all in use.") from None
        try:
            yield
        finally:
            self._free.release()

    async def wipe(self) -> bool:
        """Nothing to do: what rows said before is PostgreSQL's to overwrite (autovacuum)."""
        return True

    async def close(self) -> None:
        """Once writes that nobody waits for any more have come to their end."""
        if self._writes:
            await asyncio.wait(self._writes, timeout=self._timeout)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout):
                await self._engine.dispose()


def _is_outage(error: DBAPIError) -> bool:
    """Errors of class 08 (connection), 53 (resources), 55 (lock), 57 (shutdown), 3D/28 (no such database, no access),
    40 (deadlock), 42P01 (the schema is not there yet)."""
    state = str(getattr(error.orig, "sqlstate", "") or "")
    return state[:2] in ("08", "28", "3D", "40", "53", "55", "57") or state == "42P01" or not state
