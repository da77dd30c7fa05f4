"""In which order things are taken above the floor: what has a share of the room of its own, then what competes for the
rest of it (the heuristic of contract §5)."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.fitting.candidates import Candidate, best_first, candidates, of_each_content, tool_steps
from gateway.fitting.choice import Choice
from gateway.fitting.floor import Floor
from gateway.fitting.keeping import kept_words
from gateway.fitting.planned import Wishes
from gateway.fitting.planned_order import apart, planned_order
from gateway.fitting.shares import BEST, BEST_SHARE, LATEST_SHARE, kept_tokens, share_of_turns
from gateway.fitting.standing import Standing
from gateway.fitting.transcript import Said
from gateway.models.artifacts import Artifact
from gateway.models.relevance import Relevance
from gateway.models.selection import Material


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
    floor: Floor
    standing: Standing
    told: Sequence[Said]
    wishes: Wishes
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
