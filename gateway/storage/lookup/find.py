"""Finds the stored conversation that a request continues, and reads the end of the path to where it resumes."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import accumulate
from typing import Any, NamedTuple

import sqlalchemy as sa

from gateway.core import ids, jsons, names
from gateway.core.frozen_records import record
from gateway.core.types import chain, conversation, tool_steps, turn
from gateway.core.types.artifacts import Artifact
from gateway.core.types.chain import ChainKey
from gateway.core.types.conversation import (
    BranchPoint,
    ConversationMessage,
    ConversationRef,
    EarlierMessages,
    HistoryLookup,
    MessageCache,
    PromptFrame,
    RecallCache,
    ResumePoint,
    StoredConversation,
)
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.lookup.frame_rows import read_frame
from gateway.storage.lookup.locate import (
    CHAIN_COLUMNS,
    MESSAGES,
    Condition,
    known_behind,
    locate,
    messages_of,
    resume_behind,
    upwards,
)
from gateway.storage.lookup.path_cache import PathCache, instant, newer_rows, results_in, row_bytes, steps_of
from gateway.storage.lookup.segments import read_segments, with_kept
from gateway.storage.rows import message_of

# The messages before a window, which are searched for what a question needs. Those read recently are cached in the
# process beside their conversation's paths: the next question reads only what has left the window since (ADR 20).

INDEX_BYTES = 2
"""Bytes of memory for the index of a message's words, per byte of the message."""


@record
class EarlierPath:
    """The messages before a window, oldest first, with their weights, as many as `limit` allowed.

    `forgotten_at` and `steps` show whether they still match the storage, as with `CachedPath`. `turns`: how many turns
    began before the first of them."""

    conversation_id: str
    forgotten_at: datetime | None
    steps: frozenset[str]
    limit: int
    messages: tuple[ConversationMessage, ...]
    weights: tuple[int, ...]
    sizes: tuple[int, ...]
    turns: int
    cache: RecallCache

    @classmethod
    def of(cls, connection: sa.Connection, last: Any, rows: Sequence[Any], turns: int, limit: int) -> "EarlierPath":
        """Builds the entry from rows that were just read: those before the message `last`, latest first."""
        conversation_id, steps = last.conversation_id, steps_of(connection, last.conversation_id)
        nothing = cls(conversation_id, last.forgotten_at, frozenset(), limit, (), (), (), turns, RecallCache())
        return nothing.followed_by(rows, steps)

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return sum(self.sizes)

    @property
    def last(self) -> str | None:
        """The id of the last message."""
        return self.messages[-1].message_id

    def followed_by(self, rows: Sequence[Any], steps: frozenset[str]) -> "EarlierPath":
        """Appends rows, latest first, and drops what then exceeds the limit; for the next request."""
        messages = (*self.messages, *map(message_of, reversed(rows)))
        weights = (*self.weights, *(row.weight for row in reversed(rows)))
        sizes = (*self.sizes, *map(_size, reversed(rows)))
        held = sum(total <= self.limit for total in accumulate(reversed(weights)))
        first = len(messages) - held
        turns = self.turns + sum(at < first for at in tool_steps.turn_starts(message.role for message in messages))
        of_it = (self.conversation_id, self.forgotten_at, self.steps | results_in(rows, steps), self.limit)
        return EarlierPath(*of_it, messages[first:], weights[first:], sizes[first:], turns, self.cache.following())

    def read(self) -> EarlierMessages:
        """Returns what a request gets of the entry."""
        return EarlierMessages(self.messages, self.turns, self.cache)


def kept_earlier(connection: sa.Connection, last: Any, max_bytes: int, paths: PathCache) -> EarlierPath | None:
    """Returns the cached messages before a window, if they match the storage, with those that have left the window.
    `last`: parent, conversation and `forgotten_at` of the first message that was read for the window."""
    kept = paths.earlier(last.conversation_id)
    if not isinstance(kept, EarlierPath) or kept.limit != max_bytes:
        return None
    if instant(kept.forgotten_at) != instant(last.forgotten_at):
        return None
    steps = steps_of(connection, last.conversation_id)
    rows = [] if kept.last == last.parent_id else newer_rows(connection, kept.last, last.parent_id)
    if rows is None or not kept.steps <= steps:
        return None
    longer = kept.followed_by(rows, steps)
    return longer if longer.messages else None


def _size(row: Any) -> int:
    return row_bytes(row) + INDEX_BYTES * len(row.body or "")


# Recognises the stored conversation that a chain of messages belongs to, by keyed digests (guarantee §3.2, ADR 8).

MAX_CHAINS = 1000
"""Equal chains among which one is chosen. If there are more, a new conversation starts."""


class ChainMatch(NamedTuple):
    """A chain that an answered request left.

    `conversation_id` is empty if it was not stored (`store: false`). `whole`: `ChainKey.whole`; `answered_at`: when its
    answer was last returned. `living`: its conversation has not been deleted. `at_head`: that conversation ends with
    it."""

    conversation_id: str
    calls: bytes
    whole: bytes
    answered_at: datetime
    living: bool
    at_head: bool


def recognised(connection: sa.Connection, tenant: str, keys: Sequence[ChainKey]) -> str | None:
    """Returns the conversation of the first of these chains that is known; None if none is, or if it is ambiguous which
    of several it is (guarantee §3.2)."""
    for key in keys:
        first, last = connection.execute(_ENDS, {"digest": key.digest, "tenant": tenant}).one()
        if first is None:
            continue
        if first == last:
            return first or None
        matches = _matches(connection, _BY_CALLS if key.calls else _BY_WORDS, tenant, key)
        if matches:
            return chosen(matches, key.whole)
    return None


def chosen(matches: Sequence[ChainMatch], sent: bytes) -> str | None:
    """Chooses the conversation to continue, from at least one match.

    Of several, it is the one that ends with the chain; of several of those the latest, if they are equal in everything.
    A chain that was answered without being stored, or was deleted, may have ended there, too: it makes every chain that
    differs from it doubtful.
    `sent`: the keyed digest of all sent messages, if tool steps are among them: then only a chain with exactly these
    steps is meant, if there is one. Else empty."""
    if len({match.conversation_id for match in matches}) == 1:
        return matches[0].conversation_id or None
    if len(matches) > MAX_CHAINS:
        return None
    ends = [match for match in matches if match.at_head or not match.living]
    if sent:
        ends = [match for match in ends if match.whole.startswith(sent)] or ends
    heads = [match for match in ends if match.at_head]
    if not heads or len({match.whole for match in ends}) > 1:
        return None
    return max(heads, key=lambda match: (match.answered_at, match.conversation_id)).conversation_id


def _matches(connection: sa.Connection, query: sa.Select[ChainMatch], tenant: str, key: ChainKey) -> list[ChainMatch]:
    rows = connection.execute(query, {"digest": key.digest, "calls": key.calls, "tenant": tenant}).all()
    return [
        ChainMatch(
            row.conversation_id, bytes(row.calls), bytes(row.whole), row.created_at, bool(row.living), bool(row.at_head)
        )
        for row in rows
    ]


_OF_DIGEST = schema.chains.c.digest == sa.bindparam("digest"), schema.chains.c.tenant == sa.bindparam("tenant")
_EQUAL = sa.select(schema.chains.c.conversation_id).where(*_OF_DIGEST).limit(MAX_CHAINS + 1).subquery()
_ENDS = sa.select(sa.func.min(_EQUAL.c.conversation_id), sa.func.max(_EQUAL.c.conversation_id))
"""The first and the last, by id, of the conversations of equal chains. Mostly they are one: each step of a turn leaves
a chain with the turn's words."""


def _query(*conditions: sa.ColumnElement[bool]) -> sa.Select[ChainMatch]:
    """Selects chains by digest, and whether their conversations end with them; `MAX_CHAINS` + 1 suffice."""
    chains, conversations, head = schema.chains, schema.conversations, schema.messages
    joined = chains.outerjoin(conversations, conversations.c.id == chains.c.conversation_id)
    joined = joined.outerjoin(head, head.c.id == conversations.c.head_id)
    columns = (chains.c.conversation_id, chains.c.calls, chains.c.whole, chains.c.created_at)
    living, at_head = conversations.c.id.is_not(None), head.c.request_id == chains.c.request_id
    query = sa.select(*columns, living.label("living"), at_head.label("at_head")).select_from(joined)
    return query.where(*_OF_DIGEST, *conditions).limit(MAX_CHAINS + 1)


_BY_WORDS = _query()
_BY_CALLS = _query(schema.chains.c.calls == sa.bindparam("calls"))


MAX_OF_WINDOW = 4
"""How many times `max_bytes` are read at most to reach the beginning of a frozen window."""


def find(
    connection: sa.Connection,
    tenant: str,
    ref: ConversationRef,
    lookup: HistoryLookup | None,
    max_bytes: int | None,
    model: str | None = None,
    paths: PathCache | None = None,
) -> StoredConversation | None:
    """Finds the conversation that is named, or that `lookup.keys` recognise (`ConversationStore.find_conversation`).
    `paths`: the cache of recently read paths."""
    if lookup is not None and lookup.keys:
        conversation_id = recognised(connection, tenant, lookup.keys)
        if conversation_id is None:
            return None
        ref = ConversationRef(conversation_id)
    answer, goes_on_behind = None, ref.behind is not None
    if ref.is_point:
        answer = answer_of(connection, tenant, ref)
        if answer is None:
            return None
        ref = ConversationRef(answer.conversation_id)
    row = conversation_row(connection, tenant, ref)
    if row is None:
        return None
    point = resume_behind(row)
    if answer is not None:
        point = resume_behind(answer)
        if lookup is not None and goes_on_behind:
            point = known_behind(connection, point, row.id, lookup)
        elif lookup is not None:
            digests = tuple(chain.chain_digests(lookup.bodies, point.digest))
            point = locate(connection, row.id, row.head_id, replace(lookup, digests=digests)) or point
    elif ref.branch is not None:
        branched = _branch_point(connection, row.id, ref.branch)
        if branched is None:
            return None
        point = branched
    elif lookup is not None:
        located = locate(connection, row.id, row.head_id, lookup)
        if located is None and lookup.keys:  # its whole content was deleted since: the conversation was emptied
            return None
        point = located or (point if lookup.maybe_delta else conversation.BEFORE_ALL)
    found = _load(connection, row, point, lookup, max_bytes, paths, framed=bool(row.framed) and model is not None)
    if ref.branch is not None:
        found = _as_of_branch(found, ref.branch)
    if answer is not None and answer.completion is not None:
        found = replace(found, instructions=without_own(found.instructions, jsons.loads_stored(answer.completion)))
    if row.framed and model is not None:
        frame = read_frame(connection, row.id, model, found.path)
        if frame is not None and max_bytes is not None:
            path = _to_window(connection, found.path, frame, max_bytes)
            if path is not found.path:
                found, frame = replace(found, path=path), read_frame(connection, row.id, model, path)
        found = replace(found, frame=frame)
    if row.summarized:
        found = replace(found, segments=read_segments(connection, row.id, found.path))
    if found.unread or (row.pins and found.path):
        found = with_kept(connection, row, found)
    told = {"retention_days": row.retention_days, "forgotten_at": rows.utc_or_none(row.forgotten_at)}
    return replace(found, updated_at=rows.utc(row.updated_at), **told)


def _branch_point(connection: sa.Connection, conversation_id: str, branch: BranchPoint) -> ResumePoint | None:
    """Returns the point behind the message that a replay continues; None if that was deleted."""
    if branch.behind is None:
        return conversation.BEFORE_ALL
    where = (MESSAGES.c.id == branch.behind, MESSAGES.c.conversation_id == conversation_id)
    row = connection.execute(sa.select(*CHAIN_COLUMNS).where(*where)).first()
    return resume_behind(row) if row is not None else None


def answer_of(connection: sa.Connection, tenant: str, ref: ConversationRef) -> Any:
    """Reads the row of the message that a point names, with `CHAIN_COLUMNS`, its conversation, and its completion's
    body if there is one: the first answer of a tenant's stored completion, or a message by its id. None if there is
    none, or it was deleted."""
    name = ref.behind if ref.behind is not None else ref.at or ""
    if names.has_nul(name):
        return None
    kept, messages, owners = schema.completions, schema.messages, schema.conversations
    columns = (*CHAIN_COLUMNS, messages.c.conversation_id, kept.c.body.label("completion"))
    joined = messages.join(owners, owners.c.id == messages.c.conversation_id)
    if ref.behind is None:
        joined = joined.outerjoin(kept, kept.c.request_id == messages.c.request_id)
        named: Any = name
        if ref.before:
            answers = messages.alias("answers")
            named = sa.select(answers.c.parent_id).where(answers.c.id == name).scalar_subquery()
        where = [messages.c.id == named, messages.c.status != "failed"]
    else:
        joined = joined.join(kept, kept.c.request_id == messages.c.request_id)
        joined = joined.join(schema.ledger, schema.ledger.c.request_id == kept.c.request_id)
        where = [schema.ledger.c.completion_id == ids.completion_of(name), messages.c.choice.is_not(None)]
    query = sa.select(*columns).select_from(joined).where(owners.c.tenant == tenant, *where)
    return connection.execute(query.order_by(messages.c.choice).limit(1)).first()


def without_own(stored: tuple[dict[str, Any], ...], completion: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Removes the `instructions` of the response that the system messages were in force for: these hold for one
    response alone."""
    return stored[1:] if turn.is_own(completion.get(turn.ASKED), stored) else stored


def _as_of_branch(found: StoredConversation, branch: BranchPoint) -> StoredConversation:
    """Returns the conversation as a replay reads it: without its system messages, as the replay brings those of that
    time, and without later documents."""
    until = branch.until
    attached = tuple(a for a in found.attachments if until is None or a.timestamp is None or a.timestamp <= until)
    return replace(found, instructions=(), attachments=attached)


def conversation_row(connection: sa.Connection, tenant: str, ref: ConversationRef) -> Any:
    """Reads a tenant's conversation by id or session, with the chain digests of its head; None if there is none."""
    if names.has_nul(ref.conversation_id, ref.session):
        return None
    by_id = ref.conversation_id is not None
    named = {"tenant": tenant, "name": ref.conversation_id if by_id else ref.session}
    return connection.execute(_CONVERSATION_BY_ID if by_id else _CONVERSATION_BY_SESSION, named).first()


def _conversation_query(table: sa.FromClause, *named: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Selects the conversation of `:tenant` that is `named`, from a join that has it."""
    joined = table.outerjoin(schema.messages, schema.messages.c.id == schema.conversations.c.head_id)
    query = sa.select(schema.conversations, *CHAIN_COLUMNS).select_from(joined)
    return query.where(schema.conversations.c.tenant == sa.bindparam("tenant"), *named)


_CONVERSATION_BY_ID = _conversation_query(
    schema.conversations, schema.conversations.c.id == sa.bindparam("name", type_=sa.String)
)
_CONVERSATION_BY_SESSION = _conversation_query(
    schema.conversations.join(schema.sessions, schema.sessions.c.conversation_id == schema.conversations.c.id),
    schema.sessions.c.tenant == sa.bindparam("tenant"),
    schema.sessions.c.name == sa.bindparam("name"),
)


def _load(
    connection: sa.Connection,
    row: Any,
    point: ResumePoint,
    lookup: HistoryLookup | None,
    max_bytes: int | None,
    paths: PathCache | None,
    *,
    framed: bool,
) -> StoredConversation:
    """`framed`: a model may have been sent other content before, so the messages must be read."""
    attached: tuple[Artifact, ...] = ()
    if row.attachments:
        documents = schema.attachments
        query = sa.select(documents).where(documents.c.conversation_id == row.id)
        attached = tuple(rows.attachment_of(r) for r in connection.execute(query.order_by(documents.c.number)))
    same = lookup is not None and lookup.fits_as_sent and not (attached or framed) and point.holds_as_sent(lookup)
    if same and lookup is not None and lookup.instructed:
        return StoredConversation(row.id, row.head_id, resume_point=point, read=False)
    instructions = _instructions(connection, row, point.message_id or row.head_id)
    if same and not instructions:
        return StoredConversation(row.id, row.head_id, resume_point=point, read=False)
    path, cache = _path(connection, row, point.message_id, max_bytes, paths)
    named = (row.id, row.head_id, path, instructions, attached, point)
    return StoredConversation(*named, cache=cache, team_task=row.team_task, profile=row.profile)


def _instructions(connection: sa.Connection, row: Any, message_id: str | None) -> tuple[dict[str, Any], ...]:
    """Reads the system messages in force at a message; before the first message those that the conversation names."""
    if message_id is None and row.instructions_digest is None:
        return ()
    query = _INSTRUCTIONS if message_id is None else _INSTRUCTIONS_AT
    body = connection.execute(query, {"conversation": row.id, "at": message_id or row.instructions_digest}).scalar()
    return tuple(jsons.loads_stored(body)) if body is not None else ()


def _instructions_query(digest: Any) -> sa.Select[Any]:
    table = schema.instructions
    of_it = table.c.conversation_id == sa.bindparam("conversation")
    return sa.select(table.c.body).where(of_it, table.c.digest == digest)


_INSTRUCTIONS = _instructions_query(sa.bindparam("at"))
_INSTRUCTIONS_AT = _instructions_query(
    sa.select(schema.messages.c.instructions_digest).where(schema.messages.c.id == sa.bindparam("at")).scalar_subquery()
)


def _path(
    connection: sa.Connection, row: Any, last: str | None, max_bytes: int | None, paths: PathCache | None
) -> tuple[tuple[ConversationMessage, ...], MessageCache]:
    """Reads the messages that end with `last`, oldest first: all of them, or as many as take `max_bytes` in a window;
    and the cache of values derived from them."""
    if last is None:
        return (), MessageCache()
    limit = max_bytes if max_bytes is not None else 2**62
    since = paths.moment if paths is not None else 0
    if paths is not None and (kept := paths.read(connection, row, last, limit)):
        return kept.messages, kept.cache
    found = connection.execute(_PATH, {"from": last, "limit": limit}).all()
    path = _messages(found)
    if paths is not None:
        return path, paths.keep(connection, row, found, path, since)
    return path, MessageCache()


def _to_window(
    connection: sa.Connection, path: tuple[ConversationMessage, ...], frame: PromptFrame, max_bytes: int
) -> tuple[ConversationMessage, ...]:
    """Extends the path to where the window of its frame begins, if less was read. Messages take fewer bytes in a window
    than stored if a document in them was reduced, and a window stays while it fits (guarantee §4 I7)."""
    if not path or not path[0].sequence_number or any(message.message_id == frame.first for message in path):
        return path
    bounds = {"from": path[0].message_id, "first": frame.first or "", "limit": MAX_OF_WINDOW * max_bytes}
    further = _messages(connection.execute(_WINDOW, bounds).all())
    begins = bool(further) and (further[0].message_id == frame.first or not further[0].sequence_number)
    return (*further[:-1], *path) if begins else path


def read_earlier(
    connection: sa.Connection, tenant: str, message_id: str, max_bytes: int, paths: PathCache | None = None
) -> EarlierMessages:
    """Reads the messages before `message_id`, newest first until they exceed `max_bytes`; none for an unknown message.
    `paths`: the cache of recently read messages."""
    of_tenant = schema.conversations.c.tenant == tenant
    joined = MESSAGES.join(schema.conversations, schema.conversations.c.id == MESSAGES.c.conversation_id)
    columns = (MESSAGES.c.parent_id, MESSAGES.c.conversation_id, MESSAGES.c.sequence_number)
    query = sa.select(*columns, schema.conversations.c.forgotten_at).select_from(joined)
    since = paths.moment if paths is not None else 0
    last = connection.execute(query.where(MESSAGES.c.id == message_id, of_tenant)).first()
    if last is None or last.parent_id is None:
        return EarlierMessages()
    kept = kept_earlier(connection, last, max_bytes, paths) if paths is not None else None
    if kept is None:
        found = connection.execute(_EARLIER, {"from": last.parent_id, "limit": max_bytes}).all()
        turns = turns_before(connection, found[-1] if found else last)
        if paths is None or not found:
            return EarlierMessages(_messages(found), turns)
        kept = EarlierPath.of(connection, last, found, turns, max_bytes)
    if paths is not None:
        paths.keep_earlier(kept, since)
    return kept.read()


def turns_before(connection: sa.Connection, row: Any) -> int:
    """Counts the turns that began before a message. Walks its path only if branches or gaps precede it."""
    if row.parent_id is None:
        return 0
    number = MESSAGES.c.sequence_number
    before = (MESSAGES.c.conversation_id == row.conversation_id, number < row.sequence_number)
    counts = sa.select(sa.func.count(), sa.func.count(number.distinct())).where(*before)
    if tuple(connection.execute(counts).one()) == (row.sequence_number, row.sequence_number):
        begun = _begun(sa.select(number.label("number"), MESSAGES.c.role).where(*before))
        return int(connection.execute(begun).scalar_one())
    return int(connection.execute(_BEGUN, {"from": row.parent_id}).scalar_one())


def _messages(found: Sequence[Any]) -> tuple[ConversationMessage, ...]:
    """Converts rows, latest first, to messages, oldest first."""
    return tuple(map(rows.message_of, reversed(found)))


def _weight_within(chain: sa.CTE) -> Condition:
    return chain.c.total + MESSAGES.c.weight <= sa.bindparam("limit", type_=sa.BigInteger)


def _path_query() -> sa.Select[Any]:
    """Selects the path to `:from` while its weight is within `:limit`, and on to the message that begins its first
    turn: no tool result is before that (`turn_starts`)."""

    def onwards(chain: sa.CTE) -> Condition:
        return sa.or_(_weight_within(chain), chain.c.role != "user", MESSAGES.c.role != "assistant")

    return messages_of(upwards(MESSAGES.c.role, onwards=onwards, weighed=True))


def _window_query() -> sa.Select[Any]:
    """Selects the path to `:from` until `:first` is reached, while its weight is within `:limit`."""
    first = sa.bindparam("first", type_=sa.String)
    return messages_of(upwards(onwards=lambda chain: sa.and_(chain.c.id != first, _weight_within(chain)), weighed=True))


def _earlier_query() -> sa.Select[Any]:
    """Selects the path to `:from` while its weight is within `:limit`."""
    first = MESSAGES.c.weight <= sa.bindparam("limit", type_=sa.BigInteger)
    return messages_of(upwards(first=first, onwards=_weight_within, weighed=True))


def _begun_query() -> sa.Select[int]:
    """Counts the turns that begin on the path to `:from`."""
    chain = upwards(MESSAGES.c.role)
    return _begun(sa.select((-chain.c.depth).label("number"), chain.c.role))


def _begun(messages: sa.Select[Any]) -> sa.Select[int]:
    """Counts the turns that begin in messages with a `number` and a `role`, by the rule of `turn_starts`."""
    of = messages.subquery()
    is_result = sa.case((of.c.role.in_(tool_steps.RESULT_ROLES), 1), else_=0)
    answer = sa.case((of.c.role.in_(("assistant", *tool_steps.RESULT_ROLES)), 2 * of.c.number + is_result))
    behind = sa.func.max(answer).over(order_by=of.c.number).label("behind")  # odd behind the result of a tool
    said = sa.select(of.c.role, behind).subquery()
    begins = sa.or_(said.c.behind.is_(None), said.c.behind % 2 == 0)
    return sa.select(sa.func.count()).where(said.c.role == "user", begins)


_PATH, _WINDOW = _path_query(), _window_query()
_EARLIER, _BEGUN = _earlier_query(), _begun_query()
