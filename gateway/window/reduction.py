"""When not everything fits: artifacts are reduced to the passages that bear on the question, old turns leave and come
back as excerpts (guarantee §4 I2, I5, I6; the heuristic of §5)."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf

from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.relevance import Relevance
from gateway.models.window import Fitted, Material, Planned, Selection
from gateway.window.budget import Limits, Tools, fitted_as
from gateway.window.candidates import (
    Candidate,
    TranscriptMessage,
    best_first,
    candidates,
    kept_words,
    of_each_content,
    run_of_turns,
    tool_steps,
    transcript,
)
from gateway.window.counting import PromptCounter
from gateway.window.greedy import Choice
from gateway.window.minimum import BEST, BEST_SHARE, LATEST_SHARE, Minimum, TokenCosts, kept_tokens, share_of_turns
from gateway.window.plan import NO_PLAN, PlanGuide, apart, planned_order
from gateway.window.recall import extract, recalled

# What stands in the window in full already, so that no passage of it is needed.


class ShownInFull:
    """Asked once a floor is laid, for a window that begins at message `first`. Passages of what stands in it are held
    back until it leaves again."""

    def __init__(self, material: Material, floor: Minimum) -> None:
        self._floor = floor
        self._held: list[Candidate] = []
        self._same: dict[str, list[Artifact]] = defaultdict(list)
        for artifact in material.placed:
            self._same[artifact.content_id].append(artifact)

    def has(self, candidate: Candidate, first: int) -> bool:
        """Whether it is in the window in full already: as a message, too small to be reduced, or by another artifact
        that says the same."""
        of = candidate.of
        if isinstance(of, TranscriptMessage):
            return self._is_inside(candidate.message, first)
        if of.place.message is None and self._is_full(of):
            return True
        twins = self._same.get(of.content_id, ())
        return any(self._is_inside(each.place.message, first) and self._is_full(each) for each in twins)

    def absent(self, found: list[Candidate], first: int) -> list[Candidate]:
        """Those that do not stand in the window in full: asked once of what they are passages of. The others are
        held."""
        each = {id(c.of): c for c in found}
        absent = {key for key, one in each.items() if not self.has(one, first)}
        self._held += [c for c in found if id(c.of) not in absent]
        return [c for c in found if id(c.of) in absent]

    def released(self, first: int) -> list[Candidate]:
        """Those that were held and are absent from a window that has become smaller."""
        held, self._held = self._held, []
        return self.absent(held, first)

    def _is_inside(self, index: int | None, first: int) -> bool:
        return index is not None and index >= first and index not in self._floor.left_out

    def _is_full(self, artifact: Artifact) -> bool:
        pointer = self._floor.pointers.get(artifact.artifact_id)
        return pointer is not None and pointer.strategy is ProcessingStrategy.INCLUDE_FULL


# In which order things are taken above the floor: what has a share of the room of its own, then what competes for the
# rest of it (the heuristic of guarantee §5).


@dataclass(frozen=True, slots=True)
class Waiting:
    """Passages that were not taken yet: those that bear on the question, best first, and the others, latest first."""

    relevant: list[Candidate]
    rest: list[Candidate]

    def __bool__(self) -> bool:
        return bool(self.relevant or self.rest)


@dataclass(frozen=True, slots=True)
class Order:
    """What may be taken above a floor. `told` is what messages said that may be quoted, `share` the part of the room
    for old turns as messages while passages compete for it."""

    material: Material
    floor: Minimum
    standing: ShownInFull
    told: Sequence[TranscriptMessage]
    wishes: PlanGuide
    relevance: Relevance
    share: float

    def begin(self, choice: Choice, room: float) -> Waiting:
        """Takes what has a share of the room of its own; returns what competes for the rest."""
        artifacts = of_each_content(self.material.searched, self.material.current)
        found = candidates(self.material, artifacts, self.told, self.relevance)
        sought = self._as_sought(artifacts) or {each.order: each for each in found}
        if self.wishes.trusted:
            found = best_first(sought.values())
        if self.floor.block_fixed:  # what may be shown has a place of its own
            found = [c for c in found if isinstance(c.of, Artifact) and self._has_place(c)]
        if self.floor.spares_current:
            choice.add_turns(room)
            found = self.standing.absent(found, choice.first)
        competing = any(self._competes(c) for c in found)
        found, decided = apart(self.wishes, found)
        if competing:
            found = _take(choice, [c for c in found if c.relevant][:BEST], room * BEST_SHARE, found)
            share = share_of_turns(self.share, room, self.material, self.told)
            choice.add_turns(min(room, choice.used + room * share))
        else:
            choice.add_turns(room)
        found = self.standing.absent(found, choice.first)
        for tokens, first in ((kept_tokens(room), kept_words(found)), (room * LATEST_SHARE, self._latest(found))):
            found = _take(choice, first, min(room, choice.used + tokens), found)
        found = best_first([*found, *(c for c in decided if not self.standing.has(c, choice.first))])
        relevant, rest = [c for c in found if c.relevant], [c for c in found if not c.relevant]
        rest = sorted(rest, key=lambda c: c.age)
        return Waiting(*planned_order(self.wishes, choice, room, relevant, rest, sought))

    def _as_sought(self, artifacts: Sequence[Artifact]) -> dict[int, Candidate]:
        """All candidates, by `order`, as the plan's queries find them beside the question; empty if it has none."""
        if not self.wishes.searches:
            return {}
        found = candidates(self.material, artifacts, self.told, self.relevance, self.wishes.searches)
        return {candidate.order: candidate for candidate in found}

    def _competes(self, candidate: Candidate) -> bool:
        return candidate.relevant and not self.standing.has(candidate, self.material.current)

    def _has_place(self, candidate: Candidate) -> bool:
        """Whether it is of a message that may be in the window, other than the question."""
        index = candidate.message
        if index is None or index < 0 or index in self.floor.left_out:
            return False
        return index != self.material.current or not self.floor.keeps_block

    def _latest(self, found: list[Candidate]) -> list[Candidate]:
        """Passages of the results that came last, if that is what the model is to go on from."""
        steps = tool_steps(self.material)
        if not steps or steps[-1].end < len(self.material.messages):
            return []
        return [c for c in found if c.message is not None and c.message >= steps[-1].start]


def _take(choice: Choice, first: list[Candidate], limit: float, found: list[Candidate]) -> list[Candidate]:
    """Takes those that fit; returns what is left of all that was found."""
    refused = choice.add(first, limit)
    gone = {id(c) for c in first} - {id(c) for c in refused}
    return [c for c in found if id(c) not in gone] if gone else found


FILLED = 0.99
ROUNDS = 6


class Reduction:
    """One pass of reducing what was compacted: a floor that must be there, and what is taken in order of worth above
    it."""

    def __init__(
        self, material: Material, limits: Limits, counting: PromptCounter, tools: Tools, planned: Planned = NO_PLAN
    ) -> None:
        self.material, self.limits, self.counting, self.tools = material, limits, counting, tools
        self.target = limits.aim
        self.wishes = PlanGuide(planned, material, tools.relevance)
        self.prices = TokenCosts(material, counting, tools)
        self.floor = Minimum(material, limits, counting, tools, self.prices)
        self.standing = ShownInFull(material, self.floor)

    def run(self) -> Fitted:
        """The best that fits."""
        best, tokens = self.floor.laid(may_spare=not self.wishes.decisions)
        most, aim = tokens, self.floor.aim(tokens)
        choice = self._choice()
        told = transcript(self.material, self.floor.left_out)
        order = Order(
            self.material, self.floor, self.standing, told, self.wishes, self.tools.relevance, self.limits.history_share
        )
        waiting = order.begin(choice, aim - tokens)
        limit, tried = float(aim - tokens), inf
        for _ in range(ROUNDS):
            waiting = self._grow(choice, waiting, limit)
            selection = self._selection(choice, told)
            forwarded = self.tools.assemble(self.material, selection)
            found = self.counting.total(forwarded)
            if most <= found <= aim:
                best, most = selection, found
            if found > aim:
                given_up = choice.shrink(found - aim)
                waiting = self._back(given_up, waiting, choice.first)
                tried, limit = limit - (found - aim), choice.used
                continue
            if found >= FILLED * aim or not (waiting or _more_turns(choice)):
                break
            limit = min(choice.used + aim - found, tried)  # what was reckoned as too little once is so again
        return fitted_as(best, self.tools.assemble(self.material, best), self.counting.exact, self.counting)

    def _choice(self) -> Choice:
        """Nothing taken yet: the window begins at the current message."""
        current, left_out = self.material.current, self.floor.left_out
        ended = any(index >= current for index in left_out)
        price = self.prices.fixed(left_out, self.floor.pointers)
        return Choice(self.counting, current, run_of_turns(self.material), price, ended, self.floor.block_fixed)

    def _grow(self, choice: Choice, waiting: Waiting, limit: float) -> Waiting:
        """Passages that bear on the question, then further turns, then all others, latest first."""
        relevant = choice.add(waiting.relevant, limit)
        if relevant and limit - choice.used < self.target * (1 - FILLED):
            return Waiting(relevant, waiting.rest)
        choice.add_turns(limit)
        rest = choice.add(self.standing.absent(waiting.rest, choice.first), limit)
        if limit - choice.used > self.target * (1 - FILLED):
            choice.add_part((c for c in chain(relevant, rest) if not self.standing.has(c, choice.first)), limit)
        return Waiting(relevant, rest)

    def _back(self, given_up: list[Candidate], waiting: Waiting, first: int) -> Waiting:
        """What waits again once something was given up: passages of a turn that left again, too."""
        back = self.standing.released(first)
        rest = sorted([*(c for c in back if not c.relevant), *waiting.rest], key=lambda c: c.age)
        return Waiting(given_up + [c for c in back if c.relevant] + waiting.relevant, rest if back else waiting.rest)

    def _selection(self, choice: Choice, told: list[TranscriptMessage]) -> Selection:
        chosen: dict[str, list[Candidate]] = defaultdict(list)
        quoted: list[Candidate] = []
        for candidate in choice.passages():
            if self.standing.has(candidate, choice.first):
                continue
            if self.floor.block_fixed and (candidate.message or 0) < choice.first:
                continue  # its turn was taken, and given up again
            if isinstance(candidate.of, TranscriptMessage):
                quoted.append(candidate)
            else:
                chosen[candidate.of.artifact_id].append(candidate)
        artifacts = {a.artifact_id: a for a in self.material.searched}
        extracts = {key: extract(artifacts[key], taken) for key, taken in chosen.items()}
        left_out = self.floor.left_out
        outside = [each for each in told if each.index < choice.first or each.index in left_out]
        return Selection(
            choice.first,
            frozenset(index for index in left_out if index >= choice.first),
            {**self.floor.pointers, **extracts},
            frozenset(chosen),
            recalled(outside, quoted),
            frozen=False,
            keeps_block=self.floor.keeps_block,
        )


def _more_turns(choice: Choice) -> bool:
    return bool(choice.turns) and not choice.run_ended
