"""What was decided for each artifact, as a plan and as records for the metadata: drops are values."""

from dataclasses import dataclass

from gateway.models.artifacts import Artifact, ArtifactDecision, ArtifactPlan, ProcessingStrategy
from gateway.models.metadata import ArtifactUsageRecord, nameless
from gateway.models.selection import Fitted, Material, Recalled, Rendering


def plan_of(material: Material, fitted: Fitted) -> ArtifactPlan:
    """The heuristic's decisions, in the order of the artifacts."""
    decisions = []
    window = Window.of(material, fitted)
    for priority, artifact in enumerate(material.artifacts, 1):
        strategy = strategy_of(artifact, window, fitted)
        decision = ArtifactDecision(artifact_id=artifact.artifact_id, strategy=strategy, priority=priority)
        decisions.append(decision)
    return ArtifactPlan(artifacts=tuple(decisions), reasoning="lexical relevance to the question, within the budget")


def records_of(material: Material, fitted: Fitted, *, named: bool = True) -> list[ArtifactUsageRecord]:
    """One record per artifact: references and sizes, never content (contract §6).

    Args:
        named: whether a source may name the title or tool, which somebody wrote: not with `store: false` (§2).
    """
    records = []
    window = Window.of(material, fitted)
    for artifact in material.artifacts:
        strategy = strategy_of(artifact, window, fitted)
        rendering = fitted.selection.renderings.get(artifact.artifact_id)
        record = ArtifactUsageRecord(
            artifact_id=artifact.artifact_id,
            source=artifact.source if named else nameless(artifact.source),
            artifact_type=artifact.artifact_type.value,
            strategy=strategy.value,
            original_size_chars=artifact.size_chars,
            processed_size_chars=_shown(artifact, strategy, rendering),
        )
        records.append(record)
    turns = fitted.selection.turns
    return [*records, _of_turns(turns)] if turns else records


def _of_turns(turns: Recalled) -> ArtifactUsageRecord:
    return ArtifactUsageRecord(
        artifact_id=turns.artifact.artifact_id,
        source=turns.artifact.source,
        artifact_type=turns.artifact.artifact_type.value,
        strategy=ProcessingStrategy.RAG_EXTRACT.value,
        original_size_chars=turns.artifact.size_chars,
        processed_size_chars=turns.shown_chars,
    )


@dataclass(frozen=True, slots=True)
class Window:
    """Which messages of a conversation are forwarded, and which artifacts stand in full in blocks, new or earlier."""

    indexes: frozenset[int]
    in_block: frozenset[str]
    in_earlier_blocks: frozenset[str]

    @classmethod
    def of(cls, material: Material, fitted: Fitted) -> "Window":
        earlier = frozenset(name for message in material.messages for name in message.standing)
        return cls(frozenset(fitted.forwarded.indexes), frozenset(fitted.forwarded.standing), earlier)


def strategy_of(artifact: Artifact, window: Window, fitted: Fitted) -> ProcessingStrategy:
    """What stands in the window of an artifact: what its rendering says, else what its message does."""
    rendering = fitted.selection.renderings.get(artifact.artifact_id)
    index = artifact.place.message
    if index is not None and index not in window.indexes:
        kept = rendering is not None and rendering.strategy is ProcessingStrategy.RAG_EXTRACT
        full = rendering is not None and artifact.standing_name in window.in_block
        if full:
            return ProcessingStrategy.INCLUDE_FULL
        return ProcessingStrategy.RAG_EXTRACT if kept else ProcessingStrategy.EXCLUDE
    if rendering is not None:
        return rendering.strategy
    if index is not None:
        return ProcessingStrategy.INCLUDE_FULL
    if not fitted.selection.frozen:
        return ProcessingStrategy.EXCLUDE
    return (
        ProcessingStrategy.INCLUDE_FULL
        if artifact.standing_name in window.in_earlier_blocks
        else ProcessingStrategy.RAG_EXTRACT
    )


def _shown(artifact: Artifact, strategy: ProcessingStrategy, rendering: Rendering | None) -> int:
    if strategy is ProcessingStrategy.EXCLUDE:
        return 0
    return artifact.size_chars if rendering is None else rendering.shown_chars
