"""What stands in the window already, as earlier requests decided it (contract §4 I7, §5)."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.frames import Standing
from gateway.models.selection import Fitted, Material, Unreduced

STRONGEST = (ProcessingStrategy.SUMMARIZE, ProcessingStrategy.RAG_EXTRACT, ProcessingStrategy.INCLUDE_FULL)
"""A summary with extracts beside it is told as a summary, an extract beside a pointer as an extract."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which messages of a conversation are forwarded, which artifacts stand in full in blocks, new or earlier, and what
    was decided before for those that stand in the window: by message and artifact, or in blocks by artifact alone.
    `passed`: the window began with a pass, which left out what is older; `decided_on` names what it decided on of what
    stands in no message. `keeps_block`: a pass left the block of the turn under way as it was (contract §4 I6), and
    `in_kept_block` stands there in full.
    """

    indexes: frozenset[int]
    in_block: frozenset[str]
    in_earlier_blocks: frozenset[str]
    decisions: Mapping[tuple[int | None, str], Standing]
    passed: bool = False
    decided_on: frozenset[str] = frozenset()
    keeps_block: bool = False
    in_kept_block: frozenset[str] = frozenset()

    @classmethod
    def of(cls, material: Material, fitted: Fitted | Unreduced) -> "Window":
        indexes = frozenset(fitted.forwarded.indexes)
        earlier = frozenset(name for i in indexes if i >= 0 for name in material.messages[i].standing)
        frame = None if fitted.anew else material.frame
        keeps_block = fitted.anew and fitted.selection.keeps_block and material.current in indexes
        return cls(
            indexes,
            frozenset(fitted.forwarded.standing),
            earlier,
            _decisions(material, fitted, indexes),
            passed=frame is not None,
            decided_on=frame.decided if frame is not None else frozenset(),
            keeps_block=keeps_block,
            in_kept_block=frozenset(material.messages[material.current].standing if keeps_block else ()),
        )

    def decided(self, artifact: Artifact) -> Standing | None:
        """What earlier requests decided, where that still stands: in its message and beside it in blocks."""
        name = artifact.content_id
        beside = self.decisions.get((None, name))
        if artifact.place.message is None or artifact.place.message not in self.indexes:
            return beside
        own = self.decisions.get((artifact.place.message, name))
        return together(own, beside) if own is not None and beside is not None else own

    def kept(self, artifact: Artifact) -> Standing | None:
        """What the block that a pass left as it was shows of it, whatever the pass decided besides."""
        return self.decisions.get((None, artifact.content_id)) if self.keeps_block else None

    def is_kept_in_full(self, artifact: Artifact) -> bool:
        """Whether that block is where it stands, in full."""
        index = artifact.place.message
        return artifact.standing_name in self.in_kept_block and (index is None or index not in self.indexes)

    def is_left_out(self, artifact: Artifact, stored: int) -> bool:
        """Whether the pass with which the window began decided to show nothing of it, and nothing does.

        Args:
            stored: so many messages are of earlier requests.
        """
        index = artifact.place.message
        if index is not None:
            return self.passed and index < stored and index not in self.indexes
        return artifact.standing_name in self.decided_on and self.is_gone(artifact)

    def is_gone(self, artifact: Artifact) -> bool:
        """Whether nothing of it stands in the window."""
        if artifact.place.message is not None:
            return artifact.place.message not in self.indexes
        return artifact.standing_name not in self.in_block | self.in_earlier_blocks


def _decisions(
    material: Material, fitted: Fitted | Unreduced, indexes: frozenset[int]
) -> Mapping[tuple[int | None, str], Standing]:
    if material.frame is None:
        return {}
    if fitted.anew:  # but for the block of the turn under way, if that was kept
        indexes = indexes & {material.current} if fitted.selection.keeps_block else frozenset()
    found: dict[tuple[int | None, str], Standing] = {}
    placed = {(artifact.place.message, artifact.content_id) for artifact in material.placed}
    for index in sorted(i for i in indexes if i >= 0):
        for each in material.frame.decisions.get(material.messages[index].message_id or "", ()):
            place = index if (index, each.artifact_id) in placed else None
            before = found.get((place, each.artifact_id))
            found[place, each.artifact_id] = each if before is None else together(before, each)
    return found


def together(one: Standing, other: Standing) -> Standing:
    """What stands of the same artifact in two places: no block repeats what the window holds (contract §4 I6)."""
    strategies = {one.strategy, other.strategy}
    strongest = next((each.value for each in STRONGEST if each.value in strategies), one.strategy)
    return Standing(one.artifact_id, strongest, one.shown_chars + other.shown_chars)
