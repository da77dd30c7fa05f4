"""Materials and plans for tests of what fitting does with a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.context.artifacts.collect import documents_in_messages, extract_artifacts_from_messages, unique_ids
from gateway.context.artifacts.lossless_compaction import compact
from gateway.context.assembly.render import assemble, worded
from gateway.context.tokens.counter import CounterRegistry
from gateway.context.window.counting import PromptCounter
from gateway.context.window.fit import fit
from gateway.context.window.fitting import NO_PLAN, FittingCallbacks, SelectionLimits, WindowFitter
from gateway.core.types.artifacts import Artifact, ArtifactDecision, ArtifactPlan, ArtifactType, ProcessingStrategy
from gateway.core.types.conversation import new_message
from gateway.core.types.window import PackedWindow, PlanToFollow, WindowInputs
from gateway.retrieval.index_cache import PassageFinder
from tests.unit.making import FACTS

FULL, EXCLUDE = ProcessingStrategy.INCLUDE_FULL, ProcessingStrategy.EXCLUDE
EXTRACT, SUMMARIZE = ProcessingStrategy.RAG_EXTRACT, ProcessingStrategy.SUMMARIZE
CALLBACKS = FittingCallbacks(assemble, PassageFinder(None, "tenant"), compact, worded)
LAMP = "\n\n".join(f"On night {n} the lamp of the lighthouse was lit at {n % 12}:15 by keeper {n}." for n in range(80))
SHIPS = "\n\n".join(f"The vessel number {n} carried {n * 3} tons of coal to harbour {n % 9}." for n in range(80))


def paper(name: str, content: str) -> Artifact:
    """A document that came with the request."""
    return Artifact(f"art_{name}", ArtifactType.DOCUMENT, content, len(content), f"attachment:0:{name}", title=name)


def material(
    bodies: Sequence[dict[str, Any]], *attached: Artifact, known: int = 0, document_chars: int = 8000
) -> WindowInputs:
    """A conversation whose first `known` messages were forwarded before; its question is its last user message."""
    path = tuple(replace(new_message(body), sequence_number=n) for n, body in enumerate(bodies))
    path = tuple(replace(m, message_id=f"msg_{n}") if n < known else m for n, m in enumerate(path))
    current = max(i for i, body in enumerate(bodies) if body["role"] == "user")
    placed = extract_artifacts_from_messages(path, current)
    placed += documents_in_messages(path, current, document_chars, {})
    question = str(path[current].content)
    return WindowInputs((), path, current, tuple(unique_ids(placed)), attached=attached, question=question)


def decided(artifact_id: str, strategy: ProcessingStrategy, priority: int = 1, **more: str) -> ArtifactDecision:
    """A decision; `more` are its focus and query."""
    return ArtifactDecision(artifact_id=artifact_id, strategy=strategy, priority=priority, **more)


def planned(
    *decisions: ArtifactDecision,
    searches: Sequence[str] = (),
    summaries: Mapping[str, str] | None = None,
    trusted: bool = False,
) -> PlanToFollow:
    """What a planner said."""
    plan = ArtifactPlan(artifacts=tuple(decisions), search_queries=tuple(searches))
    return PlanToFollow(plan, summaries or {}, trusted)


def fitted(made: WindowInputs, tokens: int | None, plan: PlanToFollow | None = None) -> PackedWindow:
    """What is forwarded within so many tokens."""
    return fit(WindowFitter(made, SelectionLimits(tokens, 0.1), counting(made), CALLBACKS, plan or NO_PLAN))


def counting(made: WindowInputs) -> PromptCounter:
    """Counts exactly."""
    return PromptCounter(CounterRegistry().counter(FACTS), {"model": "gpt-4o"}, made)


def text(found: PackedWindow) -> str:
    """Everything that is forwarded."""
    return "\n".join(str(message.get("content")) for message in found.forwarded.messages)


def shown(found: PackedWindow, name: str) -> int:
    """How many characters of an artifact are shown; all of it where nothing is said of it."""
    rendering = found.selection.renderings.get(name)
    return -1 if rendering is None else rendering.shown_chars
