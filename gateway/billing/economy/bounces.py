"""Bounces: results that left the window, or became labels, and were read again within a few steps (guarantee §6.12).

What left is kept as digests with the sums of its branch, for as long as a second reading counts: no history is walked.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.core import jsons
from gateway.core.types import bill, recall, window
from gateway.core.types.artifacts import Artifact, ArtifactType
from gateway.core.types.window import PackedWindow, WindowInputs

WITHIN = 10
"""Answers after which a second reading is no bounce any more."""
KEPT_FOR = 40
"""Answers for which what was called for again, after it had been cut, stays in full."""
MAX_CUT = 256
"""Results of one pass whose second reading is looked for, the latest."""


def newly_cut(material: WindowInputs, fitted: PackedWindow) -> list[Artifact]:
    """The tool results that stood in full, and of which a pass leaves a part at the most, oldest first."""
    shown, left = set(fitted.forwarded.indexes), material.left
    found = []
    for artifact in material.placed:
        index = artifact.place.message
        if artifact.artifact_type is not ArtifactType.TOOL_RESULT or index is None:
            continue
        rendering = fitted.selection.renderings.get(artifact.artifact_id)
        is_whole = (
            rendering is None
            or rendering.strategy in window.WHOLE_STRATEGIES
            or rendering.shown_chars >= artifact.size_chars
        )
        is_cut = index not in shown or not is_whole
        if is_cut and index not in left and not material.stands_reduced(artifact):
            found.append(artifact)
    return found[-MAX_CUT:]


def read_again(material: WindowInputs, since: int, costs: bill.BranchCosts) -> list[Artifact]:
    """The results that came with this request, from the message `since` on, and that are bounces: what was cut lately
    came back, or its tool was called again in the same words."""
    cut = bill.ResultMarks.together(costs.cut)
    if not cut:
        return []
    new = (each for each in material.placed if (each.place.message or 0) >= since)
    return [each for each in new if each.artifact_type is ArtifactType.TOOL_RESULT and not cut.isdisjoint(marks(each))]


def recalled(
    messages: Sequence[Mapping[str, Any]], costs: bill.BranchCosts
) -> Iterator[tuple[Mapping[str, Any], bytes]]:
    """The results of rounds of `recall` that are bounces, each with the mark of what was read.
    `messages`: what the rounds added to the prompt: calls and their results."""
    cut = bill.ResultMarks.together(costs.cut)
    asked: dict[Any, bytes] = {}
    for message in messages if cut else ():
        for call in recall.recalls_of(message):
            if (mark := _mark_of_id(_wanted(call))) is not None and mark in cut:
                asked[call.get("id")] = mark
        if (found := asked.pop(message.get("tool_call_id"), None)) is not None:
            yield message, found


def with_marks(costs: bill.BranchCosts, cut: Sequence[Artifact], bounced: Sequence[bytes]) -> bill.BranchCosts:
    """The sums of a branch behind one more answer, with what left in its request, and what came back."""
    return replace(
        costs,
        cut=bill.ResultMarks.grown(costs.cut, [mark for each in cut for mark in marks(each)], WITHIN),
        bounced=bill.ResultMarks.grown(costs.bounced, bounced, KEPT_FOR),
    )


def marks(artifact: Artifact) -> tuple[bytes, ...]:
    """The digests of a result's text and of its call."""
    called = hashlib.blake2b(f"{artifact.title}\0{artifact.arguments}".encode("utf-8", "surrogatepass"))
    of_text = _mark_of_id(artifact.content_id)
    own = called.digest()[: bill.ResultMarks.SIZE]
    return (own,) if of_text is None else (of_text, own)


def _mark_of_id(name: str) -> bytes | None:
    """Ids of contents are digests themselves."""
    try:
        return bytes.fromhex(name.partition("_")[2].partition("-")[0])[: bill.ResultMarks.SIZE] or None
    except ValueError:
        return None


def _wanted(call: Mapping[str, Any]) -> str:
    """The artifact that a call of `recall` asks for; "" where it names none."""
    written = (call.get("function") or {}).get("arguments") or "{}"
    try:
        given = jsons.loads(written) if isinstance(written, str) else written
    except ValueError:
        return ""
    return str(given.get("artifact_id") or "") if isinstance(given, dict) else ""
