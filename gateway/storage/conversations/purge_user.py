"""Deletes what one user said in a conversation (guarantee §13.7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.core.types.items import items_of
from gateway.storage import rows
from gateway.storage.conversations import attachments, delete_item
from gateway.storage.conversations.delete import anonymise_bills, delete_locked, forget_blocks
from gateway.storage.database import schema
from gateway.storage.lookup.walk import whole_messages
from gateway.storage.turns.roll_ups import rename_users

LEDGER, CONVERSATIONS, MESSAGES = schema.ledger, schema.conversations, schema.messages
ATTACHMENTS, COMPLETIONS, THINGS = schema.attachments, schema.completions, schema.things


@dataclass(frozen=True, slots=True)
class PurgeSubject:
    """Whose words go: the name in bills, and the digest that stands there afterwards, or did before."""

    name: str
    digest: str

    @property
    def names(self) -> tuple[str, str]:
        return self.name, self.digest


@dataclass(frozen=True, slots=True)
class PurgeLocation:
    """A conversation."""

    tenant: str
    conversation_id: str

    @property
    def billed(self) -> sa.ColumnElement[bool]:
        """Its rows of the ledger."""
        return sa.and_(LEDGER.c.tenant == self.tenant, LEDGER.c.conversation_id == self.conversation_id)


@dataclass(frozen=True, slots=True)
class PurgedConversation:
    """What went of a conversation: all of it, or so many messages and documents. `groups` of the cache are to be
    evicted."""

    whole: bool = False
    messages: int = 0
    documents: int = 0
    groups: tuple[str, ...] = ()


def conversations_of(connection: sa.Connection, user: PurgeSubject, tenant: str | None) -> list[PurgeLocation]:
    """The conversations in which requests named the user, in the order of their ids."""
    billed = sa.select(LEDGER.c.conversation_id).where(
        LEDGER.c.end_user.in_(user.names), LEDGER.c.conversation_id.is_not(None)
    )
    query = sa.select(CONVERSATIONS.c.tenant, CONVERSATIONS.c.id).order_by(CONVERSATIONS.c.id)
    query = query.where(sa.or_(CONVERSATIONS.c.id.in_(billed), CONVERSATIONS.c.end_user.in_(user.names)))
    if tenant is not None:
        query = query.where(CONVERSATIONS.c.tenant == tenant)
    return [PurgeLocation(row.tenant, row.id) for row in connection.execute(query)]


def would_go(connection: sa.Connection, place: PurgeLocation, user: PurgeSubject, *, whole: bool) -> PurgedConversation:
    """What `purge` would delete."""
    if whole or not _is_shared(connection, place, user):
        return PurgedConversation(whole=True)
    turns = _UserTurns(connection, place, user)
    if turns.messages and not _has_messages(connection, place, but=turns.requests):
        return PurgedConversation(whole=True)
    return PurgedConversation(messages=len(turns.messages), documents=len(turns.documents))


def purge(
    connection: sa.Connection, place: PurgeLocation, user: PurgeSubject, now: datetime, *, whole: bool
) -> PurgedConversation:
    """Deletes a conversation in which nobody else was named, or with `whole` any; of another, the user's turns."""
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
    """Puts the digest in the place of the user's name, in bills and in the sums of their days."""
    rename_users(connection, sa.and_(where, LEDGER.c.end_user == user.name), user.digest)


def _delete(connection: sa.Connection, place: PurgeLocation, keeping: Sequence[str]) -> PurgedConversation:
    groups = delete_locked(connection, place.tenant, place.conversation_id, keeping=keeping)
    return PurgedConversation(whole=True, groups=groups)


def _has_messages(connection: sa.Connection, place: PurgeLocation, but: sa.Select[tuple[str]] | None = None) -> bool:
    """Whether anything is said in it, but for what these requests said."""
    query = sa.select(MESSAGES.c.id).where(MESSAGES.c.conversation_id == place.conversation_id)
    if but is not None:
        query = query.where(MESSAGES.c.request_id.not_in(but))
    return connection.execute(query.limit(1)).first() is not None


def _is_shared(connection: sa.Connection, place: PurgeLocation, user: PurgeSubject) -> bool:
    """Whether its requests named others, too."""
    others = (LEDGER.c.end_user.is_not(None), LEDGER.c.end_user.not_in(user.names))
    return connection.execute(sa.select(LEDGER.c.request_id).where(place.billed, *others).limit(1)).first() is not None


def _purge_turns(
    connection: sa.Connection, place: PurgeLocation, user: PurgeSubject, now: datetime
) -> PurgedConversation:
    """Deletes what requests of the user brought and were answered, with all that repeats it. Nobody can say whose
    things a conversation has noted: all of them go."""
    tenant, conversation_id = place.tenant, place.conversation_id
    turns, groups = _UserTurns(connection, place, user), set[str]()
    for name in turns.documents:
        groups.update(attachments.delete(connection, tenant, conversation_id, name, now))
    for row in turns.messages:
        for item in items_of(rows.message_of(row)) if row.status != "failed" else ():
            groups.update(delete_item.delete(connection, tenant, conversation_id, item["id"], now))
    of_it = MESSAGES.c.conversation_id == conversation_id
    connection.execute(MESSAGES.delete().where(of_it, MESSAGES.c.request_id.in_(turns.requests)))  # those that failed
    connection.execute(COMPLETIONS.delete().where(COMPLETIONS.c.request_id.in_(turns.requests)))
    anonymise_bills(connection, sa.and_(place.billed, LEDGER.c.end_user == user.digest), keeping=[user.digest])
    if turns.messages:
        of_it = THINGS.c.conversation_id == conversation_id
        connection.execute(THINGS.delete().where(THINGS.c.tenant == tenant, of_it))
        forget_blocks(connection, conversation_id, now)
    return PurgedConversation(
        messages=len(turns.messages), documents=len(turns.documents), groups=tuple(sorted(groups))
    )


class _UserTurns:
    """The requests that named the user in a conversation; what they brought and were answered, the latest first; and
    the documents that came with them."""

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
        """A document came with the messages behind which it stands, or with the last request before it was stored:
        where these differ, either may be the user's."""
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
