"""Where the window is cut: a greedy fit that keeps one unbroken run of turns (guarantee §4 I2).

Turns are taken as messages from the newest back while they fit. The first that does not fit ends the run. To skip it
and take an older one that does fit is the greedy-fit bug: the model would read a conversation with a hole in it.
Passages of what the run does not hold compete for the rest of the room, in order of worth.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise

from gateway.models.artifacts import Artifact
from gateway.models.conversation import INSTRUCTION_ROLES
from gateway.models.tool_steps import RESULT_ROLES, calls_of, turn_starts
from gateway.models.window import Material, head_of
from gateway.window.candidates import Candidate
from gateway.window.counting import PromptCounter
from gateway.window.fitting import CHARS_PER_TOKEN, LABEL_TOKENS

# Tokens of the wording of `assembly.block`, roughly. A wrong guess shows when the selection is counted.
BLOCK_TOKENS = 35
"""The block's own tags and note."""
LINE_TOKENS = 7
"""Turn and speaker before an excerpt."""
ELISION_TOKENS = 3
"""The mark where something was left out, with its line end."""
EXTRACT_TOKENS = 15
"""The label of an extract, beyond that of an artifact of which nothing is shown."""
SUMMARY_LABEL_TOKENS = 20
"""The label of a summary, beyond that of an extract and without its focus."""

LEAST_ROOM = 12
"""Tokens: in less room no passage is tried, since it would hold less than a sentence."""
MOST_MISSES = 48
"""Passages in a row that prove too long, after which counting more costs more than the rest of the room is worth."""
MOST_PARTS = 8
"""Passages of which a part is tried when all of them are too long."""
LEAST_PART = 40
"""Characters: a shorter part of a passage is not worth showing. No word is longer."""
MOST_CHARS_PER_TOKEN = 6
"""More characters than a token has on average in any ordinary text."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Messages `start` to `end` (exclusive): all of a turn, or one tool step, or one message."""

    start: int
    end: int


def run_of_turns(material: Material) -> list[Turn]:
    """The turns before the current one that can be in an unbroken run with it, oldest first. A turn that has lost tool
    steps ends the run: none before it is in the list, but for messages that nothing answered before it, which belong to
    it. Beside a block that is fixed no turn comes back: the block may quote it."""
    starts = turn_starts(message.role for message in material.messages[: material.current])
    if material.current and (not starts or starts[0] > 0):
        starts.insert(0, 0)
    starts = [start for start in starts if start >= material.earliest]
    gap = max(material.left, default=-1)
    if material.has_block and material.frame is not None and material.frame.first is not None:
        starts = [start for start in starts if start >= material.frozen_first]
    turns = [Turn(start, end) for start, end in pairwise([*starts, material.current])]
    first = next((number for number, turn in enumerate(turns) if turn.end > gap), len(turns))
    return [*_unanswered(material, turns[:first]), *turns[first:]]


def said_before(material: Material) -> list[Turn]:
    """What the user said directly before the message that begins the current turn, oldest first: clients send what an
    agent is told of its place, and reminders, beside its task, before or behind it (guarantee §4 I4). What has left the
    window is not in the list."""
    return _unanswered(material, run_of_turns(material))


def _unanswered(material: Material, turns: list[Turn]) -> list[Turn]:
    """The last of the turns, as far as nothing answered them and they have not left the window."""
    first, frozen_first = len(turns), material.frozen_first
    while first and turns[first - 1].start >= frozen_first and _is_unanswered(material, turns[first - 1]):
        first -= 1
    return turns[first:]


def _is_unanswered(material: Material, turn: Turn) -> bool:
    roles = {message.role for message in material.messages[turn.start : turn.end]}
    return "user" in roles and roles.issubset(("user", *INSTRUCTION_ROLES))


def tool_steps(material: Material) -> list[Turn]:
    """The tool steps of the current turn, oldest first: a call with all of its results (guarantee §4 I3). Those that
    have left stay out."""
    steps: list[Turn] = []
    messages, left = material.messages, material.left
    for index in range(material.current, len(messages)):
        if index not in left and calls_of(messages[index].body):
            end = index + 1
            while end < len(messages) and messages[end].role in RESULT_ROLES:
                end += 1
            steps.append(Turn(index, end))
    return steps


@dataclass(slots=True)
class Taken:
    """A passage, or with `turn` a turn as messages, with the tokens it is expected to take. `is_part`: the beginning of
    a passage that is too long; the passage itself still waits."""

    tokens: float
    candidate: Candidate | None = None
    turn: Turn | None = None
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
    turns: list[Turn]
    cost: Callable[[Turn], int]
    run_ended: bool = False
    block_fixed: bool = False
    taken: list[Taken] = field(default_factory=list)
    used: float = 0.0
    _passages: Counter[int] = field(default_factory=Counter)
    """Passages taken of each artifact or message, by its identity."""
    _quoted: dict[int, float] = field(default_factory=dict)
    """Tokens of the excerpts of a message, by its index."""
    _heads: Counter[str] = field(default_factory=Counter)
    """Quoted messages by their head: it is written once for all in a row."""
    _has_items: bool = False

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
            self._take(Taken(cost, turn=turn))
            self.first = turn.start

    def add(self, candidates: Sequence[Candidate], limit: float) -> list[Candidate]:
        """Takes the passages that fit, in that order, up to `limit` tokens in all; returns those that did not."""
        left: list[Candidate] = []
        misses = 0
        for number, candidate in enumerate(candidates):
            room = limit - self.used
            if room < LEAST_ROOM or misses > MOST_MISSES:
                left.extend(candidates[number:])
                break
            passage = candidate.passage
            least = (passage.end - passage.start) / CHARS_PER_TOKEN / 2
            surely_long = passage.start > 0 and ELISION_TOKENS + least > room  # the cheapest test first
            if surely_long or not self._may_take(candidate) or (around := self._around(candidate)) + least > room:
                left.append(candidate)
                continue
            cost = around + self.counting.text(candidate.text)
            if cost > room:
                misses += 1
                left.append(candidate)
                continue
            misses = 0
            self._take(Taken(cost, candidate))
        return left

    def add_parts(self, candidates: Iterable[Candidate], limit: float) -> None:
        """Takes beginnings of the best passages that are too long, up to where a word ends if they have words."""
        for candidate in islice((c for c in candidates if not c.summary and self._may_take(c)), MOST_PARTS):
            room, passage = limit - self.used - self._around(candidate) - 2 * ELISION_TOKENS, candidate.passage
            if room < LEAST_ROOM:
                return
            text = candidate.text[: int(room * MOST_CHARS_PER_TOKEN)]
            while text and (tokens := self.counting.text(text)) > room:
                text = text[: min(int(len(text) * room / tokens), len(text) - 1)]
            last = text.rsplit(maxsplit=1)[-1] if text else ""
            text = text[: len(text) - len(last)] if len(last) < LEAST_PART else text
            if len(text) >= LEAST_PART:
                part = replace(passage, end=passage.start + len(text))
                cost = self._around(candidate) + ELISION_TOKENS + self.counting.text(text)
                self._take(Taken(cost, replace(candidate, passage=part), is_part=True))

    def drop_parts(self) -> None:
        """Gives up the parts that were taken last, so that longer ones of the same passages have their room, too."""
        while self.taken and self.taken[-1].is_part:
            self.shrink(self.taken[-1].tokens)

    def shrink(self, tokens: float) -> list[Candidate]:
        """Gives up what was taken last, at least that many tokens of it; returns the passages among it, but for those
        that still wait as a whole. A turn given up ends the run."""
        freed = 0.0
        given_up: list[Candidate] = []
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

    def passages(self) -> list[Candidate]:
        """All passages that were taken."""
        return [each.candidate for each in self.taken if each.candidate is not None]

    def _take(self, what: Taken) -> None:
        self.taken.append(what)
        self.used += what.tokens
        if what.candidate is not None:
            self._count(what.candidate, 1, what.tokens)

    def _count(self, candidate: Candidate, by: int, tokens: float) -> None:
        of = candidate.of
        self._passages[id(of)] += by
        if not isinstance(of, Artifact):
            self._quoted[of.index] = self._quoted.get(of.index, 0.0) + tokens
            if candidate.passage.start == 0:
                self._heads[head_of(of.text)] += by
        elif not self._in_window(candidate):
            self._has_items = True

    def _around(self, candidate: Candidate) -> float:
        """Tokens of what is written around a passage: a label, a mark of what is left out, a heading."""
        of = candidate.of
        more = SUMMARY_LABEL_TOKENS + len(candidate.focus) / CHARS_PER_TOKEN if candidate.summary else 0
        if self._passages[id(of)]:
            return ELISION_TOKENS + more
        block = 0 if self._quoted or self._has_items else BLOCK_TOKENS
        if not isinstance(of, Artifact):
            head = head_of(of.text) if candidate.passage.start == 0 else ""
            written_already = self.counting.text(head) if head and self._heads[head] else 0
            return LINE_TOKENS + (0 if self._quoted else LABEL_TOKENS + block) - written_already
        heading = len(candidate.passage.heading) / CHARS_PER_TOKEN + more
        if self._in_window(candidate):
            return heading + EXTRACT_TOKENS
        return heading + LABEL_TOKENS + block + len(of.search_label) / CHARS_PER_TOKEN

    def _may_take(self, candidate: Candidate) -> bool:
        return not self.block_fixed or self._in_window(candidate)

    def _in_window(self, candidate: Candidate) -> bool:
        return candidate.message is not None and candidate.message >= self.first
