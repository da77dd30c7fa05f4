"""Deletes conversations for good: their content is deleted, the anonymous bill stays (guarantee §5, §6)."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.types import artifacts, bill
from gateway.storage.database import schema
from gateway.storage.encryption.columns import OfRow, sealed, vault_of
from gateway.storage.large_documents import delete_unheld, held_by
from gateway.storage.turns.roll_ups import rename_users
from gateway.storage.turns.standing import UPDATE_METADATA

BATCH = 500
OF_WHAT_WAS_SAID = (
    *("head_id", "instructions_digest", "framed", "team_task", "profile", "pins", "summarized"),
    *("question", "question_folded"),
)
"""Columns of a conversation that reveal something of its messages."""
NAMED = ('"artifacts_processed":[{', '"things":[{')
"""Text that marks names in a bill: of artifacts, and types of things."""


def delete_conversation(connection: sa.Connection, tenant: str, conversation_id: str) -> tuple[str, ...] | None:
    """Deletes a tenant's conversation; figures and keyed digests stay. Returns the cache groups to evict; None if there
    is no such conversation."""
    table = schema.conversations
    query = sa.select(table.c.id).where(table.c.tenant == tenant, table.c.id == conversation_id)
    if connection.execute(query.with_for_update()).first() is None:
        return None
    return delete_locked(connection, tenant, conversation_id)


def delete_locked(
    connection: sa.Connection, tenant: str, conversation_id: str, *, keeping: Collection[str] = ()
) -> tuple[str, ...]:
    """Deletes a conversation whose row this transaction has locked: a turn that commits meanwhile waits, then finds it
    gone. Foreign keys delete the rows with content; claims hold none and stay. Returns the cache groups to evict.
    `keeping`: the users that stay in its bills: digests, which are no names."""
    rows = [schema.conversations.delete().where(schema.conversations.c.id == conversation_id)]
    return _delete(connection, tenant, conversation_id, rows, keeping)


def empty_conversation(connection: sa.Connection, tenant: str, conversation_id: str, now: datetime) -> tuple[str, ...]:
    """Deletes everything that refers to a conversation whose row this transaction has locked, except its sessions. The
    row stays with its metadata, its retention and its sums. Returns the cache groups to evict."""
    ledger = schema.ledger.c
    users = sa.select(ledger.end_user).distinct().where(ledger.conversation_id == conversation_id)
    keeping = [name for name in connection.execute(users).scalars() if name is not None]
    hanging = [
        table.delete().where(column == conversation_id)
        for table in reversed(schema.metadata.sorted_tables)
        if table is not schema.sessions
        for column in table.c
        if column.references(schema.conversations.c.id)
    ]
    groups = _delete(connection, tenant, conversation_id, hanging, keeping)
    table = schema.conversations
    values = {**dict.fromkeys(OF_WHAT_WAS_SAID), "attachments": 0, "updated_at": now, "forgotten_at": now}
    connection.execute(table.update().where(table.c.id == conversation_id).values(**values))
    return groups


def _delete(
    connection: sa.Connection, tenant: str, conversation_id: str, rows: Sequence[sa.Delete], keeping: Collection[str]
) -> tuple[str, ...]:
    """Deletes these rows, with what the cache, large documents and bills hold of them."""
    billed = sa.and_(schema.ledger.c.tenant == tenant, schema.ledger.c.conversation_id == conversation_id)
    anonymise_bills(connection, billed, keeping=keeping)  # first, as in `write_turns`: both lock users, then contents
    groups = held_groups(connection, tenant, [conversation_id])
    large = held_by(connection, schema.attachments.c.conversation_id == conversation_id)
    for each in rows:
        connection.execute(each)
    delete_unheld(connection, tenant, large)
    return groups


def forget_blocks(connection: sa.Connection, tenant: str, conversation_id: str, now: datetime) -> None:
    """Deletes what was forwarded beside a conversation's questions, in all forms, and what upstreams may have quoted of
    it in errors; a turn that is under way does not bring it back. It is no activity: the time of retention runs on."""
    messages, table = schema.messages, schema.conversations
    forgetting = table.update().where(table.c.id == conversation_id)
    connection.execute(forgetting.values(forgotten_at=now))  # first, which locks the conversation as other deletions do
    connection.execute(schema.frames.delete().where(schema.frames.c.conversation_id == conversation_id))
    with_block = (messages.c.conversation_id == conversation_id, messages.c.rendered.is_not(None))
    connection.execute(messages.update().where(*with_block).values(rendered=None, standing=None, tokens=None))
    ledger = schema.ledger.c
    forget_failures(connection, sa.and_(ledger.tenant == tenant, ledger.conversation_id == conversation_id))


def held_groups(connection: sa.Connection, tenant: str, conversations: Collection[str]) -> tuple[str, ...]:
    """Returns the cache groups of the contents that these conversations alone hold."""
    held = schema.cached_contents.c
    query = sa.select(held.digest).distinct().where(held.conversation_id.in_(conversations))
    return unheld_groups(connection, tenant, connection.execute(query).scalars().all(), but=conversations)


def unheld_groups(
    connection: sa.Connection, tenant: str, digests: Sequence[str], *, but: Collection[str]
) -> tuple[str, ...]:
    """Returns the cache groups of the contents that no conversation of the tenant but these holds. Locks the holders:
    of two that are deleted at the same time, the later finds that it is the last."""
    if not digests:
        return ()
    table = schema.cached_contents.c
    query = sa.select(table.digest, table.conversation_id).where(table.tenant == tenant, table.digest.in_(digests))
    rows = connection.execute(query.order_by(table.digest, table.conversation_id).with_for_update())
    held = {row.digest for row in rows if row.conversation_id not in but}
    return tuple(artifacts.cache_group(tenant, digest) for digest in digests if digest not in held)


def anonymise_bills(
    connection: sa.Connection, where: sa.ColumnElement[bool], of: str | None = None, *, keeping: Collection[str] = ()
) -> None:
    """Removes names that people gave (titles of attachments, tools, users), and what upstreams said of failures, from
    rows of the ledger.
    `of`: the content id of the one artifact whose names are removed; None: those of all artifacts, and the user's;
    `keeping`: the users that stay: digests, which are no names."""
    if of is None:
        rename_users(connection, sa.and_(where, schema.ledger.c.end_user.not_in(keeping)), None)
    forget_failures(connection, where)
    table = schema.ledger.c
    query = sa.select(table.request_id, table.response_metadata)
    named = sa.or_(*(table.response_metadata.contains(each, autoescape=True) for each in NAMED))
    if vault_of(connection.dialect) is not None:
        named = sa.or_(named, sealed(table.response_metadata))
    query = query.where(where, named).order_by(table.request_id)
    after = ""
    while page := connection.execute(query.where(table.request_id > after).limit(BATCH)).all():
        texts = {row.request_id: _anonymous(row.response_metadata, of) for row in page}
        changed = [{"request": name, "text": OfRow(text, name)} for name, text in texts.items()]
        connection.execute(UPDATE_METADATA, changed)
        after = page[-1].request_id


def forget_failures(connection: sa.Connection, where: sa.ColumnElement[bool]) -> None:
    """Deletes how requests failed: an upstream may have quoted their content."""
    table = schema.ledger
    connection.execute(table.update().where(where, table.c.failure.is_not(None)).values(failure=None))


def _anonymous(text: str, of: str | None) -> str:
    """Returns `response_metadata` with sources named by their positions alone; figures stay as written."""
    try:
        metadata: dict[str, Any] = jsons.loads_decimal(text)
        used = metadata["context_utilization"]
        for thing in used.get("things", ()) if of is None else ():
            thing.pop("type", None)
        for record in used["artifacts_processed"]:
            if of is None or record["artifact_id"].partition("-")[0] == of:
                record["source"] = bill.nameless(record["source"])
                for name in bill.CLIENTS_WORDS:
                    record.pop(name, None)
    except (ValueError, KeyError, TypeError, AttributeError):
        return "{}"  # the row is damaged, which an audit finds: its content cannot be told from names
    return jsons.dumps_text(metadata)
