"""When not everything fits: artifacts are reduced to the passages that bear on the question, old turns leave and come
back as excerpts (contract §4 I2, I5, I6; the heuristic of §5)."""

from collections import defaultdict
from itertools import chain
from math import inf

from gateway.fitting.candidates import Candidate, run_of_turns
from gateway.fitting.choice import Choice
from gateway.fitting.count import Counting
from gateway.fitting.floor import Floor
from gateway.fitting.order import Order, Waiting
from gateway.fitting.planned import NO_PLAN, Wishes
from gateway.fitting.prices import Prices
from gateway.fitting.renderings import extract, recalled
from gateway.fitting.standing import Standing
from gateway.fitting.tools import Limits, Tools, fitted_as
from gateway.fitting.transcript import Said, transcript
from gateway.models.planned import Planned
from gateway.models.selection import Fitted, Material, Selection

FILLED = 0.99
ROUNDS = 6


class Reduction:
    """One pass of reducing what was compacted: a floor that must be there, and what is taken in order of worth above
    it."""

    def __init__(
        self, material: Material, limits: Limits, counting: Counting, tools: Tools, planned: Planned = NO_PLAN
    ) -> None:
        self.material, self.limits, self.counting, self.tools = material, limits, counting, tools
        self.target = limits.aim
        self.wishes = Wishes(planned, material, tools.relevance)
        self.prices = Prices(material, counting, tools)
        self.floor = Floor(material, limits, counting, tools, self.prices)
        self.standing = Standing(material, self.floor)

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

    def _selection(self, choice: Choice, told: list[Said]) -> Selection:
        chosen: dict[str, list[Candidate]] = defaultdict(list)
        quoted: list[Candidate] = []
        for candidate in choice.passages():
            if self.standing.has(candidate, choice.first):
                continue
            if self.floor.block_fixed and (candidate.message or 0) < choice.first:
                continue  # its turn was taken, and given up again
            if isinstance(candidate.of, Said):
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
