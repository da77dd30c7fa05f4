"""When not everything fits: artifacts are reduced to the passages that bear on the question, old turns leave and come
back as excerpts (contract §4 I2, I5, I6; the heuristic of §5)."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import inf

from gateway.errors import ContextLengthExceeded
from gateway.fitting.candidates import (
    Candidate,
    Turn,
    best_first,
    candidates,
    of_each_content,
    run_of_turns,
    tool_steps,
)
from gateway.fitting.choice import BLOCK_TOKENS, CHARS_PER_TOKEN, LABEL_TOKENS, Choice
from gateway.fitting.count import Counting
from gateway.fitting.keeping import kept_words
from gateway.fitting.planned import NO_PLAN, Wishes
from gateway.fitting.planned_order import apart, planned_order
from gateway.fitting.renderings import extract, recalled
from gateway.fitting.tools import Limits, Tools, fitted_as, in_full
from gateway.fitting.transcript import Said, transcript
from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.conversation import INSTRUCTION_ROLES
from gateway.models.planned import Planned
from gateway.models.selection import Fitted, Material, Rendering, Selection

FILLED = 0.99
MOST_NAMED = 20
"""How many attached documents of which nothing is shown are still named."""
ROUNDS = 6
LITTLE_HELD, MOST_TURNS = 0.6, 0.9
"""Up to that part of everything that the room holds, turns have their share of it alone; where it holds nearly all,
they have most of it."""
BEST, BEST_SHARE = 3, 0.3
"""How many passages, the best, come before any turn, and the part of the room that they may take."""
KEPT_SHARE = 0.08
"""Part of the room for what a user asked to be kept to, and for how the conversation began."""
ROOMY = 1000
"""Room in which labels are no great matter."""
OLD_SHARE = 0.15
"""Part of the room that has to be left for what is old, so that only that is reduced."""
LATEST_SHARE = 0.4
"""Part of the room for the results of the latest tool step, which the model has not seen yet."""


class Reduction:
    """One pass of reducing what was compacted: a floor that must be there, and what is taken in order of worth above
    it."""

    def __init__(
        self, material: Material, limits: Limits, counting: Counting, tools: Tools, planned: Planned = NO_PLAN
    ) -> None:
        self.material, self.counting, self.tools = material, counting, tools
        self.budget = limits.tokens or 0
        self.target = limits.aim
        self.share = limits.history_share
        self.turns = run_of_turns(material)
        self.left_out = material.left
        self.costs: dict[int, int] = {}
        self.told: list[Said] = []
        self.keeps_block, self.block_fixed = material.has_block, material.is_block_fixed
        self.spares_current = False
        self.held: list[Candidate] = []
        self.pointers = self._pointers()
        self.wishes = Wishes(planned, self.material, tools.relevance)
        self.placed: dict[int, list[Artifact]] = defaultdict(list)
        self.same: dict[str, list[Artifact]] = defaultdict(list)
        for artifact in self.material.placed:
            self.placed[artifact.place.message or 0].append(artifact)
            self.same[artifact.content_id].append(artifact)

    def run(self) -> Fitted:
        """The best that fits."""
        floor, tokens = self._floor()
        if not self.wishes.decisions and self._spare_current():
            floor = self._least(self.material.current, self.pointers)
            tokens = self.counting.total(self.tools.assemble(self.material, floor))
        aim = max(self.target, tokens)
        ended, turns = any(i >= self.material.current for i in self.left_out), list(self.turns)
        choice = Choice(self.counting, self.material.current, turns, self._price, ended, self.block_fixed)
        waiting = self._begin(choice, aim - tokens)
        best, most = floor, tokens
        limit, tried = float(aim - tokens), inf
        for _ in range(ROUNDS):
            waiting = self._grow(choice, waiting, limit)
            selection = self._selection(choice)
            forwarded = self.tools.assemble(self.material, selection)
            found = self.counting.total(forwarded)
            if most <= found <= aim:
                best, most = selection, found
            if found > aim:
                given_up = choice.shrink(found - aim)
                waiting = self._back(given_up, waiting, choice.first)
                tried, limit = limit - (found - aim), choice.used
                continue
            if found >= FILLED * aim or not (waiting or self._more_turns(choice)):
                break
            limit = min(choice.used + aim - found, tried)  # what was reckoned as too little once is so again
        return fitted_as(best, self.tools.assemble(self.material, best), self.counting.exact, self.counting)

    def _floor(self) -> tuple[Selection, int]:
        """System messages, the current message, and its tool steps as pointers; the oldest steps leave if they must."""
        steps = tool_steps(self.material)
        while True:
            selection = self._least(self.material.current, self.pointers)
            tokens = self.counting.total(self.tools.assemble(self.material, selection))
            most = self.target - self._wanted(steps[-1]) if len(steps) > 1 else self.budget
            if tokens <= most:
                return selection, tokens
            attached = {a.artifact_id for a in self.material.attached}
            if attached & self.pointers.keys():  # saying that they were left out is less than what has to be there
                self.pointers = {key: value for key, value in self.pointers.items() if key not in attached}
            elif len(steps) > 1:
                self._leave_out(steps, tokens - most)
            elif self.keeps_block:  # it cannot stay as it was fixed
                self.keeps_block = self.block_fixed = False
                self.left_out, steps = self.material.left, tool_steps(self.material)
                self.pointers = self._pointers()
            else:
                text = f"The current message and what must stand with it take {tokens} tokens"
                raise ContextLengthExceeded(f"{text}; the budget is {self.budget}.", param="messages")

    def _least(self, first: int, pointers: dict[str, Rendering]) -> Selection:
        left = frozenset(index for index in self.left_out if index >= first)
        return Selection(first, left, pointers, frozen=False, keeps_block=self.keeps_block)

    def _spare_current(self) -> bool:
        """Where reducing what is old is enough, what is of the turn under way stands in full, and no turn leaves (I5).
        That is so if it leaves a share of the room for the best of what is old."""
        here = self.material.current
        new = [a for a in (*self.material.attached, *self.material.placed) if not a.historical]
        shown = [a for a in of_each_content(new, here) if self._is_reduced(a)]
        others_old = any(a.historical for a in self.material.searched)
        if not (shown and others_old) or any(index >= here for index in self.left_out):
            return False
        pointers = self.pointers | {a.artifact_id: in_full(a, a.content) for a in shown}
        first = self.turns[0].start if self.turns else here
        forwarded = self.tools.assemble(self.material, self._least(first, pointers))
        if self.counting.fits(forwarded, int(self.target * (1 - OLD_SHARE))):
            self.pointers, self.spares_current = pointers, True
        return self.spares_current

    def _is_reduced(self, artifact: Artifact) -> bool:
        pointer = self.pointers.get(artifact.artifact_id)
        if pointer is None:  # one of too many to be named, or what stands in a block that is fixed
            return not (self.keeps_block or self.block_fixed)
        return pointer.strategy is ProcessingStrategy.EXCLUDE

    def _wanted(self, step: Turn) -> float:
        """Tokens to be kept for the results of the latest step while older steps can leave."""
        chars = sum(len(a.content) for at in range(step.start, step.end) for a in self.placed.get(at, ()))
        return min(chars / CHARS_PER_TOKEN, self.target * LATEST_SHARE)

    def _leave_out(self, steps: list[Turn], excess: float) -> None:
        """Takes steps out of `steps`, oldest first, until `excess` tokens have left; the last one stays."""
        leaving: list[int] = []
        for step in steps[:-1]:
            if excess <= 0:
                break
            leaving.extend(range(step.start, step.end))
            excess -= self._tokens_of(step)
        self.left_out |= frozenset(leaving)
        del steps[: sum(step.start in self.left_out for step in steps)]

    def _pointers(self) -> dict[str, Rendering]:
        """How artifacts are shown at least: those in messages, and attached ones where a block is written."""
        placed, attached = self.material.placed, [a for a in self.material.attached if not a.historical][:MOST_NAMED]
        if self.keeps_block:
            placed = tuple(a for a in placed if a.place.message != self.material.current)
        if self.block_fixed:
            attached = []
        return {a.artifact_id: self._pointer(a) for a in (*placed, *attached)}

    def _pointer(self, artifact: Artifact) -> Rendering:
        """What an artifact is reduced to at least; one that is no longer than its label stays as it is."""
        if len(artifact.content) <= 2 * LABEL_TOKENS and artifact.place.message is not None:
            return in_full(artifact, artifact.content)
        return Rendering(artifact, ProcessingStrategy.EXCLUDE)

    def _begin(self, choice: Choice, room: float) -> "_Waiting":
        """Takes what has a share of the room of its own; returns what competes for the rest."""
        self.told = transcript(self.material, self.left_out)
        artifacts = of_each_content(self.material.searched, self.material.current)
        found = candidates(self.material, artifacts, self.told, self.tools.relevance)
        sought = self._as_sought(artifacts) or {each.order: each for each in found}
        if self.wishes.trusted:
            found = best_first(sought.values())
        if self.block_fixed:  # what may be shown has a place of its own
            found = [c for c in found if isinstance(c.of, Artifact) and self._has_place(c)]
        if self.spares_current:
            choice.add_turns(room)
            found = self._absent(found, choice.first)
        competing = any(self._competes(c) for c in found)
        found, decided = apart(self.wishes, found)
        if competing:
            found = self._take(choice, [c for c in found if c.relevant][:BEST], room * BEST_SHARE, found)
        choice.add_turns(min(room, choice.used + room * self._share_of_turns(room)) if competing else room)
        found = self._absent(found, choice.first)
        kept = room * KEPT_SHARE
        if room >= ROOMY:
            kept += BLOCK_TOKENS + LABEL_TOKENS  # a block for them alone, if need be
        for tokens, first in ((kept, kept_words(found)), (room * LATEST_SHARE, self._latest(found))):
            found = self._take(choice, first, min(room, choice.used + tokens), found)
        found = best_first([*found, *(c for c in decided if not self._stands(c, choice.first))])
        relevant, rest = [c for c in found if c.relevant], [c for c in found if not c.relevant]
        rest = sorted(rest, key=lambda c: c.age)
        return _Waiting(*planned_order(self.wishes, choice, room, relevant, rest, sought))

    def _as_sought(self, artifacts: Sequence[Artifact]) -> dict[int, Candidate]:
        """All candidates, by `order`, as the plan's queries find them beside the question; empty if it has none."""
        if not self.wishes.searches:
            return {}
        found = candidates(self.material, artifacts, self.told, self.tools.relevance, self.wishes.searches)
        return {candidate.order: candidate for candidate in found}

    def _take(self, choice: Choice, first: list[Candidate], limit: float, found: list[Candidate]) -> list[Candidate]:
        """Takes those that fit; returns what is left of all that was found."""
        refused = choice.add(first, limit)
        gone = {id(c) for c in first} - {id(c) for c in refused}
        return [c for c in found if id(c) not in gone] if gone else found

    def _share_of_turns(self, room: float) -> float:
        """The less has to be left out, the more of the room is for turns as they were: whatever is torn out of them is
        understood less well."""
        if room < ROOMY and not self.material.artifacts:
            return 1.0  # labels would take more of it than they leave
        chars = sum(a.size_chars for a in self.material.searched) + sum(len(each.text) for each in self.told)
        held = min(1.0, room * CHARS_PER_TOKEN / max(1, chars))
        grown = max(0.0, (held - LITTLE_HELD) / (1 - LITTLE_HELD))
        return self.share + (MOST_TURNS - self.share) * grown if self.share < MOST_TURNS else self.share

    def _competes(self, candidate: Candidate) -> bool:
        return candidate.relevant and not self._stands(candidate, self.material.current)

    def _has_place(self, candidate: Candidate) -> bool:
        """Whether it is of a message that may be in the window, other than the question."""
        index = candidate.message
        if index is None or index < 0 or index in self.left_out:
            return False
        return index != self.material.current or not self.keeps_block

    def _latest(self, found: list[Candidate]) -> list[Candidate]:
        """Passages of the results that came last, if that is what the model is to go on from."""
        steps = tool_steps(self.material)
        if not steps or steps[-1].end < len(self.material.messages):
            return []
        return [c for c in found if c.message is not None and c.message >= steps[-1].start]

    def _grow(self, choice: Choice, waiting: "_Waiting", limit: float) -> "_Waiting":
        """Passages that bear on the question, then further turns, then all others, latest first."""
        relevant = choice.add(waiting.relevant, limit)
        if relevant and limit - choice.used < self.target * (1 - FILLED):
            return _Waiting(relevant, waiting.rest)
        choice.add_turns(limit)
        rest = choice.add(self._absent(waiting.rest, choice.first), limit)
        if limit - choice.used > self.target * (1 - FILLED):
            choice.add_part((c for c in chain(relevant, rest) if not self._stands(c, choice.first)), limit)
        return _Waiting(relevant, rest)

    def _more_turns(self, choice: Choice) -> bool:
        return bool(choice.turns) and not choice.run_ended

    def _absent(self, found: list[Candidate], first: int) -> list[Candidate]:
        """Those that do not stand in the window in full: asked once of what they are passages of. The others are
        `held`."""
        each = {id(c.of): c for c in found}
        absent = {key for key, one in each.items() if not self._stands(one, first)}
        self.held += [c for c in found if id(c.of) not in absent]
        return [c for c in found if id(c.of) in absent]

    def _back(self, given_up: list[Candidate], waiting: "_Waiting", first: int) -> "_Waiting":
        """What waits again once something was given up: passages of a turn that left again, too."""
        held, self.held = self.held, []
        back = self._absent(held, first)
        rest = sorted([*(c for c in back if not c.relevant), *waiting.rest], key=lambda c: c.age)
        return _Waiting(given_up + [c for c in back if c.relevant] + waiting.relevant, rest if back else waiting.rest)

    def _stands(self, candidate: Candidate, first: int) -> bool:
        """Whether it is in the window in full already: as a message, too small to be reduced, or by another artifact
        that says the same."""
        of = candidate.of
        if isinstance(of, Said):
            return self._is_inside(candidate.message, first)
        if of.place.message is None and self._is_full(of):
            return True
        twins = self.same.get(of.content_id, ())
        return any(self._is_inside(each.place.message, first) and self._is_full(each) for each in twins)

    def _is_inside(self, index: int | None, first: int) -> bool:
        return index is not None and index >= first and index not in self.left_out

    def _is_full(self, artifact: Artifact) -> bool:
        pointer = self.pointers.get(artifact.artifact_id)
        return pointer is not None and pointer.strategy is ProcessingStrategy.INCLUDE_FULL

    def _selection(self, choice: Choice) -> Selection:
        chosen: dict[str, list[Candidate]] = defaultdict(list)
        quoted: list[Candidate] = []
        for candidate in choice.passages():
            if self._stands(candidate, choice.first):
                continue
            if self.block_fixed and (candidate.message or 0) < choice.first:
                continue  # its turn was taken, and given up again
            if isinstance(candidate.of, Said):
                quoted.append(candidate)
            else:
                chosen[candidate.of.artifact_id].append(candidate)
        artifacts = {a.artifact_id: a for a in self.material.searched}
        extracts = {key: extract(artifacts[key], taken) for key, taken in chosen.items()}
        outside = [each for each in self.told if each.index < choice.first or each.index in self.left_out]
        return Selection(
            choice.first,
            frozenset(index for index in self.left_out if index >= choice.first),
            {**self.pointers, **extracts},
            frozenset(chosen),
            recalled(outside, quoted),
            frozen=False,
            keeps_block=self.keeps_block,
        )

    def _price(self, turn: Turn) -> int:
        if turn.start not in self.costs:
            self.costs[turn.start] = self._tokens_of(turn)
        return self.costs[turn.start]

    def _tokens_of(self, stretch: Turn) -> int:
        """What a stretch of messages takes with its artifacts as pointers. System messages stand in any window."""
        inside = (at for at in range(stretch.start, stretch.end) if at not in self.left_out)
        return sum(self._tokens_at(at) for at in inside if self.material.messages[at].role not in INSTRUCTION_ROLES)

    def _tokens_at(self, index: int) -> int:
        message, artifacts = self.material.messages[index], self.placed.get(index)
        if artifacts is None:
            return self.counting.message(message.body)
        here = tuple(replace(a, place=replace(a.place, message=0)) for a in artifacts)
        alone = Material(instructions=(), messages=(message,), current=-1, placed=here)
        forwarded = self.tools.assemble(alone, Selection(renderings=self.pointers, frozen=False))
        return sum(map(self.counting.message, forwarded.messages))


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Passages that were not taken yet: those that bear on the question, best first, and the others, latest first."""

    relevant: list[Candidate]
    rest: list[Candidate]

    def __bool__(self) -> bool:
        return bool(self.relevant or self.rest)
