"""Rates in Valkey, by the library `limits`, or in a table (adapters of `ports.RateStore`).

This module is imported on the first request that is limited.
"""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa
from limits.aio.storage import RedisStorage
from redis.exceptions import RedisError

from gateway.core import errors, ports
from gateway.core.types.keys import RateWindow
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions, insert_for
from gateway.storage.rows import MAX_INT, lock_name

# Requests under way that count against a limit of requests at once: in a table, or in Valkey.
#
# Each is stored for `SLOT_SECONDS` and renewed while it runs, so that those of a killed process expire by themselves.

SLOT_SECONDS = 60.0
COUNTERS, SLOTS = schema.rate_counters, schema.rate_slots
SLOTS_PREFIX = "context-gateway:slots:"
ENTER = """
local now = redis.call('TIME')
local at = now[1] + now[2] / 1000000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', at)
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], at + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], 1000 * ARGV[3])
return 1
"""
RENEW = """
local now = redis.call('TIME')
redis.call('ZADD', KEYS[1], 'XX', now[1] + now[2] / 1000000 + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], 1000 * ARGV[2])
"""
"""By the server's own time, as the processes' clocks may differ. Only a present request is renewed: it may have just
left."""


T = TypeVar("T")
WINDOW_SECONDS = 60
UNBOUNDED_RATE = 2**52
"""More than any limit, and exact as a Lua number."""
PAUSE_SECONDS = 2.0
"""How long no request waits for a server that has not answered."""
PREFIX = "context-gateway:rates"


class TableRates:
    """Counts in the ledger's database, for PostgreSQL without Valkey: by windows that begin at whole minutes, as the
    library does. Each count is one short transaction; PostgreSQL takes an advisory lock for its key."""

    def __init__(self, transactions: DatabaseTransactions, clock: ports.Clock) -> None:
        self._transactions, self._clock = transactions, clock

    async def take(self, key: str, limit: int, amount: int) -> tuple[bool, RateWindow]:
        """Counts `amount` if that stays within `limit` (`ports.RateStore`)."""
        now = self._clock.now().timestamp()

        def work(connection: sa.Connection) -> tuple[bool, RateWindow]:
            lock_name(connection, key)
            found = _window(connection, key, now)
            before = int(found.previous * (found.previous_seconds / WINDOW_SECONDS))
            if before + found.current + amount > limit:
                return False, found
            _add(connection, key, now, amount)
            return True, found._replace(current=found.current + amount)

        return await self._transactions.run(work, write=True)

    async def correct(self, key: str, amount: int, since: float) -> None:
        now = self._clock.now().timestamp()

        def work(connection: sa.Connection) -> None:
            lock_name(connection, key)
            if amount > 0 or _may_subtract(_window(connection, key, now), amount, since, now):
                _add(connection, key, now, amount)

        await self._transactions.run(work, write=True)

    async def enter(self, key: str, request_id: str, limit: int) -> bool:
        """Admits a request if at most `limit` run at once; returns whether it did (`ports.RateStore`)."""
        digest, now = key.encode(), self._clock.now().timestamp()

        def work(connection: sa.Connection) -> bool:
            lock_name(connection, key)
            connection.execute(SLOTS.delete().where(SLOTS.c.key == digest, SLOTS.c.expires_at <= now))
            others = (SLOTS.c.key == digest, SLOTS.c.request_id != request_id)
            count = connection.execute(sa.select(sa.func.count()).select_from(SLOTS).where(*others)).scalar()
            if (count or 0) >= limit:
                return False
            row = {"key": digest, "request_id": request_id, "expires_at": now + SLOT_SECONDS}
            insert = insert_for(connection.dialect, SLOTS).values(**row)
            again = {"expires_at": insert.excluded.expires_at}
            connection.execute(insert.on_conflict_do_update(index_elements=list(SLOTS.primary_key), set_=again))
            return True

        return await self._transactions.run(work, write=True)

    async def renew(self, running: Sequence[tuple[str, str]]) -> None:
        until = self._clock.now().timestamp() + SLOT_SECONDS
        update = SLOTS.update().where(SLOTS.c.key == sa.bindparam("of"), SLOTS.c.request_id == sa.bindparam("who"))
        # In the order of their keys, so that no two transactions wait for each other.
        rows = [{"of": key.encode(), "who": request_id} for key, request_id in sorted(running)]
        update = update.values(expires_at=until)
        await self._transactions.run(lambda connection: connection.execute(update, rows), write=True)

    async def leave(self, key: str, request_id: str) -> None:
        delete = SLOTS.delete().where(SLOTS.c.key == key.encode(), SLOTS.c.request_id == request_id)
        await self._transactions.run(lambda connection: connection.execute(delete), write=True)

    async def sweep(self) -> None:
        """Deletes expired counts and slots."""
        now = self._clock.now().timestamp()
        for table in (COUNTERS, SLOTS):
            await self._transactions.run(partial(_forget, table, now), write=True)

    async def close(self) -> None:
        """Does nothing: there is nothing to close."""


class ValkeyRates:
    """Counts in Valkey or Redis by the library's sliding window counter; a sorted set for each key holds the requests
    under way. After a fault no request waits for Valkey for `PAUSE_SECONDS`."""

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
        self._enter = self._client.register_script(ENTER)
        self._renew = self._client.register_script(RENEW)
        self._seconds = seconds
        self._paused_until = 0.0

    async def take(self, key: str, limit: int, amount: int) -> tuple[bool, RateWindow]:
        """Counts `amount` if that stays within `limit` (`ports.RateStore`)."""
        taken = await self._asked(self._storage.acquire_sliding_window_entry(key, limit, WINDOW_SECONDS, amount))
        return taken, await self._window(key)

    async def correct(self, key: str, amount: int, since: float) -> None:
        if amount > 0 or _may_subtract(await self._window(key), amount, since, time.time()):
            await self._asked(self._storage.acquire_sliding_window_entry(key, UNBOUNDED_RATE, WINDOW_SECONDS, amount))

    async def _window(self, key: str) -> RateWindow:
        return RateWindow(*await self._asked(self._storage.get_sliding_window(key, WINDOW_SECONDS)))

    async def enter(self, key: str, request_id: str, limit: int) -> bool:
        """Admits a request if at most `limit` run at once; returns whether it did (`ports.RateStore`)."""
        asked = self._enter(keys=[SLOTS_PREFIX + key], args=[request_id, limit, SLOT_SECONDS])
        return bool(await self._asked(asked))

    async def renew(self, running: Sequence[tuple[str, str]]) -> None:
        async def each() -> None:
            for key, request_id in running:
                await self._renew(keys=[SLOTS_PREFIX + key], args=[request_id, SLOT_SECONDS])

        await self._asked(each())

    async def leave(self, key: str, request_id: str) -> None:
        await self._asked(self._client.zrem(SLOTS_PREFIX + key, request_id))

    async def sweep(self) -> None:
        """Does nothing: Valkey expires what is over."""

    async def close(self) -> None:
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
        """Closes idle connections: after a restart of Valkey they are dead, and each would be a fault and a pause of
        its own."""
        with contextlib.suppress(RedisError, OSError):
            await self._client.connection_pool.disconnect(inuse_connections=False)


def _may_subtract(window: RateWindow, amount: int, since: float, now: float) -> bool:
    """Returns whether what was counted at `since` is in the current window and can be taken from it."""
    began = now + window.current_seconds - 2 * WINDOW_SECONDS
    return since >= began - 1 and window.current + amount >= 0


def _window(connection: sa.Connection, key: str, now: float) -> RateWindow:
    before, here = _digest(key, now - WINDOW_SECONDS), _digest(key, now)
    query = sa.select(COUNTERS.c.key, COUNTERS.c.amount).where(COUNTERS.c.key.in_((before, here)))
    found = {bytes(row.key): row.amount for row in connection.execute(query)}
    left = WINDOW_SECONDS - now % WINDOW_SECONDS
    return RateWindow(found.get(before, 0), left, found.get(here, 0), left + WINDOW_SECONDS)


def _add(connection: sa.Connection, key: str, now: float, amount: int) -> None:
    ends = now - now % WINDOW_SECONDS + 2 * WINDOW_SECONDS
    insert = insert_for(connection.dialect, COUNTERS).values(key=_digest(key, now), amount=amount, expires_at=ends)
    total = sa.case((COUNTERS.c.amount > MAX_INT - max(amount, 0), MAX_INT), else_=COUNTERS.c.amount + amount)
    connection.execute(insert.on_conflict_do_update(index_elements=[COUNTERS.c.key], set_={"amount": total}))


def _digest(key: str, now: float) -> bytes:
    return hashlib.blake2b(f"{key}\0{int(now // WINDOW_SECONDS)}".encode(), digest_size=16).digest()


def _forget(table: sa.Table, now: float, connection: sa.Connection) -> None:
    connection.execute(table.delete().where(table.c.expires_at <= now))


def _down() -> errors.LimitsUnavailable:
    return errors.LimitsUnavailable("Limits cannot be checked now; try again.")


def _close(work: Any) -> None:
    """Closes a coroutine that nobody awaits any more."""
    close = getattr(work, "close", None)
    if close is not None:
        close()
