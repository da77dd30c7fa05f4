"""Recently read paths of conversations, cached in the process: a request that continues one reads only what is new
(ADR 20)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from datetime import datetime
from threading import Lock
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from gateway.core import errors, jsons, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.frozen_records import record
from gateway.core.types import tool_steps
from gateway.core.types.conversation import ConversationMessage, MessageCache
from gateway.storage.cache.deleted_places import DeletedPlaces
from gateway.storage.database import schema
from gateway.storage.database.transactions import DatabaseTransactions
from gateway.storage.lookup.locate import MESSAGES, messages_of, upwards
from gateway.storage.rows import message_of

T = TypeVar("T")
P = TypeVar("P")
EARLIER = "/earlier"
"""Suffix of the conversation's id, under which the messages before a window are cached."""
Messages = tuple[ConversationMessage, ...]
KEPT_SECONDS = 600.0
"""How long an unused entry is cached: what another replica has deleted is gone after that."""
MAX_NEW = 64
"""Messages behind a cached path that are read to extend it; if there are more, the whole path is read."""
MAX_PATHS = 4
"""Paths of one conversation that are cached: its branches."""
PATH_CACHE_MESSAGE_BYTES = 2200
"""Bytes of memory that a message takes beside its texts, including what is cached of it."""


@record
class CachedPath:
    """A whole path, from the first message of a conversation on.

    `forgotten_at` and `steps` show whether it still matches the storage: when an item of the conversation was last
    deleted, and which of its messages are results stored in `reasoning_events`. `weight`: the sum of its messages'
    weights; `size`: bytes that it takes in memory. Paths that grew out of one another share `cache`."""

    conversation_id: str
    forgotten_at: datetime | None
    steps: frozenset[str]
    messages: Messages
    weight: int
    size: int
    cache: MessageCache = field(default_factory=MessageCache)

    @property
    def last(self) -> str | None:
        """The id of its last message."""
        return self.messages[-1].message_id

    def among(self, before: "Sequence[CachedPath]") -> "tuple[CachedPath, ...]":
        """Returns this path and those cached before, without its own beginnings and those read before a deletion."""
        others = [p for p in before if not _begins(p, self) and p.forgotten_at == self.forgotten_at]
        return (self, *others)[:MAX_PATHS]


class CachedConversation(Protocol):
    """What is cached of a conversation."""

    @property
    def conversation_id(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes of memory."""


class PathCache:
    """A thread-safe LRU cache of paths by conversation. Stored messages never change except by a deletion: an entry is
    used only if the conversation shows none since. `hits` and `misses` count the requested paths.
    `max_bytes`: of all paths together; `ttl`: seconds that an unused path is cached; `also_forget`: called by
    `forget`."""

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
        self.moment = 0
        """A counter of deletions: what is read from here on may be cached if nothing is deleted until then."""
        self._lock = Lock()
        self._also_forget = also_forget
        self.hits = self.misses = 0

    @property
    def size(self) -> int:
        """Bytes of all cached paths."""
        return self._paths.weight

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, connection: sa.Connection, row: Any, last: str, max_bytes: int) -> CachedPath | None:
        """Returns the path of a conversation that ends with the message `last`. None if it is not cached, or has more
        weight than `max_bytes`; then the caller reads it, and `keep`s it.
        `row`: the conversation's row."""
        found = self._read(connection, row, last, max_bytes)
        with self._lock:
            self.hits += found is not None
            self.misses += found is None
        return found

    def _read(self, connection: sa.Connection, row: Any, last: str, max_bytes: int) -> CachedPath | None:
        since, steps = self.moment, None
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

    def keep(
        self, connection: sa.Connection, row: Any, rows: Sequence[Any], messages: Messages, since: int
    ) -> MessageCache:
        """Caches a path that was just read, if it is whole. Returns the cache of values derived from it, still empty.
        `row`: the conversation's row; `rows`: the rows of its messages, latest first; `since`: the `moment` before they
        were read."""
        cache = MessageCache()
        if not rows or rows[-1].parent_id is not None:
            return cache
        size = sum(map(row_bytes, rows))
        if size > self._max_bytes // 2:
            return cache
        steps, weight = results_in(rows, steps_of(connection, row.id)), sum(each.weight for each in rows)
        path = CachedPath(row.id, row.forgotten_at, steps, messages, weight, size, cache)
        self._put(row.id, path.among, since)
        return cache

    def forget(self) -> None:
        """Drops all entries: something was deleted, and its text must not stay here."""
        with self._lock:
            self.moment += 1
            self._paths.clear()
        if self._also_forget is not None:
            self._also_forget()

    def expire(self) -> None:
        with self._lock:
            self._paths.expire()

    def drop(self, conversation_id: str) -> None:
        """Drops all that is cached of one conversation."""
        with self._lock:
            self._paths.pop(conversation_id)
            self._paths.pop(conversation_id + EARLIER)

    def recount(self, conversation_id: str) -> None:
        """Drops one conversation's paths, which lack counts stored since; messages before a window need none."""
        with self._lock:
            self._paths.pop(conversation_id)

    def earlier(self, conversation_id: str) -> "CachedConversation | None":
        """Returns what is cached of the messages before a window."""
        return next(iter(self._get(conversation_id + EARLIER)), None)

    def keep_earlier(self, path: "CachedConversation", since: int) -> None:
        """Caches the messages before a window, if nothing was deleted since the `moment` before they were read."""
        if path.size <= self._max_bytes // 2:
            self._put(path.conversation_id + EARLIER, lambda before: (path,), since)

    def _get(self, name: str) -> tuple[Any, ...]:
        with self._lock:
            return self._paths.peek(name) or ()

    def _put(self, name: str, among: Callable[[tuple[Any, ...]], tuple[CachedConversation, ...]], since: int) -> None:
        """Replaces the cached entries by what `among` makes of them.
        `since`: the `moment` before the data was read; a deletion since then prevents caching."""
        with self._lock:
            if since != self.moment:
                return
            kept = among(self._paths.pop(name) or ())
            self._paths.put(name, kept, weight=sum(each.size for each in kept))


def _begins(path: CachedPath, other: CachedPath) -> bool:
    """Returns whether one path is the beginning of another: a message has one place in a conversation."""
    count = len(path.messages)
    return count <= len(other.messages) and other.messages[count - 1].message_id == path.last


def steps_of(connection: sa.Connection, conversation_id: str) -> frozenset[str]:
    """Returns the messages of a conversation whose results are in `reasoning_events`, by an index, as one value: a row
    for each would take four times as long."""
    ids = connection.execute(_STEPS, {"conversation": conversation_id}).scalar()
    return frozenset(ids.split("\n")) if ids else frozenset()


def results_in(rows: Sequence[Any], steps: frozenset[str]) -> frozenset[str]:
    """Returns which of the messages `steps` are in these rows."""
    return steps.intersection(row.id for row in rows if row.role in tool_steps.RESULT_ROLES)


def _longer(path: CachedPath, rows: Sequence[Any], steps: frozenset[str], weight: int) -> CachedPath:
    messages = (*path.messages, *map(message_of, reversed(rows)))
    size = path.size + sum(map(row_bytes, rows))
    steps = path.steps | results_in(rows, steps)
    return CachedPath(path.conversation_id, path.forgotten_at, steps, messages, weight, size, path.cache)


def newer_rows(connection: sa.Connection, known: str | None, last: str) -> Sequence[Any] | None:
    """Reads the rows from `last` up to the one behind `known`, latest first; None if the path lacks `known`."""
    rows = connection.execute(_NEWER, {"from": last, "known": known}).all()
    return rows if rows and rows[-1].parent_id == known else None


def row_bytes(row: Any) -> int:
    """Estimates the bytes of memory that a message takes."""
    return PATH_CACHE_MESSAGE_BYTES + jsons.parsed_bytes(row.body or "") + jsons.parsed_bytes(row.rendered or "")


def instant(value: datetime | None) -> datetime | None:
    """Removes the zone of a time, so that times of either database compare."""
    return value.replace(tzinfo=None) if value is not None else None


def _newer_query() -> sa.Select[Any]:
    """Selects, from `:from` upwards, messages until one follows `:known`, at most `MAX_NEW`."""
    known = sa.bindparam("known", type_=sa.String)
    return messages_of(upwards(onwards=lambda chain: sa.and_(MESSAGES.c.id != known, chain.c.depth < MAX_NEW)))


_NEWER = _newer_query()
_STEPS = sa.select(sa.func.aggregate_strings(schema.reasoning_events.c.message_id, "\n")).where(
    schema.reasoning_events.c.conversation_id == sa.bindparam("conversation", type_=sa.String)
)


@record
class StorageCaches:
    """The caches beside the storage: one shared with other replicas, and this process's recently read paths."""

    shared: ports.CacheBackend | None = None
    paths: PathCache | None = None


NO_CACHES = StorageCaches()


class CachedRows:
    """Base of classes that change rows of which caches hold copies."""

    def __init__(
        self,
        transactions: DatabaseTransactions,
        clock: ports.Clock,
        cache: ports.CacheBackend,
        paths: PathCache | None = None,
    ) -> None:
        """`paths`: this process's cache of recently read paths."""
        self._transactions, self._cache, self._paths = transactions, cache, paths
        self._deleted = DeletedPlaces(cache)
        self.clock = clock

    async def _forget(self, groups: Sequence[str] = ()) -> None:
        """Evicts, after a deletion, what this process, the cache and the database's files still hold of the content."""
        if self._paths is not None:
            self._paths.forget()
        if groups:
            await self._cache.evict(*groups)
        await self._transactions.wipe()

    async def _page_behind(
        self, read: Callable[[sa.Connection, P | None], T], find: Callable[[], Awaitable[P | None]]
    ) -> T:
        """Reads a page of a list. If the object behind which it begins is gone, reads it behind the place where that
        object stood until lately, which `find` returns. Raises NotFound: as `read` does, if that is unknown."""
        try:
            return await self._transactions.run(lambda connection: read(connection, None))
        except errors.NotFound:
            place = await find()
            if place is None:
                raise
        return await self._transactions.run(lambda connection: read(connection, place))
