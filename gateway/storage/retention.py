"""What expires: conversations by `conversation.retention_days`, by their keys' retention or by `gateway purge`; claims
and things by their own time."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

import sqlalchemy as sa

from gateway.core import clock
from gateway.core.types import audit_log
from gateway.storage import audit_events
from gateway.storage.conversations.delete import delete_locked
from gateway.storage.database import schema
from gateway.storage.entities.entity_rows import expire
from gateway.storage.large_documents import ArrivingTexts
from gateway.storage.lookup.path_cache import CachedRows

BATCH = 20
"""Conversations that one transaction deletes, and so the most that a writer waits for."""
MAX_EXPIRED_ENTITIES = 500
"""Things that one transaction deletes."""
PROCESS_KEPT = timedelta(days=1)
"""How long a dead process is remembered: longer than any other process's clock is wrong."""
Conditions = Sequence[sa.ColumnElement[bool]]
Told = Callable[[int], None]


class Retention(CachedRows):
    """Deletes what has expired, in small transactions. Any number of processes may do this at the same time."""

    async def expire_conversations(
        self,
        before: datetime,
        tenant: str | None = None,
        by: audit_log.AuditActor | None = None,
        told: Told | None = None,
    ) -> int:
        """Deletes the conversations, of one tenant or of all, to which nothing was added since `before`. Skips those
        that a request is using. Returns how many were deleted.
        `by`: the actor in the audit trail; each transaction records what it deleted. None: retention. `told`: called
        with the size of each deleted batch.
        Raises StorageUnavailable: the storage cannot be reached; earlier batches stay deleted."""
        return await self._expire(lambda: self._expired(before, tenant), by, told)

    async def expire_by_keys(self) -> tuple[int, float | None]:
        """Deletes the conversations that have outlived the retention of the keys that made or continued them (guarantee
        §12.13). Returns how many were deleted, and the shortest retention of any conversation, in days; None where no
        key sets one.
        Raises StorageUnavailable: the storage cannot be reached; earlier batches stay deleted."""
        deleted, shortest, days = 0, None, await self._transactions.run(lambda c: c.execute(_SHORTEST).scalar())
        while days is not None:
            shortest = days if shortest is None else shortest
            deleted += await self._expire(partial(self._expired_by_key, days))
            longer = {"days": days}
            days = await self._transactions.run(partial(_next_days, longer))
        return deleted, shortest

    def _expired_by_key(self, days: float) -> Conditions:
        """Selects expired conversations whose keys retain them for `days`: a range of one index."""
        before = clock.days_before(self.clock.now(), days)
        return (schema.conversations.c.retention_days == days, *self._expired(before, None))

    async def _expire(
        self, expired: Callable[[], Conditions], by: audit_log.AuditActor | None = None, told: Told | None = None
    ) -> int:
        deleted = 0
        try:
            while batch := await self._delete_batch(expired(), by):
                deleted += len(batch)
                if told is not None:
                    told(len(batch))
                if groups := [group for each in batch for group in each]:
                    await self._cache.evict(*groups)
        finally:
            if deleted:
                await self._forget()
        return deleted

    async def count_expired(self, before: datetime, tenant: str | None = None) -> int:
        """Counts the conversations that `expire_conversations` would delete."""
        query = sa.select(sa.func.count()).where(*self._expired(before, tenant))
        return await self._transactions.run(lambda connection: int(connection.execute(query).scalar_one()))

    async def expire_claims(self) -> None:
        """Deletes expired claims, and processes that have not been alive for a day. A running request's claim lives as
        long as its process. Then wipes what a reader had kept from being wiped."""
        now = self.clock.now()
        claims, processes = schema.claims.c, schema.processes.c
        alive = sa.exists().where(processes.id == claims.process, processes.alive_until > now).correlate(schema.claims)
        expired = (
            schema.claims.delete().where(claims.expires_at < now, sa.or_(claims.state != "running", ~alive)),
            schema.processes.delete().where(processes.alive_until < now - PROCESS_KEPT),
        )
        await self._transactions.run(lambda connection: [connection.execute(each) for each in expired], write=True)
        await self._transactions.wipe_owed()

    async def expire_texts(self) -> int:
        """Deletes texts of large documents whose turns were never stored. Returns how many were deleted."""
        return await ArrivingTexts(self._transactions, self.clock).expire()

    async def expire_things(self) -> int:
        """Deletes things older than `memory.things_days`. Returns how many were deleted.
        Raises StorageUnavailable: the storage cannot be reached; earlier batches stay deleted."""
        now, deleted = self.clock.now(), 0
        while count := await self._transactions.run(
            lambda connection: expire(connection, now, MAX_EXPIRED_ENTITIES), write=True
        ):
            deleted += count
        if deleted:
            await self._transactions.wipe()
        return deleted

    async def _delete_batch(self, expired: Conditions, by: audit_log.AuditActor | None = None) -> list[tuple[str, ...]]:
        """Deletes one batch and returns the cache groups of each deleted conversation."""
        now = self.clock.now()

        def work(connection: sa.Connection) -> list[tuple[str, ...]]:
            gone = _delete_batch(connection, expired)
            of_tenants: dict[str, list[str]] = {}
            for tenant, conversation_id, _ in gone:
                of_tenants.setdefault(tenant, []).append(conversation_id)
            for tenant, ids in of_tenants.items():
                audit_events.recorded(connection, by, now, "conversations.purged", None, tenant, conversations=ids)
            return [groups for _, _, groups in gone]

        return await self._transactions.run(work, write=True)

    def _expired(self, before: datetime, tenant: str | None) -> Conditions:
        table = schema.conversations.c
        unused = sa.or_(table.used_until.is_(None), table.used_until <= self.clock.now())
        conditions = (table.updated_at < before, unused)
        return conditions if tenant is None else (*conditions, table.tenant == tenant)


def _delete_batch(connection: sa.Connection, expired: Conditions) -> list[tuple[str, str, tuple[str, ...]]]:
    """Deletes a batch; returns tenant, id and cache groups of each deleted conversation. One that a turn has locked is
    skipped: it has not expired then."""
    table = schema.conversations.c
    query = sa.select(table.id, table.tenant).where(*expired).order_by(table.updated_at).limit(BATCH)
    found = connection.execute(query.with_for_update(skip_locked=True)).all()
    return [(row.tenant, row.id, delete_locked(connection, row.tenant, row.id)) for row in found]


def _next_days(longer: dict[str, float], connection: sa.Connection) -> float | None:
    found: float | None = connection.execute(_LONGER, longer).scalar()
    return found


_DAYS = schema.conversations.c.retention_days
_SHORTEST = sa.select(_DAYS).where(_DAYS.is_not(None)).order_by(_DAYS).limit(1)
_LONGER = sa.select(_DAYS).where(sa.bindparam("days") < _DAYS).order_by(_DAYS).limit(1)
"""The next longer retention that a key sets. There are few, and the index finds each directly."""
