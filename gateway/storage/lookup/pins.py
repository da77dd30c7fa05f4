"""Pinned messages of conversations: rows of their own, so that a stored message never changes (ADR 20, ADR 22).

`conversations.pins` says how many there are. A conversation without any costs nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from gateway.models.conversation import ConversationMessage, StoredConversation
from gateway.models.tool_steps import RESULT_ROLES, calls_of
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


def with_pins(connection: sa.Connection, row: Any, found: StoredConversation) -> StoredConversation:
    """The conversation with what is pinned on its path, also before what was read of it: a look at the ids of the
    path's messages alone, up to the oldest that is pinned."""
    pinned = pinned_ids(connection, row)
    if not pinned or not found.path:
        return found
    path = marked(found.path, pinned)
    others = pinned - {message.message_id for message in path}
    older = _older(connection, row.id, found.path[0], others) if others and found.unread else ()
    return replace(found, path=path, older_pins=older)


def _older(
    connection: sa.Connection, conversation_id: str, first: ConversationMessage, pinned: Collection[str]
) -> tuple[ConversationMessage, ...]:
    """The pinned messages before `first`, oldest first: each result behind its call, each call before its results."""
    where = {"conversation": conversation_id, "below": first.sequence_number}
    lowest = connection.execute(_LOWEST, where).scalar()
    if lowest is None:
        return ()
    rows = connection.execute(_ON_PATH, {"conversation": conversation_id, "from": first.message_id, "floor": lowest})
    found: dict[str | None, ConversationMessage] = {}
    for message in marked([message_of(each) for each in rows.all()], pinned):
        found[message.message_id] = message
        if message.role in RESULT_ROLES:
            step = connection.execute(_STEP, {"from": message.message_id}).all()
            found |= {each.id: message_of(each) for each in step[-1:] if each.id not in found}
        elif made := len(calls_of(message.body)):
            number = message.sequence_number or 0
            bounds = {
                "conversation": conversation_id,
                "after": number,
                "until": number + made,
                "parent": message.message_id,
            }
            found |= {each.id: message_of(each) for each in _results(connection, bounds) if each.id not in found}
    return tuple(sorted(found.values(), key=lambda message: message.sequence_number or 0))


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


def _on_path_query() -> sa.Select[Any]:
    """The pinned messages on the way from `:from` upwards, no further than the number `:floor`."""
    chain = upwards(onwards=lambda _: MESSAGES.c.sequence_number >= sa.bindparam("floor", type_=sa.Integer))
    return messages_of(chain).where(MESSAGES.c.id.in_(_PINS))


_PINS = sa.select(PINS.c.message_id).where(PINS.c.conversation_id == sa.bindparam("conversation", type_=sa.String))
_LOWEST = sa.select(sa.func.min(MESSAGES.c.sequence_number)).where(
    MESSAGES.c.id.in_(_PINS), MESSAGES.c.sequence_number < sa.bindparam("below", type_=sa.Integer)
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
