"""What outlives the window: summaries of old turns (guarantee §11)."""

from dataclasses import dataclass
from datetime import datetime

EXTRACTS = "extracts"
"""The `context.memory` without summaries."""


@dataclass(frozen=True, slots=True)
class SummarySegment:
    """A summary of an unbroken run of old turns. It is made once and never changed; later turns get segments of their
    own, so that the segments of a branch, oldest first, cover it from its beginning without a gap.

    `first` and `last` are the sequence numbers of the first and the last message that it covers; `last_message_id`
    tells the branch: it holds where that message is on the path.
    """

    segment_id: str
    first: int
    last: int
    last_message_id: str
    text: str


@dataclass(frozen=True, slots=True)
class OldMessage:
    """A stored message that no summary covers, without its body; `weight` are the bytes that it takes in a window at
    least."""

    message_id: str
    number: int
    role: str
    weight: int


@dataclass(frozen=True, slots=True)
class Uncovered:
    """The end of a path that no summary covers, oldest message first, up to an answer. `after` is the last message that
    one covers. `forgotten_at` is when an item of the conversation was last deleted: what is deleted later must not be
    told by a summary of it."""

    messages: tuple[OldMessage, ...]
    after: str | None = None
    forgotten_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A segment to be stored, made of the beginning of `uncovered`. `prompt_version` tells by which words it was asked
    for."""

    segment: SummarySegment
    uncovered: Uncovered
    prompt_version: int
