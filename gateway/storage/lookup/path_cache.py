"""Paths of conversations that were read lately, kept in the process: a request that goes on with one reads only what is
new of it (ADR 20)."""

from collections.abc import Callable, Sequence
from dataclasses import field
from datetime import datetime
from threading import Lock
from typing import Any, Protocol

import sqlalchemy as sa

from gateway.core import jsons, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.frozen_records import record
from gateway.core.types import tool_steps
from gateway.core.types.conversation import ConversationMessage, FormNotes
from gateway.storage.database import schema
from gateway.storage.database.transactions import DatabaseTransactions
from gateway.storage.lookup.locate import MESSAGES, messages_of, upwards
from gateway.storage.rows import message_of

EARLIER = "/earlier"
"""What is kept of the messages before a window has the conversation's name with this behind it."""
Messages = tuple[ConversationMessage, ...]
KEPT_SECONDS = 600.0
"""What nobody goes on with, as stored or as sent, is kept so long: what another replica deletes is gone by then."""
MAX_NEW = 64
"""Messages behind a kept path that are read beside it; where there are more, all is read."""
MAX_PATHS = 4
"""Paths of one conversation that are kept: its branches."""
PATH_CACHE_MESSAGE_BYTES = 2200
"""What a message takes in memory beside its texts, with what is noted of it."""


@record
class CachedPath:
    """A whole path, from the first message of a conversation on.

    `forgotten_at` and `steps` say whether it is still what is stored: when an item of the conversation was last
    deleted, and which of its messages are results that stand in `reasoning_events`. `weight` is the sum of its
    messages' weights, `size` the bytes that it takes in memory. `notes` are shared by the paths that grew out of one
    another.
    """

    conversation_id: str
    forgotten_at: datetime | None
    steps: frozenset[str]
    messages: Messages
    weight: int
    size: int
    notes: FormNotes = field(default_factory=FormNotes)

    @property
    def last(self) -> str | None:
        """The id of its last message."""
        return self.messages[-1].message_id

    def among(self, before: "Sequence[CachedPath]") -> "tuple[CachedPath, ...]":
        """It and those kept before. What is its beginning, or was read before a deletion, is not needed any more."""
        others = [p for p in before if not _begins(p, self) and p.forgotten_at == self.forgotten_at]
        return (self, *others)[:MAX_PATHS]


class CachedConversation(Protocol):
    """What is kept of a conversation."""

    @property
    def conversation_id(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes of memory."""
        ...


class PathCache:
    """An LRU cache of paths by conversation, for threads. Stored messages never change but by a deletion: what is kept
    is used only where the conversation says that there was none since. `hits` and `misses` count the paths that were
    asked for.
    `max_bytes`: of all paths together; `ttl`: seconds that a path is kept which nobody goes on with; `also_forget`: is
    called by `forget`."""

    def __init__(
        self,
        max_bytes: int,
        clock: ports.Clock,
        ttl: float = KEPT_SECONDS,
        also_forget: Callable[[], None] | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._paths: BoundedCache[str, tuple[CachedConversation, ...]] = BoundedCache(
            max_weight=max_bytes, now=clock.monotonic, ttl=ttl
        )
        self._moment = 0
        self._lock = Lock()
        self._also_forget = also_forget
        self.hits = self.misses = 0

    @property
    def size(self) -> int:
        """Bytes of all kept paths."""
        return self._paths.weight

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, connection: sa.Connection, row: Any, last: str, max_bytes: int) -> CachedPath | None:
        """The path of a conversation that ends with the message `last`. None if it is not kept, or has more weight than
        `max_bytes`; then its caller reads it, and `keep`s it.
        `row`: the conversation's row."""
        found = self._read(connection, row, last, max_bytes)
        with self._lock:
            self.hits += found is not None
            self.misses += found is None
        return found

    def _read(self, connection: sa.Connection, row: Any, last: str, max_bytes: int) -> CachedPath | None:
        since, steps = self._moment, None
        paths: tuple[CachedPath, ...] = self._get(row.id)
        for path in paths:
            if instant(path.forgotten_at) != instant(row.forgotten_at) or path.weight > max_bytes:
                continue
            steps = steps_of(connection, row.id) if steps is None else steps
            rows = [] if path.last == last else newer_rows(connection, path.last, last)
            if rows is None or not path.steps <= steps:
                continue
            weight = path.weight + sum(each.weight for each in rows)
            if weight > max_bytes:
                return None
            if rows:
                path = _longer(path, rows, steps, weight)
            self._put(row.id, path.among, since)
            return path
        return None

    @property
    def moment(self) -> int:
        """A counter of deletions: what is read from here on may be kept if nothing is deleted until then."""
        return self._moment

    def keep(
        self, connection: sa.Connection, row: Any, rows: Sequence[Any], messages: Messages, since: int
    ) -> FormNotes:
        """Keeps a path that was read just now, if it is whole. Returns its notes, which are empty yet.
        `row`: the conversation's row; `rows`: the rows of its messages, the latest first; `since`: the `moment` before
        they were read."""
        notes = FormNotes()
        if not rows or rows[-1].parent_id is not None:
            return notes
        size = sum(map(row_bytes, rows))
        if size > self._max_bytes // 2:
            return notes
        steps, weight = results_in(rows, steps_of(connection, row.id)), sum(each.weight for each in rows)
        path = CachedPath(row.id, row.forgotten_at, steps, messages, weight, size, notes)
        self._put(row.id, path.among, since)
        return notes

    def forget(self) -> None:
        """Drops everything: something was deleted, and its words must not stay here."""
        with self._lock:
            self._moment += 1
            self._paths.clear()
        if self._also_forget is not None:
            self._also_forget()

    def expire(self) -> None:
        with self._lock:
            self._paths.expire()

    def drop(self, conversation_id: str) -> None:
        """Drops all that is kept of one conversation."""
        with self._lock:
            self._paths.pop(conversation_id)
            self._paths.pop(conversation_id + EARLIER)

    def recount(self, conversation_id: str) -> None:
        """Drops the paths of one conversation, which lack counts that were stored. Those before a window need none."""
        with self._lock:
            self._paths.pop(conversation_id)

    def earlier(self, conversation_id: str) -> "CachedConversation | None":
        """What is kept of the messages before a window."""
        return next(iter(self._get(conversation_id + EARLIER)), None)

    def keep_earlier(self, path: "CachedConversation", since: int) -> None:
        """Keeps the messages before a window, if nothing was deleted since the `moment` before they were read."""
        if path.size <= self._max_bytes // 2:
            self._put(path.conversation_id + EARLIER, lambda before: (path,), since)

    def _get(self, name: str) -> tuple[Any, ...]:
        with self._lock:
            return self._paths.peek(name) or ()

    def _put(self, name: str, among: Callable[[tuple[Any, ...]], tuple[CachedConversation, ...]], since: int) -> None:
        """Keeps what `among` gives for what was kept until now.
        `since`: the moment from which on a deletion is too late for what was read."""
        with self._lock:
            if since != self._moment:
                return
            kept = among(self._paths.pop(name) or ())
            self._paths.put(name, kept, weight=sum(each.size for each in kept))


def _begins(path: CachedPath, other: CachedPath) -> bool:
    """Whether one path is the beginning of another: a message has one place in a conversation."""
    count = len(path.messages)
    return count <= len(other.messages) and other.messages[count - 1].message_id == path.last


def steps_of(connection: sa.Connection, conversation_id: str) -> frozenset[str]:
    """The messages of a conversation whose results stand in `reasoning_events`; an index knows them."""
    return frozenset(connection.execute(_STEPS, {"conversation": conversation_id}).scalars())


def results_in(rows: Sequence[Any], steps: frozenset[str]) -> frozenset[str]:
    """Those of them that are in these rows."""
    return steps.intersection(row.id for row in rows if row.role in tool_steps.RESULT_ROLES)


def _longer(path: CachedPath, rows: Sequence[Any], steps: frozenset[str], weight: int) -> CachedPath:
    messages = (*path.messages, *map(message_of, reversed(rows)))
    size = path.size + sum(map(row_bytes, rows))
    steps = path.steps | results_in(rows, steps)
    return CachedPath(path.conversation_id, path.forgotten_at, steps, messages, weight, size, path.notes)


def newer_rows(connection: sa.Connection, known: str | None, last: str) -> Sequence[Any] | None:
    """The rows from `last` up to the message behind `known`, the latest first; None if the path does not lead there."""
    rows = connection.execute(_NEWER, {"from": last, "known": known}).all()
    return rows if rows and rows[-1].parent_id == known else None


def row_bytes(row: Any) -> int:
    """Bytes of memory that a message takes, about."""
    return PATH_CACHE_MESSAGE_BYTES + jsons.parsed_bytes(row.body or "") + jsons.parsed_bytes(row.rendered or "")


def instant(value: datetime | None) -> datetime | None:
    """A time of either database."""
    return value.replace(tzinfo=None) if value is not None else None


def _newer_query() -> sa.Select[Any]:
    """From `:from` upwards, until a message hangs on `:known`, at most `MAX_NEW`."""
    known = sa.bindparam("known", type_=sa.String)
    return messages_of(upwards(onwards=lambda chain: sa.and_(MESSAGES.c.id != known, chain.c.depth < MAX_NEW)))


_NEWER = _newer_query()
_STEPS = sa.select(schema.reasoning_events.c.message_id).where(
    schema.reasoning_events.c.conversation_id == sa.bindparam("conversation", type_=sa.String)
)


@record
class StorageCaches:
    """Where what the storage holds is kept besides: with other replicas, and, of paths that were read lately, here."""

    shared: ports.CacheBackend | None = None
    paths: PathCache | None = None


NO_CACHES = StorageCaches()


class CachedRows:
    """What every class has that changes rows of which caches hold copies."""

    def __init__(
        self,
        transactions: DatabaseTransactions,
        clock: ports.Clock,
        cache: ports.CacheBackend,
        paths: PathCache | None = None,
    ) -> None:
        """`paths`: where this process keeps what it read lately."""
        self._transactions, self._cache, self._paths = transactions, cache, paths
        self.clock = clock
