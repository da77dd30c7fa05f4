"""How a planner's plan is followed, and what it cannot take away (guarantee §5).

If something has to leave, the plan has a say in the order in which passages are taken (`PlanGuide`). If everything
fits, it makes artifacts shorter that are forwarded for the first time (`followed`).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import assert_never

from gateway.context.window import tuning
from gateway.context.window.candidates import PassageCandidate, best_first, candidates, latest_first
from gateway.context.window.fitting import WindowFitter
from gateway.context.window.greedy_fit import GreedyFit
from gateway.context.window.recalled_extracts import extract
from gateway.core.types.artifacts import Artifact, ArtifactDecision, ProcessingStrategy
from gateway.core.types.relevance import RankedPassage
from gateway.core.types.window import ArtifactRendering, PackedWindow, WindowInputs


class PlanGuide:
    """A plan as it is followed for some artifacts. Of two decisions for one artifact the first counts."""

    def __init__(self, fitting: WindowFitter, artifacts: Iterable[Artifact]) -> None:
        planned = fitting.planned
        self.trusted, self.searches = planned.trusted, fitting.searches
        known = {artifact.artifact_id for artifact in artifacts}
        found: dict[str, ArtifactDecision] = {}
        for decision in planned.plan.artifacts:
            if decision.artifact_id in known:
                found.setdefault(decision.artifact_id, decision)
        self.decisions = dict(sorted(found.items(), key=lambda item: item[1].priority))
        self._summaries = dict(planned.summaries)
        self._fitting = fitting

    def apart(self, found: Sequence[PassageCandidate]) -> tuple[list[PassageCandidate], list[PassageCandidate]]:
        """Candidates that are taken as without a plan, and those on which a trusted plan alone decides."""
        decided = {id(c) for c in found if self.trusted and self._decision(c) is not None}
        return [c for c in found if id(c) not in decided], [c for c in found if id(c) in decided]

    def order(
        self,
        taken: GreedyFit,
        room: float,
        relevant: list[PassageCandidate],
        rest: list[PassageCandidate],
        by_plan: Mapping[int, PassageCandidate],
    ) -> tuple[list[PassageCandidate], list[PassageCandidate]]:
        """Fills the heuristic's share; returns the order in which the relevant passages and all others are then taken.
        `room`: tokens of all that may be taken, including what was taken already; `relevant, rest`: what was not taken,
        in the heuristic's order; `by_plan`: all candidates by `order`, with the scores that they have for the plan's
        queries.
        What the plan wants first, and what it excludes last; a trusted plan's exclusions not at all."""
        if not (self.decisions or self.searches):
            return relevant, rest
        if not self.trusted:
            first = _heuristic_count(taken, room, relevant)
            relevant = [*taken.add(relevant[:first], room), *relevant[first:]]
        if self.searches:
            found = best_first(by_plan[c.order] for c in (*relevant, *rest))
            relevant = [c for c in found if c.relevant]
            rest = latest_first([c for c in found if not c.relevant])
        wanted = self._wanted([*relevant, *rest], (room - taken.used - tuning.LABEL_TOKENS) * tuning.CHARS_PER_TOKEN)
        gone = {id(c) for c in wanted}
        relevant, rest = ([c for c in some if not (id(c) in gone or self._forbids(c))] for some in (relevant, rest))
        late = [c for c in (*relevant, *rest) if self._excludes(c)]
        relevant, rest = ([c for c in some if not self._excludes(c)] for some in (relevant, rest))
        return [*wanted, *relevant] if self.trusted else _alternating(wanted, relevant), [*rest, *late]

    def passages_of(
        self, decision: ArtifactDecision, own: Sequence[PassageCandidate], chars: float
    ) -> list[PassageCandidate]:
        """What is to be taken of an artifact, in that order.
        `own`: its candidates; none of them is taken yet. `chars`: the room. An artifact that is longer is shown by what
        is most relevant to the question, not in full. One whose summary is longer, or could not be made, is shown by
        what is relevant to the summary's focus; a summary that is too long is forgotten, so that later calls do not
        show it either."""
        match decision.strategy:
            case ProcessingStrategy.EXCLUDE:
                return []
            case ProcessingStrategy.INCLUDE_FULL | ProcessingStrategy.SHAPE:
                return sorted(own, key=lambda c: c.order) if _chars(own) <= chars else best_first(own)
            case ProcessingStrategy.SUMMARIZE | ProcessingStrategy.RAG_EXTRACT:
                return self._shortened(decision, own, chars) if own else []
            case unknown:
                assert_never(unknown)

    def _shortened(
        self, decision: ArtifactDecision, own: Sequence[PassageCandidate], chars: float
    ) -> list[PassageCandidate]:
        summary = self._summary(decision)
        if len(summary) > chars:
            summary = self._summaries[decision.artifact_id] = ""
        if summary:
            whole = RankedPassage(0, 0, max(1.0, own[0].passage.score))
            return [
                replace(own[0], passage=whole, relevant=True, summary=summary, focus=decision.summarization_focus or "")
            ]
        query = decision.extraction_query or decision.summarization_focus
        return self._nearest(own, query) if query else [c for c in best_first(own) if c.relevant]

    def _decision(self, candidate: PassageCandidate) -> ArtifactDecision | None:
        return self.decisions.get(candidate.of.artifact_id) if isinstance(candidate.of, Artifact) else None

    def _excludes(self, candidate: PassageCandidate) -> bool:
        decision = self._decision(candidate)
        return decision is not None and decision.strategy is ProcessingStrategy.EXCLUDE

    def _forbids(self, candidate: PassageCandidate) -> bool:
        """Whether a trusted plan leaves it out: its artifact is excluded, or shown by its summary alone."""
        decision = self._decision(candidate)
        if not self.trusted or decision is None or candidate.summary:
            return False
        return decision.strategy is ProcessingStrategy.EXCLUDE or bool(self._summary(decision))

    def _summary(self, decision: ArtifactDecision) -> str:
        wanted = decision.strategy is ProcessingStrategy.SUMMARIZE
        return self._summaries.get(decision.artifact_id, "").strip() if wanted else ""

    def _nearest(self, own: Sequence[PassageCandidate], query: str) -> list[PassageCandidate]:
        """Those that are relevant to the question, the artifact's own query and the plan's others, best first; the best
        one if none is."""
        of = own[0].of
        assert isinstance(of, Artifact)
        queries = tuple(dict.fromkeys((query, *self.searches)))
        found = candidates(self._fitting.material, [of], [], self._fitting.tools.relevance, queries)
        least = tuning.MIN_QUERY_SCORE * max((c.passage.score for c in found), default=0.0)
        here = {c.passage.start: c for c in own}
        near = [c for c in found if c.passage.score >= least and c.passage.score > 0]
        return [here[c.passage.start] for c in near or found[:1] if c.passage.start in here]

    def _wanted(self, left: Sequence[PassageCandidate], chars: float) -> list[PassageCandidate]:
        """What the plan wants of the candidates left, by priority, in `chars` characters of room. Summaries come first:
        they are short and paid for. Extracts that follow each other are merged, so that none takes all of the room."""
        own: dict[str, list[PassageCandidate]] = defaultdict(list)
        for candidate in left:
            if isinstance(candidate.of, Artifact):
                own[candidate.of.artifact_id].append(candidate)
        summaries: dict[str, PassageCandidate] = {}
        for name, decision in self.decisions.items():
            if decision.strategy is ProcessingStrategy.SUMMARIZE and own[name]:
                first = self.passages_of(decision, own[name], chars)[:1]
                if first and first[0].summary:
                    summaries[name] = first[0]
                    chars -= len(first[0].text)
        found: list[PassageCandidate] = []
        extracts: list[list[PassageCandidate]] = []
        for name, decision in self.decisions.items():
            if name in summaries:
                continue
            passages = self.passages_of(decision, own[name], chars)
            chars -= _chars(passages)
            if decision.strategy is ProcessingStrategy.RAG_EXTRACT:
                extracts.append(passages)
                continue
            found += [*_merged(extracts), *passages]
            extracts = []
        return [*summaries.values(), *found, *_merged(extracts)]


def _chars(some: Iterable[PassageCandidate]) -> int:
    return sum(len(candidate.text) for candidate in some)


def _heuristic_count(taken: GreedyFit, room: float, relevant: Sequence[PassageCandidate]) -> int:
    """How many are taken in the heuristic's order, up to the one that fills its share. Artifacts that were taken before
    count as part of that share."""
    of_artifacts = [each for each in taken.taken if each.candidate and isinstance(each.candidate.of, Artifact)]
    tokens = sum(each.tokens for each in of_artifacts)
    left = (room - (taken.used - tokens)) * tuning.HEURISTIC_SHARE - tokens
    for number, candidate in enumerate(relevant):
        if left <= 0:
            return number
        left -= taken.counting.text(candidate.text)
    return len(relevant)


def _alternating(wanted: Sequence[PassageCandidate], relevant: Sequence[PassageCandidate]) -> list[PassageCandidate]:
    """What the plan wants and what is most relevant to the question by turns, with equal parts of the room."""
    found: list[PassageCandidate] = []
    others, ahead = iter(relevant), 0
    for candidate in wanted:
        found.append(candidate)
        if candidate.summary:
            continue
        ahead += len(candidate.text)
        while ahead > 0 and (other := next(others, None)) is not None:
            found.append(other)
            ahead -= len(other.text)
    return [*found, *others]


def _merged(extracts: Sequence[Sequence[PassageCandidate]]) -> list[PassageCandidate]:
    """Extracts of several artifacts by reciprocal rank fusion of their ranks among all and in their own artifacts."""
    every = best_first(candidate for own in extracts for candidate in own)
    worth = {id(candidate): 1 / (tuning.RANK_DAMPING + rank) for rank, candidate in enumerate(every)}
    for own in extracts:
        for rank, candidate in enumerate(own):
            worth[id(candidate)] += tuning.OWN_RANK_WEIGHT / (tuning.RANK_DAMPING + rank)
    return sorted(every, key=lambda candidate: -worth[id(candidate)])


def followed(fitting: WindowFitter, fitted: PackedWindow) -> PackedWindow:
    """A selection that fits, with each artifact that is new in it as the plan has it: half of all of their characters
    in the heuristic's order, then what the plan wants; a trusted plan is followed to the letter. Turns stay. `fitted`
    itself if that is no shorter."""
    if not fitting.planned.plan.artifacts:
        return fitted
    artifacts = [replace(a, content=fitting.tools.compact(a.content)) for a in changeable(fitting.material, fitted)]
    guide = PlanGuide(fitting, artifacts)
    covered = [a for a in artifacts if a.artifact_id in guide.decisions]
    if not covered:
        return fitted
    renderings = fitted.selection.renderings | _renderings(fitting, guide, covered)
    found = fitting.fitted(replace(fitted.selection, renderings=renderings), exact=fitted.exact)
    return replace(found, new_pass=fitted.new_pass) if found.tokens < fitted.tokens else fitted


def changeable(material: WindowInputs, fitted: PackedWindow) -> list[Artifact]:
    """The artifacts that a plan can make shorter while everything fits: those shown in full that were never forwarded
    before. Documents inside a user's message stay as long as they fit (guarantee §4 I4)."""
    selection, here = fitted.selection, set(fitted.forwarded.indexes)
    found = []
    for artifact in material.artifacts:
        if artifact.pinned:
            continue
        index, rendering = artifact.place.message, selection.renderings.get(artifact.artifact_id)
        if index is None:
            can_change = rendering is not None and artifact.artifact_id not in selection.quoted
        else:
            is_new = material.messages[index].message_id is None or not selection.frozen
            in_kept_block = selection.keeps_block and index == material.current
            can_change = index in here and is_new and not in_kept_block and artifact.place.span is None
        if can_change and (rendering is None or rendering.strategy is ProcessingStrategy.INCLUDE_FULL):
            found.append(artifact)
    return found


def _renderings(fitting: WindowFitter, guide: PlanGuide, covered: list[Artifact]) -> dict[str, ArtifactRendering]:
    """The artifacts that get shorter by more than a label."""
    taken: dict[str, list[PassageCandidate]] = defaultdict(list)
    left: dict[str, list[PassageCandidate]] = defaultdict(list)
    half = 0.0 if guide.trusted else tuning.HEURISTIC_SHARE * sum(len(artifact.content) for artifact in covered)
    for candidate in candidates(fitting.material, covered, [], fitting.tools.relevance, guide.searches):
        assert isinstance(candidate.of, Artifact)
        (taken if half > 0 else left)[candidate.of.artifact_id].append(candidate)
        half -= len(candidate.text)
    found: dict[str, ArtifactRendering] = {}
    for artifact in covered:
        name, decision = artifact.artifact_id, guide.decisions[artifact.artifact_id]
        if decision.strategy is ProcessingStrategy.INCLUDE_FULL:
            continue
        rendering = extract(artifact, [*taken[name], *guide.passages_of(decision, left[name], inf)])
        rendering = fitting.unless_longer(rendering, in_block=artifact.place.message is None)
        is_full = rendering.strategy is ProcessingStrategy.INCLUDE_FULL
        if not is_full and artifact.size_chars - rendering.shown_chars > tuning.LABEL_CHARS:
            found[name] = rendering
    return found


def guarded(fitting: WindowFitter, fitted: PackedWindow) -> frozenset[str]:
    """Ids of artifacts that an untrusted plan excludes and of which something is shown all the same."""
    planned = fitting.planned
    excluded = {d.artifact_id for d in planned.plan.artifacts if d.strategy is ProcessingStrategy.EXCLUDE}
    if planned.trusted or not excluded:
        return frozenset()
    searched, here = fitting.material.searched, set(fitted.forwarded.indexes)
    return frozenset(a.artifact_id for a in searched if a.artifact_id in excluded and _is_shown(a, fitted, here))


def _is_shown(artifact: Artifact, fitted: PackedWindow, here: Collection[int]) -> bool:
    name, index, selection = artifact.artifact_id, artifact.place.message, fitted.selection
    rendering = selection.renderings.get(name)
    if index is not None and index not in here and name not in selection.recalled | selection.quoted:
        return False
    return index is not None and artifact.size_chars > 0 if rendering is None else rendering.shown_chars > 0
