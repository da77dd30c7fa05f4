"""SQLite: one connection on one thread, and what to do when its file is locked, full, damaged or gone.

A query is a plain function of a SQLAlchemy `Connection`. So a transaction costs one hop to SQLite's thread, not one per
statement, and PostgreSQL runs the same code under SQLAlchemy's greenlet bridge.
"""

import asyncio
import atexit
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import RLock, Thread
from types import NoneType
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError
from sqlalchemy.pool import StaticPool

from gateway.core import errors
from gateway.core.config.settings import StorageSettings
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.storage.database.postgres import PostgresTransactions
from gateway.storage.database.transactions import DatabaseTransactions, T, Work, WriteState
from gateway.storage.encryption.columns import DRIVER, KeyVault, driver_of, open_vault, use_vault

log = logs.get_logger("gateway.storage")
BEGIN_READ = "BEGIN"
"""Reads what was committed, whoever else writes to the file."""
BEGIN_WRITE = "BEGIN IMMEDIATE"
"""Takes the write lock at once: a transaction that has already read can no longer wait for it."""
BEGIN_UNSYNCED = "BEGIN IMMEDIATE TRANSACTION"
"""Takes the write lock at once, and its commit does not wait for the disk."""
LASTING = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
           sqlite3.SQLITE_READONLY}  # fmt: skip
"""Errors after which a connection may keep failing even when the file is intact again."""
REFUSES_WRITES = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR}
"""Errors by which a file refuses a transaction that writes."""
EMPTY_SECONDS = 0.5
"""How long another process may take from creating a file to its first page."""
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
PAUSE_SECONDS = 0.01
WAIT_SECONDS = 0.05
"""How long the thread itself waits for another process's lock. A transaction that waits longer steps aside, so that
reads pass."""

AT_ONCE = ("PRAGMA synchronous = NORMAL", "PRAGMA busy_timeout = 0", "PRAGMA wal_autocheckpoint = 0")
USUALLY = (
    "PRAGMA synchronous = FULL",
    f"PRAGMA busy_timeout = {int(1000 * WAIT_SECONDS)}",
    "PRAGMA wal_autocheckpoint = 2000",
)
"""Pragmas of transactions that wait for nothing (`AT_ONCE`), and of all others."""
PAGE_BYTES = 2048
"""Of a new file. Most messages are longer than a page holds beside others, and begin pages of their own: of 4096 bytes,
the last one of each is half empty, in the file and in the log."""
WIPE_MILLISECONDS = 200
"""How long emptying the log waits for other users; it holds the thread for that time."""
VACUUM_AT_ONCE = 16 * 2**20
VACUUM_LARGEST = 256 * 2**20
"""Bytes of a file that a deletion vacuums directly (a tenth of a second), and of one that the next sweep vacuums (a few
seconds). Larger files are left to the operator."""
sqlite3.register_adapter(NoneType, dict[None, None]().get)
sqlite3.register_adapter(bool, int)
sqlite3.register_adapter(bytes, bytes)
"""The driver looks for an adapter of each value that is neither text nor number; a failed search takes longer than
storing the value."""
_SIZE = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"


@record
class _WaitingTransaction:
    """A transaction that another process's lock blocks. `outcome` gets its result, until `deadline` (monotonic)."""

    work: Work[Any]
    begin: str
    deadline: float
    outcome: Future[Any]


class _WriterThread:
    """Runs jobs one after the other: all that were begun before the process ends, whether or not anybody closes it. An
    executor's futures, with a lock each, cost as much as a small transaction."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._is_over = False

    def begin(self, job: Callable[[], object]) -> None:
        """Queues a job and returns; the job handles its own errors. Raises RuntimeError: the thread has ended."""
        if self._is_over:
            raise RuntimeError("the storage is closed")
        if self._thread is None:
            self._thread = Thread(target=self._work, name="sqlite_0", daemon=True)
            self._thread.start()
            atexit.register(self.end)
        self._jobs.put(job)

    async def done(self, job: Callable[[], T], *, if_awaited: bool = False) -> T:
        """Returns the result of a job, which runs to its end even if the caller is cancelled.
        `if_awaited`: the job does not begin if nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            if if_awaited and outcome.done():
                return
            tell: Callable[[], None]
            try:
                tell = partial(outcome.set_result, job())
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                tell = partial(outcome.set_exception, error)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(lambda: None if outcome.done() else tell())

        self.begin(work)
        return await outcome

    def end(self) -> None:
        """Ends the thread, after all queued jobs are done."""
        self._is_over = True
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()
        atexit.unregister(self.end)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # and what it holds


class SqliteTransactions:
    """One connection on one thread: SQLite has one writer anyway. Commits are synced to disk, except `synced=False`."""

    remote = False

    def __init__(self, url: URL, timeout: float) -> None:
        if url.database and url.database != ":memory:":
            try:
                Path(url.database).parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                is_file = isinstance(error, FileExistsError | NotADirectoryError)
                why = "its folder is, or lies below, a file" if is_file else error.strerror
                raise ValueError(f"storage.url: {url.database}: {why}") from None
        engine = sa.create_engine(
            url,
            hide_parameters=True,
            poolclass=StaticPool,
            connect_args={"timeout": WAIT_SECONDS, "check_same_thread": False},
        )
        sa.event.listen(engine, "connect", lambda connection, _record: _prepare(connection, timeout))
        self._use(engine, url.database or "", timeout)

    def _use(self, engine: sa.Engine, path: str, timeout: float) -> None:
        self._thread = _WriterThread()
        self._engine = engine
        self._path = path
        self._timeout = timeout
        self._connection: sa.Connection | None = None
        self._in_use = RLock()
        self._file: tuple[int, int] | None = None
        self._owes_wipe = False
        self.writes = WriteState()
        self._waiting: deque[_WaitingTransaction] = deque()

    def use_vault(self, vault: KeyVault | None) -> None:
        """Seals and opens content with the keys of `vault`."""
        use_vault(self._engine, vault)

    async def run(self, work: Work[T], *, write: bool = False, synced: bool = True) -> T:
        """Runs one transaction on SQLite's thread. A write runs to its end even if the caller is cancelled, also before
        it has begun; a cancelled read that has not begun is dropped. It waits for another process's lock until
        `storage.timeout`, and reads pass meanwhile."""
        begin = (BEGIN_WRITE if synced else BEGIN_UNSYNCED) if write else BEGIN_READ
        try:
            result = await self._thread.done(partial(self._first_try, work, begin), if_awaited=not write)
            if isinstance(result, _WaitingTransaction):
                return cast(T, await asyncio.shield(asyncio.wrap_future(result.outcome)))
        except errors.StorageReadOnly as error:
            self.writes.refused(error)
            raise
        return result

    def at_once(self, work: Work[None]) -> bool:
        """Runs one small transaction on the caller's thread, not synced. Returns False, with nothing written, if
        another user of the file is in its way. It waits for no lock and no checkpoint, which the next synced
        transaction makes. It waits for the disk only as the first after a whole checkpoint: SQLite then starts the log
        again and syncs its new header."""
        if self._connection is None or self._waiting or not self._in_use.acquire(blocking=False):
            return False
        try:
            self._set(AT_ONCE)
            self._transaction(work, BEGIN_WRITE)
        except _LockedElsewhere:
            return False
        except errors.StorageReadOnly as error:
            self.writes.refused(error)
            raise
        finally:
            self._set(USUALLY)
            self._in_use.release()
        return True

    def _set(self, pragmas: Sequence[str]) -> None:
        if self._connection is not None:
            driver = driver_of(self._connection)
            for pragma in pragmas:
                driver.execute(pragma).close()

    def seems_read_only(self, connection: sa.Connection) -> bool:
        """Returns whether the file system or the file's permissions prevent writing."""
        return os.path.exists(self._path) and not os.access(self._path, os.W_OK)

    def _first_try(self, work: Work[T], begin: str) -> T | _WaitingTransaction:
        if not self._waiting or begin is BEGIN_READ:
            try:
                return self._transaction(work, begin)
            except _LockedElsewhere:
                pass
        late = _WaitingTransaction(work, begin, time.monotonic() + self._timeout, Future())
        self._waiting.append(late)
        if len(self._waiting) == 1:
            self._thread.begin(self._try_again)
        return late

    def _try_again(self) -> None:
        """Runs waiting transactions in order until one finds the file still locked. Jobs that came meanwhile go
        first."""
        while self._waiting:
            first = self._waiting[0]
            try:
                result = self._transaction(first.work, first.begin)
            except _LockedElsewhere as busy:
                self._give_up(busy)
                if self._waiting:
                    self._thread.begin(self._try_again)
                return
            except BaseException as error:  # noqa: BLE001 - raised where the transaction is awaited
                self._waiting.popleft().outcome.set_exception(error)
            else:
                self._waiting.popleft().outcome.set_result(result)

    def _give_up(self, busy: "_LockedElsewhere") -> None:
        """Fails the waiting transactions whose deadline has passed."""
        now = time.monotonic()
        while self._waiting and self._waiting[0].deadline <= now:
            unavailable = errors.StorageUnavailable("The storage cannot be used right now.")
            unavailable.__cause__ = busy.__cause__
            self._waiting.popleft().outcome.set_exception(unavailable)

    def _transaction(self, work: Work[T], begin: str) -> T:
        with self._in_use:
            try:
                return self._run(work, begin)
            except (OperationalError, sqlite3.OperationalError) as error:
                if _code(error) in BUSY:
                    raise _LockedElsewhere from error
                self._let_go(error)
                if begin is not BEGIN_READ and _code(error) in REFUSES_WRITES:
                    raise errors.StorageReadOnly from error
                raise errors.StorageUnavailable("The storage cannot be used right now.") from error
            except (DatabaseError, sqlite3.DatabaseError) as error:
                if type(error) not in (DatabaseError, sqlite3.DatabaseError):
                    raise
                self._let_go(error)
                raise errors.StorageUnavailable("The storage's file is no usable database.") from error

    def _run(self, work: Work[T], begin: str) -> T:
        """Begins and ends the transaction with the driver itself, on one permanent connection: what SQLAlchemy does
        around a transaction costs more than a small one."""
        connection = self._opened()
        driver = driver_of(connection)
        if begin is BEGIN_UNSYNCED:
            driver.execute("PRAGMA synchronous = NORMAL").close()
        try:
            driver.execute(begin).close()
            result = work(connection)
            driver.execute("COMMIT").close()
        except BaseException:
            if driver.in_transaction:
                driver.execute("ROLLBACK").close()
            raise
        finally:
            if begin is BEGIN_UNSYNCED:
                driver.execute("PRAGMA synchronous = FULL").close()
        return result

    def _opened(self) -> sa.Connection:
        """Returns the connection, if the file still has its name: writes to a renamed or removed file would be lost.
        Raises StorageUnavailable: the file was removed or emptied, and a new database in its place would hide the loss;
        or another file is in its place, to which SQLite would apply the old one's log."""
        if self._connection is None:
            _check_not_emptied(self._path)
            opened = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            self._connection = opened.execution_options(**{DRIVER: driver_of(opened)})
            self._file = _identity(self._path)
        elif self._file is not None and (found := _identity(self._path)) != self._file:
            raise errors.StorageUnavailable(
                f"The storage's file was {'replaced while in use' if found else 'removed'}."
            )
        return self._connection

    def _let_go(self, error: DatabaseError | sqlite3.Error) -> None:
        """Closes the connection if it may not recover; the next transaction opens another."""
        if _code(error) in LASTING:
            self._close_connection()

    async def wipe(self) -> bool:
        """Erases all copies of deleted rows: in the write-ahead log, and in pages from which rows were moved, which
        only a VACUUM overwrites. For a large file, that part waits for `wipe_owed`."""
        return await self._wiped(VACUUM_AT_ONCE)

    async def _wiped(self, largest: int) -> bool:
        done = await self._thread.done(partial(self._wipe, largest))
        self._owes_wipe = not done
        return done

    async def wipe_owed(self) -> None:
        """Runs a pending wipe: one that a reader prevented, or that a large file had postponed."""
        if self._owes_wipe:
            await self._wiped(VACUUM_LARGEST)

    def _wipe(self, largest: int) -> bool:
        """Wipes, and returns whether nothing is left for a later sweep."""
        if self._connection is None:
            return True
        driver = driver_of(self._connection)
        with self._in_use:
            try:
                driver.execute(f"PRAGMA busy_timeout = {WIPE_MILLISECONDS}").close()
                try:
                    (size,) = driver.execute(_SIZE).fetchone()
                    if size <= largest:
                        driver.execute("VACUUM").close()
                    busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                finally:
                    driver.execute(f"PRAGMA busy_timeout = {int(1000 * WAIT_SECONDS)}").close()
            except sqlite3.Error:
                return False
        return not busy and not largest < size <= VACUUM_LARGEST

    async def close(self) -> None:
        """Waits for transactions under way, also for those that wait for a lock, then closes the connection."""
        try:
            while self._waiting:
                await self._thread.done(self._try_again)
            await self._thread.done(self._close_connection)
        finally:
            self._thread.end()

    def _close_connection(self) -> None:
        with self._in_use:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._engine.dispose()


class _LockedElsewhere(Exception):
    """Another process holds the lock."""


def _code(error: DatabaseError | sqlite3.Error) -> int:
    """Returns SQLite's primary result code; 0 if the error has none."""
    orig = error.orig if isinstance(error, DatabaseError) else error
    return getattr(orig, "sqlite_errorcode", 0) & 0xFF


def _identity(path: str) -> tuple[int, int] | None:
    """Returns device and inode of the file of that name; None if there is none, as for a database in memory."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _check_not_emptied(path: str) -> None:
    """Checks that the file has a first page, or does not exist yet. SQLite would silently create a new database in a
    file of 0 bytes, or beside the log of a missing one.
    Raises StorageUnavailable: the file is empty, or missing while its log is there."""
    end = time.monotonic() + EMPTY_SECONDS
    while path and ((size := _size(path)) == 0 or (size is None and _size(f"{path}-wal"))):
        if time.monotonic() > end:
            found = "is gone, and its log is not" if size is None else "is empty (0 bytes)"
            message = f"The storage's file {found}: put back a backup, or remove what is left to begin anew."
            log.warning("storage_file_emptied", path=path, reason=message)
            raise errors.StorageUnavailable(message)
        time.sleep(PAUSE_SECONDS)  # another process may be creating it just now


def _size(path: str) -> int | None:
    try:
        return os.path.getsize(path)
    except OSError:
        return None


def _prepare(connection: Any, timeout: float) -> None:
    connection.isolation_level = None  # transactions are begun here, not by the driver
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}").close()
    _keep_log(connection, time.monotonic() + timeout)
    for pragma in ("synchronous = FULL", "foreign_keys = ON", "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _keep_log(connection: Any, end: float) -> None:
    """Enables the write-ahead log. SQLite does not wait for this change if several processes meet at a new file."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in BUSY or time.monotonic() > end:
                raise
        time.sleep(PAUSE_SECONDS)


__all__ = ["DatabaseTransactions", "Work", "insert_for", "insert_if_new", "open_transactions", "parse_url"]

LIBPQ_ONLY = ("sslmode", "channel_binding", "gssencmode", "target_session_attrs", "connect_timeout")


def open_transactions(
    settings: StorageSettings,
    of_file: type[SqliteTransactions] = SqliteTransactions,
    of_server: type[PostgresTransactions] = PostgresTransactions,
) -> DatabaseTransactions:
    """Opens the database that `storage.url` names, with the keys of its content; connects to nothing yet.
    Raises ValueError: the URL is invalid or names an unsupported database, or keys cannot be used. The message holds no
    password."""
    url = parse_url(settings.url)
    is_file = url.get_backend_name() == "sqlite"
    opened: Any = of_file(url, settings.timeout) if is_file else of_server(url, settings)
    opened.use_vault(open_vault(settings))
    found: DatabaseTransactions = opened
    return found


def parse_url(text: str) -> URL:
    """Parses `storage.url` and sets its driver: `sqlite:///FILE`, `postgresql+asyncpg://…` (also `postgres://`).
    Raises ValueError: the URL is invalid, or names an unsupported database."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # ValueError: an invalid port, with the password beside it
        raise ValueError("storage.url is not a database URL") from None
    backend = url.drivername.partition("+")[0]
    if backend == "sqlite":
        if url.host is not None:
            raise ValueError("storage.url: a file's URL has three slashes, or four: sqlite:///FILE")
        return url.set(drivername="sqlite+pysqlite")
    if backend in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+asyncpg")
        mode = url.query.get("sslmode")  # libpq's name, which hosted databases hand out
        if mode is not None and "ssl" not in url.query:
            url = url.update_query_dict({"ssl": mode})
        return url.difference_update_query(LIBPQ_ONLY)
    raise ValueError(f"storage.url: {backend!r} is not supported; sqlite or postgresql+asyncpg are")


def sqlite_file(text: str) -> Path | None:
    """Returns the file that `storage.url` names; None if it names no SQLite, or one in memory."""
    url = parse_url(text)
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    return Path(str(url.database)).absolute() if is_file else None


def insert_for(dialect: sa.Dialect, table: sa.Table) -> Any:
    """Returns an insert that can handle conflicts; loads only the dialect in use."""
    if dialect.name == "sqlite":
        return insert(table)
    from sqlalchemy.dialects.postgresql import insert as postgresql_insert  # a start on SQLite never loads that dialect

    return postgresql_insert(table)


def insert_if_new(connection: sa.Connection, table: sa.Table) -> Any:
    """Returns an insert that leaves an existing row unchanged."""
    return insert_for(connection.dialect, table).on_conflict_do_nothing()
