"""Deletes what has had its time: conversations that nothing was added to for long, and what else expires."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from gateway.ports import CacheBackend, Clock
from gateway.storage import schema
from gateway.storage.deletion import erase
from gateway.storage.engine import Transactions

BATCH = 20
Conditions = Sequence[sa.ColumnElement[bool]]
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
            while batch := await self._delete_batch(before, tenant):
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
            lambda c: int(c.execute(sa.select(sa.func.count()).where(*self._unused(before, tenant))).scalar_one())
        )

    async def _delete_batch(self, before: datetime, tenant: str | None) -> list[tuple[str, ...]]:
        unused = self._unused(before, tenant)
        return await self._transactions.run(lambda connection: _delete_batch(connection, unused), write=True)

    def _unused(self, before: datetime, tenant: str | None) -> Conditions:
        """Nothing was added to it since then, and no request is at work on it that may add something."""
        table = schema.conversations.c
        at_rest = sa.or_(table.used_until.is_(None), table.used_until <= self._clock.now())
        unused = (table.updated_at < before, at_rest)
        return unused if tenant is None else (*unused, table.tenant == tenant)

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


def _delete_batch(connection: sa.Connection, unused: Conditions) -> list[tuple[str, ...]]:
    """The groups of the cache that go with each that was deleted.

    A conversation that somebody is adding to is locked by them and passed over; then it is no longer unused.
    """
    table = schema.conversations.c
    query = sa.select(table.id, table.tenant).where(*unused).order_by(table.updated_at).limit(BATCH)
    found = connection.execute(query.with_for_update(skip_locked=True)).all()
    return [erase(connection, row.tenant, row.id) for row in found]
