"""Lossless compaction, which comes before anything is left out (contract §4 I5)."""

from collections.abc import Callable
from dataclasses import replace

from gateway.models.artifacts import Artifact
from gateway.models.selection import Material

Compact = Callable[[str], str]


def compacted(material: Material, compact: Compact) -> Material:
    """The material with the artifacts that may stand in the window compacted: tool results, attachments, and documents
    inside messages, which are treated as attachments once something does not fit (I4). `size_chars` stays, since what
    is left out, and how much, is said of what they were."""
    return replace(
        material,
        placed=_shorter(material.placed, compact),
        restored=_shorter(material.restored, compact),
        attached=_shorter(material.attached, compact),
    )


def with_recallable(material: Material, compact: Compact) -> Material:
    """The same with those of which passages may stand in it."""
    return replace(material, recallable=_shorter(material.recallable, compact))


def _shorter(artifacts: tuple[Artifact, ...], compact: Compact) -> tuple[Artifact, ...]:
    return tuple(replace(artifact, content=compact(artifact.content)) for artifact in artifacts)


def is_shorter(artifact: Artifact) -> bool:
    """Whether compaction took anything away."""
    return len(artifact.content) < artifact.size_chars
