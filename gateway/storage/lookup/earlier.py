"""The messages before a window, in which what a question needs is looked for. Those that were read lately are kept in
the process beside their conversation's paths: the next question reads what has left the window since (ADR 20)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Any

import sqlalchemy as sa

from gateway.models.conversation import ConversationMessage, Earlier
from gateway.models.notes import RecalledNotes
from gateway.models.tool_steps import turn_starts
from gateway.storage.lookup.path_cache import PathCache, instant, newer_rows, results_in, row_bytes, steps_of
from gateway.storage.rows import message_of

INDEX_BYTES = 2
"""Of memory for the index of a message's words, for each byte of the message."""


@dataclass(frozen=True, slots=True)
class EarlierPath:
    """The messages before a window, oldest first, with their weights, as many as `limit` allowed.

    `forgotten_at` and `steps` say whether they are still what is stored, as with `path_cache.Path`. `turns` is how
    many turns began before the first of them.
    """

    conversation_id: str
    forgotten_at: datetime | None
    steps: frozenset[str]
    limit: int
    messages: tuple[ConversationMessage, ...]
    weights: tuple[int, ...]
    sizes: tuple[int, ...]
    turns: int
    notes: RecalledNotes

    @classmethod
    def of(cls, connection: sa.Connection, last: Any, rows: Sequence[Any], turns: int, limit: int) -> "EarlierPath":
        """What was read just now: the rows before the message `last`, the latest first."""
        conversation_id, steps = last.conversation_id, steps_of(connection, last.conversation_id)
        nothing = cls(conversation_id, last.forgotten_at, frozenset(), limit, (), (), (), turns, RecalledNotes())
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
        """With these rows behind it, the latest first, and without what is too old then; for the next request."""
        messages = (*self.messages, *map(message_of, reversed(rows)))
        weights = (*self.weights, *(row.weight for row in reversed(rows)))
        sizes = (*self.sizes, *map(_size, reversed(rows)))
        held = sum(total <= self.limit for total in accumulate(reversed(weights)))
        first = len(messages) - held
        turns = self.turns + sum(at < first for at in turn_starts(message.role for message in messages))
        of_it = (self.conversation_id, self.forgotten_at, self.steps | results_in(rows, steps), self.limit)
        return EarlierPath(*of_it, messages[first:], weights[first:], sizes[first:], turns, self.notes.following())

    def read(self) -> Earlier:
        """What a request gets of it."""
        return Earlier(self.messages, self.turns, self.notes)


def kept_earlier(connection: sa.Connection, last: Any, max_bytes: int, paths: PathCache) -> EarlierPath | None:
    """What is kept of the messages before a window, if it is still what is stored, with what has left the window.

    Args:
        last: parent, conversation and `forgotten_at` of the first message that was read for the window.
    """
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
