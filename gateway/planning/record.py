"""What was decided for each artifact, as a plan and as records for the metadata: drops are values."""

from collections.abc import Iterator

from gateway.models.artifacts import Artifact, ArtifactDecision, ArtifactPlan, ProcessingStrategy
from gateway.models.bill import ArtifactUsageRecord, nameless
from gateway.models.frames import FrozenDecision
from gateway.models.window import Fitted, Material, Recalled, Rendering
from gateway.planning.decision import Window, together

REDUCED = (ProcessingStrategy.RAG_EXTRACT, ProcessingStrategy.SUMMARIZE)


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
    """One record per artifact that stands in the window or was decided on: references and sizes, never content
    (guarantee §6). What stands as an earlier request decided is told as decided then.

    Args:
        named: whether a source may name the title or tool, which somebody wrote: not with `store: false` (§2).
    """
    records = []
    window = Window.of(material, fitted)
    recalled = (a for a in material.recallable if a.artifact_id in fitted.selection.renderings)
    for artifact in (*material.artifacts, *recalled):
        rendering = fitted.selection.renderings.get(artifact.artifact_id)
        beside = artifact.artifact_id in fitted.selection.quoted
        earlier = window.decided(artifact) if rendering is None or beside else window.kept(artifact)
        strategy = strategy_of(artifact, window, fitted)
        shown = _shown(artifact, strategy, rendering)
        if earlier is not None:  # what stands, and, if the question called for more, that beside it
            here = FrozenDecision(earlier.artifact_id, strategy.value, shown)
            told = earlier if rendering is None else together(earlier, here)
            strategy, shown = ProcessingStrategy(told.strategy), min(artifact.size_chars, told.shown_chars)
        elif rendering is None and not fitted.anew and window.is_gone(artifact):
            if artifact.block_name not in window.decided_on:
                continue  # it left with its turn, which `messages_excluded` counts
            strategy, shown = ProcessingStrategy.EXCLUDE, 0
        record = ArtifactUsageRecord(
            artifact_id=artifact.artifact_id,
            source=artifact.source if named else nameless(artifact.source),
            artifact_type=artifact.artifact_type.value,
            strategy=strategy.value,
            original_size_chars=artifact.size_chars,
            processed_size_chars=shown,
            guarded=artifact.artifact_id in fitted.guarded,
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


def standing_of(material: Material, fitted: Fitted) -> Iterator[tuple[int, FrozenDecision]]:
    """What was decided for artifacts that stand in the window as less than they are, each with the index of the message
    that it stands in."""
    included = set(fitted.forwarded.indexes)
    for artifact in material.searched:
        rendering = fitted.selection.renderings.get(artifact.artifact_id)
        if rendering is None or _is_whole(rendering):
            continue
        index = artifact.place.message
        if rendering.strategy is ProcessingStrategy.EXCLUDE and index is not None and index not in included:
            continue
        stays = index is not None and index in included and artifact.artifact_id not in fitted.selection.quoted
        holder = index if index is not None and stays else material.current
        yield holder, FrozenDecision(artifact.content_id, rendering.strategy.value, rendering.shown_chars)


def _is_whole(rendering: Rendering) -> bool:
    summarized = rendering.strategy is ProcessingStrategy.SUMMARIZE  # it may be as long as what it is of
    return not summarized and rendering.shown_chars == rendering.artifact.size_chars


def stand_reduced(material: Material, fitted: Fitted) -> bool:
    """Whether something stands in the window as an earlier request reduced it."""
    return bool(Window.of(material, fitted).decisions)


def strategy_of(artifact: Artifact, window: Window, fitted: Fitted) -> ProcessingStrategy:
    """What stands in the window of an artifact: what its rendering says, else what its message does."""
    rendering = fitted.selection.renderings.get(artifact.artifact_id)
    index = artifact.place.message
    if window.is_kept_in_full(artifact):
        return ProcessingStrategy.INCLUDE_FULL
    if index is not None and index not in window.indexes:
        full = rendering is not None and artifact.block_name in window.in_block
        if full:
            return ProcessingStrategy.INCLUDE_FULL
        kept = rendering is not None and rendering.strategy in REDUCED
        return rendering.strategy if rendering and kept else ProcessingStrategy.EXCLUDE
    if rendering is not None:
        return rendering.strategy
    if index is not None:
        return ProcessingStrategy.INCLUDE_FULL
    if not fitted.selection.frozen:
        return ProcessingStrategy.EXCLUDE
    return (
        ProcessingStrategy.INCLUDE_FULL
        if artifact.block_name in window.in_earlier_blocks
        else ProcessingStrategy.RAG_EXTRACT
    )


def _shown(artifact: Artifact, strategy: ProcessingStrategy, rendering: Rendering | None) -> int:
    if strategy is ProcessingStrategy.EXCLUDE:
        return 0
    if rendering is None or (
        strategy is ProcessingStrategy.INCLUDE_FULL and rendering.strategy is ProcessingStrategy.EXCLUDE
    ):
        return artifact.size_chars  # it stands elsewhere
    return rendering.shown_chars
