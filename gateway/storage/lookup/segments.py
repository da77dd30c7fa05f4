"""Summaries of old turns that hold on a path, and what none of them covers (guarantee §11.13); pinned messages, and
system messages amid a path (ADR 20, ADR 22).

Pins are rows of their own, so that a stored message never changes; `conversations.pins` counts them. System messages
are found by an index of them alone. If a whole path was read and nothing is pinned, this costs nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.core.types import conversation, memory, tool_steps
from gateway.core.types.conversation import ConversationMessage, StoredConversation
from gateway.storage.database import schema
from gateway.storage.database.sqlite import insert_if_new
from gateway.storage.encryption.columns import for_row
from gateway.storage.lookup.locate import MESSAGES, Condition, leads_to, messages_of, upwards, whole_messages
from gateway.storage.rows import message_of, utc_or_none

MAX_WALKED = 50_000
"""The most messages behind the last summary: a conversation longer than this when summaries were enabled gets none."""
SUMMARIES, CONVERSATIONS = schema.summaries, schema.conversations
OF_SEGMENT = {
    "segment_id": "id",
    "first": "first_number",
    "last": "last_number",
    "size_chars": "size",
    **{name: name for name in ("last_message_id", "text", "first_turn", "last_turn")},
}
"""The fields of a segment, with their columns."""
Segments = Mapping[str, Any]
"""The rows of a conversation's segments, by their last messages."""


def read_segments(
    connection: sa.Connection, conversation_id: str, path: Sequence[ConversationMessage]
) -> tuple[memory.SummarySegment, ...]:
    """Reads the segments on the way to the end of a path, oldest first: an unbroken cover from the first message on.
    `path` may begin later than the conversation."""
    segments = all_segments(connection, conversation_id)
    if not (segments and path):
        return ()
    ends = [message.message_id for message in reversed(path) if message.message_id in segments]
    last = ends[0] if ends else end_before(connection, path[0].message_id, segments)
    return _chain(segments, last)


def segments_before(
    connection: sa.Connection, conversation_id: str, message_id: str | None
) -> tuple[memory.SummarySegment, ...]:
    """Reads the segments on the path to a message, oldest first."""
    segments = all_segments(connection, conversation_id)
    return _chain(segments, end_before(connection, message_id, segments)) if segments else ()


def read_uncovered(
    connection: sa.Connection, tenant: str, conversation_id: str, request_id: str
) -> memory.UncoveredPath | None:
    """Reads the end of the path to a request's answer that no segment covers, without bodies. None if the tenant has no
    such answer, or there are more than `MAX_WALKED` messages."""
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
    messages = tuple(memory.OldMessage(row.id, row.sequence_number, row.role, row.weight) for row in reversed(found))
    return memory.UncoveredPath(messages, after, turns, answer.forgotten_at)


def read_messages(
    connection: sa.Connection, conversation_id: str, message_ids: Sequence[str]
) -> list[ConversationMessage]:
    """Reads the given messages of a conversation with their bodies, in the given order; missing ones are left out."""
    found: dict[str, ConversationMessage] = {}
    for start in range(0, len(message_ids), 500):
        of_it = (MESSAGES.c.conversation_id == conversation_id, MESSAGES.c.id.in_(message_ids[start : start + 500]))
        found |= {row.id: message_of(row) for row in connection.execute(whole_messages().where(*of_it))}
    return [found[each] for each in message_ids if each in found]


def read_said(connection: sa.Connection, tenant: str, message_ids: Sequence[str]) -> dict[str, ConversationMessage]:
    """Reads a tenant's messages by id, in any conversation; missing ones and those of failed turns are left out."""
    found: dict[str, ConversationMessage] = {}
    table = schema.conversations
    owned = sa.select(table.c.id).where(table.c.id == MESSAGES.c.conversation_id, table.c.tenant == tenant).exists()
    for start in range(0, len(message_ids), 500):
        of_them = (MESSAGES.c.id.in_(message_ids[start : start + 500]), MESSAGES.c.status != "failed", owned)
        found |= {row.id: message_of(row) for row in connection.execute(whole_messages().where(*of_them))}
    return found


def all_segments(connection: sa.Connection, conversation_id: str) -> Segments:
    """Reads the segments of all branches of a conversation."""
    query = sa.select(SUMMARIES).where(SUMMARIES.c.conversation_id == conversation_id)
    return {row.last_message_id: row for row in connection.execute(query)}


def _chain(segments: Segments, last: str | None) -> tuple[memory.SummarySegment, ...]:
    """Returns the segments up to the one that ends with `last`; none if one of them is gone."""
    found: list[memory.SummarySegment] = []
    while last is not None and last in segments:
        found.append(segment_of(segments[last]))
        last = segments[last].after_message_id
    return tuple(reversed(found)) if last is None else ()


def segment_of(row: Any) -> memory.SummarySegment:
    return memory.SummarySegment(**{field: getattr(row, column) for field, column in OF_SEGMENT.items()})


def end_before(connection: sa.Connection, message_id: str | None, segments: Segments) -> str | None:
    """Returns the last message of the last segment on the path up to and including a message."""
    found = _walked(connection, message_id, segments)
    return found[-1].id if found and found[-1].id in segments else None


def _walked(connection: sa.Connection, message_id: str | None, segments: Segments) -> list[Any]:
    """Reads the messages from this one upwards to the end of a segment, or to the first, without bodies."""
    return list(connection.execute(_WALK, {"from": message_id, "ends": list(segments) or [""], "count": MAX_WALKED}))


def _walk_query() -> sa.Select[Any]:
    """Selects, from `:from` upwards, messages to the first of `:ends`, at most `:count`; latest first."""
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


def locked(connection: sa.Connection, tenant: str, conversation_id: str) -> Any:
    """Reads and locks the row of a tenant's conversation; None if it is gone. Of two replicas that summarize the same
    turns the second finds the segment of the first; a deletion, which rewrites bills, comes before or after."""
    columns = (CONVERSATIONS.c.id, CONVERSATIONS.c.forgotten_at)
    where = (CONVERSATIONS.c.tenant == tenant, CONVERSATIONS.c.id == conversation_id)
    return connection.execute(sa.select(*columns).where(*where).with_for_update()).first()


def write_segment(connection: sa.Connection, row: Any, request_id: str, new: memory.NewSegment, now: datetime) -> bool:
    """Stores a segment of a conversation whose row is `locked`. Returns False if it must not be stored: an item was
    deleted since its turns were read, or one of these is covered by now."""
    if utc_or_none(row.forgotten_at) != utc_or_none(new.uncovered.forgotten_at):
        return False
    segment, segments = new.segment, all_segments(connection, row.id)
    if end_before(connection, segment.last_message_id, segments) != new.uncovered.after:
        return False
    if _is_covered(connection, new, segments):
        return False
    values = {
        **{column: getattr(segment, field) for field, column in OF_SEGMENT.items()},
        "conversation_id": row.id,
        "after_message_id": new.uncovered.after,
        "text": segment.text.replace("\x00", "\ufffd"),  # PostgreSQL takes no NUL
        "prompt_version": new.prompt_version,
        "request_id": request_id,
        "created_at": now,
    }
    new_row = for_row(schema.summaries, values)
    stored = connection.execute(insert_if_new(connection, schema.summaries), new_row).rowcount == 1
    connection.execute(CONVERSATIONS.update().where(CONVERSATIONS.c.id == row.id).values(summarized=True))
    return stored


def _is_covered(connection: sa.Connection, new: memory.NewSegment, segments: Segments) -> bool:
    """Returns whether a longer segment on the same branch covers the new segment's last message. One that ends on
    another branch, behind what this one shares with it, does not count."""
    segment, path = new.segment, {each.message_id for each in new.uncovered.messages}
    longer = [s for s in segments.values() if s.first_number <= segment.last < s.last_number]
    end = new.uncovered.messages[-1].message_id
    return any(s.last_message_id in path or leads_to(connection, end, s.last_message_id) for s in longer)


PINS = schema.pins
BATCH = 500


def pinned_ids(connection: sa.Connection, row: Any) -> frozenset[str]:
    """Reads the pinned messages of a conversation, in any branch. `row`: the conversation's row, with its `pins`."""
    return frozenset(connection.execute(_PINS, {"conversation": row.id}).scalars()) if row.pins else frozenset()


def marked(messages: Sequence[ConversationMessage], pinned: Collection[str]) -> tuple[ConversationMessage, ...]:
    """Returns the messages, with the pinned ones marked."""
    return tuple(replace(each, pinned=True) if each.message_id in pinned else each for each in messages)


def with_kept(connection: sa.Connection, row: Any, found: StoredConversation) -> StoredConversation:
    """Adds to the conversation what stays in every window (guarantee §11.12): messages pinned on its path, and system
    messages, also those before what was read of it."""
    pinned = pinned_ids(connection, row)
    path = marked(found.path, pinned) if pinned else found.path
    older = _older(connection, row, path[0], pinned) if found.unread else ()
    return replace(found, path=path, older_kept=older)


def _older(
    connection: sa.Connection, row: Any, first: ConversationMessage, pinned: Collection[str]
) -> tuple[ConversationMessage, ...]:
    """Reads the system messages before `first` and what is pinned there, oldest first: each result after its call, each
    call before its results."""
    where = {"conversation": row.id, "below": first.sequence_number}
    kept = [*connection.execute(INSTRUCTIONS, where), *(connection.execute(_PINNED, where) if pinned else ())]
    found: dict[str | None, ConversationMessage] = {}
    for message in marked([message_of(each) for each in _of_path(connection, row, kept, first)], pinned):
        found[message.message_id] = message
        if not message.pinned:
            continue
        if message.role in tool_steps.RESULT_ROLES:
            step = connection.execute(OPEN_STEP, {"from": message.message_id}).all()
            found |= {each.id: message_of(each) for each in step[-1:] if each.id not in found}
        elif made := len(tool_steps.calls_of(message.body)):
            number = message.sequence_number or 0
            bounds = {"conversation": row.id, "after": number, "until": number + made, "parent": message.message_id}
            found |= {each.id: message_of(each) for each in _results(connection, bounds) if each.id not in found}
    return tuple(sorted(found.values(), key=lambda message: message.sequence_number or 0))


def _of_path(connection: sa.Connection, row: Any, kept: Sequence[Any], first: ConversationMessage) -> list[Any]:
    """Returns those of the `kept` rows that are on the path from `first` upwards. A path has each number once, so a
    message without a rival on another branch is on it. The path is walked only if there is a rival, or if a deletion
    left gaps in the numbers: by ids, no further than the oldest of `kept`."""
    if not kept or (row.forgotten_at is None and not any(each.rivals for each in kept)):
        return list(kept)
    floor = min(each.sequence_number for each in kept)
    bounds = {"conversation": row.id, "from": first.message_id, "floor": floor}
    way = set(connection.execute(_ON_PATH, bounds).scalars())
    return [each for each in kept if each.id in way]


def _results(connection: sa.Connection, bounds: dict[str, Any]) -> list[Any]:
    """Returns the rows of the results behind a call; of several branches, those of the first."""
    rows, parent = [], bounds.pop("parent")
    for each in connection.execute(_RESULTS, bounds):
        if each.parent_id == parent and each.role in tool_steps.RESULT_ROLES:
            rows.append(each)
            parent = each.id
    return rows


def pin(connection: sa.Connection, conversation_id: str, message_ids: Sequence[str]) -> None:
    """Pins those of the given messages that the conversation has."""
    for start in range(0, len(message_ids), BATCH):
        batch = message_ids[start : start + BATCH]
        where = (MESSAGES.c.conversation_id == conversation_id, MESSAGES.c.id.in_(batch))
        there = connection.execute(sa.select(MESSAGES.c.id).where(*where)).scalars().all()
        if values := [{"conversation_id": conversation_id, "message_id": each} for each in there]:
            connection.execute(insert_if_new(connection, PINS), values)
    if message_ids:
        _count(connection, conversation_id)


def unpin(connection: sa.Connection, conversation_id: str, message_id: str) -> None:
    """Removes a message's pin, if it has one."""
    where = (PINS.c.conversation_id == conversation_id, PINS.c.message_id == message_id)
    if connection.execute(PINS.delete().where(*where)).rowcount:
        _count(connection, conversation_id)


def _count(connection: sa.Connection, conversation_id: str) -> None:
    count = sa.select(sa.func.count()).where(PINS.c.conversation_id == conversation_id).scalar_subquery()
    connection.execute(CONVERSATIONS.update().where(CONVERSATIONS.c.id == conversation_id).values(pins=count))


def _kept_query(*which: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Selects whole messages before the number `:below`, and whether others have the same number (`rivals`)."""
    other = MESSAGES.alias("other")
    same = (other.c.conversation_id == MESSAGES.c.conversation_id, other.c.id != MESSAGES.c.id)
    beside = (other.c.sequence_number == MESSAGES.c.sequence_number, other.c.status != "failed")
    rivals = sa.select(other.c.id).where(*same, *beside).exists().label("rivals")
    before = MESSAGES.c.sequence_number < sa.bindparam("below", type_=sa.Integer)
    return whole_messages().add_columns(rivals).where(before, MESSAGES.c.status != "failed", *which)


def _on_path_query() -> sa.Select[Any]:
    """Selects the system messages and pinned messages from `:from` upwards, down to the number `:floor`."""
    floor = sa.bindparam("floor", type_=sa.Integer)
    chain = upwards(MESSAGES.c.role, onwards=lambda _: MESSAGES.c.sequence_number >= floor)
    return sa.select(chain.c.id).where(sa.or_(chain.c.role.in_(conversation.INSTRUCTION_ROLES), chain.c.id.in_(_PINS)))


_PINS = sa.select(PINS.c.message_id).where(PINS.c.conversation_id == sa.bindparam("conversation", type_=sa.String))
_PINNED = _kept_query(MESSAGES.c.id.in_(_PINS), MESSAGES.c.role.not_in(conversation.INSTRUCTION_ROLES))
INSTRUCTIONS = _kept_query(
    MESSAGES.c.conversation_id == sa.bindparam("conversation", type_=sa.String),
    sa.literal_column(f"messages.{schema.OF_INSTRUCTIONS}"),
)
_ON_PATH = _on_path_query()
OPEN_STEP = messages_of(upwards(MESSAGES.c.role, onwards=lambda chain: chain.c.role.in_(tool_steps.RESULT_ROLES)))
_RESULTS = (
    whole_messages()
    .where(
        MESSAGES.c.conversation_id == sa.bindparam("conversation", type_=sa.String),
        MESSAGES.c.sequence_number > sa.bindparam("after", type_=sa.Integer),
        MESSAGES.c.sequence_number <= sa.bindparam("until", type_=sa.Integer),
    )
    .order_by(MESSAGES.c.sequence_number)
)
