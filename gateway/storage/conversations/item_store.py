"""Reads and adds items of a conversation's current branch: the system messages in force, then the path to its head.

Small columns show where the path leads; bodies are read for one page alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import Any

import sqlalchemy as sa

from gateway.core import errors, ids, jsons
from gateway.core.types import chain, conversation, items, records, report_lists, tool_steps
from gateway.core.types.chain import AnswerRun, ChainDigest
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.items import Item
from gateway.storage import rows
from gateway.storage.cache.deleted_places import ItemPlace
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
from gateway.storage.lookup.segments import OPEN_STEP, marked, pin, pinned_ids, unpin
from gateway.storage.turns.message_rows import message_row
from gateway.storage.turns.questions import question_columns
from gateway.storage.turns.steps import INSERT_STEPS, results_apart, step_rows
from gateway.storage.turns.write_turn import INSERT_MESSAGES

BATCH = 100
"""Messages that are read together where one is looked for by what it holds."""


def require_conversation(connection: sa.Connection, tenant: str, conversation_id: str, *, lock: bool = False) -> Any:
    """Returns the conversation's row; `lock` locks it. Raises ConversationNotFound: the tenant has none of that id."""
    table = schema.conversations
    query = sa.select(table.c.id, table.c.head_id, table.c.instructions_digest, table.c.pins, table.c.question)
    query = query.where(table.c.tenant == tenant, table.c.id == conversation_id)
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise errors.ConversationNotFound("No such conversation.", param="conversation_id")
    return row


def read_items(
    connection: sa.Connection,
    tenant: str,
    conversation_id: str,
    query: records.ItemQuery,
    place: ItemPlace | None = None,
) -> report_lists.QueryPage[Item]:
    """Returns a page of the current branch's items: the system messages in force, then the path to the head.
    `place`: where `after` stood, if it is deleted.
    Raises ConversationNotFound: the tenant has none of that id; ItemNotFound: nothing of the branch has the id
    `after`."""
    row = require_conversation(connection, tenant, conversation_id)
    if place is not None:
        found = _behind(connection, row, query, place)
        return report_lists.QueryPage.of(found, query.limit)
    found = _downwards(connection, row, query) if query.newest_first else _onwards(connection, row, query)
    return report_lists.QueryPage.of(found, query.limit)


def place_of(connection: sa.Connection, row: Any, item_id: str) -> ItemPlace:
    """Returns where an item of a conversation stands. `row`: the conversation's.
    Raises ItemNotFound: it has no such item."""
    if item_id.startswith(items.INSTRUCTION_PREFIX):
        listed, number = items.instruction_items(row.id, instructions_in_force(connection, row)), -1
    else:
        message = require_message(connection, row.id, item_id)
        listed, number = _items(connection, row, [message]), int(message.sequence_number)
    return number, _index(listed, item_id, "item_id")


def read_item(connection: sa.Connection, tenant: str, conversation_id: str, item_id: str) -> Item:
    """Returns an item of any branch.
    Raises ConversationNotFound: the tenant has no such conversation; ItemNotFound: the conversation has no such
    item."""
    row = require_conversation(connection, tenant, conversation_id)
    if item_id.startswith(items.INSTRUCTION_PREFIX):
        listed = items.instruction_items(row.id, instructions_in_force(connection, row))
    else:
        listed = _items(connection, row, [require_message(connection, row.id, item_id)])
    return listed[_index(listed, item_id, "item_id")]


def require_message(connection: sa.Connection, conversation_id: str, item_id: str, param: str = "item_id") -> Any:
    """Returns the stored message of an item. Raises ItemNotFound: there is none in this conversation."""
    those = whole_messages().where(MESSAGES.c.conversation_id == conversation_id, MESSAGES.c.status != "failed")
    row = connection.execute(those.where(MESSAGES.c.id == items.message_id_of(item_id))).first()
    if row is None and not item_id.startswith(items.NEVER_HOSTED):
        row = _with_hosted_call(connection, those, item_id)
    if row is None:
        raise errors.ItemNotFound("No such item.", param=param)
    return row


def _with_hosted_call(connection: sa.Connection, those: sa.Select[Any], item_id: str) -> Any:
    """Returns the latest of these messages with a hosted call of that id. Its provider made the id, so that no index
    leads from it to the message."""
    quoted = jsons.dumps_text(item_id)
    answers = those.where(MESSAGES.c.role == "assistant").order_by(MESSAGES.c.sequence_number.desc())
    with connection.execute(answers.execution_options(yield_per=BATCH)) as found:
        for row in found:
            if quoted in row.body and any(each["id"] == item_id for each in items.items_of(rows.message_of(row))):
                return row
    return None


def instructions_in_force(connection: sa.Connection, row: Any) -> list[dict[str, Any]]:
    """Returns the system messages in force at the conversation's head, which precede its first message."""
    digest = row.instructions_digest
    if row.head_id is not None:
        query = sa.select(MESSAGES.c.instructions_digest).where(MESSAGES.c.id == row.head_id)
        digest = connection.execute(query).scalar()
    table = schema.instructions
    where = (table.c.conversation_id == row.id, table.c.digest == digest)
    body = connection.execute(sa.select(table.c.body).where(*where)).scalar()
    return list(jsons.loads_stored(body)) if body else []


def calls_before(connection: sa.Connection, message_id: str | None) -> dict[str, str]:
    """Returns the calls that a result behind this message may answer, as from `call_kinds`."""
    step = open_step(connection, message_id)
    return items.call_kinds(step[0]) if step else {}


def open_step(connection: sa.Connection, message_id: str | None) -> tuple[ConversationMessage, ...]:
    """Returns the last message up to this one that is no tool result, and the results that followed it."""
    if message_id is None:
        return ()
    return tuple(map(rows.message_of, reversed(connection.execute(OPEN_STEP, {"from": message_id}).all())))


def _downwards(connection: sa.Connection, row: Any, query: records.ItemQuery) -> list[Item]:
    """Lists items from the latest to the first; one more than the page holds, if there is one."""
    start, after = row.head_id, query.after
    if after is not None and not after.startswith(items.INSTRUCTION_PREFIX):
        start = require_message(connection, row.id, after, "after").id
    elif after is not None:
        start = None
    found = connection.execute(_UPWARDS, {"from": start, "count": query.limit + 2}).all() if start else []
    listed = _items(connection, row, found[::-1])
    if not found or found[-1].parent_id is None:
        listed = [*items.instruction_items(row.id, instructions_in_force(connection, row)), *listed]
    listed.reverse()
    return listed if after is None else listed[_index(listed, after, "after") + 1 :]


def _onwards(connection: sa.Connection, row: Any, query: records.ItemQuery) -> list[Item]:
    """Lists items from the first to the latest; one more than the page holds, if there is one."""
    after = query.after
    listed: list[Item] = []
    cursor = None
    if after is None or after.startswith(items.INSTRUCTION_PREFIX):
        listed = items.instruction_items(row.id, instructions_in_force(connection, row))
    else:
        cursor = require_message(connection, row.id, after, "after").id
    path = connection.execute(_PATH, {"from": row.head_id, "to": cursor}).scalars().all() if row.head_id else []
    if cursor is not None and (not path or path[0] != cursor):
        raise errors.ItemNotFound("No such item in the current branch.", param="after")
    wanted = path[: query.limit + 2]
    bodies = {each.id: each for each in connection.execute(whole_messages().where(MESSAGES.c.id.in_(wanted)))}
    listed += _items(connection, row, [bodies[each] for each in wanted])
    return listed if after is None else listed[_index(listed, after, "after") + 1 :]


def _behind(connection: sa.Connection, row: Any, query: records.ItemQuery, place: ItemPlace) -> list[Item]:
    """Lists the items behind that place; one more than the page holds, if there is one."""
    number, index = place
    path = connection.execute(_NUMBERED_PATH, {"from": row.head_id}).all() if row.head_id else []
    if query.newest_first:
        wanted = [each for each in path if each.sequence_number <= number][-query.limit - 2 :]
        is_first = not wanted or wanted[0].id == path[0].id
    else:
        wanted = [each for each in path if each.sequence_number >= number][: query.limit + 2]
        is_first = number < 0
    names = [each.id for each in wanted]
    bodies = {each.id: each for each in connection.execute(whole_messages().where(MESSAGES.c.id.in_(names)))}
    listed = _items(connection, row, [bodies[each] for each in names])
    same = [bodies[each.id] for each in wanted if each.sequence_number == number]
    left = len(_items(connection, row, same)) - index
    if same:  # other items of its message are still there
        listed = listed[: len(listed) - left] if query.newest_first else listed[index:]
    if is_first:
        before = items.instruction_items(row.id, instructions_in_force(connection, row))
        kept = before if number >= 0 else before[:index] if query.newest_first else before[index:]
        listed = [*kept, *listed]
    return listed[::-1] if query.newest_first else listed


def _items(connection: sa.Connection, row: Any, found: Sequence[Any]) -> list[Item]:
    """Returns the items of consecutive messages; `row`: their conversation's."""
    calls = calls_before(connection, found[0].id) if found and found[0].role in tool_steps.RESULT_ROLES else {}
    listed: list[Item] = []
    for message in marked(list(map(rows.message_of, found)), pinned_ids(connection, row)):
        if message.role not in tool_steps.RESULT_ROLES:
            calls = items.call_kinds(message)
        listed += items.items_of(message, calls)
    return listed


def _index(items: Iterable[Item], item_id: str, param: str) -> int:
    for index, item in enumerate(items):
        if item["id"] == item_id:
            return index
    raise errors.ItemNotFound("No such item.", param=param)


def _path_query() -> sa.Select[Any]:
    """Selects the ids of all messages from `:to` (NULL: from the first) to `:from`, in path order."""
    end = sa.bindparam("to", type_=sa.String)
    chain = upwards(onwards=lambda chain: sa.or_(end.is_(None), chain.c.id != end))
    return sa.select(chain.c.id).order_by(chain.c.depth.desc())


def _numbered_path_query() -> sa.Select[Any]:
    """Selects ids and numbers of all messages up to `:from`, in path order."""
    chain = upwards(MESSAGES.c.sequence_number)
    return sa.select(chain.c.id, chain.c.sequence_number).order_by(chain.c.depth.desc())


_UPWARDS, _PATH, _NUMBERED_PATH = messages_of(upwards(onwards=fewer_than)), _path_query(), _numbered_path_query()


def add(
    connection: sa.Connection,
    tenant: str,
    conversation_id: str,
    messages: Sequence[ConversationMessage],
    request_id: str,
    now: datetime,
    answers: Mapping[str, str] | None = None,
) -> list[Item]:
    """Appends messages at the conversation's head, under its lock (guarantee §3.7). System messages before the first
    message are in force from then on. `answers`: paths of outputs, by the id of a call that must stand in the branch.
    Returns the new items.
    Raises ConversationNotFound: the tenant has none of that id; InvalidRequest: a call does not stand there."""
    row = require_conversation(connection, tenant, conversation_id, lock=True)
    head, digest, number, restored = row.head_id, row.instructions_digest, 0, None
    chain_end: ChainDigest | None = chain.CHAIN_START
    made: list[Item] = []
    if head is None:
        leading = list(takewhile(lambda message: message.role in conversation.INSTRUCTION_ROLES, messages))
        messages = messages[len(leading) :]
        digest, made = _instruct(connection, row, [message.body for message in leading])
    else:
        last = connection.execute(sa.select(MESSAGES).where(MESSAGES.c.id == head)).one()
        digest, number, restored = last.instructions_digest, last.sequence_number + 1, last.restored
        chain_end = _digest_after(last, messages)
    shared = {"conversation_id": conversation_id, "request_id": request_id, "instructions_digest": digest}
    values: list[dict[str, Any]] = []
    links: dict[bytes, str] = {}
    run: AnswerRun | None = None
    step = open_step(connection, head)
    calls = items.call_kinds(step[0]) if step else {}
    _check_calls(connection, head, step, answers or {})
    for message in messages:
        message_id = message.message_id or ids.new_id("msg_")
        found = message_row(message, message_id, head, number + len(values), now)
        if chain_end is not None:
            before = chain_end
            chain_end, run = chain.following(before, run, message.body, status=message.status)
            links |= dict.fromkeys(linked(before, chain_end), message_id)
            found |= digest_columns(chain_end)
        values.append({**found, **shared, "status": message.status, "restored": restored})
        calls = items.call_kinds(message) if message.role != "tool" else calls
        made += items.items_of(replace(message, message_id=message_id), calls)
        head = message_id
    pairs = list(zip(messages, values, strict=True))
    steps = step_rows(step, pairs, apart=results_apart(connection))
    INSERT_MESSAGES(connection, values)
    INSERT_STEPS(connection, steps)
    write_links(connection, conversation_id, links.items())
    if chain_end is None:
        backfill_digests(connection, conversation_id)
    pin(connection, conversation_id, [row["id"] for message, row in pairs if message.pinned])
    changed = {"head_id": head, "updated_at": now, "instructions_digest": None if head else digest}
    if row.question is None:
        changed |= question_columns(message.body for message in messages)
    table = schema.conversations
    changed = for_row(table, changed, conversation_id)
    connection.execute(table.update().where(table.c.id == conversation_id).values(**changed))
    return made


def _check_calls(
    connection: sa.Connection, head: str | None, step: Sequence[ConversationMessage], answers: Mapping[str, str]
) -> None:
    """`step`: the open one at the head; the branch is read only for calls that it does not make."""
    unknown = answers.keys() - chain.call_ids(step[0].body if step else {})
    for row in connection.execute(messages_of(upwards()), {"from": head}) if unknown else ():
        unknown -= set(chain.call_ids(rows.message_of(row).body))
    for call_id, where in answers.items():
        if call_id in unknown:
            raise errors.unknown_call(where)


def set_pin(
    connection: sa.Connection, tenant: str, conversation_id: str, item_id: str, *, pinned: bool, now: datetime
) -> Item:
    """Pins or unpins the message of an item; returns the item.
    Raises ConversationNotFound: the tenant has no such conversation; ItemNotFound: the conversation has no such item;
    InvalidRequest: it is a system message, which is in every window anyway."""
    require_conversation(connection, tenant, conversation_id, lock=True)
    if item_id.startswith(items.INSTRUCTION_PREFIX):
        read_item(connection, tenant, conversation_id, item_id)
        raise errors.InvalidRequest("System messages are in every window.", param="pinned", code="invalid_value")
    message_id = require_message(connection, conversation_id, item_id).id
    if pinned:
        pin(connection, conversation_id, [message_id])
    else:
        unpin(connection, conversation_id, message_id)
    table = schema.conversations
    connection.execute(table.update().where(table.c.id == conversation_id).values(updated_at=now))
    return read_item(connection, tenant, conversation_id, item_id)


def _digest_after(last: Any, messages: Sequence[ConversationMessage]) -> ChainDigest | None:
    """Returns the digest of the chain that the messages follow; None if they continue an answer, as the digest after
    both depends on the text of both."""
    answers_in_a_row = last.role == "assistant" and bool(messages) and messages[0].role == "assistant"
    return None if answers_in_a_row else chain_digest(last)


def _instruct(connection: sa.Connection, row: Any, new: Sequence[dict[str, Any]]) -> tuple[str | None, list[Item]]:
    """Adds system messages to a conversation without messages; returns the digest of all of them, and the new items."""
    before = instructions_in_force(connection, row)
    if not new:
        return row.instructions_digest, []
    body = jsons.dumps_stored([*before, *new])
    values = {"conversation_id": row.id, "digest": ids.content_digest(body), "body": body}
    connection.execute(insert_if_new(connection, schema.instructions), for_row(schema.instructions, values))
    return values["digest"], items.instruction_items(row.id, [*before, *new])[len(before) :]
