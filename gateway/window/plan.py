"""What a plan wants shown of each artifact, and what it may not take away (guarantee §5)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gateway.models.artifacts import Artifact, ArtifactDecision, ArtifactPlan, ProcessingStrategy
from gateway.models.relevance import Passage, Relevance
from gateway.models.window import Fitted, Material, Planned, Rendering
from gateway.window.budget import Tools, fitted_as
from gateway.window.candidates import Candidate, best_first, candidates
from gateway.window.counting import PromptCounter
from gateway.window.greedy import CHARS_PER_TOKEN, LABEL_TOKENS, Choice
from gateway.window.recall import extract

MOST_SEARCHES = 4
NEARLY = 0.5
"""What bears on an extraction query by less than this part of what bears most on it is not wanted."""
NO_PLAN = Planned(ArtifactPlan())


class PlanGuide:
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


# In which order things are taken while something has to leave and a plan says what matters (guarantee §5).


HEURISTIC_SHARE = 0.5
"""Part of the room for artifacts that is filled in the heuristic's order before the plan's (guarantee §5)."""
DAMPING = 6
"""How slowly worth falls with rank."""
OWN = 0.3
"""What a passage's rank in its own artifact counts beside its rank among all."""


def apart(wishes: PlanGuide, found: Sequence[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
    """What is taken as without a plan, and what a trusted one alone decides on."""
    if not wishes.trusted:
        return list(found), []
    free: list[Candidate] = []
    decided: list[Candidate] = []
    for candidate in found:
        (free if wishes.decision(candidate) is None else decided).append(candidate)
    return free, decided


def planned_order(
    wishes: PlanGuide,
    choice: Choice,
    room: float,
    relevant: list[Candidate],
    rest: list[Candidate],
    sought: Mapping[int, Candidate],
) -> tuple[list[Candidate], list[Candidate]]:
    """Fills the heuristic's half; returns what is to be taken then, and what of all that is left.

    Args:
        room: tokens of everything that may be taken, what was taken already among it.
        relevant, rest: what was not, in the heuristic's order.
        sought: all candidates, by `order`, as the plan's queries find them; what is left is ordered by them.

    Returns:
        What the plan wants comes first, what it excludes last of all, and not at all if the plan is trusted.
    """
    if not (wishes.decisions or wishes.searches):
        return relevant, rest
    if not wishes.trusted:
        first = _half(choice, room, relevant)
        relevant = [*choice.add(relevant[:first], room), *relevant[first:]]
    if wishes.searches:
        found = best_first(sought[c.order] for c in (*relevant, *rest))
        relevant = [c for c in found if c.relevant]
        rest = sorted((c for c in found if not c.relevant), key=lambda c: c.age)
    wanted = _wanted(wishes, [*relevant, *rest], (room - choice.used - LABEL_TOKENS) * CHARS_PER_TOKEN)
    gone = {id(c) for c in wanted}
    relevant, rest = ([c for c in some if not (id(c) in gone or wishes.forbids(c))] for some in (relevant, rest))
    late = [c for c in (*relevant, *rest) if wishes.excludes(c)]
    relevant, rest = ([c for c in some if not wishes.excludes(c)] for some in (relevant, rest))
    return _by_turns(wanted, relevant) if not wishes.trusted else [*wanted, *relevant], [*rest, *late]


def _by_turns(wanted: Sequence[Candidate], relevant: Sequence[Candidate]) -> list[Candidate]:
    """What a plan wants and what bears most on the question have equal parts of the room, in characters."""
    found: list[Candidate] = []
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


def _half(choice: Choice, room: float, relevant: Sequence[Candidate]) -> int:
    """How many are taken in the heuristic's order: up to that with which its half is full. What was taken of artifacts
    before counts as part of it."""
    of_artifacts = [each for each in choice.taken if each.candidate and isinstance(each.candidate.of, Artifact)]
    taken = sum(each.tokens for each in of_artifacts)
    left = (room - (choice.used - taken)) * HEURISTIC_SHARE - taken
    for number, candidate in enumerate(relevant):
        if left <= 0:
            return number
        left -= choice.counting.text(candidate.text)
    return len(relevant)


def _wanted(wishes: PlanGuide, left: Sequence[Candidate], chars: float) -> list[Candidate]:
    """What the plan wants of what is left, by priority; `chars` is the room for it."""
    by_artifact: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in left:
        if isinstance(candidate.of, Artifact):
            by_artifact[candidate.of.artifact_id].append(candidate)
    summaries = _summaries(wishes, by_artifact, chars)
    chars -= sum(len(candidate.text) for candidate in summaries)
    made = {candidate.of.artifact_id for candidate in summaries if isinstance(candidate.of, Artifact)}
    found: list[Candidate] = []
    extracts: list[list[Candidate]] = []  # of artifacts that follow each other: none of them takes all of the room
    for name, decision in wishes.decisions.items():
        if name in made:
            continue
        own = wishes.of(decision, by_artifact[name], chars)
        chars -= sum(len(candidate.text) for candidate in own)
        if decision.strategy is ProcessingStrategy.RAG_EXTRACT:
            extracts.append(own)
            continue
        found += [*_merged(extracts), *own]
        extracts = []
    return [*summaries, *found, *_merged(extracts)]


def _summaries(wishes: PlanGuide, left: Mapping[str, list[Candidate]], chars: float) -> list[Candidate]:
    """The summaries that were made, by priority: they are short and paid for, and no extract may take their room."""
    found: list[Candidate] = []
    for name, decision in wishes.decisions.items():
        if decision.strategy is ProcessingStrategy.SUMMARIZE and left.get(name):
            own = [candidate for candidate in wishes.of(decision, left[name], chars) if candidate.summary]
            chars -= sum(len(candidate.text) for candidate in own)
            found += own
    return found


def _merged(extracts: Sequence[Sequence[Candidate]]) -> list[Candidate]:
    """Extracts of several artifacts by the reciprocal ranks that they have in their artifacts and among all of them."""
    every = best_first(candidate for own in extracts for candidate in own)
    worth = {id(candidate): 1 / (DAMPING + rank) for rank, candidate in enumerate(every)}
    for own in extracts:
        for rank, candidate in enumerate(own):
            worth[id(candidate)] += OWN / (DAMPING + rank)
    return sorted(every, key=lambda candidate: -worth[id(candidate)])


# A plan followed where everything fits: artifacts that nothing stands for yet cost less, turns stay (guarantee §5).


LABEL_CHARS = LABEL_TOKENS * CHARS_PER_TOKEN
"""An artifact that would not be shorter by more than that stays as it is."""


def followed(material: Material, fitted: Fitted, planned: Planned, counting: PromptCounter, tools: Tools) -> Fitted:
    """What fits, with each artifact that is decided on anew as the plan has it: half of all of their characters in the
    heuristic's order, then what the plan wants; by a trusted plan to the letter. `fitted` itself where that is no less.
    """
    if not planned.plan.artifacts:
        return fitted
    artifacts = [replace(a, content=tools.compact(a.content)) for a in changeable(material, fitted)]
    wishes = PlanGuide(planned, replace(material, placed=tuple(artifacts), restored=(), attached=()), tools.relevance)
    covered = [a for a in artifacts if a.artifact_id in wishes.decisions]
    if not covered:
        return fitted
    renderings = _renderings(covered, wishes, material, tools)
    selection = replace(fitted.selection, renderings={**fitted.selection.renderings, **renderings})
    forwarded = tools.assemble(material, selection)
    found = fitted_as(selection, forwarded, counting.exact if fitted.exact else counting.estimate, counting)
    return replace(found, anew=fitted.anew) if found.tokens < fitted.tokens else fitted


def changeable(material: Material, fitted: Fitted) -> list[Artifact]:
    """The artifacts of which a plan can make less while everything fits: those that stand in full, and in nothing that
    was forwarded before. Documents in a user's own message stay while they fit (guarantee §4 I4)."""
    selection, here = fitted.selection, set(fitted.forwarded.indexes)
    found = []
    for artifact in material.artifacts:
        index, rendering = artifact.place.message, selection.renderings.get(artifact.artifact_id)
        in_full = rendering is None or rendering.strategy is ProcessingStrategy.INCLUDE_FULL
        if index is None:
            stands = rendering is not None and artifact.artifact_id not in selection.quoted
        else:
            is_new = material.messages[index].message_id is None or not selection.frozen
            fixed = selection.keeps_block and index == material.current
            stands = index in here and is_new and not fixed and artifact.place.span is None
        if stands and in_full:
            found.append(artifact)
    return found


def _renderings(covered: list[Artifact], wishes: PlanGuide, material: Material, tools: Tools) -> dict[str, Rendering]:
    found = candidates(material, covered, [], tools.relevance, wishes.searches)
    taken: dict[str, list[Candidate]] = defaultdict(list)
    left: dict[str, list[Candidate]] = defaultdict(list)
    share = 0.0 if wishes.trusted else HEURISTIC_SHARE
    half = share * sum(len(artifact.content) for artifact in covered)
    for candidate in found:
        assert isinstance(candidate.of, Artifact)
        (taken if half > 0 else left)[candidate.of.artifact_id].append(candidate)
        half -= len(candidate.text)
    for name, decision in wishes.decisions.items():
        taken[name] += wishes.of(decision, left[name], float("inf"))
    shown = {a.artifact_id: _planned_in_full_shown(a, taken[a.artifact_id], wishes.decisions) for a in covered}
    return {name: rendering for name, rendering in shown.items() if rendering is not None}


def _planned_in_full_shown(
    artifact: Artifact, taken: list[Candidate], decisions: Mapping[str, ArtifactDecision]
) -> Rendering | None:
    """None where it stays as it is: it is wanted in full, or its label would take what is saved."""
    if decisions[artifact.artifact_id].strategy is ProcessingStrategy.INCLUDE_FULL:
        return None
    rendering = extract(artifact, taken) if taken else Rendering(artifact, ProcessingStrategy.EXCLUDE)
    in_full = rendering.strategy is ProcessingStrategy.INCLUDE_FULL
    return None if in_full or artifact.size_chars - rendering.shown_chars <= LABEL_CHARS else rendering
