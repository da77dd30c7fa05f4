"""Reads the summaries of old turns that hold on a path, and what of it none of them covers (guarantee §11.13)."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.memory import OldMessage, SummarySegment, UncoveredPath
from gateway.storage.database import schema
from gateway.storage.lookup.walk import MESSAGES, Condition, upwards, whole_messages
from gateway.storage.rows import message_of

MAX_WALKED = 50_000
"""Messages behind the last summary: a conversation that was longer when summaries were switched on gets none."""
SUMMARIES = schema.summaries
Segments = Mapping[str, Any]
"""The rows of a conversation's segments, by their last messages."""


def read_segments(
    connection: sa.Connection, conversation_id: str, path: Sequence[ConversationMessage]
) -> tuple[SummarySegment, ...]:
    """The segments on the way to the end of a path, oldest first: an unbroken cover from the first message on. `path`
    may begin later than the conversation."""
    segments = all_segments(connection, conversation_id)
    if not (segments and path):
        return ()
    ends = [message.message_id for message in reversed(path) if message.message_id in segments]
    last = ends[0] if ends else end_before(connection, path[0].message_id, segments)
    return _chain(segments, last)


def segments_before(
    connection: sa.Connection, conversation_id: str, message_id: str | None
) -> tuple[SummarySegment, ...]:
    """The segments on the way to a message, oldest first."""
    segments = all_segments(connection, conversation_id)
    return _chain(segments, end_before(connection, message_id, segments)) if segments else ()


def read_uncovered(
    connection: sa.Connection, tenant: str, conversation_id: str, request_id: str
) -> UncoveredPath | None:
    """The end of the path to a request's answer that no segment covers, without bodies. None if the tenant has no such
    answer, or there are more than `MAX_WALKED` messages."""
    where = {"tenant": tenant, "conversation": conversation_id, "request": request_id}
    answer = connection.execute(_ANSWER, where).first()
    if answer is None:
        return None
    segments = all_segments(connection, conversation_id)
    found = _walked(connection, answer.id, segments)
    before = segments[found.pop().id] if found[-1].id in segments else None
    if before is None and found[-1].parent_id is not None:
        return None
    after, turns = (None, 0) if before is None else (before.last_message_id, before.last_turn)
    messages = tuple(OldMessage(row.id, row.sequence_number, row.role, row.weight) for row in reversed(found))
    return UncoveredPath(messages, after, turns, answer.forgotten_at)


def read_messages(
    connection: sa.Connection, conversation_id: str, message_ids: Sequence[str]
) -> list[ConversationMessage]:
    """These messages with their bodies, in this order, as far as they are there."""
    found: dict[str, ConversationMessage] = {}
    for start in range(0, len(message_ids), 500):
        of_it = (MESSAGES.c.conversation_id == conversation_id, MESSAGES.c.id.in_(message_ids[start : start + 500]))
        found |= {row.id: message_of(row) for row in connection.execute(whole_messages().where(*of_it))}
    return [found[each] for each in message_ids if each in found]


def read_said(connection: sa.Connection, tenant: str, message_ids: Sequence[str]) -> dict[str, ConversationMessage]:
    """A tenant's messages by their ids, of whichever conversations, as far as they are there; none of a failed turn."""
    found: dict[str, ConversationMessage] = {}
    table = schema.conversations
    owned = sa.select(table.c.id).where(table.c.id == MESSAGES.c.conversation_id, table.c.tenant == tenant).exists()
    for start in range(0, len(message_ids), 500):
        of_them = (MESSAGES.c.id.in_(message_ids[start : start + 500]), MESSAGES.c.status != "failed", owned)
        found |= {row.id: message_of(row) for row in connection.execute(whole_messages().where(*of_them))}
    return found


def all_segments(connection: sa.Connection, conversation_id: str) -> Segments:
    """Those of all branches."""
    query = sa.select(SUMMARIES).where(SUMMARIES.c.conversation_id == conversation_id)
    return {row.last_message_id: row for row in connection.execute(query)}


def _chain(segments: Segments, last: str | None) -> tuple[SummarySegment, ...]:
    """The segments up to the one that ends with `last`; none if one of them is gone."""
    found: list[SummarySegment] = []
    while last is not None and last in segments:
        found.append(segment_of(segments[last]))
        last = segments[last].after_message_id
    return tuple(reversed(found)) if last is None else ()


def segment_of(row: Any) -> SummarySegment:
    """A stored segment."""
    turns = (row.first_turn, row.last_turn)
    return SummarySegment(row.id, row.first_number, row.last_number, row.last_message_id, row.text, *turns, row.size)


def end_before(connection: sa.Connection, message_id: str | None, segments: Segments) -> str | None:
    """The last message of the last segment on the way to a message, that message included."""
    found = _walked(connection, message_id, segments)
    return found[-1].id if found and found[-1].id in segments else None


def _walked(connection: sa.Connection, message_id: str | None, segments: Segments) -> list[Any]:
    """The messages from this one upwards to the end of a segment, or to the first, without bodies."""
    return list(connection.execute(_WALK, {"from": message_id, "ends": list(segments) or [""], "count": MAX_WALKED}))


def _walk_query() -> sa.Select[Any]:
    """From `:from` upwards to the first of the messages `:ends`, or `:count` messages; the latest first."""
    ends = sa.bindparam("ends", expanding=True, type_=sa.String)
    count = sa.bindparam("count", type_=sa.Integer)

    def onwards(chain: sa.CTE) -> Condition:
        return sa.and_(chain.c.id.not_in(ends), chain.c.depth < count)

    chain = upwards(MESSAGES.c.sequence_number, MESSAGES.c.role, MESSAGES.c.weight, onwards=onwards)
    return sa.select(chain).order_by(chain.c.depth)


_WALK = _walk_query()
_ANSWER = (
    sa.select(MESSAGES.c.id, schema.conversations.c.forgotten_at)
    .join(schema.conversations, schema.conversations.c.id == MESSAGES.c.conversation_id)
    .where(
        MESSAGES.c.request_id == sa.bindparam("request"),
        MESSAGES.c.conversation_id == sa.bindparam("conversation"),
        MESSAGES.c.choice.is_not(None),
        schema.conversations.c.tenant == sa.bindparam("tenant"),
    )
    .order_by(MESSAGES.c.choice)
    .limit(1)
)
