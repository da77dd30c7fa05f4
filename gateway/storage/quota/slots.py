"""Requests under way that count against a limit of requests at once: in a table, or in Valkey.

Each is noted for `SLOT_SECONDS` and renewed while it runs, so that those of a killed process end by themselves.
"""

import time
from collections.abc import Sequence
from typing import Any, Protocol

import sqlalchemy as sa

from gateway.storage.database import schema
from gateway.storage.database.engine import DatabaseTransactions, insert_for
from gateway.storage.quota.table_windows import lock

SLOT_SECONDS = 60.0
SLOTS = schema.rate_slots
PREFIX = "context-gateway:slots:"
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
"""By the server's own time: the processes' clocks may differ. Only who is there is renewed: it may just have left."""


class RunningSlots(Protocol):
    """Who is under way."""

    async def enter(self, key: str, request_id: str, limit: int) -> bool: ...

    async def renew(self, running: Sequence[tuple[str, str]]) -> None: ...

    async def leave(self, key: str, request_id: str) -> None: ...


class TableSlots:
    """Those of all processes, where there is PostgreSQL and no Valkey."""

    def __init__(self, transactions: DatabaseTransactions) -> None:
        self._transactions = transactions

    async def enter(self, key: str, request_id: str, limit: int) -> bool:
        """Whether the request is one of at most `limit`."""
        digest, now = key.encode(), time.time()

        def work(connection: sa.Connection) -> bool:
            lock(connection, key)
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
        """They are under way for another while."""
        until = time.time() + SLOT_SECONDS
        update = SLOTS.update().where(SLOTS.c.key == sa.bindparam("of"), SLOTS.c.request_id == sa.bindparam("who"))
        # In the order of their keys, so that no two transactions wait for each other.
        rows = [{"of": key.encode(), "who": request_id} for key, request_id in sorted(running)]
        update = update.values(expires_at=until)
        await self._transactions.run(lambda connection: connection.execute(update, rows), write=True)

    async def leave(self, key: str, request_id: str) -> None:
        """The request is over."""
        delete = SLOTS.delete().where(SLOTS.c.key == key.encode(), SLOTS.c.request_id == request_id)
        await self._transactions.run(lambda connection: connection.execute(delete), write=True)


class ValkeySlots:
    """Those of all processes, in a sorted set for each key."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._enter = client.register_script(ENTER)
        self._renew = client.register_script(RENEW)

    async def enter(self, key: str, request_id: str, limit: int) -> bool:
        """Whether the request is one of at most `limit`."""
        return bool(await self._enter(keys=[PREFIX + key], args=[request_id, limit, SLOT_SECONDS]))

    async def renew(self, running: Sequence[tuple[str, str]]) -> None:
        """They are under way for another while."""
        for key, request_id in running:
            await self._renew(keys=[PREFIX + key], args=[request_id, SLOT_SECONDS])

    async def leave(self, key: str, request_id: str) -> None:
        """The request is over."""
        await self._client.zrem(PREFIX + key, request_id)
