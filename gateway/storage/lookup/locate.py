"""Finds where a resend continues a stored conversation, by index and one recursive query, however long that is; chain
digests and links of messages that were imported or follow a deleted one (ADR 8)."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

from gateway.core.types import chain, conversation, items
from gateway.core.types.chain import AnswerRun, ChainDigest
from gateway.core.types.conversation import HistoryLookup, ResumePoint
from gateway.storage.database import schema
from gateway.storage.encryption.columns import RowInsert, SealedText
from gateway.storage.rows import body_of

MESSAGES = schema.messages
STEPS = schema.reasoning_events
Condition = sa.ColumnElement[bool]
MESSAGE_BODY = SealedText("messages.body", source=MESSAGES.c.id)
"""The type of a message's body, wherever it is stored."""


def upwards(
    *columns: sa.ColumnElement[Any],
    first: Condition | None = None,
    onwards: Callable[[sa.CTE], Condition] | None = None,
    weighed: bool = False,
) -> sa.CTE:
    """Returns the chain that ends with the message `:from`, as a table of its messages' `id`, `parent_id` and `depth`.
    `columns`: further columns of `messages`; `first`: a condition on the message `:from`; without it the chain is
    empty; `onwards`: the condition for continuing to the next message, given the chain so far and `messages`;
    `weighed`: adds a column `total`, the sum of the weights up to and including each message."""
    weight = sa.cast(MESSAGES.c.weight, sa.BigInteger).label("total")
    own = (MESSAGES.c.id, MESSAGES.c.parent_id, *columns)
    begin = sa.select(*own, sa.literal(1).label("depth"), *([weight] if weighed else []))
    begin = begin.where(MESSAGES.c.id == sa.bindparam("from", type_=sa.String))
    chain = (begin if first is None else begin.where(first)).cte("chain", recursive=True)
    total = [chain.c.total + MESSAGES.c.weight] if weighed else []
    step = sa.select(*own, chain.c.depth + 1, *total).where(MESSAGES.c.id == chain.c.parent_id)
    return chain.union_all(step if onwards is None else step.where(onwards(chain)))


def fewer_than(chain: sa.CTE) -> Condition:
    """Returns the condition for continuing to at most `:count` messages."""
    return chain.c.depth < sa.bindparam("count", type_=sa.Integer)


def body_of_message() -> sa.Label[str]:
    """Selects a message's body wherever it is stored: a tool result's is in its step. NULL where that is gone."""
    of_it = (STEPS.c.conversation_id == MESSAGES.c.conversation_id, STEPS.c.message_id == MESSAGES.c.id)
    result = sa.select(STEPS.c.result).where(*of_it).scalar_subquery()
    found = sa.case((MESSAGES.c.body != "", MESSAGES.c.body), else_=result)
    return sa.type_coerce(found, MESSAGE_BODY).label("body")


def whole_messages() -> sa.Select[Any]:
    """Selects all that is stored of messages."""
    columns = [column for column in MESSAGES.c if column.name not in ("body", "reasoning_events")]
    return sa.select(*columns, body_of_message())


def messages_of(chain: sa.CTE) -> sa.Select[Any]:
    """Selects a chain's whole rows, latest first. Bodies are read only after small columns have chosen rows."""
    return whole_messages().join(chain, chain.c.id == MESSAGES.c.id).order_by(chain.c.depth)


def leads_to(connection: sa.Connection, first: str | None, last: str | None) -> bool:
    """Returns whether `last` comes after `first` on one branch."""
    return connection.execute(_BETWEEN, {"first": first, "from": last}).first() is not None


def _between_query() -> sa.Select[Any]:
    """Selects `:first`, if it is on the path from `:from` upwards; walks no further than it could be."""
    first = sa.bindparam("first", type_=sa.String)
    floor = sa.select(MESSAGES.c.sequence_number).where(MESSAGES.c.id == first).scalar_subquery()
    chain = upwards(onwards=lambda _: MESSAGES.c.sequence_number >= floor)
    return sa.select(chain.c.id).where(chain.c.id == first)


_BETWEEN = _between_query()
BATCH = 500
INSERT_LINKS = RowInsert(
    schema.message_links,
    "ON CONFLICT (conversation_id, digest) DO UPDATE SET message_id = excluded.message_id WHERE "
    "EXISTS (SELECT 1 FROM messages WHERE id = excluded.message_id AND path_digest = excluded.digest) OR NOT "
    "EXISTS (SELECT 1 FROM messages WHERE id = message_links.message_id AND path_digest = message_links.digest)",
)
"""Of two chains that say the same, the latest is continued; but a chain that is stored exactly so comes before one that
says the same with tool steps between."""


class ChainEnd(NamedTuple):
    """A chain up to one message: its digest, the consecutive answers at its end, its length."""

    digest: ChainDigest = chain.CHAIN_START
    run: AnswerRun | None = None
    length: int = 0

    def followed_by(self, body: dict[str, Any], *, status: str, reworded: bool) -> "ChainEnd":
        """Returns the chain after one more message."""
        digest, run = chain.following(self.digest, self.run, body, status=status, reworded=reworded)
        return ChainEnd(digest, run, self.length + 1)


def chain_digest(row: Any) -> ChainDigest:
    """Returns the digest of the chain that ends with a message, from the message's row."""
    return ChainDigest(bytes(row.path_digest), bytes(row.said_digest), bool(row.plain))


def digest_columns(digest: ChainDigest) -> dict[str, Any]:
    """Returns a chain's digest as column values of the message's row."""
    return {"path_digest": digest.path, "said_digest": digest.said, "plain": digest.plain}


def linked(before: ChainDigest, after: ChainDigest) -> list[bytes]:
    """Returns the digests that lead to a chain's last message: those that the message changed. An unchanged digest
    names a chain that ends earlier."""
    found = [after.said] if after.said != before.said else []
    if after.path not in (before.path, after.said):
        found.append(after.path)
    return found


def write_links(
    connection: sa.Connection,
    conversation_id: str,
    links: Iterable[tuple[bytes, str]],
    insert: RowInsert = INSERT_LINKS,
) -> None:
    """Stores digests with the messages that they lead to, in index order; of equal digests the last counts
    (`INSERT_LINKS`)."""
    found = sorted(links, key=itemgetter(0))
    insert(connection, [{"conversation_id": conversation_id, "digest": key, "message_id": to} for key, to in found])


def backfill_digests(connection: sa.Connection, conversation_id: str) -> None:
    """Computes digests, links and sequence number of each message that lacks them. Failed turns are in no chain.

    Reads the small columns of all messages of the conversation, and the bodies of those without digests."""
    table = schema.messages
    columns = (table.c.id, table.c.parent_id, table.c.role, table.c.path_digest, table.c.said_digest, table.c.plain)
    where = sa.and_(table.c.conversation_id == conversation_id, table.c.status != "failed")
    children: dict[str | None, list[Any]] = defaultdict(list)
    for row in connection.execute(sa.select(*columns).where(where).order_by(table.c.created_at, table.c.id)):
        children[row.parent_id].append(row)
    ordered = list(_parents_first(children))
    ends: dict[str | None, ChainEnd] = {None: ChainEnd()}
    for start in range(0, len(ordered), BATCH):
        batch = ordered[start : start + BATCH]
        read = [row.id for row in batch if row.path_digest is None or _goes_on(row, children)]
        bodies = {row.id: row for row in connection.execute(_BODIES, {"ids": read})} if read else {}
        values: list[dict[str, Any]] = []
        links: list[tuple[bytes, str]] = []
        for row in batch:
            before, found = ends[row.parent_id], bodies.get(row.id)
            end = ChainEnd(length=before.length + 1)
            if found is not None:
                body, reworded = body_of(found), found.rendered is not None
                end = before.followed_by(body, status=found.status, reworded=reworded)
            if row.path_digest is None:
                values.append({"message": row.id, "sequence_number": before.length, **digest_columns(end.digest)})
                links += ((link, row.id) for link in linked(before.digest, end.digest))
            else:
                end = end._replace(digest=chain_digest(row))
            ends[row.id] = end
        if values:
            connection.execute(_UPDATE, values)
            write_links(connection, conversation_id, links)


def _parents_first(children: dict[str | None, list[Any]]) -> Iterator[Any]:
    level = children.get(None, [])
    while level:
        yield from level
        level = [child for row in level for child in children.get(row.id, ())]


def _goes_on(row: Any, children: dict[str | None, list[Any]]) -> bool:
    """Returns whether another answer follows an answer: the digest after both depends on its text."""
    return row.role == "assistant" and any(child.role == "assistant" for child in children.get(row.id, ()))


_BODIES = sa.select(
    schema.messages.c.id,
    body_of_message(),
    schema.messages.c.status,
    schema.messages.c.rendered,
    schema.messages.c.role,
).where(schema.messages.c.id.in_(sa.bindparam("ids", expanding=True)))
_UPDATE = (
    schema.messages.update()
    .where(schema.messages.c.id == sa.bindparam("message"))
    .values({name: sa.bindparam(name) for name in ("path_digest", "said_digest", "plain", "sequence_number")})
)


CHAIN_COLUMNS = (
    schema.messages.c.id.label("message_id"),
    schema.messages.c.path_digest,
    schema.messages.c.said_digest,
    schema.messages.c.plain,
    schema.messages.c.restored,
)
AT_ONCE = 200
"""Digests that one query looks up."""
LOCATE_RECENT_MESSAGES = 8
"""Messages from the end that are tried first: a resend mostly differs near its end."""
CHUNK = 200
"""Rows that one query reads upwards."""
MAX_TURN_MESSAGES = 1000
"""Messages of one turn that are searched for a step that its client still sends."""


def resume_behind(row: Any, kept: int = 0) -> ResumePoint:
    """Returns the point behind a stored message, from a row with `CHAIN_COLUMNS`; `kept` sent messages lead there."""
    if row.message_id is None:
        return conversation.BEFORE_ALL
    return ResumePoint(row.message_id, chain_digest(row), kept, branch_restores=bool(row.restored))


def locate(
    connection: sa.Connection, conversation_id: str, head_id: str | None, lookup: HistoryLookup
) -> ResumePoint | None:
    """Finds where a resend continues the conversation; None if nothing of it is stored there.

    Compares it in order from the beginning first, else as a run that ends at the head: the sent messages are only the
    end of the stored chain, as from a client that trims its history (guarantee §3.1)."""
    search = _PathSearch(connection, conversation_id, lookup)
    found = search.by_path() or search.by_what_was_said()
    may_be_run = not lookup.maybe_delta or lookup.bodies[-1]["role"] == "assistant"
    if not lookup.keys and may_be_run and (found is None or search.is_part_of_run(found)):
        found = search.run_to(head_id) or found
    return found


def known_behind(
    connection: sa.Connection, end: ResumePoint, conversation_id: str, lookup: HistoryLookup
) -> ResumePoint:
    """Completes a point with the length of the sent run that ends there (guarantee §3.1); what follows is new."""
    if end.message_id is None:
        return end
    return replace(end, kept=_PathSearch(connection, conversation_id, lookup).run_length(end.message_id))


class _PathSearch:
    def __init__(self, connection: sa.Connection, conversation_id: str, lookup: HistoryLookup) -> None:
        self._connection = connection
        self._conversation = conversation_id
        self._lookup = lookup

    def by_path(self) -> ResumePoint | None:
        """Finds the deepest stored chain equal to the sent one, from the last answer on; then follows the stored chain
        from there, where it differs from the sent one."""
        digests, bodies = self._lookup.digests, self._lookup.bodies
        last = next((i for i in range(len(bodies) - 1, -1, -1) if bodies[i]["role"] == "assistant"), 0)
        candidates = range(max(last, len(digests) - AT_ONCE), len(digests))
        found = self._deepest([(digests[i].path, i) for i in candidates])
        if found is None or found.digest.path == digests[found.kept - 1].path:
            return found
        return self._onwards(found)

    def by_what_was_said(self) -> ResumePoint | None:
        """Finds the deepest chain by what was said in it; then follows the stored chain from there."""
        lookup = self._lookup
        said = [i for i in range(len(lookup.digests)) if lookup.said(i) and not chain.is_continued(lookup.bodies, i)]
        found = self._deepest([(lookup.digests[i].said, i) for i in said[-LOCATE_RECENT_MESSAGES:]])
        if found is None:
            found = self._halving(said[:-LOCATE_RECENT_MESSAGES])
        if found is None:
            return self._onwards(conversation.BEFORE_ALL)
        return self._onwards(self._verified(found))

    def is_part_of_run(self, point: ResumePoint) -> bool:
        """Returns whether a point was found by a run's link, not from the beginning, and answers follow it."""
        answers = any(body["role"] == "assistant" for body in self._lookup.bodies[point.kept :])
        return answers and point.digest.said != self._lookup.digests[point.kept - 1].said

    def run_to(self, head_id: str | None) -> ResumePoint | None:
        """Finds a run that ends at the head, or at another answer of the same request; answers that are stored nowhere
        may follow it."""
        if head_id is None:
            return None
        for end in self._choices(head_id):
            if kept := self.run_length(end):
                return self._onwards(self._point(end, kept))
        return None

    def run_length(self, end: str) -> int:
        """Counts the sent messages that form the end of the chain of message `end`; the last is an answer."""
        bodies = self._lookup.bodies
        answers = [i for i, body in enumerate(bodies) if body["role"] == "assistant"][-LOCATE_RECENT_MESSAGES:]
        return next((i + 1 for i in reversed(answers) if _is_run(self._upwards(end), bodies, i)), 0)

    def _choices(self, head_id: str) -> Iterator[str]:
        """Yields the head, and only then the other answers of its request (guarantee §3.4)."""
        yield head_id
        yield from (row.id for row in self._connection.execute(_CHOICES, {"head": head_id}).all())

    def _halving(self, candidates: list[int]) -> ResumePoint | None:
        """Finds the deepest stored message by bisection: all messages that lead to a stored one are stored."""
        best: ResumePoint | None = None
        low, high = 0, len(candidates)
        while low < high:
            middle = (low + high) // 2
            at = candidates[middle]
            found = self._deepest([(self._lookup.digests[at].said, at)])
            if found is None:
                high = middle
            else:
                best, low = found, middle + 1
        return best

    def _onwards(self, point: ResumePoint) -> ResumePoint | None:
        """Advances a point as far as the messages behind it are stored in the same order; None if nothing is left.

        Behind a point that was found by what a client once sent, the chain continues as it is stored."""
        bodies = self._lookup.bodies
        while point.kept < len(bodies):
            digests: list[tuple[bytes, int]] = []
            digest = point.digest
            for index in range(point.kept, min(len(bodies), point.kept + AT_ONCE)):
                digest = chain.extended(digest, bodies[index])
                digests.append((digest.path, index))
            found = self._deepest(digests)
            if found is None:
                break
            point = found
        return self._skipping(point) if point.kept else None

    def _skipping(self, point: ResumePoint) -> ResumePoint:
        """Advances a point over steps of the turn under way, where earlier steps were left out."""
        bodies = self._lookup.bodies
        steps = list(takewhile(lambda i: not self._lookup.said(i), range(point.kept, len(bodies))))[:AT_ONCE]
        if point.message_id is None or not any(chain.call_ids(bodies[i]) for i in steps):
            return point
        digests = [chain.message_digest(bodies[i]) for i in steps]
        where = {"conversation": self._conversation, "after": point.message_id, "said": point.digest.said}
        rows = self._connection.execute(_STEPS, {**where, "digests": digests}).all()
        known = {row.digest: row.id for row in rows}
        for count in range(len(digests), 0, -1):
            last = known.get(digests[count - 1])
            if last is not None and self._leads(point.message_id, last, digests[:count]):
                return self._point(last, steps[count - 1] + 1)
        return point

    def _leads(self, first: str, last: str, digests: list[str]) -> bool:
        """Returns whether the path between two messages holds all these messages in order."""
        rest = list(digests)
        for row in self._upwards(last):
            if row.id == first:
                return not rest
            if row.is_said:
                return False
            if rest and row.digest == rest[-1]:
                rest.pop()
        return False

    def _verified(self, point: ResumePoint) -> ResumePoint:
        """Verifies steps and system messages up to a point where what was said is equal: if any were sent, each must be
        stored; else the request continues before the first that is not."""
        index = point.kept - 1
        if all(self._lookup.said(i) for i in range(point.kept)):
            return point
        difference, base = _compared(self._upwards(point.message_id), self._lookup, index)
        if difference is None:
            return point
        return self._point(base, difference) if base is not None else conversation.BEFORE_ALL

    def _deepest(self, candidates: Sequence[tuple[bytes, int]]) -> ResumePoint | None:
        """Returns the point behind the deepest linked digest; each digest comes with its message's index."""
        if not candidates:
            return None
        named = {"conversation": self._conversation, "digests": [digest for digest, _ in candidates]}
        known = {bytes(row.digest): row for row in self._connection.execute(_LINKED, named)}
        return next((resume_behind(known[each], i + 1) for each, i in reversed(candidates) if each in known), None)

    def _point(self, message_id: str, kept: int) -> ResumePoint:
        query = sa.select(*CHAIN_COLUMNS).where(schema.messages.c.id == message_id)
        return resume_behind(self._connection.execute(query).one(), kept)

    def _upwards(self, message_id: str | None) -> Iterator[Any]:
        """Yields light rows from a message up to the first of its chain, read on demand."""
        while message_id is not None:
            rows = self._connection.execute(_UPWARDS, {"from": message_id, "count": CHUNK}).all()
            yield from rows
            message_id = rows[-1].parent_id if len(rows) == CHUNK else None


def _compared(rows: Iterator[Any], lookup: HistoryLookup, last: int) -> tuple[int | None, str | None]:
    """Compares the sent messages up to `last` with a stored chain that says the same, both from their ends backwards.
    Returns the index of the first message that is not stored there (None if all are) and the stored message before it.

    `rows` go up the stored chain, `at` goes back in what was sent. A stored step that was left out advances only the
    first, a sent message that is stored nowhere only the second. Both stop where the chains are equal from there to
    their beginning. If a conversation is recognised by what was said, system messages make no difference (guarantee
    §3.2)."""
    difference: int | None = None
    base: str | None = None
    at = last
    known: dict[int, str] = {}

    def skipping_system(at: int) -> int:
        while at >= 0 and lookup.keys and lookup.bodies[at]["role"] in conversation.INSTRUCTION_ROLES:
            at -= 1
        return at

    for row in rows:
        at = skipping_system(at)
        if at < 0:
            break
        is_same_to_beginning = row.path_digest is not None and bytes(row.path_digest) == lookup.digests[at].path
        if is_same_to_beginning:
            return difference, base or row.id
        while at >= 0 and row.is_said and not lookup.said(at):
            if chain.is_step(lookup.bodies[at]) or not lookup.keys:  # not stored in this part of the chain
                difference, base = at, None
            at -= 1
        if at < 0:
            break
        is_equal = row.digest == (known.get(at) or known.setdefault(at, chain.message_digest(lookup.bodies[at])))
        if is_equal or row.is_said:
            base = base or row.id
            at -= 1
            while not is_equal and at >= 0 and chain.is_continued(lookup.bodies, at):
                at -= 1  # a prefill that is stored with its completion
    if skipping_system(at) >= 0:
        return 0, None
    return difference, base


def _is_run(rows: Iterator[Any], bodies: Sequence[dict[str, Any]], last: int) -> bool:
    """Returns whether the messages up to `last` are the end of a stored chain, except for steps that were left out."""
    at = last
    for row in rows:
        if at < 0:
            break
        if row.digest == chain.message_digest(bodies[at]):
            at -= 1
        elif row.is_said:
            first = at
            while first and chain.is_continued(bodies, first - 1):
                first -= 1
            forms = (chain.joined(bodies[first : at + 1], between) for between in ("", items.BETWEEN))
            if first == at or row.digest not in map(chain.message_digest, forms):
                return False
            at = first - 1
    return at < 0


def _upwards_query() -> sa.Select[tuple[Any, ...]]:
    """Selects, from `:from` upwards, at most `:count` messages, without their bodies."""
    table = schema.messages
    cte = upwards(table.c.digest, table.c.path_digest, table.c.said_digest, onwards=fewer_than)
    parent = table.alias("parent")
    new = sa.or_(parent.c.said_digest.is_(None), parent.c.said_digest != cte.c.said_digest)
    joined = cte.outerjoin(parent, parent.c.id == cte.c.parent_id)
    is_said = sa.and_(new, sa.func.length(cte.c.said_digest) > 0).label("is_said")
    return sa.select(cte, is_said).select_from(joined).order_by(cte.c.depth)


def _steps_query() -> sa.Select[tuple[Any, ...]]:
    """Selects the latest messages with `:digests` that add nothing to what was said at `:after`."""
    table = schema.messages
    number = sa.select(table.c.sequence_number).where(table.c.id == sa.bindparam("after", type_=sa.String))
    from_there = number.scalar_subquery()
    where = (
        table.c.conversation_id == sa.bindparam("conversation", type_=sa.String),
        table.c.sequence_number > from_there,
        table.c.sequence_number <= from_there + MAX_TURN_MESSAGES,
        table.c.said_digest == sa.bindparam("said", type_=sa.LargeBinary),
        table.c.digest.in_(sa.bindparam("digests", expanding=True)),
    )
    return sa.select(table.c.id, table.c.digest).where(*where).order_by(table.c.created_at, table.c.id)


def _choices_query() -> sa.Select[tuple[str]]:
    """Selects the other answers of the request that `:head` answers."""
    table, head = schema.messages, schema.messages.alias("head")
    same = [head.c[name] == table.c[name] for name in ("request_id", "conversation_id", "parent_id")]
    where = (head.c.id == sa.bindparam("head"), table.c.id != head.c.id, table.c.choice.is_not(None))
    query = sa.select(table.c.id).join(head, sa.and_(*same))
    return query.where(head.c.choice.is_not(None), *where).order_by(table.c.choice)


def _linked_query() -> sa.Select[tuple[Any, ...]]:
    """Selects the messages of a conversation to which `:digests` are linked."""
    table = schema.message_links
    of_it = table.c.conversation_id == sa.bindparam("conversation")
    joined = table.join(schema.messages, schema.messages.c.id == table.c.message_id)
    query = sa.select(table.c.digest, *CHAIN_COLUMNS).select_from(joined)
    return query.where(of_it, table.c.digest.in_(sa.bindparam("digests", expanding=True)))


_UPWARDS = _upwards_query()
_LINKED = _linked_query()
_STEPS = _steps_query()
_CHOICES = _choices_query()
