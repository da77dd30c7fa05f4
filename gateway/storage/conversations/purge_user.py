"""Deletes one person's content, wherever it is stored (guarantee §13.7)."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from gateway.core import errors, ports
from gateway.core.frozen_records import record
from gateway.core.types import audit_log, memory
from gateway.storage import audit_events, rows
from gateway.storage.conversations import attachments, delete_item
from gateway.storage.conversations.delete import anonymise_bills, delete_locked, forget_blocks
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.entities.entity_rows import delete_one
from gateway.storage.keyed_hashes import make_secret, names_of_user, read_secret
from gateway.storage.lookup.locate import whole_messages
from gateway.storage.turns.roll_ups import rename_users

LEDGER = schema.ledger
CONVERSATIONS = schema.conversations
MESSAGES = schema.messages
ATTACHMENTS = schema.attachments
PURGE_USER_COMPLETIONS = schema.completions
THINGS = schema.things


@record
class PurgeSubject:
    """Whose content is deleted: the name in bills, and the digest that replaces it there, or has replaced it."""

    name: str
    digest: str

    @property
    def names(self) -> tuple[str, str]:
        return self.name, self.digest


@record
class PurgeLocation:
    """A conversation."""

    tenant: str
    conversation_id: str

    @property
    def billed(self) -> sa.ColumnElement[bool]:
        """Selects its rows of the ledger."""
        return sa.and_(LEDGER.c.tenant == self.tenant, LEDGER.c.conversation_id == self.conversation_id)


@record
class PurgedConversation:
    """What was deleted of a conversation: all, or so many messages and documents. `groups`: cache groups to evict."""

    whole: bool = False
    messages: int = 0
    documents: int = 0
    groups: tuple[str, ...] = ()


def conversations_of(connection: sa.Connection, user: PurgeSubject, tenant: str | None) -> list[PurgeLocation]:
    """Lists the conversations in which requests named the user, in the order of their ids."""
    billed = sa.select(LEDGER.c.conversation_id).where(
        LEDGER.c.end_user.in_(user.names), LEDGER.c.conversation_id.is_not(None)
    )
    query = sa.select(CONVERSATIONS.c.tenant, CONVERSATIONS.c.id).order_by(CONVERSATIONS.c.id)
    query = query.where(sa.or_(CONVERSATIONS.c.id.in_(billed), CONVERSATIONS.c.end_user.in_(user.names)))
    if tenant is not None:
        query = query.where(CONVERSATIONS.c.tenant == tenant)
    return [PurgeLocation(row.tenant, row.id) for row in connection.execute(query)]


def would_go(connection: sa.Connection, place: PurgeLocation, user: PurgeSubject, *, whole: bool) -> PurgedConversation:
    """Counts what `purge` would delete."""
    if whole or not _is_shared(connection, place, user):
        return PurgedConversation(whole=True)
    turns = _UserTurns(connection, place, user)
    if turns.messages and not _has_messages(connection, place, but=turns.requests):
        return PurgedConversation(whole=True)
    return PurgedConversation(messages=len(turns.messages), documents=len(turns.documents))


def purge(
    connection: sa.Connection, place: PurgeLocation, user: PurgeSubject, now: datetime, *, whole: bool
) -> PurgedConversation:
    """Deletes a conversation if no other user was named in it, or with `whole` always; else only the user's turns."""
    own = (CONVERSATIONS.c.tenant == place.tenant, CONVERSATIONS.c.id == place.conversation_id)
    if connection.execute(sa.select(CONVERSATIONS.c.id).where(*own).with_for_update()).first() is None:
        return PurgedConversation()
    rename_bills(connection, place.billed, user)
    if whole or not _is_shared(connection, place, user):
        return _delete(connection, place, [user.digest])
    deleted = _purge_turns(connection, place, user, now)
    if deleted.messages and not _has_messages(connection, place):  # those of others went before
        others = connection.execute(sa.select(LEDGER.c.end_user).where(place.billed).distinct()).scalars()
        return _delete(connection, place, [name for name in others if name is not None])
    named = CONVERSATIONS.update().where(*own, CONVERSATIONS.c.end_user.in_(user.names))
    connection.execute(named.values(end_user=user.digest))
    return deleted


def rename_bills(connection: sa.Connection, where: sa.ColumnElement[bool], user: PurgeSubject) -> None:
    """Replaces the user's name by the digest, in bills and in the sums of their days."""
    rename_users(connection, sa.and_(where, LEDGER.c.end_user == user.name), user.digest)


def _delete(connection: sa.Connection, place: PurgeLocation, keeping: Sequence[str]) -> PurgedConversation:
    groups = delete_locked(connection, place.tenant, place.conversation_id, keeping=keeping)
    return PurgedConversation(whole=True, groups=groups)


def _has_messages(connection: sa.Connection, place: PurgeLocation, but: sa.Select[tuple[str]] | None = None) -> bool:
    """Returns whether the conversation has messages, other than those of the requests `but`."""
    query = sa.select(MESSAGES.c.id).where(MESSAGES.c.conversation_id == place.conversation_id)
    if but is not None:
        query = query.where(MESSAGES.c.request_id.not_in(but))
    return connection.execute(query.limit(1)).first() is not None


def _is_shared(connection: sa.Connection, place: PurgeLocation, user: PurgeSubject) -> bool:
    """Returns whether the conversation's requests named other users, too."""
    others = (LEDGER.c.end_user.is_not(None), LEDGER.c.end_user.not_in(user.names))
    return connection.execute(sa.select(LEDGER.c.request_id).where(place.billed, *others).limit(1)).first() is not None


def _purge_turns(
    connection: sa.Connection, place: PurgeLocation, user: PurgeSubject, now: datetime
) -> PurgedConversation:
    """Deletes what the user's requests brought and their answers, with all that repeats it. A conversation's things
    cannot be attributed to a user: all of them are deleted."""
    tenant, conversation_id = place.tenant, place.conversation_id
    turns, groups = _UserTurns(connection, place, user), set[str]()
    for name in turns.documents:
        groups.update(attachments.delete(connection, tenant, conversation_id, name, now))
    for row in turns.messages:
        if row.status != "failed":
            groups.update(delete_item.delete_message(connection, tenant, conversation_id, row.id, now))
    of_it = MESSAGES.c.conversation_id == conversation_id
    connection.execute(MESSAGES.delete().where(of_it, MESSAGES.c.request_id.in_(turns.requests)))  # those that failed
    connection.execute(PURGE_USER_COMPLETIONS.delete().where(PURGE_USER_COMPLETIONS.c.request_id.in_(turns.requests)))
    anonymise_bills(connection, sa.and_(place.billed, LEDGER.c.end_user == user.digest), keeping=[user.digest])
    if turns.messages:
        of_it = THINGS.c.conversation_id == conversation_id
        connection.execute(THINGS.delete().where(THINGS.c.tenant == tenant, of_it))
        forget_blocks(connection, tenant, conversation_id, now)
    return PurgedConversation(
        messages=len(turns.messages), documents=len(turns.documents), groups=tuple(sorted(groups))
    )


class _UserTurns:
    """The requests that named the user in a conversation; their messages and answers, latest first; and the documents
    that came with them."""

    def __init__(self, connection: sa.Connection, place: PurgeLocation, user: PurgeSubject) -> None:
        query = sa.select(LEDGER.c.request_id, LEDGER.c.created_at, LEDGER.c.end_user).where(place.billed)
        asked = connection.execute(query.order_by(LEDGER.c.created_at)).all()
        self.requests = sa.select(LEDGER.c.request_id).where(place.billed, LEDGER.c.end_user.in_(user.names))
        of_it = MESSAGES.c.conversation_id == place.conversation_id
        found = whole_messages().where(of_it, MESSAGES.c.request_id.in_(self.requests))
        order = (MESSAGES.c.sequence_number.desc(), MESSAGES.c.id.desc())
        self.messages: Sequence[Any] = connection.execute(found.order_by(*order)).all()
        arrivals = [(rows.utc(row.created_at), row.end_user in user.names) for row in asked]
        self.documents = self._documents(connection, place, arrivals)

    def _documents(
        self, connection: sa.Connection, place: PurgeLocation, arrivals: Sequence[tuple[datetime, bool]]
    ) -> list[str]:
        """Lists the user's documents. A document came with the messages behind which it is, or with the last request
        before it was stored: where these differ, either may be the user's."""
        said = {bytes(row.said_digest) for row in self.messages if row.said_digest is not None}
        columns = (ATTACHMENTS.c.artifact_id, ATTACHMENTS.c.said_digest, ATTACHMENTS.c.created_at)
        query = sa.select(*columns).where(ATTACHMENTS.c.conversation_id == place.conversation_id)
        found: list[str] = []
        for row in connection.execute(query.order_by(ATTACHMENTS.c.number)):
            before = [is_of_user for at, is_of_user in arrivals if at <= rows.utc(row.created_at)]
            is_behind = row.said_digest is not None and bytes(row.said_digest) in said
            if is_behind or any(before[-1:]):
                found.append(row.artifact_id)
        return list(dict.fromkeys(found))


BATCH = 200
"""Bills that one transaction renames, and things that one deletes: the most that a writer waits for."""


@record
class PurgedUser:
    """What was deleted of a user. `shared`: conversations in which others were named, too, and of which `messages` and
    `documents` were deleted; `bills`: bills that have `digest` in place of the name now."""

    digest: str
    conversations: int = 0
    shared: int = 0
    messages: int = 0
    documents: int = 0
    things: int = 0
    bills: int = 0

    def plus(self, deleted: PurgedConversation) -> "PurgedUser":
        """Adds what was deleted of one more conversation."""
        is_part = bool(deleted.messages or deleted.documents)
        return replace(
            self,
            conversations=self.conversations + deleted.whole,
            shared=self.shared + is_part,
            messages=self.messages + deleted.messages,
            documents=self.documents + deleted.documents,
        )


@record
class UserPurge:
    """Deletes a user's content, a conversation per transaction. An interrupted purge keeps its deletions and may be
    rerun. `by`: the actor in the audit trail; each transaction records what it deleted."""

    transactions: DatabaseTransactions
    clock: ports.Clock
    cache: ports.CacheBackend
    by: audit_log.AuditActor | None = None

    async def run(
        self, name: str, tenant: str | None, *, whole: bool, dry_run: bool, told: Callable[[int], None] | None = None
    ) -> PurgedUser:
        """Deletes the content of requests that named a user, and the things remembered for that user.
        `name`: as requests give it; `tenant`: of one tenant alone; `whole`: deletes conversations as a whole even if
        others were named in them; `dry_run`: counts and deletes nothing; `told`: called with the number of further
        conversations done."""
        user = await self.transactions.run(lambda c: _user(c, name, making=not dry_run), write=not dry_run)
        bills = await self.transactions.run(lambda connection: _count_bills(connection, user, tenant))
        found = PurgedUser(user.digest, bills=bills)
        try:
            for place in await self.transactions.run(lambda connection: conversations_of(connection, user, tenant)):
                found = found.plus(await self._conversation(place, user, whole=whole, dry_run=dry_run))
                if told is not None:
                    told(1)
            found = replace(found, things=await self._things(name, user, tenant, dry_run=dry_run))
            last: str | None = None if dry_run else ""
            while last is not None:
                last = await self._rename(user, tenant, last)
        finally:
            if not dry_run:
                await self.transactions.wipe()
        return found

    async def _conversation(
        self, place: PurgeLocation, user: PurgeSubject, *, whole: bool, dry_run: bool
    ) -> PurgedConversation:
        if dry_run:
            return await self.transactions.run(lambda connection: would_go(connection, place, user, whole=whole))
        now = self.clock.now()

        def work(connection: sa.Connection) -> PurgedConversation:
            gone = purge(connection, place, user, now, whole=whole)
            if gone.whole or gone.messages or gone.documents:
                went = {"whole": gone.whole, "messages": gone.messages, "documents": gone.documents}
                self._record(connection, user.digest, place.tenant, conversation=place.conversation_id, **went)
            return gone

        gone = await self.transactions.run(work, write=True)
        if gone.groups:
            await self.cache.evict(*gone.groups)
        return gone

    def _record(self, connection: sa.Connection, digest: str, tenant: str | None, **went: Any) -> None:
        """Records the purge under the user's digest alone, as the audit trail is never deleted."""
        audit_events.recorded(connection, self.by, self.clock.now(), "user.purged", digest, tenant, **went)

    async def _things(self, name: str, user: PurgeSubject, tenant: str | None, *, dry_run: bool) -> int:
        """Deletes each tenant's things remembered for the user, also where forwarded beside questions."""
        found = await self.transactions.run(lambda connection: _things(connection, name, tenant))
        now = self.clock.now()

        def work(connection: sa.Connection, batch: list[tuple[str, str]]) -> None:
            for owner, memory_id in batch:
                with contextlib.suppress(errors.MemoryNotFound):  # deleted by another process meanwhile, or expired
                    delete_one(connection, owner, memory_id, now)
            self._record(connection, user.digest, tenant, things=[memory_id for _, memory_id in batch])

        for start in range(0, 0 if dry_run else len(found), BATCH):
            batch = found[start : start + BATCH]
            await self.transactions.run(partial(work, batch=batch), write=True)
        return len(found)

    async def _rename(self, user: PurgeSubject, tenant: str | None, after: str) -> str | None:
        """Replaces the name by the digest in a batch of bills behind the request `after`. Returns the last of these
        requests; None if there are none."""

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

        return await self.transactions.run(work, write=True)


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
    """Lists tenant and memory id of each thing remembered for a user of that name."""
    secret = read_secret(connection)
    if secret is None:
        return []
    of_users = sa.select(THINGS.c.tenant).where(THINGS.c.conversation_id.is_(None)).distinct()
    tenants = list(connection.execute(of_users).scalars()) if tenant is None else [tenant]
    found: list[tuple[str, str]] = []
    for owner in tenants:
        where = (THINGS.c.tenant == owner, THINGS.c.place == memory.user_place(secret, owner, name))
        found += [(owner, each) for each in connection.execute(sa.select(THINGS.c.id).where(*where)).scalars()]
    return found
