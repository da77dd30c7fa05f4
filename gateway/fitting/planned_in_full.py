"""A plan followed where everything fits: artifacts that nothing stands for yet cost less, turns stay (contract §5)."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from gateway.fitting.candidates import Candidate, candidates
from gateway.fitting.choice import CHARS_PER_TOKEN, LABEL_TOKENS
from gateway.fitting.count import Counting
from gateway.fitting.planned import Wishes
from gateway.fitting.planned_order import HEURISTIC_SHARE
from gateway.fitting.renderings import extract
from gateway.fitting.tools import Tools, fitted_as
from gateway.models.artifacts import Artifact, ArtifactDecision, ProcessingStrategy
from gateway.models.planned import Planned
from gateway.models.selection import Fitted, Material, Rendering

LABEL_CHARS = LABEL_TOKENS * CHARS_PER_TOKEN
"""An artifact that would not be shorter by more than that stays as it is."""


def followed(material: Material, fitted: Fitted, planned: Planned, counting: Counting, tools: Tools) -> Fitted:
    """What fits, with each artifact that is decided on anew as the plan has it: half of all of their characters in the
    heuristic's order, then what the plan wants; by a trusted plan to the letter. `fitted` itself where that is no less.
    """
    if not planned.plan.artifacts:
        return fitted
    artifacts = [replace(a, content=tools.compact(a.content)) for a in changeable(material, fitted)]
    wishes = Wishes(planned, replace(material, placed=tuple(artifacts), restored=(), attached=()), tools.relevance)
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
    was forwarded before. Documents in a user's own message stay while they fit (contract §4 I4)."""
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


def _renderings(covered: list[Artifact], wishes: Wishes, material: Material, tools: Tools) -> dict[str, Rendering]:
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
    shown = {a.artifact_id: _shown(a, taken[a.artifact_id], wishes.decisions) for a in covered}
    return {name: rendering for name, rendering in shown.items() if rendering is not None}


def _shown(artifact: Artifact, taken: list[Candidate], decisions: Mapping[str, ArtifactDecision]) -> Rendering | None:
    """None where it stays as it is: it is wanted in full, or its label would take what is saved."""
    if decisions[artifact.artifact_id].strategy is ProcessingStrategy.INCLUDE_FULL:
        return None
    rendering = extract(artifact, taken) if taken else Rendering(artifact, ProcessingStrategy.EXCLUDE)
    in_full = rendering.strategy is ProcessingStrategy.INCLUDE_FULL
    return None if in_full or artifact.size_chars - rendering.shown_chars <= LABEL_CHARS else rendering
