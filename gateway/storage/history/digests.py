"""Makes up for digests that a message lacks: what another version wrote, what was imported, what followed a message
that was deleted (ADR 8)."""

from collections import defaultdict
from typing import Any

import sqlalchemy as sa

from gateway.base import jsons
from gateway.models.chain import START, ChainDigest, Run, following
from gateway.storage.database import schema
from gateway.storage.database.transactions import RowInsert

BATCH = 500
Made = tuple[str, ChainDigest, ChainDigest, int]
INSERT_LINKS = RowInsert(
    schema.message_links, "ON CONFLICT (conversation_id, digest) DO UPDATE SET message_id = excluded.message_id"
)
"""Of two chains that say the same the latest is continued."""


def backfill_digests(connection: sa.Connection, conversation_id: str) -> None:
    """Gives each message of the conversation that has none its digests, links and place in the sequence.

    Work grows with the messages of the conversation; their bodies are read only where something is missing. Failed
    turns are in no chain.
    """
    table = schema.messages
    columns = (table.c.id, table.c.parent_id, table.c.role, table.c.path_digest, table.c.said_digest, table.c.plain)
    where = sa.and_(table.c.conversation_id == conversation_id, table.c.status != "failed")
    children: dict[str | None, list[Any]] = defaultdict(list)
    order = (table.c.created_at, table.c.id)
    for row in connection.execute(sa.select(*columns, table.c.sequence_number).where(where).order_by(*order)):
        children[row.parent_id].append(row)
    chain_order = list(children[None])
    for row in chain_order:  # it grows meanwhile: what hangs on a message comes after it
        chain_order += children.get(row.id, ())
    states: dict[str | None, tuple[ChainDigest, Run | None, int]] = {None: (START, None, -1)}
    for start in range(0, len(chain_order), BATCH):
        batch = chain_order[start : start + BATCH]
        missing = [row.id for row in batch if row.path_digest is None or _goes_on(row, children)]
        bodies = {row.id: row for row in connection.execute(_BODIES, {"ids": missing})} if missing else {}
        made: list[Made] = []
        for row in batch:
            before, run, number = states[row.parent_id]
            mark, following_run = _mark(bodies[row.id], before, run) if row.id in bodies else (START, None)
            if row.path_digest is None:
                made.append((row.id, before, mark, number + 1))
            else:
                mark = ChainDigest(bytes(row.path_digest), bytes(row.said_digest), bool(row.plain))
            states[row.id] = (mark, following_run, number + 1)
        _write(connection, conversation_id, made)


def _goes_on(row: Any, children: dict[str | None, list[Any]]) -> bool:
    """Whether an answer is followed by another: only then its words matter to what comes after it."""
    return row.role == "assistant" and any(child.role == "assistant" for child in children.get(row.id, ()))


def _mark(row: Any, before: ChainDigest, run: Run | None) -> tuple[ChainDigest, Run | None]:
    body = jsons.loads_stored(row.body)
    return following(before, run, body, status=row.status, reworded=row.rendered is not None)


def _write(connection: sa.Connection, conversation_id: str, made: list[Made]) -> None:
    if not made:
        return
    values: list[dict[str, Any]] = [
        {"message": each, "path": mark.path, "said": mark.said, "plain": mark.plain, "number": number}
        for each, _, mark, number in made
    ]
    connection.execute(_UPDATE, values)
    rows = [row for each, before, mark, _ in made for row in link_rows(conversation_id, each, before, mark)]
    INSERT_LINKS(connection, rows)


def link_rows(conversation_id: str, message_id: str, before: ChainDigest, mark: ChainDigest) -> list[dict[str, Any]]:
    """Rows that lead to a message from the digests that are new with it: what adds nothing to what was said is not
    where that ends."""
    digests = {mark.path: mark.path != before.path, mark.said: mark.said != before.said}
    named = {"conversation_id": conversation_id, "message_id": message_id}
    return [{**named, "digest": digest} for digest, new in digests.items() if new]


def _bodies_query() -> sa.Select[tuple[Any, ...]]:
    table = schema.messages
    columns = (table.c.id, table.c.body, table.c.status, table.c.rendered)
    return sa.select(*columns).where(table.c.id.in_(sa.bindparam("ids", expanding=True)))


def _update_query() -> sa.Update:
    values: dict[str, Any] = {
        "path_digest": sa.bindparam("path"),
        "said_digest": sa.bindparam("said"),
        "plain": sa.bindparam("plain"),
        "sequence_number": sa.bindparam("number"),
    }
    return schema.messages.update().where(schema.messages.c.id == sa.bindparam("message")).values(values)


_BODIES = _bodies_query()
_UPDATE = _update_query()
