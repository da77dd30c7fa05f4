"""Paths of conversations that were read lately, kept in the process: a request that goes on with one reads only what is
new of it (ADR 20)."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import Any

import sqlalchemy as sa

from gateway.base import jsons
from gateway.models.conversation import ConversationMessage, FormNotes
from gateway.models.tool_steps import RESULT_ROLES
from gateway.ports import Clock
from gateway.storage.database import schema
from gateway.storage.lookup.walk import MESSAGES, messages_of, upwards
from gateway.storage.rows import message_of

Messages = tuple[ConversationMessage, ...]
KEPT_SECONDS = 600.0
"""What nobody goes on with, as stored or as sent, is kept so long: what another replica deletes is gone by then."""
MOST_NEW = 64
"""Messages behind a kept path that are read beside it; where there are more, all is read."""
MOST_PATHS = 4
"""Paths of one conversation that are kept: its branches."""
MESSAGE_BYTES = 2200
"""What a message takes in memory beside its texts, with what is noted of it."""


@dataclass(frozen=True, slots=True)
class Path:
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


class PathCache:
    """An LRU cache of paths by conversation, for threads. Stored messages never change but by a deletion: what is kept
    is used only where the conversation says that there was none since. `also_forget` is called with `forget`. `hits`
    and `misses` count the paths that were asked for.

    Args:
        max_bytes: of all paths together.
        ttl: seconds that a path is kept which nobody goes on with.
    """

    def __init__(self, max_bytes: int, clock: Clock, ttl: float = KEPT_SECONDS) -> None:
        self._max_bytes, self._clock, self._ttl = max_bytes, clock, ttl
        self._paths: OrderedDict[str, tuple[float, tuple[Path, ...]]] = OrderedDict()
        self._size = 0
        self._moment = 0
        self._lock = Lock()
        self.also_forget: list[Callable[[], None]] = []
        self.hits = self.misses = 0

    @property
    def size(self) -> int:
        """Bytes of all kept paths."""
        return self._size

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, connection: sa.Connection, row: Any, last: str, max_bytes: int) -> Path | None:
        """The path of a conversation that ends with the message `last`. None if it is not kept, or has more weight than
        `max_bytes`; then its caller reads it, and `keep`s it.

        Args:
            row: the conversation's row.
        """
        found = self._read(connection, row, last, max_bytes)
        with self._lock:
            self.hits += found is not None
            self.misses += found is None
        return found

    def _read(self, connection: sa.Connection, row: Any, last: str, max_bytes: int) -> Path | None:
        since, steps = self._moment, None
        for path in self._get(row.id):
            if _instant(path.forgotten_at) != _instant(row.forgotten_at) or path.weight > max_bytes:
                continue
            steps = _steps_of(connection, row.id) if steps is None else steps
            rows = [] if path.last == last else _newer(connection, path, last)
            if rows is None or not path.steps <= steps:
                continue
            weight = path.weight + sum(each.weight for each in rows)
            if weight > max_bytes:
                return None
            if rows:
                path = _longer(path, rows, steps, weight)
            self._put(path, since)
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

        Args:
            row: the conversation's row.
            rows: the rows of its messages, the latest first.
            since: the `moment` before they were read.
        """
        notes = FormNotes()
        if not rows or rows[-1].parent_id is not None:
            return notes
        size = sum(map(_size, rows))
        if size > self._max_bytes // 2:
            return notes
        steps, weight = _results(rows, _steps_of(connection, row.id)), sum(each.weight for each in rows)
        self._put(Path(row.id, row.forgotten_at, steps, messages, weight, size, notes), since)
        return notes

    def forget(self) -> None:
        """Drops everything: something was deleted, and its words must not stay here."""
        with self._lock:
            self._moment += 1
            self._paths.clear()
            self._size = 0
        for forget in self.also_forget:
            forget()

    def expire(self) -> None:
        """Drops what nobody has asked for in time."""
        with self._lock:
            self._expire()

    def drop(self, conversation_id: str) -> None:
        """Drops the paths of one conversation, of which something was stored that they do not say."""
        with self._lock:
            self._drop(conversation_id)

    def _get(self, conversation_id: str) -> tuple[Path, ...]:
        with self._lock:
            self._expire()
            found = self._paths.get(conversation_id)
            return found[1] if found is not None else ()

    def _put(self, path: Path, since: int) -> None:
        """`since`: the moment from which on a deletion is too late for what was read."""
        until = self._clock.monotonic() + self._ttl
        with self._lock:
            if since != self._moment:
                return
            before = self._drop(path.conversation_id)
            # What is the beginning of the new path, or was read before a deletion, is not needed any more.
            others = [p for p in before if not _begins(p, path) and p.forgotten_at == path.forgotten_at]
            paths = (path, *others)[:MOST_PATHS]
            self._paths[path.conversation_id] = until, paths
            self._size += sum(each.size for each in paths)
            self._expire()
            while self._size > self._max_bytes and self._paths:
                self._drop(next(iter(self._paths)))

    def _expire(self) -> None:
        now = self._clock.monotonic()
        while self._paths:
            conversation_id, (until, _) = next(iter(self._paths.items()))
            if until > now:
                return
            self._drop(conversation_id)

    def _drop(self, conversation_id: str) -> tuple[Path, ...]:
        _, paths = self._paths.pop(conversation_id, (0.0, ()))
        self._size -= sum(each.size for each in paths)
        return paths


def _begins(path: Path, other: Path) -> bool:
    """Whether one path is the beginning of another: a message has one place in a conversation."""
    count = len(path.messages)
    return count <= len(other.messages) and other.messages[count - 1].message_id == path.last


def _steps_of(connection: sa.Connection, conversation_id: str) -> frozenset[str]:
    """The messages of a conversation whose results stand in `reasoning_events`; an index knows them."""
    return frozenset(connection.execute(_STEPS, {"conversation": conversation_id}).scalars())


def _results(rows: Sequence[Any], steps: frozenset[str]) -> frozenset[str]:
    """Those of them that are in these rows."""
    return steps.intersection(row.id for row in rows if row.role in RESULT_ROLES)


def _longer(path: Path, rows: Sequence[Any], steps: frozenset[str], weight: int) -> Path:
    messages = (*path.messages, *map(message_of, reversed(rows)))
    size = path.size + sum(map(_size, rows))
    steps = path.steps | _results(rows, steps)
    return Path(path.conversation_id, path.forgotten_at, steps, messages, weight, size, path.notes)


def _newer(connection: sa.Connection, path: Path, last: str) -> Sequence[Any] | None:
    """The rows from `last` up to the message behind a path, the latest first; None if the path does not lead there."""
    rows = connection.execute(_NEWER, {"from": last, "known": path.last}).all()
    return rows if rows and rows[-1].parent_id == path.last else None


def _size(row: Any) -> int:
    return MESSAGE_BYTES + jsons.parsed_bytes(row.body or "") + jsons.parsed_bytes(row.rendered or "")


def _instant(value: datetime | None) -> datetime | None:
    return value.replace(tzinfo=None) if value is not None else None


def _newer_query() -> sa.Select[Any]:
    """From `:from` upwards, until a message hangs on `:known`, at most `MOST_NEW`."""
    known = sa.bindparam("known", type_=sa.String)
    return messages_of(upwards(onwards=lambda chain: sa.and_(MESSAGES.c.id != known, chain.c.depth < MOST_NEW)))


_NEWER = _newer_query()
_STEPS = sa.select(schema.reasoning_events.c.message_id).where(
    schema.reasoning_events.c.conversation_id == sa.bindparam("conversation", type_=sa.String)
)
