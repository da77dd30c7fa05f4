"""What stays in every window of a conversation: pinned messages, and system messages amid it (ADR 20, ADR 22).

Pins are rows of their own, so that a stored message never changes; `conversations.pins` says how many there are. System
messages are found by an index of them alone. Where all of a path was read and nothing is pinned, this costs nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from gateway.core.types.conversation import INSTRUCTION_ROLES, ConversationMessage, StoredConversation
from gateway.core.types.tool_steps import RESULT_ROLES, calls_of
from gateway.storage.database import schema
from gateway.storage.database.engine import insert_if_new
from gateway.storage.lookup.walk import MESSAGES, messages_of, upwards, whole_messages
from gateway.storage.rows import message_of

PINS, CONVERSATIONS = schema.pins, schema.conversations
BATCH = 500


def pinned_ids(connection: sa.Connection, row: Any) -> frozenset[str]:
    """The pinned messages of a conversation, in any branch.

    Args:
        row: the conversation's row, with its `pins`.
    """
    return frozenset(connection.execute(_PINS, {"conversation": row.id}).scalars()) if row.pins else frozenset()


def marked(messages: Sequence[ConversationMessage], pinned: Collection[str]) -> tuple[ConversationMessage, ...]:
    """The messages, those among them that are pinned marked so."""
    return tuple(replace(each, pinned=True) if each.message_id in pinned else each for each in messages)


def with_kept(connection: sa.Connection, row: Any, found: StoredConversation) -> StoredConversation:
    """The conversation with what stays in every window (guarantee §11.12): what is pinned on its path, and system
    messages, also those before what was read of it."""
    pinned = pinned_ids(connection, row)
    path = marked(found.path, pinned) if pinned else found.path
    older = _older(connection, row, path[0], pinned) if found.unread else ()
    return replace(found, path=path, older_kept=older)


def _older(
    connection: sa.Connection, row: Any, first: ConversationMessage, pinned: Collection[str]
) -> tuple[ConversationMessage, ...]:
    """The system messages before `first` and what is pinned there, oldest first: each result behind its call, each call
    before its results."""
    where = {"conversation": row.id, "below": first.sequence_number}
    kept = [*connection.execute(INSTRUCTIONS, where), *(connection.execute(_PINNED, where) if pinned else ())]
    found: dict[str | None, ConversationMessage] = {}
    for message in marked([message_of(each) for each in _of_path(connection, row, kept, first)], pinned):
        found[message.message_id] = message
        if not message.pinned:
            continue
        if message.role in RESULT_ROLES:
            step = connection.execute(_STEP, {"from": message.message_id}).all()
            found |= {each.id: message_of(each) for each in step[-1:] if each.id not in found}
        elif made := len(calls_of(message.body)):
            number = message.sequence_number or 0
            bounds = {"conversation": row.id, "after": number, "until": number + made, "parent": message.message_id}
            found |= {each.id: message_of(each) for each in _results(connection, bounds) if each.id not in found}
    return tuple(sorted(found.values(), key=lambda message: message.sequence_number or 0))


def _of_path(connection: sa.Connection, row: Any, kept: Sequence[Any], first: ConversationMessage) -> list[Any]:
    """Those of the `kept` rows that are on the way from `first` upwards. It has each number once, so a message that no
    other branch has a rival for is on it. It is walked only where there is a rival, or where numbers are missing as
    something was deleted: by its ids, no further than to the oldest of `kept`."""
    if not kept or (row.forgotten_at is None and not any(each.rivals for each in kept)):
        return list(kept)
    floor = min(each.sequence_number for each in kept)
    bounds = {"conversation": row.id, "from": first.message_id, "floor": floor}
    way = set(connection.execute(_ON_PATH, bounds).scalars())
    return [each for each in kept if each.id in way]


def _results(connection: sa.Connection, bounds: dict[str, Any]) -> list[Any]:
    """The rows of the results behind a call; of several branches, those of the first."""
    rows, parent = [], bounds.pop("parent")
    for each in connection.execute(_RESULTS, bounds):
        if each.parent_id == parent and each.role in RESULT_ROLES:
            rows.append(each)
            parent = each.id
    return rows


def pin(connection: sa.Connection, conversation_id: str, message_ids: Sequence[str]) -> None:
    """Pins messages of a conversation, as far as they are there."""
    for start in range(0, len(message_ids), BATCH):
        batch = message_ids[start : start + BATCH]
        where = (MESSAGES.c.conversation_id == conversation_id, MESSAGES.c.id.in_(batch))
        there = connection.execute(sa.select(MESSAGES.c.id).where(*where)).scalars().all()
        if values := [{"conversation_id": conversation_id, "message_id": each} for each in there]:
            connection.execute(insert_if_new(connection, PINS), values)
    if message_ids:
        _count(connection, conversation_id)


def unpin(connection: sa.Connection, conversation_id: str, message_id: str) -> None:
    """Takes a pin away, where there is one."""
    where = (PINS.c.conversation_id == conversation_id, PINS.c.message_id == message_id)
    if connection.execute(PINS.delete().where(*where)).rowcount:
        _count(connection, conversation_id)


def _count(connection: sa.Connection, conversation_id: str) -> None:
    count = sa.select(sa.func.count()).where(PINS.c.conversation_id == conversation_id).scalar_subquery()
    connection.execute(CONVERSATIONS.update().where(CONVERSATIONS.c.id == conversation_id).values(pins=count))


def _kept_query(*which: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Messages before the number `:below`, whole, and whether others have their number (`rivals`)."""
    other = MESSAGES.alias("other")
    same = (other.c.conversation_id == MESSAGES.c.conversation_id, other.c.id != MESSAGES.c.id)
    beside = (other.c.sequence_number == MESSAGES.c.sequence_number, other.c.status != "failed")
    rivals = sa.select(other.c.id).where(*same, *beside).exists().label("rivals")
    before = MESSAGES.c.sequence_number < sa.bindparam("below", type_=sa.Integer)
    return whole_messages().add_columns(rivals).where(before, MESSAGES.c.status != "failed", *which)


def _on_path_query() -> sa.Select[Any]:
    """The system messages and the pinned ones on the way from `:from` upwards, down to the number `:floor`."""
    floor = sa.bindparam("floor", type_=sa.Integer)
    chain = upwards(MESSAGES.c.role, onwards=lambda _: MESSAGES.c.sequence_number >= floor)
    return sa.select(chain.c.id).where(sa.or_(chain.c.role.in_(INSTRUCTION_ROLES), chain.c.id.in_(_PINS)))


_PINS = sa.select(PINS.c.message_id).where(PINS.c.conversation_id == sa.bindparam("conversation", type_=sa.String))
_PINNED = _kept_query(MESSAGES.c.id.in_(_PINS), MESSAGES.c.role.not_in(INSTRUCTION_ROLES))
INSTRUCTIONS = _kept_query(
    MESSAGES.c.conversation_id == sa.bindparam("conversation", type_=sa.String),
    sa.literal_column(f"messages.{schema.OF_INSTRUCTIONS}"),
)
_ON_PATH = _on_path_query()
_STEP = messages_of(upwards(MESSAGES.c.role, onwards=lambda chain: chain.c.role.in_(RESULT_ROLES)))
_RESULTS = (
    whole_messages()
    .where(
        MESSAGES.c.conversation_id == sa.bindparam("conversation", type_=sa.String),
        MESSAGES.c.sequence_number > sa.bindparam("after", type_=sa.Integer),
        MESSAGES.c.sequence_number <= sa.bindparam("until", type_=sa.Integer),
    )
    .order_by(MESSAGES.c.sequence_number)
)
