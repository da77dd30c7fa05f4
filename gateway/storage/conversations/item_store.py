"""Reads and adds items of a conversation's current branch: the system messages in force, then the path to its head.

Small columns say where the path leads; bodies are read for one page alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import Any

import sqlalchemy as sa

from gateway.core import errors, jsons
from gateway.core.ids import content_digest, new_id
from gateway.core.types import report_lists
from gateway.core.types.chain import CHAIN_START, AnswerRun, ChainDigest, following
from gateway.core.types.conversation import INSTRUCTION_ROLES, ConversationMessage
from gateway.core.types.items import INSTRUCTION_PREFIX, Item, call_kinds, instruction_items, items_of, message_id_of
from gateway.core.types.records import ItemQuery
from gateway.core.types.tool_steps import RESULT_ROLES
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.database.sqlite import insert_if_new
from gateway.storage.encryption.columns import for_row
from gateway.storage.lookup.locate import (
    MESSAGES,
    backfill_digests,
    chain_digest,
    digest_columns,
    fewer_than,
    linked,
    messages_of,
    upwards,
    whole_messages,
    write_links,
)
from gateway.storage.lookup.segments import marked, pin, pinned_ids, unpin
from gateway.storage.turns.message_rows import message_row
from gateway.storage.turns.questions import question_columns
from gateway.storage.turns.steps import INSERT_STEPS, results_apart, step_rows
from gateway.storage.turns.write_turn import INSERT_MESSAGES


def require_conversation(connection: sa.Connection, tenant: str, conversation_id: str, *, lock: bool = False) -> Any:
    """Raises ConversationNotFound: the tenant has none of that id."""
    table = schema.conversations
    query = sa.select(table.c.id, table.c.head_id, table.c.instructions_digest, table.c.pins, table.c.question)
    query = query.where(table.c.tenant == tenant, table.c.id == conversation_id)
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise errors.ConversationNotFound("No such conversation.", param="conversation_id")
    return row


def read_items(
    connection: sa.Connection, tenant: str, conversation_id: str, query: ItemQuery
) -> report_lists.QueryPage[Item]:
    """A page of the items of the current branch: the system messages in force, then the path to the head.
    Raises ConversationNotFound: the tenant has none of that id; ItemNotFound: nothing of the branch has the id
    `after`."""
    row = require_conversation(connection, tenant, conversation_id)
    found = _downwards(connection, row, query) if query.newest_first else _onwards(connection, row, query)
    return report_lists.QueryPage.of(found, query.limit)


def read_item(connection: sa.Connection, tenant: str, conversation_id: str, item_id: str) -> Item:
    """An item of any branch.
    Raises ConversationNotFound: the tenant has no such conversation; ItemNotFound: the conversation has no such
    item."""
    row = require_conversation(connection, tenant, conversation_id)
    if item_id.startswith(INSTRUCTION_PREFIX):
        items = instruction_items(row.id, instructions_in_force(connection, row))
    else:
        items = _items(connection, row, [require_message(connection, row.id, item_id)])
    return items[_index(items, item_id, "item_id")]


def require_message(connection: sa.Connection, conversation_id: str, item_id: str, param: str = "item_id") -> Any:
    """The stored message that an item belongs to. Raises ItemNotFound: there is none in this conversation."""
    where = (MESSAGES.c.id == message_id_of(item_id), MESSAGES.c.conversation_id == conversation_id)
    row = connection.execute(whole_messages().where(*where, MESSAGES.c.status != "failed")).first()
    if row is None:
        raise errors.ItemNotFound("No such item.", param=param)
    return row


def instructions_in_force(connection: sa.Connection, row: Any) -> list[dict[str, Any]]:
    """The system messages that stand before the first message, at the conversation's head."""
    digest = row.instructions_digest
    if row.head_id is not None:
        query = sa.select(MESSAGES.c.instructions_digest).where(MESSAGES.c.id == row.head_id)
        digest = connection.execute(query).scalar()
    table = schema.instructions
    where = (table.c.conversation_id == row.id, table.c.digest == digest)
    body = connection.execute(sa.select(table.c.body).where(*where)).scalar()
    return list(jsons.loads_stored(body)) if body else []


def calls_before(connection: sa.Connection, message_id: str | None) -> dict[str, str]:
    """The calls that a result behind this message may answer, as `call_kinds` has them."""
    step = open_step(connection, message_id)
    return call_kinds(step[0]) if step else {}


def open_step(connection: sa.Connection, message_id: str | None) -> tuple[ConversationMessage, ...]:
    """The last message up to this one that is no tool's result, and the results that followed it."""
    if message_id is None:
        return ()
    return tuple(map(rows.message_of, reversed(connection.execute(_OPEN_STEP, {"from": message_id}).all())))


def _downwards(connection: sa.Connection, row: Any, query: ItemQuery) -> list[Item]:
    """From the latest item to the first; one more than the page holds, if there is one."""
    start, after = row.head_id, query.after
    if after is not None and not after.startswith(INSTRUCTION_PREFIX):
        start = require_message(connection, row.id, after, "after").id
    elif after is not None:
        start = None
    found = connection.execute(_UPWARDS, {"from": start, "count": query.limit + 2}).all() if start else []
    items = _items(connection, row, found[::-1])
    if not found or found[-1].parent_id is None:
        items = [*instruction_items(row.id, instructions_in_force(connection, row)), *items]
    items.reverse()
    return items if after is None else items[_index(items, after, "after") + 1 :]


def _onwards(connection: sa.Connection, row: Any, query: ItemQuery) -> list[Item]:
    """From the first item to the latest; one more than the page holds, if there is one."""
    after = query.after
    items: list[Item] = []
    cursor = None
    if after is None or after.startswith(INSTRUCTION_PREFIX):
        items = instruction_items(row.id, instructions_in_force(connection, row))
    else:
        cursor = require_message(connection, row.id, after, "after").id
    path = connection.execute(_PATH, {"from": row.head_id, "to": cursor}).scalars().all() if row.head_id else []
    if cursor is not None and (not path or path[0] != cursor):
        raise errors.ItemNotFound("No such item in the current branch.", param="after")
    wanted = path[: query.limit + 2]
    bodies = {each.id: each for each in connection.execute(whole_messages().where(MESSAGES.c.id.in_(wanted)))}
    items += _items(connection, row, [bodies[each] for each in wanted])
    return items if after is None else items[_index(items, after, "after") + 1 :]


def _items(connection: sa.Connection, row: Any, found: Sequence[Any]) -> list[Item]:
    """The items of these messages, which follow each other; `row` is that of their conversation."""
    calls = calls_before(connection, found[0].id) if found and found[0].role in RESULT_ROLES else {}
    items: list[Item] = []
    for message in marked(list(map(rows.message_of, found)), pinned_ids(connection, row)):
        if message.role not in RESULT_ROLES:
            calls = call_kinds(message)
        items += items_of(message, calls)
    return items


def _index(items: Iterable[Item], item_id: str, param: str) -> int:
    for index, item in enumerate(items):
        if item["id"] == item_id:
            return index
    raise errors.ItemNotFound("No such item.", param=param)


def _path_query() -> sa.Select[Any]:
    """The ids of all messages from `:to` (NULL: from the first) to `:from`, the first first."""
    end = sa.bindparam("to", type_=sa.String)
    chain = upwards(onwards=lambda chain: sa.or_(end.is_(None), chain.c.id != end))
    return sa.select(chain.c.id).order_by(chain.c.depth.desc())


_UPWARDS, _PATH = messages_of(upwards(onwards=fewer_than)), _path_query()
_OPEN_STEP = messages_of(upwards(MESSAGES.c.role, onwards=lambda chain: chain.c.role.in_(RESULT_ROLES)))


def add(
    connection: sa.Connection,
    tenant: str,
    conversation_id: str,
    messages: Sequence[ConversationMessage],
    request_id: str,
    now: datetime,
) -> list[Item]:
    """Appends messages at the conversation's head, under its lock (guarantee §3.7). System messages before the first
    message are in force from then on.
    The items that were made.
    Raises ConversationNotFound: the tenant has none of that id."""
    row = require_conversation(connection, tenant, conversation_id, lock=True)
    head, digest, number, restored = row.head_id, row.instructions_digest, 0, None
    chain: ChainDigest | None = CHAIN_START
    made: list[Item] = []
    if head is None:
        leading = list(takewhile(lambda message: message.role in INSTRUCTION_ROLES, messages))
        messages = messages[len(leading) :]
        digest, made = _instruct(connection, row, [message.body for message in leading])
    else:
        last = connection.execute(sa.select(MESSAGES).where(MESSAGES.c.id == head)).one()
        digest, number, restored = last.instructions_digest, last.sequence_number + 1, last.restored
        chain = _digest_after(last, messages)
    shared = {"conversation_id": conversation_id, "request_id": request_id, "instructions_digest": digest}
    values: list[dict[str, Any]] = []
    links: dict[bytes, str] = {}
    run: AnswerRun | None = None
    step = open_step(connection, head)
    calls = call_kinds(step[0]) if step else {}
    for message in messages:
        message_id = message.message_id or new_id("msg_")
        found = message_row(message, message_id, head, number + len(values), now)
        if chain is not None:
            before = chain
            chain, run = following(before, run, message.body, status=message.status)
            links |= dict.fromkeys(linked(before, chain), message_id)
            found |= digest_columns(chain)
        values.append({**found, **shared, "status": message.status, "restored": restored})
        calls = call_kinds(message) if message.role != "tool" else calls
        made += items_of(replace(message, message_id=message_id), calls)
        head = message_id
    pairs = list(zip(messages, values, strict=True))
    steps = step_rows(step, pairs, apart=results_apart(connection))
    INSERT_MESSAGES(connection, values)
    INSERT_STEPS(connection, steps)
    write_links(connection, conversation_id, links.items())
    if chain is None:
        backfill_digests(connection, conversation_id)
    pin(connection, conversation_id, [row["id"] for message, row in pairs if message.pinned])
    changed = {"head_id": head, "updated_at": now, "instructions_digest": None if head else digest}
    if row.question is None:
        changed |= question_columns(message.body for message in messages)
    table = schema.conversations
    changed = for_row(table, changed, conversation_id)
    connection.execute(table.update().where(table.c.id == conversation_id).values(**changed))
    return made


def set_pin(
    connection: sa.Connection, tenant: str, conversation_id: str, item_id: str, *, pinned: bool, now: datetime
) -> Item:
    """Pins the message of an item, or takes its pin away; returns the item.
    Raises ConversationNotFound: the tenant has no such conversation; ItemNotFound: the conversation has no such item;
    InvalidRequest: it is a system message, which is in every window anyway."""
    require_conversation(connection, tenant, conversation_id, lock=True)
    read_item(connection, tenant, conversation_id, item_id)
    message_id = message_id_of(item_id)
    if message_id is None:
        raise errors.InvalidRequest("System messages are in every window.", param="pinned", code="invalid_value")
    if pinned:
        pin(connection, conversation_id, [message_id])
    else:
        unpin(connection, conversation_id, message_id)
    table = schema.conversations
    connection.execute(table.update().where(table.c.id == conversation_id).values(updated_at=now))
    return read_item(connection, tenant, conversation_id, item_id)


def _digest_after(last: Any, messages: Sequence[ConversationMessage]) -> ChainDigest | None:
    """The digest of the chain that the messages follow; None behind an answer that they go on with, as the digest after
    both depends on the words of both."""
    answers_in_a_row = last.role == "assistant" and bool(messages) and messages[0].role == "assistant"
    return None if answers_in_a_row else chain_digest(last)


def _instruct(connection: sa.Connection, row: Any, new: Sequence[dict[str, Any]]) -> tuple[str | None, list[Item]]:
    """More system messages for a conversation without messages: the digest of all of them, and the new items."""
    before = instructions_in_force(connection, row)
    if not new:
        return row.instructions_digest, []
    body = jsons.dumps_stored([*before, *new])
    values = {"conversation_id": row.id, "digest": content_digest(body), "body": body}
    connection.execute(insert_if_new(connection, schema.instructions), for_row(schema.instructions, values))
    return values["digest"], instruction_items(row.id, [*before, *new])[len(before) :]
