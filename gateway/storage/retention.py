"""Deletes what has had its time: conversations that nothing was added to for long, and what else expires."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from gateway.ports import CacheBackend, Clock
from gateway.storage import schema
from gateway.storage.deletion import erase
from gateway.storage.engine import Transactions

BATCH = 20
LEFTOVERS_AFTER = timedelta(days=1)
"""How long a process that is no longer alive is remembered."""


class Retention:
    """Small transactions, each for itself. Any number of processes may do this at once."""

    def __init__(self, transactions: Transactions, clock: Clock, cache: CacheBackend) -> None:
        self._transactions = transactions
        self._clock = clock
        self._cache = cache

    async def delete_unused(self, before: datetime, tenant: str | None = None) -> int:
        """Deletes for good, as `ConversationStore.delete_conversation` does, the conversations (of a tenant) that
        nothing was added to since then. Returns how many.

        Raises:
            StorageUnavailable: the storage cannot be reached; what was deleted by then is.
        """
        deleted = 0
        wiped = True
        try:
            while batch := await self._transactions.run(lambda c: _delete_batch(c, before, tenant), write=True):
                deleted += len(batch)
                wiped = False
                if groups := [group for held in batch for group in held]:
                    await self._cache.forget(*groups)
        finally:
            if not wiped:
                await self._transactions.wipe()
        return deleted

    async def count_unused(self, before: datetime, tenant: str | None = None) -> int:
        """How many `delete_unused` would delete."""
        return await self._transactions.run(
            lambda c: int(c.execute(sa.select(sa.func.count()).where(*_unused(before, tenant))).scalar_one())
        )

    async def delete_leftovers(self) -> None:
        """Deletes claims whose time is over, and processes that have not been alive for a day. A claim of a request
        that is still running has its time as long as its process is alive. What a reader kept from being wiped out of
        the files is wiped."""
        now = self._clock.now()
        claims, processes = schema.claims.c, schema.processes.c
        alive = sa.exists().where(processes.id == claims.process, processes.alive_until > now).correlate(schema.claims)
        over = sa.or_(claims.state != "running", ~alive)
        expired = (
            schema.claims.delete().where(claims.expires_at < now, over),
            schema.processes.delete().where(processes.alive_until < now - LEFTOVERS_AFTER),
        )
        await self._transactions.run(lambda c: [c.execute(each) for each in expired], write=True)
        await self._transactions.wipe_owed()


def _unused(before: datetime, tenant: str | None) -> Sequence[sa.ColumnElement[bool]]:
    table = schema.conversations.c
    return (table.updated_at < before,) if tenant is None else (table.updated_at < before, table.tenant == tenant)


def _delete_batch(connection: sa.Connection, before: datetime, tenant: str | None) -> list[tuple[str, ...]]:
    """The groups of the cache that go with each that was deleted.

    A conversation that somebody is adding to is locked by them and passed over; then it is no longer unused.
    """
    table = schema.conversations.c
    query = sa.select(table.id, table.tenant).where(*_unused(before, tenant)).order_by(table.updated_at).limit(BATCH)
    found = connection.execute(query.with_for_update(skip_locked=True)).all()
    return [erase(connection, row.tenant, row.id) for row in found]
