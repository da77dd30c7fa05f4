"""What a context is drafted from, and what is known of it before a plan is made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.artifacts.restored import Told
from gateway.collecting import Files
from gateway.fitting.budget import Budget
from gateway.fitting.candidates import candidates
from gateway.fitting.count import Counting
from gateway.fitting.planned_in_full import changeable
from gateway.fitting.recall import absent
from gateway.fitting.tools import Limits, Tools
from gateway.fitting.transcript import Said, as_artifact, recent_texts, transcript
from gateway.models.artifacts import Artifact
from gateway.models.conversation import History
from gateway.models.exchange import ChatRequest, ModelFacts
from gateway.models.selection import Fitted, Material, Unreduced
from gateway.planning.decision import Decision
from gateway.planning.facts import is_excerpted, without_standing
from gateway.planning.planner_prompt import PlannerTask
from gateway.relevance.finder import PassageFinder

FORCED = "forced"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request whose context is to be made. `has_planner`: somebody may be asked for a plan; `is_planned`: somebody
    was, when a context was made for it before."""

    request: ChatRequest
    told: Told
    facts: ModelFacts
    budget: Budget
    files: Files
    has_planner: bool
    is_planned: bool = False

    @property
    def history(self) -> History:
        """The conversation, without the tool steps that are told as text."""
        return self.told.history


@dataclass(frozen=True, slots=True)
class Draft:
    """A context without a plan, and what a planner is to be asked for one that is called for."""

    asked: Asked
    fitted: Fitted
    material: Material
    decision: Decision
    counting: Counting
    limits: Limits
    tools: Tools
    finder: PassageFinder
    unreduced: Unreduced
    task: PlannerTask


def task_of(draft: Draft) -> PlannerTask:
    """What a planner is asked: on the artifacts that a plan can change, in the heuristic's order. Without any, nobody
    is to be paid."""
    artifacts, quoted = _asked_about(draft)
    ranked = dict.fromkeys(id(each.of) for each in candidates(draft.material, artifacts, (), draft.tools.relevance))
    places = {of: place for place, of in enumerate(ranked)}
    artifacts.sort(key=lambda artifact: places.get(id(artifact), len(places)))
    return replace(draft.task, artifacts=artifacts, recent=recent_texts(draft.material), quoted=quoted)


def _asked_about(draft: Draft) -> tuple[list[Artifact], frozenset[str]]:
    """The artifacts that a plan can change, and the ids of those of which it can only find other passages."""
    material, fitted = draft.material, draft.fitted
    undecided = without_standing(material, draft.unreduced, draft.asked.history.stored)
    if fitted.anew:
        told = transcript(material, frozenset()) if is_excerpted(material, draft.unreduced) else []
        return list(undecided) or _as_one(told), frozenset()
    free = {id(artifact) for artifact in changeable(material, fitted)}
    artifacts = [artifact for artifact in undecided if id(artifact) in free]
    if artifacts or draft.decision.reason != FORCED:
        return artifacts, frozenset()
    outside, told = absent(material, fitted)  # what stands frozen stays, but a plan's queries find more beside it
    found = outside or _as_one(told)
    return found, frozenset(artifact.artifact_id for artifact in found)


def _as_one(told: Sequence[Said]) -> list[Artifact]:
    """What was said, as the one artifact that a plain chat has: a plan's queries find more in it."""
    return [as_artifact(told)] if told else []
