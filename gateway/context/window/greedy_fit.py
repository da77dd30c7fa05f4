"""Where old turns are cut: a greedy fit that keeps one unbroken run of turns (guarantee §4 I2), and room for summaries.

Turns are taken as messages from the newest back while they fit. The first that does not fit ends the run. To skip it
and take an older one that does fit is the greedy-fit bug: the model would read a conversation with a hole in it.
Passages of what the run does not hold compete for the rest of the room, in order of worth.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, islice

from gateway.context.window import tuning
from gateway.context.window.candidates import PassageCandidate
from gateway.context.window.counting import PromptCounter
from gateway.context.window.turns import TurnSpan
from gateway.core.types.artifacts import Artifact
from gateway.core.types.window import WindowInputs, head_of


@dataclass(slots=True)
class TakenPassage:
    """A passage, or with `turn` a turn as messages, with the tokens it is expected to take. `is_part`: the beginning of
    a passage that is too long; the passage itself still waits."""

    tokens: float
    candidate: PassageCandidate | None = None
    turn: TurnSpan | None = None
    is_part: bool = False


@dataclass(slots=True)
class GreedyFit:
    """What is taken into the window, in order: it grows while there is room, and shrinks from its end.

    Attributes:
        first: index of the message with which the window begins.
        turns: the turns before the window, newest last.
        cost: tokens of a turn as messages.
        run_ended: no more turns are taken: one did not fit, or a step of the current turn has left.
        block_fixed: passages are taken only where they are shown in their own messages.
    """

    counting: PromptCounter
    first: int
    turns: list[TurnSpan]
    cost: Callable[[TurnSpan], int]
    run_ended: bool = False
    block_fixed: bool = False
    taken: list[TakenPassage] = field(default_factory=list)
    used: float = 0.0
    _passages: Counter[int] = field(default_factory=Counter)
    """Passages taken of each artifact or message, by its identity."""
    _quoted: dict[int, float] = field(default_factory=dict)
    """Tokens of the excerpts of a message, by its index."""
    _heads: Counter[str] = field(default_factory=Counter)
    """Quoted messages by their head: it is written once for all in a row."""
    _has_items: bool = False
    _counted: dict[int, int] = field(default_factory=dict)
    """Tokens of passages by identity: each is tried once more whenever there is more room."""
    _tried: list[PassageCandidate] = field(default_factory=list)
    """They are held, so that no other gets their identity."""

    def extend_run(self, limit: float) -> None:
        """Takes whole turns before the window, newest first, up to `limit` tokens in all. It stops at the first that
        does not fit, however small the older ones are."""
        while self.turns and not self.run_ended:
            turn = self.turns[-1]
            excerpts = sum(self._quoted.get(index, 0.0) for index in range(turn.start, turn.end))
            cost = self.cost(turn) - excerpts  # which are not shown beside the turn itself
            if self.used + cost > limit:
                return
            self.turns.pop()
            self._take(TakenPassage(cost, turn=turn))
            self.first = turn.start

    def add(self, candidates: Sequence[PassageCandidate], limit: float) -> list[PassageCandidate]:
        """Takes the passages that fit, in that order, up to `limit` tokens in all; returns those that did not."""
        left: list[PassageCandidate] = []
        misses = 0
        for number, candidate in enumerate(candidates):
            room = limit - self.used
            if room < tuning.MIN_ROOM or misses > tuning.MAX_MISSES:
                left.extend(candidates[number:])
                break
            passage = candidate.passage
            least = (passage.end - passage.start) / tuning.CHARS_PER_TOKEN / 2
            surely_long = passage.start > 0 and tuning.ELISION_TOKENS + least > room  # the cheapest test first
            is_barred = self.block_fixed and not self._in_window(candidate)
            is_begun = self._passages[id(candidate.of)] and not candidate.summary
            around = tuning.ELISION_TOKENS if is_begun else self._around(candidate)
            if surely_long or is_barred or around + least > room:
                left.append(candidate)
                continue
            tokens = self._counted.get(id(candidate))
            if tokens is None:
                tokens = self._counted[id(candidate)] = self.counting.text(candidate.text)
                self._tried.append(candidate)
            cost = around + tokens
            if cost > room:
                misses += 1
                left.append(candidate)
                continue
            misses = 0
            self._take(TakenPassage(cost, candidate))
        return left

    def add_parts(self, candidates: Iterable[PassageCandidate], limit: float) -> None:
        """Takes beginnings of the best passages that are too long, up to where a word ends if they have words."""
        for candidate in islice(
            (c for c in candidates if not (c.summary or (self.block_fixed and not self._in_window(c)))),
            tuning.MAX_PARTS,
        ):
            room, passage = limit - self.used - self._around(candidate) - 2 * tuning.ELISION_TOKENS, candidate.passage
            if room < tuning.MIN_ROOM:
                return
            text = candidate.text[: int(room * tuning.MAX_CHARS_PER_TOKEN)]
            while text and (tokens := self.counting.text(text)) > room:
                text = text[: min(int(len(text) * room / tokens), len(text) - 1)]
            last = text.rsplit(maxsplit=1)[-1] if text else ""
            text = text[: len(text) - len(last)] if len(last) < tuning.MIN_PART else text
            if len(text) >= tuning.MIN_PART:
                part = replace(passage, end=passage.start + len(text))
                cost = self._around(candidate) + tuning.ELISION_TOKENS + self.counting.text(text)
                self._take(TakenPassage(cost, replace(candidate, passage=part), is_part=True))

    def drop_parts(self) -> None:
        """Gives up the parts that were taken last, so that longer ones of the same passages have their room, too."""
        while self.taken and self.taken[-1].is_part:
            self.shrink(self.taken[-1].tokens)

    def shrink(self, tokens: float) -> list[PassageCandidate]:
        """Gives up what was taken last, at least that many tokens of it; returns the passages among it, but for those
        that still wait as a whole. A turn given up ends the run."""
        freed = 0.0
        given_up: list[PassageCandidate] = []
        while self.taken and freed < tokens:
            last = self.taken.pop()
            freed += last.tokens
            if last.turn is not None:
                self.first = last.turn.end
                self.run_ended = True
            elif last.candidate is not None:
                self._count(last.candidate, -1, -last.tokens)
                given_up += [] if last.is_part else [last.candidate]
        self.used -= freed
        return given_up[::-1]

    def passages(self) -> list[PassageCandidate]:
        """All passages that were taken."""
        return [each.candidate for each in self.taken if each.candidate is not None]

    def _take(self, what: TakenPassage) -> None:
        self.taken.append(what)
        self.used += what.tokens
        if what.candidate is not None:
            self._count(what.candidate, 1, what.tokens)

    def _count(self, candidate: PassageCandidate, by: int, tokens: float) -> None:
        of = candidate.of
        self._passages[id(of)] += by
        if not isinstance(of, Artifact):
            self._quoted[of.index] = self._quoted.get(of.index, 0.0) + tokens
            if candidate.passage.start == 0:
                self._heads[head_of(of.text)] += by
        elif not self._in_window(candidate):
            self._has_items = True

    def _around(self, candidate: PassageCandidate) -> float:
        """Tokens of what is written around a passage: a label, a mark of what is left out, a heading."""
        of = candidate.of
        more = tuning.SUMMARY_LABEL_TOKENS + len(candidate.focus) / tuning.CHARS_PER_TOKEN if candidate.summary else 0
        if self._passages[id(of)]:
            return tuning.ELISION_TOKENS + more
        block = 0 if self._quoted or self._has_items else tuning.BLOCK_TOKENS
        if not isinstance(of, Artifact):
            head = head_of(of.text) if candidate.passage.start == 0 else ""
            written_already = self.counting.text(head) if head and self._heads[head] else 0
            return tuning.LINE_TOKENS + (0 if self._quoted else tuning.LABEL_TOKENS + block) - written_already
        heading = len(candidate.passage.heading) / tuning.CHARS_PER_TOKEN + more
        if self._in_window(candidate):
            return heading + tuning.EXTRACT_TOKENS
        return heading + tuning.LABEL_TOKENS + block + len(of.search_label) / tuning.CHARS_PER_TOKEN

    def _in_window(self, candidate: PassageCandidate) -> bool:
        return candidate.message is not None and candidate.message >= self.first


class SegmentRoom:
    """The summaries of what is older than a window, and how many of them are taken, the latest (guarantee §11.13).
    `material`: whose current turn the latest of them comes before."""

    def __init__(self, material: WindowInputs, counting: PromptCounter) -> None:
        self._material, self._counting = material, counting
        self.taken = 0

    @cached_property
    def _tokens(self) -> list[int]:
        """What the latest take together: none, one, two …"""
        found = self._material.segments_before(self._material.current)
        each = [tuning.SEGMENT_TOKENS + self._counting.text(segment.text) for segment in reversed(found)]
        return [0, *(tuning.MEMORY_TOKENS + tokens for tokens in accumulate(each))]

    @property
    def used(self) -> int:
        """Tokens of those that are taken."""
        return self._tokens[self.taken] if self.taken else 0

    def least(self, room: float) -> float:
        """What passages leave free for them, whatever they hold."""
        return min(room * self._most * tuning.MIN_SEGMENTS_PART, self._tokens[-1]) if self._material.segments else 0.0

    def share(self, room: float) -> float:
        """What turns leave free for them."""
        return min(room * self._most, self._tokens[-1]) if self._material.segments else 0.0

    @property
    def _most(self) -> float:
        return tuning.SEGMENTS_FIRST_SHARE if self._material.segments_first else tuning.SEGMENTS_SHARE

    def take(self, first: int, room: float) -> int:
        """Takes as many of those before message `first` as have room; returns their tokens."""
        waiting = len(self._material.segments_before(first))
        while self.taken < waiting and self._tokens[self.taken + 1] <= room:
            self.taken += 1
        return self.used

    def shown(self, usable: int | None) -> int:
        """How many have room in a window of so many tokens, None: without a bound, from which the turns that they tell
        leave for them."""
        if usable is None:
            return len(self._material.segments)
        self.take(self._material.current, self.share(usable))
        return self.taken

    def give_up(self) -> int:
        """Gives up the oldest that is taken; returns its tokens."""
        before, self.taken = self.used, max(0, self.taken - 1)
        return before - self.used
