"""Chain digests of stored messages and their links (ADR 8), for messages that were imported or follow a deleted one."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa

from gateway.core.types.chain import START, AnswerRun, ChainDigest, following
from gateway.storage.database import schema
from gateway.storage.database.transactions import RowInsert
from gateway.storage.lookup.walk import body_of_message
from gateway.storage.rows import body_of

BATCH = 500
INSERT_LINKS = RowInsert(
    schema.message_links,
    "ON CONFLICT (conversation_id, digest) DO UPDATE SET message_id = excluded.message_id WHERE "
    "EXISTS (SELECT 1 FROM messages WHERE id = excluded.message_id AND path_digest = excluded.digest) OR NOT "
    "EXISTS (SELECT 1 FROM messages WHERE id = message_links.message_id AND path_digest = message_links.digest)",
)
"""Of two chains that say the same the latest is continued, but a chain that is stored just so before one that says the
same with tool steps between."""


class ChainEnd(NamedTuple):
    """A chain up to one message: its digest, the answers that stand next to each other at its end, its length."""

    digest: ChainDigest = START
    run: AnswerRun | None = None
    length: int = 0

    def followed_by(self, body: dict[str, Any], *, status: str, reworded: bool) -> "ChainEnd":
        """The chain after one more message."""
        digest, run = following(self.digest, self.run, body, status=status, reworded=reworded)
        return ChainEnd(digest, run, self.length + 1)


def chain_digest(row: Any) -> ChainDigest:
    """The digest of the chain that ends with a message, from its row."""
    return ChainDigest(bytes(row.path_digest), bytes(row.said_digest), bool(row.plain))


def digest_columns(digest: ChainDigest) -> dict[str, Any]:
    """The same as values of the row."""
    return {"path_digest": digest.path, "said_digest": digest.said, "plain": digest.plain}


def link_rows(conversation_id: str, message_id: str, before: ChainDigest, after: ChainDigest) -> list[dict[str, Any]]:
    """Links to a message from those digests that it changed: the chain that an unchanged one names ends earlier."""
    digests = {after.path: after.path != before.path, after.said: after.said != before.said}
    named = {"conversation_id": conversation_id, "message_id": message_id}
    return [{**named, "digest": digest} for digest, changed in digests.items() if changed]


def backfill_digests(connection: sa.Connection, conversation_id: str) -> None:
    """Gives each message that has none its digests, links and sequence number. Failed turns are in no chain.

    Reads the small columns of all messages of the conversation, and the bodies of those without digests.
    """
    table = schema.messages
    columns = (table.c.id, table.c.parent_id, table.c.role, table.c.path_digest, table.c.said_digest, table.c.plain)
    where = sa.and_(table.c.conversation_id == conversation_id, table.c.status != "failed")
    children: dict[str | None, list[Any]] = defaultdict(list)
    for row in connection.execute(sa.select(*columns).where(where).order_by(table.c.created_at, table.c.id)):
        children[row.parent_id].append(row)
    ordered = list(_parents_first(children))
    ends: dict[str | None, ChainEnd] = {None: ChainEnd()}
    for start in range(0, len(ordered), BATCH):
        batch = ordered[start : start + BATCH]
        read = [row.id for row in batch if row.path_digest is None or _goes_on(row, children)]
        bodies = {row.id: row for row in connection.execute(_BODIES, {"ids": read})} if read else {}
        values: list[dict[str, Any]] = []
        links: list[dict[str, Any]] = []
        for row in batch:
            before, found = ends[row.parent_id], bodies.get(row.id)
            end = ChainEnd(length=before.length + 1)
            if found is not None:
                body, reworded = body_of(found), found.rendered is not None
                end = before.followed_by(body, status=found.status, reworded=reworded)
            if row.path_digest is None:
                values.append({"message": row.id, "sequence_number": before.length, **digest_columns(end.digest)})
                links += link_rows(conversation_id, row.id, before.digest, end.digest)
            else:
                end = end._replace(digest=chain_digest(row))
            ends[row.id] = end
        if values:
            connection.execute(_UPDATE, values)
            INSERT_LINKS(connection, links)


def _parents_first(children: dict[str | None, list[Any]]) -> Iterator[Any]:
    level = children.get(None, [])
    while level:
        yield from level
        level = [child for row in level for child in children.get(row.id, ())]


def _goes_on(row: Any, children: dict[str | None, list[Any]]) -> bool:
    """Whether an answer is followed by another: the digest after both depends on its words."""
    return row.role == "assistant" and any(child.role == "assistant" for child in children.get(row.id, ()))


_BODIES = sa.select(
    schema.messages.c.id,
    body_of_message(),
    schema.messages.c.status,
    schema.messages.c.rendered,
    schema.messages.c.role,
).where(schema.messages.c.id.in_(sa.bindparam("ids", expanding=True)))
_UPDATE = (
    schema.messages.update()
    .where(schema.messages.c.id == sa.bindparam("message"))
    .values({name: sa.bindparam(name) for name in ("path_digest", "said_digest", "plain", "sequence_number")})
)
