"""Room for summaries of old turns, in a window that cannot hold everything (guarantee §11.13).

A summary is never in the place of what the question needs: it takes what passages leave, and a share of the room at
most. The latest are taken first: each is shown when its turns leave, and what no longer has room is how the
conversation began.
"""

from functools import cached_property
from itertools import accumulate

from gateway.models.window import Material
from gateway.window.counting import PromptCounter

SHARE, FIRST_SHARE = 0.1, 0.2
"""Share of the room that summaries may take, behind what the question needs, and with `context.memory: summary`.
Measured (ADR 23)."""
LEAST_PART = 0.5
"""Part of it where the question seems to need all else: a vague one needs half of everything."""
LABEL_TOKENS, MESSAGE_TOKENS = 40, 35
"""Tokens of what is written around a summary, and around all of them, roughly. A wrong guess shows when the selection
is counted."""


class SegmentRoom:
    """The summaries of what is older than a window, and how many of them are taken, the latest.

    Args:
        material: whose current turn the latest of them comes before.
    """

    def __init__(self, material: Material, counting: PromptCounter) -> None:
        self._material, self._counting = material, counting
        self.taken = 0

    @cached_property
    def _tokens(self) -> list[int]:
        """What the latest take together: none, one, two …"""
        found = self._material.segments_before(self._material.current)
        each = [LABEL_TOKENS + self._counting.text(segment.text) for segment in reversed(found)]
        return [0, *(MESSAGE_TOKENS + tokens for tokens in accumulate(each))]

    @property
    def used(self) -> int:
        """Tokens of those that are taken."""
        return self._tokens[self.taken] if self.taken else 0

    def least(self, room: float) -> float:
        """What passages leave free for them, whatever they hold."""
        return min(room * self._most * LEAST_PART, self._tokens[-1]) if self._material.segments else 0.0

    def share(self, room: float) -> float:
        """What turns leave free for them."""
        return min(room * self._most, self._tokens[-1]) if self._material.segments else 0.0

    @property
    def _most(self) -> float:
        return FIRST_SHARE if self._material.segments_first else SHARE

    def take(self, first: int, room: float) -> int:
        """Takes as many of those before message `first` as have room; returns their tokens."""
        waiting = len(self._material.segments_before(first))
        while self.taken < waiting and self._tokens[self.taken + 1] <= room:
            self.taken += 1
        return self.used

    def taken_within(self, first: int, room: float) -> int:
        """How many of those before message `first` are taken, with room for so many tokens."""
        self.take(first, room)
        return self.taken

    def give_up(self) -> int:
        """Gives up the oldest that is taken; returns its tokens."""
        before, self.taken = self.used, max(0, self.taken - 1)
        return before - self.used
