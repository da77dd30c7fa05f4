"""Adds items to a conversation, under its lock (contract §3.7)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import Any

import sqlalchemy as sa

from gateway import jsons
from gateway.ids import content_digest, new_id
from gateway.models.chain import START, Mark, Run, following
from gateway.models.conversation import INSTRUCTION_ROLES, ConversationMessage
from gateway.models.items import Item, custom_calls, instruction_items, items_of
from gateway.storage import schema
from gateway.storage.engine import insert_if_new
from gateway.storage.heal import INSERT_LINKS, link_rows
from gateway.storage.item_pages import calls_before, conversation_row, instructions_in_force
from gateway.storage.turn_rows import message_row
from gateway.storage.write import INSERT_MESSAGES

MESSAGES = schema.messages


def add(
    connection: sa.Connection,
    tenant: str,
    conversation_id: str,
    messages: Sequence[ConversationMessage],
    request_id: str,
    now: datetime,
) -> list[Item]:
    """Appends messages at the conversation's head. System messages before the first message are those in force from
    then on.

    Returns:
        The items that were made.

    Raises:
        ConversationNotFound: the tenant has none of that id.
    """
    row = conversation_row(connection, tenant, conversation_id, lock=True)
    head, digest, number, restored = row.head_id, row.instructions_digest, 0, None
    mark: Mark | None = START
    made: list[Item] = []
    if head is None:
        leading = list(takewhile(lambda message: message.role in INSTRUCTION_ROLES, messages))
        messages = messages[len(leading) :]
        digest, made = _instruct(connection, row, [message.body for message in leading])
    else:
        last = connection.execute(sa.select(MESSAGES).where(MESSAGES.c.id == head)).one()
        digest, number, restored = last.instructions_digest, last.sequence_number + 1, last.restored
        mark = _mark_after(last, messages)
    shared = {"conversation_id": conversation_id, "request_id": request_id, "instructions_digest": digest}
    values: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    run: Run | None = None
    custom = calls_before(connection, head)
    for message in messages:
        message_id = new_id("msg_")
        found = message_row(message, message_id, head, number + len(values), now)
        if mark is not None:
            before = mark
            mark, run = following(before, run, message.body, status=message.status)
            links += link_rows(conversation_id, message_id, before, mark)
            found |= {"path_digest": mark.path, "said_digest": mark.said, "plain": mark.plain}
        values.append({**found, **shared, "status": message.status, "restored": restored})
        custom = custom_calls(message) if message.role != "tool" else custom
        made += items_of(replace(message, message_id=message_id), custom)
        head = message_id
    INSERT_MESSAGES(connection, values)
    INSERT_LINKS(connection, list({link["digest"]: link for link in links}.values()))
    changed = {"head_id": head, "updated_at": now, "instructions_digest": None if head else digest}
    table = schema.conversations
    connection.execute(table.update().where(table.c.id == conversation_id).values(**changed))
    return made


def _mark_after(last: Any, messages: Sequence[ConversationMessage]) -> Mark | None:
    """Where the chain stands; None where that needs more than the last row. Messages without digests get theirs when
    the conversation is next asked for (ADR 8)."""
    answers_in_a_row = last.role == "assistant" and bool(messages) and messages[0].role == "assistant"
    if last.path_digest is None or answers_in_a_row:
        return None
    return Mark(bytes(last.path_digest), bytes(last.said_digest), bool(last.plain))


def _instruct(connection: sa.Connection, row: Any, new: Sequence[dict[str, Any]]) -> tuple[str | None, list[Item]]:
    """More system messages for a conversation without messages: the digest of all of them, and the new items."""
    before = instructions_in_force(connection, row)
    if not new:
        return row.instructions_digest, []
    body = jsons.dumps_stored([*before, *new])
    values = {"conversation_id": row.id, "digest": content_digest(body), "body": body}
    connection.execute(insert_if_new(connection, schema.instructions), values)
    return values["digest"], instruction_items(row.id, [*before, *new])[len(before) :]
