"""Deletes an item of a conversation for good: no message, block, step, answer or index holds its text afterwards."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.core import ids, jsons
from gateway.core.types import chain, items, tool_steps, turn
from gateway.core.types.chat import COMPLETION_FIELDS
from gateway.core.types.conversation import ConversationMessage
from gateway.storage import rows
from gateway.storage.conversations.delete import forget_failures, held_groups
from gateway.storage.conversations.item_store import (
    instructions_in_force,
    read_item,
    require_conversation,
    require_message,
)
from gateway.storage.database import schema
from gateway.storage.database.sqlite import insert_if_new
from gateway.storage.encryption.columns import for_row
from gateway.storage.lookup.locate import backfill_digests
from gateway.storage.lookup.segments import unpin
from gateway.storage.turns.message_rows import message_row
from gateway.storage.turns.questions import FORGOTTEN, question_columns
from gateway.storage.turns.standing import note_deletion
from gateway.storage.turns.steps import NO_CALL, text_of_step

BATCH = 500
CONVERSATIONS, MESSAGES, STEPS = schema.conversations, schema.messages, schema.reasoning_events
WITHOUT_DERIVED = dict.fromkeys(("path_digest", "said_digest", "plain", "rendered", "standing", "tokens"))
ITEM_ENVELOPE_FIELDS = COMPLETION_FIELDS | {turn.ASKED}


def delete(
    connection: sa.Connection, tenant: str, conversation_id: str, item_id: str, now: datetime
) -> tuple[str, ...]:
    """Deletes an item. Messages that followed a deleted message then follow its predecessor.
    Returns the cache groups to evict: those of all contents that this conversation alone holds.
    Raises ConversationNotFound: the tenant has no such conversation; ItemNotFound: the conversation has no such
    item."""
    row = require_conversation(connection, tenant, conversation_id, lock=True)
    read_item(connection, tenant, conversation_id, item_id)
    if item_id.startswith(items.INSTRUCTION_PREFIX):
        values = {"instructions_digest": _delete_instruction(connection, row, item_id)}
    else:
        stored = require_message(connection, conversation_id, item_id)
        message = rows.message_of(stored)
        left, calls = items.without(message, item_id), [items.called(message, item_id)]
        values = _delete_from_tree(connection, tenant, row, stored, left, calls, now)
    return _forgotten(connection, tenant, conversation_id, values, now)


def delete_message(
    connection: sa.Connection, tenant: str, conversation_id: str, message_id: str, now: datetime
) -> tuple[str, ...]:
    """Deletes a message with all its items at once, as the ids of some depend on the others. Returns as `delete`.
    Raises as `delete`."""
    row = require_conversation(connection, tenant, conversation_id, lock=True)
    stored = require_message(connection, conversation_id, message_id)
    calls = [item.get("call_id") for item in items.items_of(rows.message_of(stored))]
    values = _delete_from_tree(connection, tenant, row, stored, None, calls, now)
    return _forgotten(connection, tenant, conversation_id, values, now)


def _delete_from_tree(
    connection: sa.Connection,
    tenant: str,
    row: Any,
    stored: Any,
    left: ConversationMessage | None,
    calls: Iterable[str | None],
    now: datetime,
) -> dict[str, Any]:
    """Deletes from a message all but what is `left` of it, and what was made of that. `calls`: ids of deleted calls.
    Returns the changes to its conversation."""
    values: dict[str, Any] = {}
    tree = _MessageTree(connection, row.id)
    below = tree.below(stored.id)
    if question_columns([rows.message_of(stored).body])["question"] is not None:
        values |= FORGOTTEN
    if left is None:
        note_deletion(connection, tenant, stored, below)
        values |= _delete_message(connection, row, stored)
        unpin(connection, row.id, stored.id)
    else:
        _shorten(connection, left, now)
    _delete_derived(connection, row.id, [stored.id, *below])
    for call_id in filter(None, calls):
        _delete_call(connection, row.id, stored.id, call_id)
        _delete_step(connection, below, call_id, tree.results(stored.id))
    _delete_from_completion(connection, stored, removed=left is None)
    backfill_digests(connection, row.id)
    delete_plans(connection, row.id)
    return values


def _forgotten(
    connection: sa.Connection, tenant: str, conversation_id: str, values: dict[str, Any], now: datetime
) -> tuple[str, ...]:
    """Writes the changes to a conversation after a deletion; returns the cache groups to evict."""
    ledger = schema.ledger.c
    forget_failures(connection, sa.and_(ledger.tenant == tenant, ledger.conversation_id == conversation_id))
    where = CONVERSATIONS.c.id == conversation_id
    connection.execute(CONVERSATIONS.update().where(where).values(**values, updated_at=now, forgotten_at=now))
    return held_groups(connection, tenant, [conversation_id])


class _MessageTree:
    """A conversation's messages by their parents, without bodies."""

    def __init__(self, connection: sa.Connection, conversation_id: str) -> None:
        columns = (MESSAGES.c.id, MESSAGES.c.parent_id, MESSAGES.c.role)
        self._children: dict[str | None, list[str]] = {}
        self._roles: dict[str, str] = {}
        for each in connection.execute(sa.select(*columns).where(MESSAGES.c.conversation_id == conversation_id)):
            self._children.setdefault(each.parent_id, []).append(each.id)
            self._roles[each.id] = each.role

    def below(self, message_id: str, *, results: bool = False) -> list[str]:
        """Lists all messages behind one, in any branch; with `results` only the results directly behind it."""
        found: list[str] = []
        ends = [message_id]
        while ends:
            children = self._children.get(ends.pop(), [])
            if results:
                children = [child for child in children if self._roles[child] in tool_steps.RESULT_ROLES]
            found += children
            ends += children
        return found

    def results(self, message_id: str) -> frozenset[str]:
        """Returns the tool results that a call, or a result, may be about."""
        own = (
            [message_id] if self._roles[message_id] in tool_steps.RESULT_ROLES else self.below(message_id, results=True)
        )
        return frozenset(own)


def _delete_message(connection: sa.Connection, row: Any, stored: Any) -> dict[str, Any]:
    """Removes a message from the tree. Returns the changes to its conversation."""
    hanging = MESSAGES.update().where(MESSAGES.c.conversation_id == row.id, MESSAGES.c.parent_id == stored.id)
    connection.execute(hanging.values(parent_id=stored.parent_id))
    connection.execute(MESSAGES.delete().where(MESSAGES.c.id == stored.id))
    connection.execute(STEPS.delete().where(STEPS.c.conversation_id == row.id, STEPS.c.message_id == stored.id))
    replays = schema.replays
    ends = (replays.c.conversation_id == row.id, replays.c.at_id == stored.id)
    connection.execute(replays.update().where(*ends).values(at_id=stored.parent_id))
    if row.head_id != stored.id:
        return {}
    digest = stored.instructions_digest if stored.parent_id is None else None
    return {"head_id": stored.parent_id, "instructions_digest": digest}


def _shorten(connection: sa.Connection, left: ConversationMessage, now: datetime) -> None:
    """Updates a message that has lost one of its items."""
    fresh = message_row(left, str(left.message_id), None, 0, now)
    values = {name: fresh[name] for name in ("body", "weight", "tokens")} | {"digest": chain.message_digest(left.body)}
    of_it = for_row(MESSAGES, values, left.message_id)
    connection.execute(MESSAGES.update().where(MESSAGES.c.id == left.message_id).values(**of_it))


def _delete_derived(connection: sa.Connection, conversation_id: str, ids: list[str]) -> None:
    """Deletes what was derived from a deleted message, in it and in those behind it: blocks, frames and summaries,
    which may quote it, and digests of chains."""
    links, frames, summaries = schema.message_links, schema.frames, schema.summaries
    for batch in _batches(ids):
        anchored = (frames.c.conversation_id == conversation_id, frames.c.message_id.in_(batch))
        connection.execute(frames.delete().where(*anchored))
        ended = (summaries.c.conversation_id == conversation_id, summaries.c.last_message_id.in_(batch))
        connection.execute(summaries.delete().where(*ended))
        of_them = (links.c.conversation_id == conversation_id, links.c.message_id.in_(batch))
        connection.execute(links.delete().where(*of_them))
        connection.execute(MESSAGES.update().where(MESSAGES.c.id.in_(batch)).values(**WITHOUT_DERIVED))


def _delete_call(connection: sa.Connection, conversation_id: str, message_id: str, call_id: str) -> None:
    """Removes a deleted call from the steps of its results, which stay."""
    called = (STEPS.c.call_message_id == message_id, STEPS.c.tool_call_id == text_of_step(call_id))
    of_it = STEPS.update().where(STEPS.c.conversation_id == conversation_id, *called)
    connection.execute(of_it.values(**NO_CALL))


def _delete_step(connection: sa.Connection, ids: list[str], call_id: str, results: frozenset[str]) -> None:
    """Removes a deleted call or result from the tool steps that the previous version stored with answers. Ids of calls
    may repeat, so the ids of the results count."""
    columns = sa.select(MESSAGES.c.id, MESSAGES.c.reasoning_events).where(MESSAGES.c.reasoning_events.is_not(None))
    for batch in _batches(ids):
        for each in connection.execute(columns.where(MESSAGES.c.id.in_(batch))).all():
            events = jsons.loads_stored(each.reasoning_events)
            kept = [
                event
                for event in events
                if event.get("tool_call_id") != call_id or event.get("result_message_id", "") not in {"", *results}
            ]
            text = jsons.dumps_stored(kept) if kept else None
            values = for_row(MESSAGES, {"reasoning_events": text}, each.id)
            connection.execute(MESSAGES.update().where(MESSAGES.c.id == each.id).values(**values))


def delete_plans(connection: sa.Connection, conversation_id: str) -> None:
    """Deletes what planners said: a plan may quote any message or document that was there."""
    table = schema.completions
    of_it = (table.c.conversation_id == conversation_id, table.c.plan.is_not(None))
    connection.execute(table.update().where(*of_it).values(plan=None))


def _delete_from_completion(connection: sa.Connection, stored: Any, *, removed: bool) -> None:
    """Deletes what an answer's stored envelope may repeat of its text: `logprobs`, a prefill, a provider's extras. Of a
    message that a request brought, the completion counts one fewer."""
    imported = schema.imported_requests
    of_it = (imported.c.conversation_id == stored.conversation_id, imported.c.request_id == stored.request_id)
    connection.execute(imported.delete().where(*of_it))
    table = schema.completions
    query = sa.select(table.c.body).where(table.c.request_id == stored.request_id)
    body = connection.execute(query).scalar() if removed or stored.choice is not None else None
    if body is None:
        return
    envelope = jsons.loads_stored(body)
    if stored.choice is None:
        asked = envelope.get(turn.ASKED) or {}
        if not asked.get(turn.BROUGHT):
            return
        envelope[turn.ASKED] = {**asked, turn.BROUGHT: asked[turn.BROUGHT] - 1}
    else:
        envelope = _without_answer(envelope, stored.choice, removed=removed)
    values = for_row(table, {"body": jsons.dumps_stored(envelope)}, stored.request_id)
    connection.execute(table.update().where(table.c.request_id == stored.request_id).values(**values))


def _without_answer(envelope: dict[str, Any], index: int, *, removed: bool) -> dict[str, Any]:
    """Returns a completion without what it repeats of the answer of that index."""
    choices = []
    for choice in envelope.get("choices", ()):
        if choice.get("index") != index:
            choices.append(choice)
        elif not removed:
            bare = {name: value for name, value in choice.get("message", {}).items() if not value}
            choices.append({"index": index, "finish_reason": choice.get("finish_reason"), "message": bare})
    left = {name: value for name, value in envelope.items() if name in ITEM_ENVELOPE_FIELDS}
    return {**left, "choices": choices}


def _delete_instruction(connection: sa.Connection, row: Any, item_id: str) -> str | None:
    """Deletes a system message from all sets that the conversation ever had. Returns the digest of the set in force
    where no message names it."""
    in_force = instructions_in_force(connection, row)
    gone = next(
        body
        for body, item in zip(in_force, items.instruction_items(row.id, in_force), strict=True)
        if item["id"] == item_id
    )
    table = schema.instructions
    in_force_at_start: str | None = row.instructions_digest
    for each in connection.execute(sa.select(table).where(table.c.conversation_id == row.id)).all():
        before = jsons.loads_stored(each.body)
        if gone not in before:
            continue
        digest = _store_instructions(connection, row.id, [body for body in before if body != gone])
        of_it = (MESSAGES.c.conversation_id == row.id, MESSAGES.c.instructions_digest == each.digest)
        connection.execute(MESSAGES.update().where(*of_it).values(instructions_digest=digest))
        connection.execute(table.delete().where(table.c.conversation_id == row.id, table.c.digest == each.digest))
        in_force_at_start = digest if in_force_at_start == each.digest else in_force_at_start
    return in_force_at_start


def _store_instructions(connection: sa.Connection, conversation_id: str, left: list[Any]) -> str | None:
    if not left:
        return None
    body = jsons.dumps_stored(left)
    values = {"conversation_id": conversation_id, "digest": ids.content_digest(body), "body": body}
    connection.execute(insert_if_new(connection, schema.instructions), for_row(schema.instructions, values))
    return values["digest"]


def _batches(ids: list[str]) -> Iterable[list[str]]:
    return (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))
