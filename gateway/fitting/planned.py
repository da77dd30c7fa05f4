"""What a plan wants shown of each artifact, and what it may not take away (contract §5)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gateway.fitting.candidates import Candidate, best_first, candidates
from gateway.models.artifacts import Artifact, ArtifactDecision, ArtifactPlan, ProcessingStrategy
from gateway.models.planned import Planned
from gateway.models.relevance import Passage, Relevance
from gateway.models.selection import Fitted, Material

MOST_SEARCHES = 4
NEARLY = 0.5
"""What bears on an extraction query by less than this part of what bears most on it is not wanted."""
NO_PLAN = Planned(ArtifactPlan())


class Wishes:
    """A plan as it is followed for one request."""

    def __init__(self, planned: Planned, material: Material, relevance: Relevance) -> None:
        self.trusted = planned.trusted
        self.searches = searches(planned)
        self.decisions = decisions(planned, material.searched)
        self._summaries, self._material, self._relevance = dict(planned.summaries), material, relevance

    def decision(self, candidate: Candidate) -> ArtifactDecision | None:
        """What was decided for what a candidate is of."""
        return self.decisions.get(candidate.of.artifact_id) if isinstance(candidate.of, Artifact) else None

    def excludes(self, candidate: Candidate) -> bool:
        """Whether it is of an artifact of which the plan wants to see nothing."""
        decision = self.decision(candidate)
        return decision is not None and decision.strategy is ProcessingStrategy.EXCLUDE

    def forbids(self, candidate: Candidate) -> bool:
        """Whether a plan that is trusted leaves no place for it: what is summarized is shown by its summary alone."""
        decision = self.decision(candidate)
        return (
            self.trusted
            and decision is not None
            and not candidate.summary
            and (decision.strategy is ProcessingStrategy.EXCLUDE or bool(self._summary(decision)))
        )

    def of(self, decision: ArtifactDecision, own: Sequence[Candidate], chars: float) -> list[Candidate]:
        """What is to be taken of an artifact, in that order.

        Args:
            own: the candidates that it has, none of them taken.
            chars: the room. An artifact that is longer is not shown in full, but by what bears most on the question;
                one whose summary is longer, or could not be made, by what bears on the focus.
        """
        if not own or decision.strategy is ProcessingStrategy.EXCLUDE:
            return []
        if decision.strategy is ProcessingStrategy.INCLUDE_FULL:
            whole = sum(len(c.text) for c in own) <= chars
            return sorted(own, key=lambda c: c.order) if whole else best_first(own)
        summary = self._summary(decision)
        if len(summary) > chars:
            summary = self._summaries[decision.artifact_id] = ""
        if summary:
            return [_as_summary(own[0], summary, decision.summarization_focus or "")]
        query = decision.extraction_query or decision.summarization_focus
        return self._nearest(own, query) if query else [c for c in best_first(own) if c.relevant]

    def _summary(self, decision: ArtifactDecision) -> str:
        wanted = decision.strategy is ProcessingStrategy.SUMMARIZE
        return self._summaries.get(decision.artifact_id, "").strip() if wanted else ""

    def _nearest(self, own: Sequence[Candidate], query: str) -> list[Candidate]:
        """Those that bear on the question, on a query of the artifact's own and on what else the plan seeks, best
        first; the beginning if none."""
        of = own[0].of
        assert isinstance(of, Artifact)
        sought = tuple(dict.fromkeys((query, *self.searches)))
        found = candidates(self._material, [of], [], self._relevance, sought)
        least = NEARLY * max((c.passage.score for c in found), default=0.0)
        here = {c.passage.start: c for c in own}
        near = [c for c in found if c.passage.score >= least and c.passage.score > 0]
        return [here[c.passage.start] for c in near or found[:1] if c.passage.start in here]


def searches(planned: Planned) -> tuple[str, ...]:
    """What else is sought in everything: the plan's imagined passages, then what it seeks in single artifacts."""
    queries = (*planned.plan.search_queries, *(d.extraction_query or "" for d in planned.plan.artifacts))
    return tuple(dict.fromkeys(query for query in queries if query.strip()))[:MOST_SEARCHES]


def decisions(planned: Planned, artifacts: Iterable[Artifact]) -> dict[str, ArtifactDecision]:
    """Those for these artifacts, by priority. Of two for one artifact the first counts."""
    known = {artifact.artifact_id for artifact in artifacts}
    found: dict[str, ArtifactDecision] = {}
    for decision in planned.plan.artifacts:
        if decision.artifact_id in known:
            found.setdefault(decision.artifact_id, decision)
    return dict(sorted(found.items(), key=lambda item: item[1].priority))


def guarded(planned: Planned, material: Material, fitted: Fitted) -> frozenset[str]:
    """The artifacts that a plan excludes and of which something is shown all the same."""
    if planned.trusted:
        return frozenset()
    excluded = {d.artifact_id for d in planned.plan.artifacts if d.strategy is ProcessingStrategy.EXCLUDE}
    here = set(fitted.forwarded.indexes)
    return frozenset(a.artifact_id for a in material.searched if a.artifact_id in excluded and _shown(a, fitted, here))


def _shown(artifact: Artifact, fitted: Fitted, here: set[int]) -> bool:
    name, index, selection = artifact.artifact_id, artifact.place.message, fitted.selection
    rendering = selection.renderings.get(name)
    if index is not None and index not in here and name not in selection.recalled | selection.quoted:
        return False
    return index is not None and artifact.size_chars > 0 if rendering is None else rendering.shown_chars > 0


def _as_summary(one: Candidate, summary: str, focus: str) -> Candidate:
    """A candidate that stands for the whole artifact."""
    return replace(one, passage=Passage(0, 0, max(1.0, one.passage.score)), summary=summary, focus=focus)
