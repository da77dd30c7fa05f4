"""Where the library `limits` counts without Valkey: in a table that replicas share, which it has no storage for."""

import hashlib
import time
from abc import abstractmethod
from typing import Any

import sqlalchemy as sa
from limits.aio.storage import SlidingWindowCounterSupport, Storage

from gateway.storage.database import schema
from gateway.storage.database.engine import DatabaseTransactions, insert_for
from gateway.storage.rows import MOST

COUNTERS = schema.rate_counters


class _MinuteWindows(Storage, SlidingWindowCounterSupport):
    """Counts by windows that begin at whole minutes. What else the library's storages can do is not needed here."""

    def __init__(self, uri: str | None = None, wrap_exceptions: bool = False, **options: Any) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions, **options)

    @property
    def base_exceptions(self) -> tuple[type[Exception], ...]:
        return ()

    @abstractmethod
    async def _added(self, key: str, limit: int, amount: int, window: int, left: float) -> bool: ...

    @abstractmethod
    async def _counted(self, key: str, window: int) -> tuple[int, int]: ...

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Counts `amount` more, if no more than `limit` are counted then."""
        if amount > limit:
            return False
        window, left = _at(time.time(), expiry)
        return await self._added(key, limit, amount, window, left / expiry)

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """The window before and the one that runs: what is counted, and for how many seconds it counts."""
        window, left = _at(time.time(), expiry)
        previous, current = await self._counted(key, window)
        return previous, left, current, left + expiry

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        raise NotImplementedError

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        raise NotImplementedError

    async def get(self, key: str) -> int:
        raise NotImplementedError

    async def get_expiry(self, key: str) -> float:
        raise NotImplementedError

    async def check(self) -> bool:
        return True

    async def reset(self) -> int | None:
        raise NotImplementedError

    async def clear(self, key: str) -> None:
        raise NotImplementedError


class TableWindows(_MinuteWindows):
    """In a database, in one short transaction each; PostgreSQL has an advisory lock for each key."""

    STORAGE_SCHEME = ["gateway+sql"]  # noqa: RUF012 - as the library has it

    def __init__(self, transactions: DatabaseTransactions) -> None:
        super().__init__()
        self._transactions = transactions

    async def _added(self, key: str, limit: int, amount: int, window: int, left: float) -> bool:
        before, now = _digest(key, window - 1), _digest(key, window)

        def work(connection: sa.Connection) -> bool:
            lock(connection, key)
            found = _amounts(connection, before, now)
            if amount > 0 and int(found.get(before, 0) * left) + found.get(now, 0) + amount > limit:
                return False
            insert = insert_for(connection.dialect, COUNTERS)
            insert = insert.values(key=now, amount=amount, expires_at=60.0 * (window + 2))
            total = sa.case((COUNTERS.c.amount > MOST - max(amount, 0), MOST), else_=COUNTERS.c.amount + amount)
            connection.execute(insert.on_conflict_do_update(index_elements=[COUNTERS.c.key], set_={"amount": total}))
            return True

        return await self._transactions.run(work, write=True)

    async def _counted(self, key: str, window: int) -> tuple[int, int]:
        before, now = _digest(key, window - 1), _digest(key, window)
        found = await self._transactions.run(lambda connection: _amounts(connection, before, now))
        return found.get(before, 0), found.get(now, 0)


def _amounts(connection: sa.Connection, *keys: bytes) -> dict[bytes, int]:
    query = sa.select(COUNTERS.c.key, COUNTERS.c.amount).where(COUNTERS.c.key.in_(keys))
    return {bytes(row.key): row.amount for row in connection.execute(query)}


def lock(connection: sa.Connection, key: str) -> None:
    """Until the transaction ends, nobody else changes what is counted by that key."""
    if connection.dialect.name != "sqlite":
        number = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big", signed=True)
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(number)))


def _digest(key: str, window: int) -> bytes:
    return hashlib.blake2b(f"{key}\0{window}".encode(), digest_size=16).digest()


def _at(now: float, expiry: int) -> tuple[int, float]:
    """The number of the window that runs, and the seconds that are left of it."""
    window = int(now // expiry)
    return window, (window + 1) * expiry - now
