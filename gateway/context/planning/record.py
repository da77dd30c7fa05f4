"""What was decided for each artifact, by earlier requests and by this one, as records for the metadata."""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from gateway.core.types.artifacts import Artifact, ArtifactType, ProcessingStrategy
from gateway.core.types.bill import ArtifactUsageRecord, nameless
from gateway.core.types.conversation import FormNotes
from gateway.core.types.frames import FrozenDecision
from gateway.core.types.window import ArtifactRendering, FullPrompt, PackedWindow, RecalledExcerpts, WindowInputs

RECALLED = "recalled"
"""Reason of a record: the question brought back something of what had been left out."""
NAME_CHARS = 200
"""The longest of a client's own words on the bill."""
SAME_DOCUMENT = "same_document"
"""Reason of a record: the same document stands elsewhere in the window."""
REDUCED = (ProcessingStrategy.RAG_EXTRACT, ProcessingStrategy.SUMMARIZE)
STRATEGIES = {each.value: each for each in ProcessingStrategy}
STRONGEST = (
    ProcessingStrategy.SUMMARIZE,
    ProcessingStrategy.RAG_EXTRACT,
    ProcessingStrategy.SHAPE,
    ProcessingStrategy.INCLUDE_FULL,
)
"""Of two decisions on one artifact, the record names the one that comes first here."""


@dataclass(frozen=True, slots=True)
class WindowContents:
    """What a window holds, and what earlier requests decided for it."""

    indexes: frozenset[int]
    """The messages that are forwarded."""
    in_block: frozenset[str]
    """The artifacts that the new block shows in full."""
    in_earlier_blocks: frozenset[str]
    """Those that blocks of earlier turns show in full."""
    decisions: Mapping[tuple[int | None, str], FrozenDecision]
    """By message and artifact; by artifact alone (None) for what is in blocks."""
    passed: bool = False
    """The window began with a pass, which left out what is older."""
    decided_on: frozenset[str] = frozenset()
    """What that pass decided on of the artifacts that are in no message."""
    keeps_block: bool = False
    """A pass left the block of the turn under way as it was (guarantee §4 I6)."""
    in_kept_block: frozenset[str] = frozenset()
    """What that block shows in full."""

    @classmethod
    def of(cls, material: WindowInputs, fitted: PackedWindow | FullPrompt) -> "WindowContents":
        """The contents of a window that was fitted, or of everything before anything leaves."""
        indexes = frozenset(fitted.forwarded.indexes)
        earlier = frozenset(name for i in indexes if i >= 0 for name in material.messages[i].shown_in_full)
        frame = None if fitted.new_pass else material.frame
        keeps_block = fitted.new_pass and fitted.selection.keeps_block and material.current in indexes
        return cls(
            indexes,
            frozenset(fitted.forwarded.shown_in_full),
            earlier,
            _decisions(material, fitted, indexes),
            passed=frame is not None,
            decided_on=frame.decided if frame is not None else frozenset(),
            keeps_block=keeps_block,
            in_kept_block=frozenset(material.messages[material.current].shown_in_full if keeps_block else ()),
        )

    def decided(self, artifact: Artifact) -> FrozenDecision | None:
        """What earlier requests decided, where that still holds: for its message, and beside it for blocks."""
        if not self.decisions:
            return None
        name = artifact.content_id
        beside = self.decisions.get((None, name))
        if artifact.place.message is None or artifact.place.message not in self.indexes:
            return beside
        own = self.decisions.get((artifact.place.message, name))
        return together(own, beside) if own is not None and beside is not None else own

    def kept(self, artifact: Artifact) -> FrozenDecision | None:
        """What the kept block shows of it, whatever the pass decided besides."""
        return self.decisions.get((None, artifact.content_id)) if self.keeps_block else None

    def is_kept_in_full(self, artifact: Artifact) -> bool:
        """Whether the kept block shows it in full."""
        index = artifact.place.message
        return artifact.block_name in self.in_kept_block and (index is None or index not in self.indexes)

    def is_left_out(self, artifact: Artifact, stored: int) -> bool:
        """Whether the window holds nothing of it because the pass with which the window began left it out.
        `stored`: how many messages are of earlier requests."""
        index = artifact.place.message
        if index is not None:
            return self.passed and index < stored and index not in self.indexes
        return artifact.block_name in self.decided_on and self.is_gone(artifact)

    def is_gone(self, artifact: Artifact) -> bool:
        """Whether the window holds nothing of it."""
        if artifact.place.message is not None:
            return artifact.place.message not in self.indexes
        return artifact.block_name not in self.in_block | self.in_earlier_blocks


def _decisions(
    material: WindowInputs, fitted: PackedWindow | FullPrompt, indexes: frozenset[int]
) -> Mapping[tuple[int | None, str], FrozenDecision]:
    if material.frame is None:
        return {}
    if fitted.new_pass:  # but for the block of the turn under way, if that was kept
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
    """One decision for an artifact that is shown in two places: no block repeats what the window holds (guarantee §4
    I6), so the sizes add up."""
    strategies = {one.strategy, other.strategy}
    strongest = next((each.value for each in STRONGEST if each.value in strategies), one.strategy)
    return FrozenDecision(one.artifact_id, strongest, one.shown_chars + other.shown_chars)


@dataclass(frozen=True, slots=True)
class EarlierWindow:
    """How earlier requests left the artifacts that they had: as far as nothing is decided anew, that stands."""

    window: WindowContents
    stored: int
    """How many messages are of earlier requests."""
    new: frozenset[str]
    """Ids of documents that came with this request."""

    @classmethod
    def of(
        cls, material: WindowInputs, unreduced: FullPrompt, stored: int, new: Iterable[Artifact] = ()
    ) -> "EarlierWindow":
        """The window before this request, out of everything that may be forwarded."""
        window = WindowContents.of(material, replace(unreduced, new_pass=False))
        return cls(window, stored, frozenset(artifact.artifact_id for artifact in new))

    def left(self, artifact: Artifact, strategy: ProcessingStrategy, shown: int) -> bool:
        """Whether an earlier request left it like that."""
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
    notes: FormNotes | None = None,
) -> list[ArtifactUsageRecord]:
    """One record per artifact that the window holds or that was decided on: references and sizes, never content
    (guarantee §6). What is shown as an earlier request decided is reported as decided then.
    `named`: whether a source may name the title or tool, which somebody wrote: not with `store: false` (§2);
    `earlier_window`: what stands as it was there; without it nothing does; `notes`: what is known of records that
    stand, and is to be known of them later."""
    records: list[ArtifactUsageRecord] = []
    window = WindowContents.of(material, fitted)
    stands = _standing_messages(window, fitted, earlier_window) if notes is not None and named else frozenset()
    known = notes.standing if notes is not None else {}
    standing: dict[int, tuple[Artifact, ArtifactUsageRecord]] = {}
    recalled = (a for a in material.recallable if a.artifact_id in fitted.selection.renderings)
    for artifact in (*material.artifacts, *recalled):
        rendering = fitted.selection.renderings.get(artifact.artifact_id)
        in_message = rendering is None and artifact.place.message in stands
        if in_message:
            noted = known.get(artifact.place.message or 0)
            if noted is not None and (noted[0] is artifact or noted[0] == artifact):
                standing[artifact.place.message or 0] = noted
                records.append(noted[1])
                continue
        beside = artifact.artifact_id in fitted.selection.quoted
        if artifact.artifact_id in fitted.selection.same and not beside:
            if artifact.place.message is not None:
                records.append(_same(artifact, named=named, stands=material.repeats.said_same(artifact)))
            continue
        earlier = window.decided(artifact) if rendering is None or beside else window.kept(artifact)
        strategy = strategy_of(artifact, window, fitted)
        shown = _shown(artifact, strategy, rendering)
        if earlier is not None:  # what is shown already, and, if the question called for more, that beside it
            here = FrozenDecision(earlier.artifact_id, strategy.value, shown)
            both = earlier if rendering is None else together(earlier, here)
            strategy = STRATEGIES.get(both.strategy, strategy)  # a later version of the gateway may have stored others
            shown = min(artifact.size_chars, both.shown_chars)
        elif rendering is None and not fitted.new_pass and window.is_gone(artifact) and not artifact.pinned:
            if artifact.block_name not in window.decided_on:
                continue  # it left with its turn, which `messages_excluded` counts
            strategy, shown = ProcessingStrategy.EXCLUDE, 0
        kind, origin = (artifact.kind, artifact.origin) if named else (None, None)
        record = ArtifactUsageRecord(
            artifact_id=artifact.artifact_id,
            source=artifact.source if named else nameless(artifact.source),
            artifact_type=artifact.artifact_type.value,
            strategy=strategy.value,
            original_size_chars=artifact.size_chars,
            processed_size_chars=shown,
            guarded=artifact.artifact_id in fitted.guarded,
            reason=RECALLED if beside else None,
            standing=not beside and earlier_window is not None and earlier_window.left(artifact, strategy, shown),
            attachment_type=kind and kind[:NAME_CHARS],
            attachment_source=origin and origin[:NAME_CHARS],
            untouched=rendering is None and strategy is ProcessingStrategy.INCLUDE_FULL,
            message=_message_of(artifact),
        )
        records.append(record)
        if in_message and record.standing and record.message is not None:
            standing[record.message] = artifact, record
    if notes is not None and named:
        notes.standing = standing
    turns = fitted.selection.turns
    records += _of_segments(material, fitted)
    return [*records, _of_turns(turns)] if turns else records


def _same(artifact: Artifact, *, named: bool, stands: bool) -> ArtifactUsageRecord:
    """Of a file whose document stands elsewhere in the window. One that is attached has no record besides."""
    return ArtifactUsageRecord(
        artifact_id=artifact.artifact_id,
        source=artifact.source if named else nameless(artifact.source),
        artifact_type=artifact.artifact_type.value,
        strategy=ProcessingStrategy.EXCLUDE.value,
        original_size_chars=artifact.size_chars,
        processed_size_chars=0,
        reason=SAME_DOCUMENT,
        standing=stands,
    )


def _of_segments(material: WindowInputs, fitted: PackedWindow) -> Iterator[ArtifactUsageRecord]:
    """A record for each summary in the memory message."""
    shown = fitted.forwarded.memory.segments if fitted.forwarded.memory is not None else ()
    for segment in material.segments:
        if segment.segment_id in shown:
            yield ArtifactUsageRecord(
                artifact_id=segment.segment_id,
                source=f"turns:{segment.first_turn}-{segment.last_turn}",
                artifact_type=ArtifactType.CONVERSATION.value,
                strategy=ProcessingStrategy.SUMMARIZE.value,
                original_size_chars=max(segment.size_chars, len(segment.text)),
                processed_size_chars=len(segment.text),
                standing=fitted.selection.keeps_memory,
            )


def _standing_messages(window: WindowContents, fitted: PackedWindow, earlier_window: EarlierWindow | None) -> Set[int]:
    """The messages in which an artifact without a rendering stands in full, as before: its record then depends on
    nothing but the artifact."""
    if earlier_window is None or fitted.new_pass or fitted.guarded or fitted.selection.quoted or earlier_window.new:
        return frozenset()
    if window.decisions or window.in_kept_block or earlier_window.window.decisions:
        return frozenset()
    return frozenset(i for i in window.indexes & earlier_window.window.indexes if 0 <= i < earlier_window.stored)


def _message_of(artifact: Artifact) -> int | None:
    index = artifact.place.message
    return index if index is not None and index >= 0 and artifact.artifact_type is ArtifactType.TOOL_RESULT else None


def _of_turns(turns: RecalledExcerpts) -> ArtifactUsageRecord:
    return ArtifactUsageRecord(
        artifact_id=turns.artifact.artifact_id,
        source=turns.artifact.source,
        artifact_type=turns.artifact.artifact_type.value,
        strategy=ProcessingStrategy.RAG_EXTRACT.value,
        original_size_chars=turns.artifact.size_chars,
        processed_size_chars=turns.shown_chars,
    )


def reduced_of(material: WindowInputs, fitted: PackedWindow) -> Iterator[tuple[int, FrozenDecision]]:
    """The decisions on artifacts that the window shows reduced, each with the index of the message that shows it."""
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
    summarized = rendering.strategy is ProcessingStrategy.SUMMARIZE  # it may be as long as what it is of
    return not summarized and rendering.shown_chars == rendering.artifact.size_chars


def holds_reduced(material: WindowInputs, fitted: PackedWindow) -> bool:
    """Whether the window shows something as an earlier request reduced it."""
    return bool(WindowContents.of(material, fitted).decisions)


def strategy_of(artifact: Artifact, window: WindowContents, fitted: PackedWindow) -> ProcessingStrategy:
    """How the window shows an artifact: as its rendering says, else as its message does."""
    rendering = fitted.selection.renderings.get(artifact.artifact_id)
    index = artifact.place.message
    if window.is_kept_in_full(artifact) or artifact.pinned:
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


def _shown(artifact: Artifact, strategy: ProcessingStrategy, rendering: ArtifactRendering | None) -> int:
    if strategy is ProcessingStrategy.EXCLUDE:
        return 0
    if rendering is None or (
        strategy is ProcessingStrategy.INCLUDE_FULL and rendering.strategy is ProcessingStrategy.EXCLUDE
    ):
        return artifact.size_chars  # it is shown elsewhere
    return rendering.shown_chars
