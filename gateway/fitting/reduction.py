"""When not everything fits: artifacts are reduced to the passages that bear on the question, old turns leave
(contract §4 I2, I5; the heuristic of §5)."""

from collections import defaultdict
from dataclasses import replace

from gateway.errors import ContextLengthExceeded
from gateway.fitting.candidates import (
    CURRENT_WEIGHT,
    PROSE_CHARS,
    Candidate,
    Turn,
    neighbours,
    old_turns,
    tool_steps,
)
from gateway.fitting.count import Counting
from gateway.fitting.tools import Tools, fitted_as, in_full
from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.conversation import INSTRUCTION_ROLES
from gateway.models.relevance import Query, Source
from gateway.models.selection import Fitted, Material, Rendering, Selection

LABEL_TOKENS = 60
"""What a label costs at most; pointers are counted exactly."""
ELISION_TOKENS = 4
FILLED = 0.985
MOST_NAMED = 20
"""How many attached documents of which nothing is shown are still named."""
ROUNDS = 7


class Reduction:
    """One pass of reducing: a floor that must be there, and candidates taken in order of worth above it."""

    def __init__(self, material: Material, budget: int, share: float, counting: Counting, tools: Tools) -> None:
        self.material, self.budget, self.share = material, budget, share
        self.counting, self.tools = counting, tools
        self.turns = old_turns(material.messages, material.current)
        self.compact = {a.artifact_id: tools.compact(a.content) for a in material.artifacts}
        self.left_out: frozenset[int] = frozenset()
        self.exhausted = False
        self.costs: dict[int, int] = {}
        named = [a for a in material.attached if not a.historical][:MOST_NAMED]
        self.pointers = {a.artifact_id: self._pointer(a) for a in (*material.placed, *named)}
        self.placed: dict[int, list[Artifact]] = defaultdict(list)
        for artifact in material.placed:
            self.placed[artifact.place.message or 0].append(artifact)

    def run(self) -> Fitted:
        floor = self._floor()
        room = self.budget - floor.tokens
        candidates = self._candidates()
        best, limit, too_much = floor, float(room), float("inf")
        for _ in range(ROUNDS):
            fitted = self._choose(candidates, limit)
            slack = self.budget - fitted.tokens
            if slack < 0:
                too_much = limit
                limit = max(limit + 1.1 * slack - 8, limit / 2)
                continue
            if fitted.tokens >= best.tokens:
                best = fitted
            if slack <= self.budget * (1 - FILLED) or self.exhausted or too_much - limit < 1:
                break
            limit = min(limit + slack, (limit + too_much) / 2)
        return best

    def _floor(self) -> Fitted:
        """System messages, the current message, and its tool steps as pointers; the oldest steps leave if they must."""
        steps = tool_steps(self.material)
        while True:
            selection = Selection(self.material.current, self.left_out, self.pointers, frozen=False)
            forwarded = self.tools.assemble(self.material, selection)
            fitted = fitted_as(selection, forwarded, self.counting.exact, self.counting)
            if fitted.tokens <= self.budget:
                return fitted
            attached = {a.artifact_id for a in self.material.attached}
            if attached & self.pointers.keys():  # saying that they were left out is less than what has to be there
                self.pointers = {key: value for key, value in self.pointers.items() if key not in attached}
                continue
            if len(steps) <= 1:
                text = (
                    f"The current message and what must stand with it take {fitted.tokens} tokens; "
                    f"the budget is {self.budget}."
                )
                raise ContextLengthExceeded(text, param="messages")
            self._leave_out(steps, fitted.tokens - self.budget)

    def _leave_out(self, steps: list[Turn], excess: int) -> None:
        """Takes steps out of `steps`, oldest first, until `excess` tokens have left; the last one stays."""
        leaving: list[int] = []
        for step in steps[:-1]:
            if excess <= 0:
                break
            leaving.extend(range(step.start, step.end))
            excess -= self._tokens_of(step)
        self.left_out |= frozenset(leaving)
        del steps[: sum(step.start in self.left_out for step in steps)]

    def _pointer(self, artifact: Artifact) -> Rendering:
        """What an artifact is reduced to at least; one that is no longer than its label stays as it is."""
        small = len(self.compact[artifact.artifact_id]) <= 2 * LABEL_TOKENS
        if small and artifact.place.message is not None:
            return in_full(artifact, self.compact[artifact.artifact_id])
        return Rendering(artifact, ProcessingStrategy.EXCLUDE)

    def _candidates(self) -> list[Candidate]:
        """Passages of all artifacts, best first; without any term of the question, current ones in their order."""
        artifacts = [a for a in self.material.artifacts if a.place.message not in self.left_out]
        passages = self.tools.relevance(Query(self.material.question), [self._source(a) for a in artifacts])
        candidates: list[Candidate] = []
        for artifact, found in zip(artifacts, passages, strict=True):
            prose = artifact.size_chars / max(1, len(found)) > PROSE_CHARS
            weight = 1.0 if artifact.historical else CURRENT_WEIGHT
            per_char = self.counting.text(artifact.content) / max(1, artifact.size_chars)
            for p, score in zip(found, neighbours([p.score for p in found], prose), strict=True):
                tokens = (p.end - p.start) * per_char + ELISION_TOKENS
                order = len(candidates)
                candidates.append(Candidate(artifact, p.start, p.end, tokens, score * weight, order, p.heading))
        return sorted(candidates, key=lambda c: (-c.score, c.artifact.historical, c.order))

    def _source(self, artifact: Artifact) -> Source:
        message = artifact.place.message
        number = len(self.material.messages) if message is None else message
        return Source(artifact.content, "artifact", artifact.search_label, artifact.historical, number)

    def _choose(self, candidates: list[Candidate], limit: float) -> Fitted:
        """Takes old turns up to their share, then passages, then further turns, while their estimates fit."""
        competing = any(self._relevant(c) for c in candidates)
        share = limit * self.share if competing else limit
        used, first = self._take_turns(self.material.current, share, 0.0)
        chosen: dict[str, list[Candidate]] = {}
        candidates = [c for c in candidates if not self._stands(c.artifact, first)]
        relevant = [c for c in candidates if self._relevant(c)]
        used, everything = self._take_passages(relevant, chosen, used, limit)
        used, first = self._take_turns(first, limit, used)
        latest_first = sorted((c for c in candidates if not self._relevant(c)), key=self._age)
        _, rest = self._take_passages(latest_first, chosen, used, limit)
        self.exhausted = everything and rest and (first == 0 or bool(self.left_out))
        renderings = {**self.pointers, **{key: self._extract(taken) for key, taken in chosen.items()}}
        selection = Selection(first, self.left_out, renderings, frozenset(chosen), frozen=False)
        forwarded = self.tools.assemble(self.material, selection)
        return fitted_as(selection, forwarded, self.counting.exact, self.counting)

    def _stands(self, artifact: Artifact, first: int) -> bool:
        """Whether it is in the window in full already, too small to be reduced."""
        pointer = self.pointers.get(artifact.artifact_id)
        full = pointer is not None and pointer.strategy is ProcessingStrategy.INCLUDE_FULL
        return full and (artifact.place.message or 0) >= first

    def _take_passages(
        self, candidates: list[Candidate], chosen: dict[str, list[Candidate]], used: float, limit: float
    ) -> tuple[float, bool]:
        """Adds to `chosen` what fits; returns the tokens used by then, and whether everything fitted."""
        everything = True
        for candidate in candidates:
            artifact_id = candidate.artifact.artifact_id
            cost = candidate.tokens + (0 if artifact_id in chosen else LABEL_TOKENS)
            if used + cost <= limit:
                used += cost
                chosen.setdefault(artifact_id, []).append(candidate)
            else:
                everything = False
        return used, everything

    def _relevant(self, candidate: Candidate) -> bool:
        """Whether it bears on the question, or belongs to the turn under way."""
        return candidate.score > 0 or not candidate.artifact.historical

    def _age(self, candidate: Candidate) -> tuple[int, int]:
        """Sorts the latest artifact first, its passages in their order."""
        return -(candidate.artifact.place.message or 0), candidate.order

    def _take_turns(self, first: int, limit: float, used: float) -> tuple[float, int]:
        """Whole turns before `first`, newest first. One that does not fit ends the run: nothing older is taken, and
        none at all where a step of the current turn has left."""
        if self.left_out:
            return used, first
        for turn in reversed([t for t in self.turns if t.end <= first]):
            cost = self._turn_tokens(turn)
            if used + cost > limit:
                break
            used, first = used + cost, turn.start
        return used, first

    def _turn_tokens(self, turn: Turn) -> int:
        if turn.start not in self.costs:
            self.costs[turn.start] = self._tokens_of(turn)
        return self.costs[turn.start]

    def _tokens_of(self, stretch: Turn) -> int:
        """What a stretch of messages takes with its artifacts as pointers. System messages stand in any window."""
        inside = range(stretch.start, stretch.end)
        return sum(self._tokens_at(at) for at in inside if self.material.messages[at].role not in INSTRUCTION_ROLES)

    def _tokens_at(self, index: int) -> int:
        message, artifacts = self.material.messages[index], self.placed.get(index)
        if artifacts is None:
            return self.counting.message(message.body)
        here = tuple(replace(a, place=replace(a.place, message=0)) for a in artifacts)
        alone = Material(instructions=(), messages=(message,), current=-1, placed=here)
        forwarded = self.tools.assemble(alone, Selection(renderings=self.pointers, frozen=False))
        return sum(map(self.counting.message, forwarded.messages))

    def _extract(self, taken: list[Candidate]) -> Rendering:
        artifact = taken[0].artifact
        spans: list[tuple[int, int]] = []
        for candidate in sorted(taken, key=lambda c: c.start):
            if spans and not artifact.content[spans[-1][1] : candidate.start].strip():
                spans[-1] = (spans[-1][0], candidate.end)
            else:
                spans.append((candidate.start, candidate.end))
        start, end = spans[0]
        if len(spans) == 1 and not (artifact.content[:start].strip() or artifact.content[end:].strip()):
            return in_full(artifact, artifact.content)
        return Rendering(artifact, ProcessingStrategy.RAG_EXTRACT, spans=tuple(spans), header=taken[0].heading)
