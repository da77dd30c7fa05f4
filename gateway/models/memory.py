"""What outlives the window: summaries of old turns (guarantee §11)."""

from dataclasses import dataclass


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
