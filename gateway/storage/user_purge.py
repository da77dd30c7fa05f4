"""Deletes what one person said, wherever it is kept (guarantee §13.7)."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from gateway.core.errors import MemoryNotFound
from gateway.core.ports import CacheBackend, Clock
from gateway.core.types.audit_log import AuditActor
from gateway.core.types.entities import user_place
from gateway.storage.audit_log.append import recorded
from gateway.storage.conversations.purge_user import (
    PurgedConversation,
    PurgeLocation,
    PurgeSubject,
    conversations_of,
    purge,
    rename_bills,
    would_go,
)
from gateway.storage.database import schema
from gateway.storage.database.engine import DatabaseTransactions
from gateway.storage.entities.entity_records import delete_one
from gateway.storage.secret import make_secret, names_of_user, read_secret

BATCH = 200
"""Bills that one transaction renames, and things that one deletes: writers wait for no more than that."""
LEDGER, THINGS = schema.ledger, schema.things


@dataclass(frozen=True, slots=True)
class PurgedUser:
    """What went of a user. `shared` counts conversations in which others were named, too, and of which `messages` and
    `documents` went; `bills` those that have `digest` for the name now."""

    digest: str
    conversations: int = 0
    shared: int = 0
    messages: int = 0
    documents: int = 0
    things: int = 0
    bills: int = 0

    def plus(self, deleted: PurgedConversation) -> "PurgedUser":
        """With what went of one more conversation."""
        is_part = bool(deleted.messages or deleted.documents)
        return replace(
            self,
            conversations=self.conversations + deleted.whole,
            shared=self.shared + is_part,
            messages=self.messages + deleted.messages,
            documents=self.documents + deleted.documents,
        )


class UserPurge:
    """Deletes in a transaction for each conversation. What was deleted before it was cut off is; it may be run again.

    Raises:
        StorageUnavailable: from any method: the storage cannot be reached.
    """

    def __init__(
        self, transactions: DatabaseTransactions, clock: Clock, cache: CacheBackend, by: AuditActor | None = None
    ) -> None:
        """`by` is who deletes, as the trail tells it: each transaction records what it deleted."""
        self._by = by
        self._transactions = transactions
        self._clock = clock
        self._cache = cache

    async def run(
        self, name: str, tenant: str | None, *, whole: bool, dry_run: bool, told: Callable[[int], None] | None = None
    ) -> PurgedUser:
        """Deletes what requests said that named a user, and what is remembered for that user.

        Args:
            name: as requests give it.
            tenant: of one tenant alone.
            whole: conversations in which others were named go as a whole, too.
            dry_run: nothing is deleted; the same is counted.
            told: is told how many more conversations are done.
        """
        user = await self._transactions.run(lambda c: _user(c, name, making=not dry_run), write=not dry_run)
        bills = await self._transactions.run(lambda connection: _count_bills(connection, user, tenant))
        found = PurgedUser(user.digest, bills=bills)
        try:
            for place in await self._transactions.run(lambda connection: conversations_of(connection, user, tenant)):
                found = found.plus(await self._conversation(place, user, whole=whole, dry_run=dry_run))
                if told is not None:
                    told(1)
            found = replace(found, things=await self._things(name, user, tenant, dry_run=dry_run))
            last: str | None = None if dry_run else ""
            while last is not None:
                last = await self._rename(user, tenant, last)
        finally:
            if not dry_run:
                await self._transactions.wipe()
        return found

    async def _conversation(
        self, place: PurgeLocation, user: PurgeSubject, *, whole: bool, dry_run: bool
    ) -> PurgedConversation:
        if dry_run:
            return await self._transactions.run(lambda connection: would_go(connection, place, user, whole=whole))
        now = self._clock.now()

        def work(connection: sa.Connection) -> PurgedConversation:
            gone = purge(connection, place, user, now, whole=whole)
            if gone.whole or gone.messages or gone.documents:
                went = {"whole": gone.whole, "messages": gone.messages, "documents": gone.documents}
                self._record(connection, user.digest, place.tenant, conversation=place.conversation_id, **went)
            return gone

        gone = await self._transactions.run(work, write=True)
        if gone.groups:
            await self._cache.evict(*gone.groups)
        return gone

    def _record(self, connection: sa.Connection, digest: str, tenant: str | None, **went: Any) -> None:
        """The user is named by the digest alone: what the trail says is not deleted."""
        recorded(connection, self._by, self._clock.now(), "user.purged", digest, tenant, **went)

    async def _things(self, name: str, user: PurgeSubject, tenant: str | None, *, dry_run: bool) -> int:
        """Deletes what is remembered for the user of each tenant, also where it was forwarded beside questions."""
        found = await self._transactions.run(lambda connection: _things(connection, name, tenant))
        now = self._clock.now()

        def work(connection: sa.Connection, batch: list[tuple[str, str]]) -> None:
            for owner, memory_id in batch:
                with contextlib.suppress(MemoryNotFound):  # somebody else has deleted it meanwhile, or it has expired
                    delete_one(connection, owner, memory_id, now)
            self._record(connection, user.digest, tenant, things=[memory_id for _, memory_id in batch])

        for start in range(0, 0 if dry_run else len(found), BATCH):
            batch = found[start : start + BATCH]
            await self._transactions.run(partial(work, batch=batch), write=True)
        return len(found)

    async def _rename(self, user: PurgeSubject, tenant: str | None, after: str) -> str | None:
        """Puts the digest in the place of the name in some of the bills behind that of the request `after`. Returns the
        last of these requests; None where there are none."""

        def work(connection: sa.Connection) -> str | None:
            where = [LEDGER.c.request_id > after, LEDGER.c.end_user == user.name]
            if tenant is not None:
                where.append(LEDGER.c.tenant == tenant)
            query = sa.select(LEDGER.c.request_id).where(*where).order_by(LEDGER.c.request_id).limit(BATCH)
            ids = connection.execute(query).scalars().all()
            if ids:
                rename_bills(connection, LEDGER.c.request_id.in_(ids), user)
                self._record(connection, user.digest, tenant, bills=len(ids))
            return ids[-1] if ids else None

        return await self._transactions.run(work, write=True)


def _user(connection: sa.Connection, name: str, *, making: bool) -> PurgeSubject:
    if making:
        make_secret(connection)
    names = names_of_user(connection, name)
    return PurgeSubject(names[0], names[-1])


def _count_bills(connection: sa.Connection, user: PurgeSubject, tenant: str | None) -> int:
    query = sa.select(sa.func.count()).select_from(LEDGER).where(LEDGER.c.end_user.in_(user.names))
    if tenant is not None:
        query = query.where(LEDGER.c.tenant == tenant)
    return int(connection.execute(query).scalar_one())


def _things(connection: sa.Connection, name: str, tenant: str | None) -> list[tuple[str, str]]:
    """Tenant and memory id of each thing that is remembered for a user of that name."""
    secret = read_secret(connection)
    if secret is None:
        return []
    of_users = sa.select(THINGS.c.tenant).where(THINGS.c.conversation_id.is_(None)).distinct()
    tenants = list(connection.execute(of_users).scalars()) if tenant is None else [tenant]
    found: list[tuple[str, str]] = []
    for owner in tenants:
        where = (THINGS.c.tenant == owner, THINGS.c.place == user_place(secret, owner, name))
        found += [(owner, each) for each in connection.execute(sa.select(THINGS.c.id).where(*where)).scalars()]
    return found
