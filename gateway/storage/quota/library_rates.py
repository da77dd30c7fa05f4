"""Rates by the library `limits`, over Valkey or a table (adapter of `ports.RateStore`).

This module is imported when the first request comes that is limited.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa
from limits.aio.storage import RedisStorage, SlidingWindowCounterSupport
from redis.exceptions import RedisError

from gateway.core.errors import LimitsUnavailable
from gateway.core.types.allowed import RateWindow
from gateway.storage.database import schema
from gateway.storage.database.engine import DatabaseTransactions
from gateway.storage.quota.slots import RunningSlots, TableSlots, ValkeySlots
from gateway.storage.quota.table_windows import TableWindows

T = TypeVar("T")
MINUTE = 60
ANY = 2**52
"""More than any limit, and exact as a number of Lua's."""
PAUSE_SECONDS = 2.0
"""For which nobody waits for a server that has not answered."""
PREFIX = "context-gateway:rates"
EXPIRING = (schema.rate_counters, schema.rate_slots)


class LibraryRates:
    """Counts by the sliding window counter of the library."""

    local = None

    def __init__(self, windows: SlidingWindowCounterSupport, slots: RunningSlots) -> None:
        self._windows = windows
        self._slots = slots

    async def take(self, key: str, limit: int, amount: int) -> tuple[bool, RateWindow]:
        """Counts `amount` if no more than `limit` are counted then (`ports.RateStore`)."""
        taken = await self._asked(self._windows.acquire_sliding_window_entry(key, limit, MINUTE, amount))
        return taken, await self._window(key)

    async def correct(self, key: str, amount: int, since: float) -> None:
        """Counts so many more or fewer (`ports.RateStore`)."""
        if amount < 0:
            window = await self._window(key)
            began = time.time() + window.current_seconds - 2 * MINUTE
            if since < began - 1 or window.current + amount < 0:
                return
        await self._asked(self._windows.acquire_sliding_window_entry(key, ANY, MINUTE, amount))

    async def enter(self, key: str, request_id: str, limit: int) -> bool:
        """Whether the request is one of at most `limit` (`ports.RateStore`)."""
        return await self._asked(self._slots.enter(key, request_id, limit))

    async def renew(self, running: Sequence[tuple[str, str]]) -> None:
        """They are under way for another minute."""
        await self._asked(self._slots.renew(running))

    async def leave(self, key: str, request_id: str) -> None:
        """The request is over."""
        await self._asked(self._slots.leave(key, request_id))

    async def sweep(self) -> None:
        """Nothing to do: what is over is forgotten."""

    async def close(self) -> None:
        """Nothing to do."""

    async def _window(self, key: str) -> RateWindow:
        return RateWindow(*await self._asked(self._windows.get_sliding_window(key, MINUTE)))

    async def _asked(self, work: Awaitable[T]) -> T:
        return await work


class TableRates(LibraryRates):
    """In the database of the ledger."""

    def __init__(self, transactions: DatabaseTransactions) -> None:
        super().__init__(TableWindows(transactions), TableSlots(transactions))
        self._transactions = transactions

    async def sweep(self) -> None:
        """Deletes what is over."""
        now = time.time()
        for table in EXPIRING:
            await self._transactions.run(partial(_forget, table, now), write=True)


class ValkeyRates(LibraryRates):
    """In Valkey or Redis. After a fault nobody waits for it for a while."""

    def __init__(self, url: str, seconds: float) -> None:
        self._storage = RedisStorage(
            f"async+{url}",
            implementation="redispy",
            key_prefix=PREFIX,
            socket_timeout=seconds,
            socket_connect_timeout=seconds,
        )
        bridge: Any = self._storage.bridge
        self._client = bridge.get_connection()
        super().__init__(self._storage, ValkeySlots(self._client))
        self._seconds = seconds
        self._paused_until = 0.0

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    async def _asked(self, work: Awaitable[T]) -> T:
        if time.monotonic() < self._paused_until:
            _close(work)
            raise _down()
        try:
            async with asyncio.timeout(self._seconds):
                return await work
        except (RedisError, OSError, TimeoutError) as error:
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            await self._forget_connections()
            raise _down() from error

    async def _forget_connections(self) -> None:
        """A restart of Valkey leaves idle connections that are dead: used one by one, each would be a fault and a pause
        of its own."""
        with contextlib.suppress(RedisError, OSError):
            await self._client.connection_pool.disconnect(inuse_connections=False)


def _forget(table: sa.Table, now: float, connection: sa.Connection) -> None:
    connection.execute(table.delete().where(table.c.expires_at <= now))


def _down() -> LimitsUnavailable:
    return LimitsUnavailable("Limits cannot be checked now; try again.")


def _close(work: Any) -> None:
    """Of a coroutine that nobody waits for any more."""
    close = getattr(work, "close", None)
    if close is not None:
        close()
