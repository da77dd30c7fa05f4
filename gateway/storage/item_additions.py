"""Adds items to a conversation, under its lock (contract §3.7).

Written rows have no digests; they are made up for when the conversation is next asked for (ADR 8).
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import Any

import sqlalchemy as sa

from gateway import jsons
from gateway.ids import content_digest, new_id
from gateway.models.conversation import INSTRUCTION_ROLES, ConversationMessage
from gateway.models.items import Item, custom_calls, instruction_items, items_of
from gateway.storage import schema
from gateway.storage.engine import insert_if_new
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
    head, digest = row.head_id, row.instructions_digest
    number = 0
    made: list[Item] = []
    if head is None:
        leading = list(takewhile(lambda message: message.role in INSTRUCTION_ROLES, messages))
        messages = messages[len(leading) :]
        digest, made = _instruct(connection, row, [message.body for message in leading])
    else:
        columns = sa.select(MESSAGES.c.sequence_number, MESSAGES.c.instructions_digest)
        last = connection.execute(columns.where(MESSAGES.c.id == head)).one()
        digest, number = last.instructions_digest, last.sequence_number + 1
    shared = {"conversation_id": conversation_id, "request_id": request_id, "instructions_digest": digest}
    values: list[dict[str, Any]] = []
    custom = calls_before(connection, head)
    for offset, message in enumerate(messages):
        message_id = new_id("msg_")
        values.append(
            {**shared, **message_row(message, message_id, head, number + offset, now), "status": message.status}
        )
        custom = custom_calls(message) if message.role != "tool" else custom
        made += items_of(replace(message, message_id=message_id), custom)
        head = message_id
    INSERT_MESSAGES(connection, values)
    changed = {"head_id": head, "updated_at": now, "instructions_digest": None if head else digest}
    table = schema.conversations
    connection.execute(table.update().where(table.c.id == conversation_id).values(**changed))
    return made


def _instruct(connection: sa.Connection, row: Any, new: Sequence[dict[str, Any]]) -> tuple[str | None, list[Item]]:
    """More system messages for a conversation without messages: the digest of all of them, and the new items."""
    before = instructions_in_force(connection, row)
    if not new:
        return row.instructions_digest, []
    body = jsons.dumps_stored([*before, *new])
    values = {"conversation_id": row.id, "digest": content_digest(body), "body": body}
    connection.execute(insert_if_new(connection, schema.instructions), values)
    return values["digest"], instruction_items(row.id, [*before, *new])[len(before) :]
