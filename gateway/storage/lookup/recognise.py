"""Recognises the stored conversation that a chain of messages belongs to, by keyed digests (guarantee §3.2, ADR 8)."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from gateway.models.chain import ChainKey
from gateway.storage.database import schema

MOST = 1000
"""Chains that say the same, of which one is chosen. Among more, a new conversation starts."""


class Match(NamedTuple):
    """A chain that an answered request left.

    `conversation_id` is empty where it left none (`store: false`). `whole` is `ChainKey.whole`, `answered_at` when its
    answer was last given. `living`: its conversation has not been deleted. `at_head`: that conversation ends with it.
    """

    conversation_id: str
    calls: bytes
    whole: bytes
    answered_at: datetime
    living: bool
    at_head: bool


def recognised(connection: sa.Connection, tenant: str, keys: Sequence[ChainKey]) -> str | None:
    """The conversation that one of these chains leads to, the first that is known; None if there is none, or if
    nothing tells which of several it is (guarantee §3.2)."""
    for key in keys:
        matches = _matches(connection, _BY_WORDS, tenant, key)
        if key.calls and len({match.conversation_id for match in matches}) > 1:
            matches = _matches(connection, _BY_CALLS, tenant, key)
        if matches:
            return chosen(matches, key.whole)
    return None


def chosen(matches: Sequence[Match], sent: bytes) -> str | None:
    """The conversation that is continued, of at least one match.

    Of several it is the one that ends with the chain; of several of those the latest, if they are equal in everything.
    What was answered without being stored, or was deleted, may have ended there, too: it makes doubtful whatever is
    not equal to it.

    Args:
        sent: the keyed digest of all messages that were sent, where tool steps are among them: only a chain with the
            very same steps is meant, if there is one. Else empty.
    """
    if len({match.conversation_id for match in matches}) == 1:
        return matches[0].conversation_id or None
    if len(matches) > MOST:
        return None
    ends = [match for match in matches if match.at_head or not match.living]
    if sent:
        ends = [match for match in ends if match.whole.startswith(sent)] or ends
    heads = [match for match in ends if match.at_head]
    if not heads or len({match.whole for match in ends}) > 1:
        return None
    return max(heads, key=lambda match: (match.answered_at, match.conversation_id)).conversation_id


def _matches(connection: sa.Connection, query: sa.Select[Match], tenant: str, key: ChainKey) -> list[Match]:
    rows = connection.execute(query, {"digest": key.digest, "calls": key.calls, "tenant": tenant}).all()
    return [
        Match(
            row.conversation_id, bytes(row.calls), bytes(row.whole), row.created_at, bool(row.living), bool(row.at_head)
        )
        for row in rows
    ]


def _query(*conditions: sa.ColumnElement[bool]) -> sa.Select[Match]:
    """Chains by their digest, and whether their conversations end with them; more than `MOST` are not needed."""
    chains, conversations, head = schema.chains, schema.conversations, schema.messages
    joined = chains.outerjoin(conversations, conversations.c.id == chains.c.conversation_id)
    joined = joined.outerjoin(head, head.c.id == conversations.c.head_id)
    columns = (chains.c.conversation_id, chains.c.calls, chains.c.whole, chains.c.created_at)
    living, at_head = conversations.c.id.is_not(None), head.c.request_id == chains.c.request_id
    query = sa.select(*columns, living.label("living"), at_head.label("at_head")).select_from(joined)
    known = (chains.c.digest == sa.bindparam("digest"), chains.c.tenant == sa.bindparam("tenant"))
    return query.where(*known, *conditions).limit(MOST + 1)


_BY_WORDS = _query()
_BY_CALLS = _query(schema.chains.c.calls == sa.bindparam("calls"))
