"""Deletes conversations for good: what people and models said goes, the anonymous bill stays (guarantee §5, §6)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from gateway.base import jsons
from gateway.models.artifacts import cache_group
from gateway.models.bill import nameless
from gateway.ports import CacheBackend, Clock
from gateway.storage.database import schema
from gateway.storage.database.engine import Transactions

BATCH = 500
NAMED = '"artifacts_processed":[{'


def delete_conversation(connection: sa.Connection, tenant: str, conversation_id: str) -> tuple[str, ...] | None:
    """Deletes it; nothing of it is left then but figures and keyed digests. Returns the groups of the cache that must
    go with it, None if this tenant has no such conversation."""
    table = schema.conversations
    query = sa.select(table.c.id).where(table.c.tenant == tenant, table.c.id == conversation_id)
    if connection.execute(query.with_for_update()).first() is None:
        return None
    return erase(connection, tenant, conversation_id)


def erase(connection: sa.Connection, tenant: str, conversation_id: str) -> tuple[str, ...]:
    """Deletes a conversation whose row the transaction has locked: a turn that commits meanwhile waits, and then finds
    it gone. Rows that hold content follow by their foreign keys; claims hold none, and go on saying that a request was
    answered. Returns the groups of the cache that must go, too."""
    held = schema.cached_contents.c
    digests = list(connection.execute(sa.select(held.digest).where(held.conversation_id == conversation_id)).scalars())
    groups = held_by_none(connection, tenant, digests, but=conversation_id)
    billed = sa.and_(schema.ledger.c.tenant == tenant, schema.ledger.c.conversation_id == conversation_id)
    forget_names(connection, billed)
    connection.execute(schema.conversations.delete().where(schema.conversations.c.id == conversation_id))
    return groups


def held_by_none(connection: sa.Connection, tenant: str, digests: Sequence[str], *, but: str) -> tuple[str, ...]:
    """The groups of the cache for those of these contents that no conversation of the tenant holds, but that one.

    Holders are locked: of two that are deleted at once, the later one finds that it is the last.
    """
    if not digests:
        return ()
    table = schema.cached_contents.c
    query = sa.select(table.digest, table.conversation_id).where(table.tenant == tenant, table.digest.in_(digests))
    rows = connection.execute(query.order_by(table.digest, table.conversation_id).with_for_update())
    held = {row.digest for row in rows if row.conversation_id != but}
    return tuple(cache_group(tenant, digest) for digest in digests if digest not in held)


def forget_names(connection: sa.Connection, where: sa.ColumnElement[bool]) -> None:
    """Takes the names that people gave (titles of attachments, tools) out of these rows of the ledger."""
    table = schema.ledger.c
    query = sa.select(table.request_id, table.response_metadata)
    query = query.where(where, table.response_metadata.contains(NAMED, autoescape=True)).order_by(table.request_id)
    after = ""
    while page := connection.execute(query.where(table.request_id > after).limit(BATCH)).all():
        changed = [{"request": row.request_id, "text": _without_names(row.response_metadata)} for row in page]
        connection.execute(_RENAME, changed)
        after = page[-1].request_id


def _without_names(text: str) -> str:
    """A `response_metadata` whose records name sources by their places alone; figures stay as they are written."""
    try:
        metadata: dict[str, Any] = jsons.loads_decimal(text)
        for record in metadata["context_utilization"]["artifacts_processed"]:
            record["source"] = nameless(record["source"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return "{}"  # somebody has spoilt the row, which an audit finds: what it says cannot be told from names
    return jsons.dumps_text(metadata)


def _rename_query() -> sa.Update:
    table = schema.ledger
    return (
        table.update()
        .where(table.c.request_id == sa.bindparam("request"))
        .values(response_metadata=sa.bindparam("text"))
    )


_RENAME = _rename_query()


# Deletes what has had its time: conversations that nothing was added to for long, and what else expires.


RETENTION_BATCH = 20
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
    query = sa.select(table.id, table.tenant).where(*unused).order_by(table.updated_at).limit(RETENTION_BATCH)
    found = connection.execute(query.with_for_update(skip_locked=True)).all()
    return [erase(connection, row.tenant, row.id) for row in found]
