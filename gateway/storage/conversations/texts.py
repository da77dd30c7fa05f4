"""Reads the texts of a tenant's conversations for a search, within a bound (guarantee §10.12).

Small columns say which messages fit; bodies are read of those alone. What is too large by itself is passed over.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from gateway.core.ids import ARTIFACT
from gateway.core.types.artifacts import Artifact
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.past_texts import ConversationTexts
from gateway.core.types.report_lists import ConversationChoice, ConversationLine, ListPart
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.database.engine import DatabaseTransactions
from gateway.storage.large.large_documents import read_part
from gateway.storage.lookup.walk import MESSAGES, fewer_than, upwards, whole_messages
from gateway.storage.reports.conversations import list_conversations, read_conversation

TABLE, DOCUMENTS, CACHED = schema.conversations, schema.attachments, schema.cached_contents
MAX_MESSAGES = 2_000
"""The latest messages of a conversation that are looked at."""
MAX_DOCUMENTS = 200
"""The latest of its documents."""
LARGE_CHARS = 16_000
"""Room that a large document takes, of which what is needed is read afterwards: two regions."""
BATCH = 500


class PastTexts:
    """Each method is one short transaction, and of one tenant.

    Raises:
        StorageUnavailable: from any method: the storage cannot be reached, or not within its timeout.
    """

    def __init__(self, transactions: DatabaseTransactions) -> None:
        self._transactions = transactions

    async def recent(self, tenant: str, most: int, text: str | None = None) -> tuple[ConversationLine, ...]:
        """The conversations that were active last; with `text` those whose first question has it."""
        part = ListPart(ConversationChoice(tenant=tenant, text=text), limit=most)
        return (await self._transactions.run(lambda connection: list_conversations(connection, part))).found

    async def lines(self, tenant: str, conversation_ids: Sequence[str]) -> tuple[ConversationLine, ...]:
        """These conversations, as far as they are the tenant's."""

        def work(connection: sa.Connection) -> tuple[ConversationLine, ...]:
            found = (read_conversation(connection, tenant, each) for each in conversation_ids)
            return tuple(each for each in found if each is not None)

        return await self._transactions.run(work)

    async def texts(
        self, tenant: str, conversation_id: str, max_bytes: int, most_messages: int = MAX_MESSAGES
    ) -> ConversationTexts | None:
        """The latest of a conversation that together has at most `max_bytes`; None if the tenant has none of that id.
        Documents come first: they are what a conversation is about."""
        return await self._transactions.run(
            lambda connection: read_texts(connection, tenant, conversation_id, max_bytes, most_messages)
        )

    async def part(self, tenant: str, digest: str, offset: int, limit: int) -> str:
        """Characters of a large document's text."""
        return await self._transactions.run(lambda connection: read_part(connection, tenant, digest, offset, limit))

    async def holders(self, tenant: str, artifact_id: str, most: int) -> tuple[str, ...]:
        """Conversations of the tenant that are known to hold an artifact without reading them: as a document, or since
        the cache keeps something that was made of it. Those that were active last come first."""
        return await self._transactions.run(lambda connection: read_holders(connection, tenant, artifact_id, most))


def read_texts(
    connection: sa.Connection, tenant: str, conversation_id: str, max_bytes: int, most_messages: int
) -> ConversationTexts | None:
    """What is read of one conversation (`PastTexts.texts`)."""
    head = sa.select(TABLE.c.head_id, TABLE.c.attachments).where(TABLE.c.id == conversation_id)
    row = connection.execute(head.where(TABLE.c.tenant == tenant)).first()
    if row is None:
        return None
    documents, room, whole = _documents(connection, conversation_id, max_bytes) if row.attachments else ((), 0, True)
    room = max_bytes - room
    chain: Sequence[Any] = ()
    if row.head_id is not None:
        chain = connection.execute(_CHAIN, {"from": row.head_id, "count": most_messages}).all()
    chosen: list[str] = []
    for each in chain:
        if each.weight <= room:
            room -= each.weight
            chosen.append(each.id)
    complete = whole and len(chosen) == len(chain) and (not chain or chain[-1].parent_id is None)
    messages: dict[str, ConversationMessage] = {}
    for start in range(0, len(chosen), BATCH):
        found = connection.execute(whole_messages().where(MESSAGES.c.id.in_(chosen[start : start + BATCH])))
        messages |= {each.id: rows.message_of(each) for each in found}
    path = tuple(messages[each] for each in reversed(chosen) if each in messages)
    return ConversationTexts(path, documents, max_bytes - room, complete)


def read_holders(connection: sa.Connection, tenant: str, artifact_id: str, most: int) -> tuple[str, ...]:
    """Which conversations hold an artifact (`PastTexts.holders`)."""
    begins = artifact_id.removeprefix(ARTIFACT)
    kept = sa.select(CACHED.c.conversation_id).where(
        CACHED.c.tenant == tenant, CACHED.c.digest >= begins, CACHED.c.digest < begins + "g"
    )
    latest = sa.select(TABLE.c.id).where(TABLE.c.tenant == tenant, TABLE.c.attachments > 0)
    latest = latest.order_by(TABLE.c.updated_at.desc(), TABLE.c.id.desc()).limit(BATCH)
    attached = sa.select(DOCUMENTS.c.conversation_id).where(
        DOCUMENTS.c.conversation_id.in_(latest), DOCUMENTS.c.artifact_id == artifact_id
    )
    holds = sa.or_(TABLE.c.id.in_(kept), TABLE.c.id.in_(attached))
    query = sa.select(TABLE.c.id).where(TABLE.c.tenant == tenant, holds)
    return tuple(connection.execute(query.order_by(TABLE.c.updated_at.desc()).limit(most)).scalars())


def _documents(
    connection: sa.Connection, conversation_id: str, max_bytes: int
) -> tuple[tuple[Artifact, ...], int, bool]:
    """The latest documents that there is room for, in order; their size, and whether they are all. Large ones come
    without their text."""
    own = DOCUMENTS.c.conversation_id == conversation_id
    here = sa.case((DOCUMENTS.c.document.is_not(None), LARGE_CHARS), else_=DOCUMENTS.c.size)
    sizes = sa.select(DOCUMENTS.c.number, here.label("size")).where(own).order_by(DOCUMENTS.c.number.desc())
    listed = connection.execute(sizes.limit(MAX_DOCUMENTS + 1)).all()
    chosen, size = [], 0
    for each in listed[:MAX_DOCUMENTS]:
        if size + each.size <= max_bytes:
            size += each.size
            chosen.append(each.number)
    query = sa.select(DOCUMENTS).where(own, DOCUMENTS.c.number.in_(chosen)).order_by(DOCUMENTS.c.number)
    found = list(map(rows.attachment_of, connection.execute(query).all())) if chosen else []
    return tuple(found), size, len(chosen) == len(listed)


def _chain_query() -> sa.Select[Any]:
    """Ids and weights of the path to `:from`, the latest first, `:count` at most."""
    chain = upwards(MESSAGES.c.weight, onwards=fewer_than)
    return sa.select(chain.c.id, chain.c.parent_id, chain.c.weight).order_by(chain.c.depth)


_CHAIN = _chain_query()
