"""What is taken into the window, in order of worth: it grows while there is room, and shrinks from its end."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from gateway.models.artifacts import Artifact
from gateway.models.window import head_of
from gateway.window.candidates import Candidate, Turn
from gateway.window.counting import PromptCounter

LABEL_TOKENS = 55
"""What the label of an item of the block takes, roughly; what was guessed wrongly shows at the recount."""
BLOCK_TOKENS = 35
LINE_TOKENS = 7
ELISION_TOKENS = 3
PLACE_TOKENS = 15
"""By how much the label of an extract is longer than that of a result of which nothing is shown."""
CHARS_PER_TOKEN = 4.5
SUMMARY_TOKENS = 20
"""By how much a summary makes a label longer, beside its focus."""
LITTLE = 12
"""Room that is not worth looking for something that fits."""
MOST_PARTS, LEAST_PART = 8, 40
"""Of how many passages that are too long a part is tried, and how many characters are worth showing."""
MOST_CHARS = 6
"""More characters than a token has on average, in any text but a very odd one."""
MISSES = 48
"""Passages in a row that prove too long, after which what is left of the room is not worth the counting."""


@dataclass(slots=True)
class Taken:
    """A passage, or with `turn` a turn as messages, and what it was reckoned to cost."""

    tokens: float
    candidate: Candidate | None = None
    turn: Turn | None = None


@dataclass(slots=True)
class Choice:
    """Passages and turns that were taken. The window begins at message `first`.

    `turns` are those before the window, newest last; `price` says what a turn takes as messages. None is taken where
    `run_ended`: a step of the current turn has left. Where `block_fixed`, passages are taken in their own place alone.
    """

    counting: PromptCounter
    first: int
    turns: list[Turn]
    price: Callable[[Turn], int]
    run_ended: bool = False
    block_fixed: bool = False
    taken: list[Taken] = field(default_factory=list)
    used: float = 0.0
    begun: dict[int, int] = field(default_factory=dict)
    """How many passages were taken of what, by its identity."""
    quoted: dict[int, float] = field(default_factory=dict)
    """Tokens of what is quoted of a message, by its index."""
    heads: Counter[str] = field(default_factory=Counter)
    """How many messages are quoted that have the same head, which stands once."""
    in_block: bool = False

    def add_turns(self, limit: float) -> bool:
        """Whole turns before the window, newest first, while they fit; one that does not ends the run. Returns whether
        none is left."""
        while self.turns and not self.run_ended:
            turn = self.turns[-1]
            cost = self.price(turn) - self._superseded(turn)
            if self.used + cost > limit:
                return False
            self.turns.pop()
            self._take(Taken(cost, turn=turn))
            self.first = turn.start
        return True

    def add(self, candidates: Sequence[Candidate], limit: float) -> list[Candidate]:
        """Takes in that order what fits; returns what did not."""
        left: list[Candidate] = []
        misses = 0
        for number, candidate in enumerate(candidates):
            room = limit - self.used
            if room < LITTLE or misses > MISSES:
                left.extend(candidates[number:])
                break
            passage = candidate.passage
            least = (passage.end - passage.start) / CHARS_PER_TOKEN / 2
            too_long = passage.start > 0 and ELISION_TOKENS + least > room  # whatever else stands around it
            if too_long or (self.block_fixed and not self._in_place(candidate)):
                left.append(candidate)
                continue
            around = self._around(candidate)
            if around + least > room:
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

    def add_part(self, candidates: Iterable[Candidate], limit: float) -> None:
        """Takes the beginning of the best of those that are too long, up to where a word ends if it has words."""
        placed = (c for c in candidates if not (c.summary or (self.block_fixed and not self._in_place(c))))
        for candidate in islice(placed, MOST_PARTS):
            room, passage = limit - self.used - self._around(candidate) - 2 * ELISION_TOKENS, candidate.passage
            if room < LITTLE:
                return
            text = candidate.text[: int(room * MOST_CHARS)]
            while text and (tokens := self.counting.text(text)) > room:
                text = text[: min(int(len(text) * room / tokens), len(text) - 1)]
            last = text.rsplit(maxsplit=1)[-1] if text else ""
            text = text[: len(text) - len(last)] if len(last) < LEAST_PART else text
            if len(text) >= LEAST_PART:
                part = replace(passage, end=passage.start + len(text))
                cost = self._around(candidate) + ELISION_TOKENS + self.counting.text(text)
                self._take(Taken(cost, replace(candidate, passage=part)))

    def shrink(self, tokens: float) -> list[Candidate]:
        """Gives up what was taken last, at least that many tokens of it; returns the passages among it."""
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
                given_up.append(last.candidate)
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
        self.begun[id(of)] = self.begun.get(id(of), 0) + by
        if not isinstance(of, Artifact):
            self.quoted[of.index] = self.quoted.get(of.index, 0.0) + tokens
            if candidate.passage.start == 0:
                self.heads[head_of(of.text)] += by
        elif not self._in_place(candidate):
            self.in_block = True

    def _around(self, candidate: Candidate) -> float:
        """Tokens of what has to stand around a passage: a label, a mark of what is left out, a heading."""
        of = candidate.of
        more = SUMMARY_TOKENS + len(candidate.focus) / CHARS_PER_TOKEN if candidate.summary else 0
        if self.begun.get(id(of)):
            return ELISION_TOKENS + more
        heading = len(candidate.passage.heading) / CHARS_PER_TOKEN + more
        block = 0 if self.quoted or self.in_block else BLOCK_TOKENS
        if not isinstance(of, Artifact):
            return LINE_TOKENS + (0 if self.quoted else LABEL_TOKENS + block) - self._head(of.text, candidate)
        if self._in_place(candidate):
            return heading + PLACE_TOKENS
        return heading + LABEL_TOKENS + block + len(of.search_label) / CHARS_PER_TOKEN

    def _head(self, text: str, candidate: Candidate) -> int:
        """Tokens of a message's head that stands already."""
        head = head_of(text) if candidate.passage.start == 0 else ""
        return self.counting.text(head) if head and self.heads[head] else 0

    def _in_place(self, candidate: Candidate) -> bool:
        return candidate.message is not None and candidate.message >= self.first

    def _superseded(self, turn: Turn) -> float:
        """What excerpts of a turn take, which are not needed where it stands itself."""
        return sum(self.quoted.get(index, 0.0) for index in range(turn.start, turn.end))
