"""PostgreSQL: a pool of asyncpg connections. Transactions that were certainly rolled back are tried again."""

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import NullPool

from gateway.core import errors, ids
from gateway.core.config.settings import StorageSettings
from gateway.core.instrumentation import logs
from gateway.core.tasks import BackgroundTasks
from gateway.storage.database.transactions import CommitUnknown, T, Work, WriteState
from gateway.storage.encryption.columns import KeyVault, use_vault

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

POOLER_OPTIONS = ("statement_cache_size", "prepared_statement_cache_size")
LIBPQ_SETTINGS = ("application_name", "options")
OPTION = re.compile(r"(?:-c\s*([\w.]+)|--([\w.-]+))=((?:\\.|\S)*)")
PAUSE_SECONDS = 0.02
ATTEMPTS = 4
ROLLED_BACK = ("40",)
"""Class 40: deadlock, serialization failure. The server rolled back, even if it reports this at the COMMIT."""
STALE_PLAN = "0A000"
"""A prepared statement from before a migration; SQLAlchemy forgets them all when it sees this."""
OUTAGES = ("08", "25006", "28", "3D", "53", "55", "57", "42P01", "42703")
"""Connection; read-only standby; no access; no such database; resources; lock; shutdown or timeout; and a schema that
lacks this version's tables or columns."""
READS_ONLY = "25006"
WRITE_REFUSED_STATES = (READS_ONLY, "42501", "53100", "58030")
"""For a transaction that writes: a read-only server or role; no right to write; the disk is full, or fails."""
LOST = ("08", "57P")
"""The connection is gone, and with it all that was not committed."""
log = logs.get_logger("gateway.storage")


@dataclass(slots=True)
class TransactionPhase:
    """How far a transaction has come."""

    connected: bool = False
    committing: bool = False


class PostgresTransactions:
    """A pool of asyncpg connections."""

    remote = True

    def __init__(self, url: URL, settings: StorageSettings) -> None:
        self._said = settings_in(url)
        self._url, self._pooled = behind_pooler(url.difference_update_query(LIBPQ_SETTINGS))
        self._timeout = settings.timeout
        self.writes = WriteState()
        self._running = BackgroundTasks()
        self._free = asyncio.Semaphore(settings.pool_size)
        limits = self._server_settings(_server_limits(settings.timeout))
        self._engine = self._open(
            pool_size=settings.pool_size,
            max_overflow=0,
            pool_timeout=settings.timeout,
            pool_use_lifo=True,
            connect_args={**self._connect_args(), "command_timeout": 2.5 * settings.timeout, **limits},
        )
        # All statements of a read see one state: what was committed when it began.
        self._reads = self._engine.execution_options(isolation_level="REPEATABLE READ")

    def _open(self, **options: Any) -> "AsyncEngine":
        from sqlalchemy.ext.asyncio import create_async_engine

        # hide_parameters: they hold what users wrote, and errors are logged
        return create_async_engine(self._url, hide_parameters=True, **options)

    def _connect_args(self) -> dict[str, Any]:
        connect: dict[str, Any] = {"timeout": self._timeout}
        if not self._pooled:
            return connect
        names = {"prepared_statement_name_func": lambda: ids.new_id("stmt_")}
        return {**connect, "statement_cache_size": 0, "prepared_statement_cache_size": 0, **names}

    def _server_settings(self, own: dict[str, str]) -> dict[str, dict[str, str]]:
        """Returns asyncpg's argument for a connection's settings: `own`, which a pooler would refuse, and the URL's."""
        found = {**({} if self._pooled else own), **self._said}
        return {"server_settings": found} if found else {}

    def use_vault(self, vault: KeyVault | None) -> None:
        """Seals and opens content with the keys of `vault`."""
        use_vault(self._engine.sync_engine, vault)

    async def run(self, work: Work[T], *, write: bool = False, synced: bool = True) -> T:
        """Runs one transaction. After it has a connection, it runs to its end even if the caller is cancelled:
        interrupting a driver would cost the connection. A cancelled write keeps its place in the queue, a cancelled
        read gives it up."""
        if write:
            try:
                return await self._running.finished(self._queued(work if synced else partial(_unsynced, work)))
            except errors.StorageReadOnly as error:
                self.writes.refused(error)
                raise
        await self._turn()
        return await self._running.finished(self._tried(work, write=False))

    async def _queued(self, work: Work[T]) -> T:
        await self._turn()
        return await self._tried(work, write=True)

    async def _turn(self) -> None:
        """Waits for a connection, first come, first served. In SQLAlchemy's own queue later callers can overtake, and
        under load the overtaken one waits until its timeout.
        Raises StorageUnavailable: no connection became free in time."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._free.acquire()
        except TimeoutError:
            raise errors.StorageUnavailable("The storage's connections are all in use.") from None

    async def _tried(self, work: Work[T], *, write: bool) -> T:
        """Runs `work` on a free connection, and again if the database rolled it back."""
        clock = asyncio.get_running_loop().time
        end = clock() + self._timeout
        attempt = 1
        try:
            while True:
                phase = TransactionPhase()
                try:
                    return await self._once(work, phase, self._engine if write else self._reads)
                except (OSError, SQLAlchemyError, TypeError) as error:
                    again, fault = judge(error, phase, write=write)
                    if not again or attempt == ATTEMPTS or clock() > end:
                        raise fault from error
                    log.info("transaction_tried_again", attempt=attempt, reason=type(error).__name__)
                await asyncio.sleep(random.uniform(0, PAUSE_SECONDS * attempt))
                attempt += 1
        finally:
            self._free.release()

    async def _once(self, work: Work[T], phase: TransactionPhase, engine: "AsyncEngine") -> T:
        async with engine.connect() as connection:
            phase.connected = True
            try:
                result = await connection.run_sync(work)
                phase.committing = True
                await connection.commit()
            except TimeoutError:
                await _abandon(connection)
                raise
            except DBAPIError as error:
                if sqlstate(error) == READS_ONLY:  # perhaps of this connection alone: a failover, or a setting
                    await connection.invalidate()
                raise
            return result

    def at_once(self, work: Work[None]) -> bool:
        """Returns False: a transaction on a server always waits."""
        return False

    def seems_read_only(self, connection: "sa.Connection") -> bool:
        """Returns whether the server or a setting makes its transactions read-only."""
        return str(connection.exec_driver_sql("SHOW transaction_read_only").scalar()) == "on"

    @contextlib.asynccontextmanager
    async def unhurried(self) -> AsyncIterator["AsyncEngine"]:
        """Opens connections outside the pool, for statements that may take minutes: migrations."""
        limits = self._server_settings({"application_name": "gateway migrate"})
        engine = self._open(poolclass=NullPool, connect_args={**self._connect_args(), **limits})
        try:
            yield engine
        finally:
            await engine.dispose()

    async def wipe(self) -> bool:
        """Does nothing: PostgreSQL itself overwrites what deleted rows held (autovacuum)."""
        return True

    async def wipe_owed(self) -> None:
        """Does nothing: no wipe is ever pending."""

    async def close(self) -> None:
        """Waits for transactions whose callers are gone, then closes the connections."""
        await self._running.finish(self._timeout)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout):
                await self._engine.dispose()


def _unsynced(work: Work[T], connection: "sa.Connection") -> T:
    connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
    return work(connection)


async def _abandon(connection: "AsyncConnection") -> None:
    """Cuts a connection: a server that does not answer would not answer a ROLLBACK either."""
    if connection.invalidated:
        return
    raw = await connection.get_raw_connection()
    driver: Any = raw.driver_connection
    driver.terminate()
    await connection.invalidate()


def settings_in(url: URL) -> dict[str, str]:
    """Returns settings that a URL names as libpq does: `options=-c search_path=NAME`, `application_name`."""
    name, options = (url.query.get(each) for each in LIBPQ_SETTINGS)
    found = {"application_name": name} if isinstance(name, str) else {}
    for short, long, value in OPTION.findall(options if isinstance(options, str) else ""):
        found[short or long.replace("-", "_")] = re.sub(r"\\(.)", r"\1", value)
    return found


def behind_pooler(url: URL) -> tuple[URL, bool]:
    """Returns the URL without its options for poolers, and whether it has one. With `statement_cache_size=0` nothing is
    cached across transactions, as another connection may serve the next (PgBouncer's transaction mode)."""
    pooled = any(str(url.query.get(name)) == "0" for name in POOLER_OPTIONS)
    return url.difference_update_query(POOLER_OPTIONS if pooled else POOLER_OPTIONS[:1]), pooled


def _server_limits(timeout: float) -> dict[str, str]:
    """Returns the server's own limits, in milliseconds: it releases locks even if this process no longer can."""
    return {
        "application_name": "gateway",
        "lock_timeout": str(max(1, int(1000 * timeout))),
        "statement_timeout": str(max(1, int(2000 * timeout))),
        "idle_in_transaction_session_timeout": str(max(1, int(4000 * timeout))),
    }


def judge(error: Exception, phase: TransactionPhase, *, write: bool) -> tuple[bool, Exception]:
    """Decides whether a failed transaction may be tried again, and what it raises if not.

    It may if it was certainly rolled back. A write that loses its connection at the COMMIT may have been committed: it
    is not tried again here, and raises `CommitUnknown`."""
    state = sqlstate(error)
    lost = _is_lost(error, state)
    uncertain = write and phase.committing and not (state and not lost and not state.startswith("57"))
    if uncertain:
        return False, CommitUnknown("The storage was lost while a turn was being committed.")
    if write and state.startswith(WRITE_REFUSED_STATES):
        return False, errors.StorageReadOnly()
    again = phase.connected and (lost or state.startswith(ROLLED_BACK) or state == STALE_PLAN)
    if isinstance(error, DBAPIError) and state and not lost and not state.startswith((*ROLLED_BACK, *OUTAGES)):
        return again, error
    if isinstance(error, PoolTimeout):
        return False, errors.StorageUnavailable("The storage's connections are all in use.")
    if isinstance(error, DBAPIError | OSError) or (isinstance(error, TypeError) and not phase.connected):
        return again, errors.StorageUnavailable("The storage cannot be reached.")
    return False, error  # asyncpg raises TypeError before a connection for an unknown URL parameter


def sqlstate(error: Exception) -> str:
    """Returns PostgreSQL's five characters; "" if the error is the driver's or the network's."""
    orig = getattr(error, "orig", None)
    state = getattr(orig, "sqlstate", None) or getattr(getattr(orig, "__cause__", None), "sqlstate", None)
    return str(state or "")


def _is_lost(error: Exception, state: str) -> bool:
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or state.startswith(LOST)
    return isinstance(error, OSError) and not isinstance(error, TimeoutError)
