"""What holds for each artifact of a window: what earlier requests decided, as long as that stands, and what this one
does; and the bill's records of it (guarantee §6)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from gateway.core.frozen_records import record
from gateway.core.types import bill
from gateway.core.types.artifacts import Artifact, ArtifactType, ProcessingStrategy
from gateway.core.types.conversation import FrozenDecision, MessageCache
from gateway.core.types.window import ArtifactRendering, FullPrompt, PackedWindow, WindowInputs

RECORD_NAME_CHARS = 200
"""The longest client-chosen name on the bill."""
REDUCED = (ProcessingStrategy.RAG_EXTRACT, ProcessingStrategy.SUMMARIZE)
STRATEGY_BY_NAME = {each.value: each for each in ProcessingStrategy}
STRONGEST = (
    ProcessingStrategy.SUMMARIZE,
    ProcessingStrategy.RAG_EXTRACT,
    ProcessingStrategy.SHAPE,
    ProcessingStrategy.INCLUDE_FULL,
)
"""Of two decisions on one artifact, the record names the one that comes first here."""


@record
class WindowContents:
    """What a window holds, and what earlier requests decided for it."""

    indexes: frozenset[int]
    """The messages that are forwarded."""
    in_block: frozenset[str]
    """The artifacts that the new block shows in full."""
    in_earlier_blocks: frozenset[str]
    """The artifacts that blocks of earlier turns show in full."""
    decisions: Mapping[tuple[int | None, str], FrozenDecision]
    """By message and artifact; by artifact alone (None) for artifacts in blocks."""
    passed: bool = False
    """The window began with a pass, which left out what is older."""
    decided_on: frozenset[str] = frozenset()
    """The artifacts in no message that this pass decided on."""
    keeps_block: bool = False
    """A pass left the block of the current turn unchanged (guarantee §4 I6)."""
    in_kept_block: frozenset[str] = frozenset()
    """The artifacts that this block shows in full."""

    @classmethod
    def of(cls, material: WindowInputs, fitted: PackedWindow | FullPrompt) -> "WindowContents":
        """Returns the contents of a window that was fitted, or of the full prompt before anything leaves."""
        indexes = frozenset(fitted.forwarded.indexes)
        shown = [(i, each.shown_in_full) for i, each in enumerate(material.messages) if each.shown_in_full]
        frame = None if fitted.new_pass else material.frame
        keeps_block = fitted.new_pass and fitted.selection.keeps_block and material.current in indexes
        return cls(
            indexes,
            frozenset(fitted.forwarded.shown_in_full),
            frozenset(name for i, names in shown if i in indexes for name in names),
            _decisions(material, fitted, indexes),
            passed=frame is not None,
            decided_on=frame.decided if frame is not None else frozenset(),
            keeps_block=keeps_block,
            in_kept_block=frozenset(material.messages[material.current].shown_in_full if keeps_block else ()),
        )

    def decided(self, artifact: Artifact) -> FrozenDecision | None:
        """Returns the decision of earlier requests if it still holds: on its message, combined with that on blocks."""
        if not self.decisions:
            return None
        name = artifact.content_id
        beside = self.decisions.get((None, name))
        if artifact.place.message is None or artifact.place.message not in self.indexes:
            return beside
        own = self.decisions.get((artifact.place.message, name))
        return together(own, beside) if own is not None and beside is not None else own

    def kept(self, artifact: Artifact) -> FrozenDecision | None:
        """Returns what the kept block shows of the artifact, whatever else the pass decided."""
        return self.decisions.get((None, artifact.content_id)) if self.keeps_block else None

    def is_kept_in_full(self, artifact: Artifact) -> bool:
        """Returns whether the kept block shows the artifact in full."""
        index = artifact.place.message
        return artifact.block_name in self.in_kept_block and (index is None or index not in self.indexes)

    def is_left_out(self, artifact: Artifact, stored: int) -> bool:
        """Returns whether the pass with which the window began left out all of the artifact.
        `stored`: how many messages are from earlier requests."""
        index = artifact.place.message
        if index is not None:
            return self.passed and index < stored and index not in self.indexes
        return artifact.block_name in self.decided_on and self.is_gone(artifact)

    def is_gone(self, artifact: Artifact) -> bool:
        """Returns whether the window holds nothing of the artifact."""
        if artifact.place.message is not None:
            return artifact.place.message not in self.indexes
        return artifact.block_name not in self.in_block | self.in_earlier_blocks


def _decisions(
    material: WindowInputs, fitted: PackedWindow | FullPrompt, indexes: frozenset[int]
) -> Mapping[tuple[int | None, str], FrozenDecision]:
    if material.frame is None or not material.frame.decisions:
        return {}
    if fitted.new_pass:  # except the block of the current turn, if that was kept
        indexes = indexes & {material.current} if fitted.selection.keeps_block else frozenset()
    found: dict[tuple[int | None, str], FrozenDecision] = {}
    placed = {(artifact.place.message, artifact.content_id) for artifact in material.placed}
    for index in sorted(i for i in indexes if i >= 0):
        for each in material.frame.decisions.get(material.messages[index].message_id or "", ()):
            place = index if (index, each.artifact_id) in placed else None
            before = found.get((place, each.artifact_id))
            found[place, each.artifact_id] = each if before is None else together(before, each)
    return found


def together(one: FrozenDecision, other: FrozenDecision) -> FrozenDecision:
    """Combines the decisions on an artifact that is shown in two places: no block repeats what the window holds
    (guarantee §4 I6), so the sizes add up."""
    strategies = {one.strategy, other.strategy}
    strongest = next((each.value for each in STRONGEST if each.value in strategies), one.strategy)
    return FrozenDecision(one.artifact_id, strongest, one.shown_chars + other.shown_chars)


@record
class EarlierWindow:
    """How earlier requests left their artifacts: that holds unless this request decides again."""

    window: WindowContents
    stored: int
    """How many messages are from earlier requests."""
    new: frozenset[str]
    """Ids of documents that came with this request."""

    @classmethod
    def of(
        cls, material: WindowInputs, unreduced: FullPrompt, stored: int, new: Iterable[Artifact] = ()
    ) -> "EarlierWindow":
        """Returns the window before this request, derived from everything that may be forwarded."""
        window = WindowContents.of(material, replace(unreduced, new_pass=False))
        return cls(window, stored, frozenset(artifact.artifact_id for artifact in new))

    def left_as(self, artifact: Artifact, strategy: ProcessingStrategy, shown: int) -> bool:
        """Returns whether an earlier request left the artifact with this strategy and `shown` characters."""
        index = artifact.place.message
        if artifact.pinned and index is not None and index < self.stored:
            return strategy is ProcessingStrategy.INCLUDE_FULL
        if artifact.artifact_id in self.new or (index is not None and index >= self.stored):
            return False
        if (decided := self.window.decided(artifact)) is not None:
            return (decided.strategy, min(artifact.size_chars, decided.shown_chars)) == (strategy.value, shown)
        is_in_block = artifact.block_name in self.window.in_earlier_blocks
        if is_in_block or (index is not None and index in self.window.indexes):
            return strategy is ProcessingStrategy.INCLUDE_FULL
        return strategy is ProcessingStrategy.EXCLUDE


def records_of(
    material: WindowInputs,
    fitted: PackedWindow,
    *,
    named: bool = True,
    earlier_window: EarlierWindow | None = None,
    cache: MessageCache | None = None,
) -> list[bill.ArtifactUsageRecord]:
    """Returns one record per artifact that the window holds or that was decided on: references and sizes, never content
    (guarantee §6). An artifact shown as an earlier request decided is reported as decided then.
    `named`: whether a source may contain the title or the tool, which are written by others: not with `store: false`
    (§2); `earlier_window`: marks records as standing if their artifact is unchanged since; without it none is; `cache`:
    cache of standing records, shared with later requests."""
    records: list[bill.ArtifactUsageRecord] = []
    window = WindowContents.of(material, fitted)
    unchanged = _standing_messages(window, fitted, earlier_window) if cache is not None and named else frozenset()
    known = cache.standing if cache is not None else {}
    standing: dict[int, tuple[Artifact, bill.ArtifactUsageRecord]] = {}
    recalled = (a for a in material.recallable if a.artifact_id in fitted.selection.renderings)
    for artifact in (*material.artifacts, *recalled):
        rendering = fitted.selection.renderings.get(artifact.artifact_id)
        in_message = rendering is None and artifact.place.message in unchanged
        if in_message:
            found = known.get(artifact.place.message or 0)
            if found is not None and (found[0] is artifact or found[0] == artifact):
                standing[artifact.place.message or 0] = found
                records.append(found[1])
                continue
        beside = artifact.artifact_id in fitted.selection.quoted
        if artifact.artifact_id in fitted.selection.same and not beside:
            if artifact.place.message is not None:  # an attached copy has no further record
                stays = material.repeats.said_same(artifact)
                exclude = ProcessingStrategy.EXCLUDE
                records.append(_record(artifact, exclude, 0, named=named, reason=bill.SAME_DOCUMENT, standing=stays))
            continue
        earlier = window.decided(artifact) if rendering is None or beside else window.kept(artifact)
        strategy = strategy_of(artifact, window, fitted)
        shown = _shown(artifact, strategy, rendering)
        if earlier is not None:  # what is shown already, plus what the question called for beside it
            here = FrozenDecision(earlier.artifact_id, strategy.value, shown)
            both = earlier if rendering is None else together(earlier, here)
            strategy = STRATEGY_BY_NAME.get(both.strategy, strategy)  # a later version may have stored others
            shown = min(artifact.size_chars, both.shown_chars)
        elif rendering is None and not fitted.new_pass and window.is_gone(artifact) and not artifact.pinned:
            if artifact.block_name not in window.decided_on:
                continue  # it left with its turn, which `messages_excluded` counts
            strategy, shown = ProcessingStrategy.EXCLUDE, 0
        kind, origin = (artifact.kind, artifact.origin) if named else (None, None)
        index = artifact.place.message if artifact.artifact_type is ArtifactType.TOOL_RESULT else None
        record = _record(
            artifact,
            strategy,
            shown,
            named=named,
            guarded=artifact.artifact_id in fitted.guarded,
            reason=bill.RECALLED if beside else None,
            standing=not beside and earlier_window is not None and earlier_window.left_as(artifact, strategy, shown),
            attachment_type=kind and kind[:RECORD_NAME_CHARS],
            attachment_source=origin and origin[:RECORD_NAME_CHARS],
            untouched=rendering is None and strategy is ProcessingStrategy.INCLUDE_FULL,
            message=index if index is not None and index >= 0 else None,
        )
        records.append(record)
        if in_message and record.standing and record.message is not None:
            standing[record.message] = artifact, record
    if cache is not None and named:
        cache.standing = standing
    records += _of_segments(material, fitted)
    turns = fitted.selection.turns
    return [*records, _record(turns.artifact, ProcessingStrategy.RAG_EXTRACT, turns.shown_chars)] if turns else records


def _record(
    artifact: Artifact, strategy: ProcessingStrategy, shown: int, *, named: bool = True, **more: Any
) -> bill.ArtifactUsageRecord:
    return bill.ArtifactUsageRecord(
        artifact_id=artifact.artifact_id,
        source=artifact.source if named else bill.nameless(artifact.source),
        artifact_type=artifact.artifact_type.value,
        strategy=strategy.value,
        original_size_chars=artifact.size_chars,
        processed_size_chars=shown,
        **more,
    )


def _of_segments(material: WindowInputs, fitted: PackedWindow) -> Iterator[bill.ArtifactUsageRecord]:
    """Yields a record for each summary in the memory message."""
    shown = fitted.forwarded.memory.segments if fitted.forwarded.memory is not None else ()
    for segment in material.segments:
        if segment.segment_id in shown:
            yield bill.ArtifactUsageRecord(
                artifact_id=segment.segment_id,
                source=f"turns:{segment.first_turn}-{segment.last_turn}",
                artifact_type=ArtifactType.CONVERSATION.value,
                strategy=ProcessingStrategy.SUMMARIZE.value,
                original_size_chars=max(segment.size_chars, len(segment.text)),
                processed_size_chars=len(segment.text),
                standing=fitted.selection.keeps_memory,
            )


def _standing_messages(window: WindowContents, fitted: PackedWindow, earlier_window: EarlierWindow | None) -> Set[int]:
    """Returns the messages that show an artifact without a rendering in full, as before, so that its record depends on
    nothing but the artifact."""
    if earlier_window is None or fitted.new_pass or fitted.guarded or fitted.selection.quoted or earlier_window.new:
        return frozenset()
    if window.decisions or window.in_kept_block or earlier_window.window.decisions:
        return frozenset()
    return window.indexes & earlier_window.window.indexes & frozenset(range(earlier_window.stored))


def reduced_of(material: WindowInputs, fitted: PackedWindow) -> Iterator[tuple[int, FrozenDecision]]:
    """Yields the decisions on artifacts that are shown reduced, each with the index of the message that shows it."""
    if not fitted.selection.renderings:  # nothing is reduced
        return
    included = set(fitted.forwarded.indexes)
    for artifact in material.searched:
        rendering = fitted.selection.renderings.get(artifact.artifact_id)
        if rendering is None or rendering.same_as or _is_whole(rendering):
            continue
        index = artifact.place.message
        has_left = index is not None and index not in included
        if has_left and not (rendering.strategy in REDUCED or artifact.block_name in fitted.forwarded.shown_in_full):
            continue  # the block shows nothing of it
        stays = index is not None and index in included and artifact.artifact_id not in fitted.selection.quoted
        holder = index if index is not None and stays else material.current
        yield holder, FrozenDecision(artifact.content_id, rendering.strategy.value, rendering.shown_chars)


def _is_whole(rendering: ArtifactRendering) -> bool:
    summarized = rendering.strategy is ProcessingStrategy.SUMMARIZE  # a summary may be as long as its source
    return not summarized and rendering.shown_chars == rendering.artifact.size_chars


def holds_reduced(material: WindowInputs, fitted: PackedWindow) -> bool:
    """Returns whether the window shows an artifact that an earlier request reduced."""
    return bool(_decisions(material, fitted, frozenset(fitted.forwarded.indexes)))


def strategy_of(artifact: Artifact, window: WindowContents, fitted: PackedWindow) -> ProcessingStrategy:
    """Returns how the window shows an artifact: by its rendering, else as its message shows it."""
    rendering = fitted.selection.renderings.get(artifact.artifact_id)
    index = artifact.place.message
    if window.is_kept_in_full(artifact) or artifact.pinned:
        return ProcessingStrategy.INCLUDE_FULL
    if index is not None and index not in window.indexes:
        if rendering is None:
            return ProcessingStrategy.EXCLUDE
        if artifact.block_name in window.in_block:
            return ProcessingStrategy.INCLUDE_FULL
        return rendering.strategy if rendering.strategy in REDUCED else ProcessingStrategy.EXCLUDE
    if rendering is not None:
        return rendering.strategy
    if index is not None or (fitted.selection.frozen and artifact.block_name in window.in_earlier_blocks):
        return ProcessingStrategy.INCLUDE_FULL
    return ProcessingStrategy.RAG_EXTRACT if fitted.selection.frozen else ProcessingStrategy.EXCLUDE


def _shown(artifact: Artifact, strategy: ProcessingStrategy, rendering: ArtifactRendering | None) -> int:
    if strategy is ProcessingStrategy.EXCLUDE:
        return 0
    if rendering is None or (
        strategy is ProcessingStrategy.INCLUDE_FULL and rendering.strategy is ProcessingStrategy.EXCLUDE
    ):
        return artifact.size_chars  # it is shown elsewhere
    return rendering.shown_chars


def without_standing(material: WindowInputs, fitted: PackedWindow | FullPrompt, stored: int) -> Sequence[Artifact]:
    """Returns the artifacts without a standing decision. A decision (shown in full, reduced, or left out by the pass
    with which the window began) holds as long as the window is as it was forwarded; when something has to leave, none
    holds (guarantee §4 I7)."""
    if fitted.new_pass:
        return material.artifacts
    window, same = WindowContents.of(material, fitted), fitted.selection.same
    others = (artifact for artifact in material.artifacts if artifact.artifact_id not in same)
    undecided = [artifact for artifact in others if not _is_decided(artifact, window, stored)]
    if material.frame is None or material.current >= stored:
        return undecided
    # A later step of a turn: its first step fixed what the block shows (guarantee §4 I6). A plan could not change it,
    # so none is paid for.
    return [a for a in undecided if a.place.message is not None and a.place.message in window.indexes]


def _is_decided(artifact: Artifact, window: WindowContents, stored: int) -> bool:
    index = artifact.place.message
    if index is not None:
        is_shown = index < stored and index in window.indexes
    else:
        is_shown = artifact.block_name in window.in_earlier_blocks or window.decided(artifact) is not None
    return is_shown or window.is_left_out(artifact, stored)
