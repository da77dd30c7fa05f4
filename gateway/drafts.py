"""What a context is drafted from, and what is known of it before a plan is made."""

from dataclasses import dataclass, replace

from gateway.artifacts.restored import Told
from gateway.collecting import Files
from gateway.fitting.budget import Budget
from gateway.fitting.candidates import candidates
from gateway.fitting.count import Counting
from gateway.fitting.tools import Limits, Tools
from gateway.fitting.transcript import as_artifact, recent_texts, transcript
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
    """What a planner is asked: on the artifacts that a plan can change, in the heuristic's order."""
    material = draft.material
    undecided = list(without_standing(material, draft.unreduced, draft.asked.history.stored))
    if not draft.fitted.anew:  # a user's own words are no attachment while they fit (contract §4 I4)
        undecided = [artifact for artifact in undecided if artifact.place.span is None]
    if draft.decision.reason == FORCED:
        undecided = undecided or list(material.artifacts)
    ranked = dict.fromkeys(id(each.of) for each in candidates(material, undecided, (), draft.tools.relevance))
    places = {of: place for place, of in enumerate(ranked)}
    artifacts = sorted(undecided, key=lambda artifact: places.get(id(artifact), len(places)))
    if not artifacts and is_excerpted(material, draft.unreduced):  # a plan's queries find more in what was said
        told = transcript(material, frozenset())
        artifacts = [as_artifact(told)] if told else []
    return replace(draft.task, artifacts=artifacts, recent=recent_texts(material))
