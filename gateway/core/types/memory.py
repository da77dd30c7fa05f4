"""What a conversation keeps of itself beyond its window: pinned messages, and summaries of old turns (guarantee §11.12,
§11.13). What it is about, remembered things, is in `core/types/entities.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

EXTRACTS, SUMMARY = "extracts", "summary"
"""The `context.memory` without summaries, and the one in which they come before passages that may be of use."""


@dataclass(frozen=True, slots=True)
class SummarySegment:
    """A summary of an unbroken run of old turns. It is made once and never changed; later turns get segments of their
    own, so that the segments of a branch, oldest first, cover it from its beginning without a gap.

    `first` and `last` are the sequence numbers of the first and the last message that it covers; `last_message_id`
    tells the branch: it holds where that message is on the path. `first_turn` and `last_turn` are the numbers of the
    turns, from 1, and `size_chars` the characters of what it was made of; 0 where that is not known.
    """

    segment_id: str
    first: int
    last: int
    last_message_id: str
    text: str
    first_turn: int = 0
    last_turn: int = 0
    size_chars: int = 0


@dataclass(frozen=True, slots=True)
class OldMessage:
    """A stored message that no summary covers, without its body; `weight` are the bytes that it takes in a window at
    least."""

    message_id: str
    number: int
    role: str
    weight: int


@dataclass(frozen=True, slots=True)
class UncoveredPath:
    """The end of a path that no summary covers, oldest message first, up to an answer. `after` is the last message that
    one covers, `turns_before` how many turns are covered. `forgotten_at` is when an item of the conversation was last
    deleted: what is deleted later must not be told by a summary of it."""

    messages: tuple[OldMessage, ...]
    after: str | None = None
    turns_before: int = 0
    forgotten_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A segment to be stored, made of the beginning of `uncovered`. `prompt_version` tells by which words it was asked
    for."""

    segment: SummarySegment
    uncovered: UncoveredPath
    prompt_version: int


@dataclass(frozen=True, slots=True)
class PinnedMessage:
    """A pinned message, as the memory message may show it.

    Attributes:
        body: the message as it was sent.
        speaker: its role, with the name of who said it if there is one.
        message_id: its stored id; None of a new message.
        index: its index in `WindowInputs.messages`; None where it can only stand in the memory message.
        tool, arguments: of the call that a tool's result answers; "" for others.
        files: texts of its `file` parts that the model cannot take, by the number of the part.
    """

    body: dict[str, Any]
    speaker: str
    message_id: str | None = None
    index: int | None = None
    tool: str = ""
    arguments: str = ""
    files: Mapping[int, str] = field(default_factory=dict)

    def is_outside(self, first: int, left_out: frozenset[int]) -> bool:
        """Whether a window that begins with message `first`, without those `left_out`, does not hold it."""
        return self.index is None or self.index < first or self.index in left_out


@dataclass(frozen=True, slots=True)
class MemoryMessage:
    """The one labelled message of guarantee §4 I2, as it is forwarded.

    `pinned` are the messages that it holds, by their ids; by their indexes in `WindowInputs.messages` where they have
    none yet. `segments` are the ids of its summaries.
    """

    body: dict[str, Any]
    pinned: tuple[str | int, ...] = ()
    segments: tuple[str, ...] = ()

    def named(self, names: Sequence[str | None]) -> "MemoryMessage":
        """The same where each message has an id: that at its index in `names`."""
        return replace(self, pinned=tuple(p if isinstance(p, str) else names[p] or "" for p in self.pinned))

    def renamed(self, ids: Mapping[Any, str]) -> "MemoryMessage":
        """The same where messages are stored under other ids."""
        return replace(self, pinned=tuple(ids.get(name, str(name)) for name in self.pinned))

    def as_json(self) -> dict[str, Any]:
        """As it stands in a frame."""
        return {"body": self.body, "pinned": list(self.pinned), "segments": list(self.segments)}


def memory_message_of(stored: Mapping[str, Any] | None) -> MemoryMessage | None:
    """The message of a frame's JSON; None where there is none.

    Raises:
        KeyError: it is no such object.
    """
    if stored is None:
        return None
    return MemoryMessage(stored["body"], tuple(stored.get("pinned", ())), tuple(stored.get("segments", ())))
