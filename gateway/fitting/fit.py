"""Chooses what stands in the window (contract §4 I1-I6).

What was forwarded before and everything new in full if that fits; else compacted; else the old blocks leave; else a
reduction. No selection is returned whose exact count is over budget.
"""

from dataclasses import replace
from functools import cache

from gateway.fitting.count import Counting
from gateway.fitting.measured import decoded_files, measured
from gateway.fitting.recall import with_recalled
from gateway.fitting.reduction import Reduction
from gateway.fitting.tools import Limits, Tools, counted, fitted_as, in_full
from gateway.models.selection import Fitted, Material, Rendering, Selection, Unreduced


def fit(
    material: Material, limits: Limits, counting: Counting, tools: Tools, *, unreduced: Unreduced | None = None
) -> Fitted:
    """The best selection that fits: what was forwarded before stays as it was while everything new has room behind it;
    else one pass decides everything anew and frees enough for several turns (contract §4 I7).

    Args:
        unreduced: if that was `measured` before.

    Raises:
        ContextLengthExceeded: not even the current message and its latest tool step fit.
    """
    known = unreduced or measured(material, limits, counting, tools)
    if limits.filled is None:
        return fitted_as(known.selection, known.forwarded, counting.estimate, counting)
    fitted = None if known.anew else counted(known.selection, known.forwarded, limits.filled, counting)
    if fitted is not None:
        fitted = with_recalled(material, fitted, limits, counting, tools)
    if fitted is not None:
        return fitted
    return replace(_anew(material, known.selection, limits, counting, tools), anew=True)


def _anew(material: Material, frozen: Selection, limits: Limits, counting: Counting, tools: Tools) -> Fitted:
    """What leaves, in the order of §4 I5, until the rest is no more than the target."""
    tools = replace(tools, compact=cache(tools.compact))
    compact = _compacted(material, tools)
    placed = (r for r in compact.values() if r.artifact.place.message is not None)
    shown = {r.artifact.artifact_id: r for r in placed} | {k: r for k, r in compact.items() if k in frozen.renderings}
    compacted = replace(frozen, renderings={**frozen.renderings, **shown})
    refilled = _blocks_gone(material, compact)
    for selection in (compacted, refilled):
        fitted = counted(selection, tools.assemble(material, selection), limits.aim, counting)
        if fitted is not None:
            return fitted
    return Reduction(material, limits, counting, tools).run()


def _refilled(material: Material) -> dict[str, Rendering]:
    """Once the old blocks have left, what stood in them waits for a place again."""
    return {a.artifact_id: in_full(a, a.content) for a in (*material.restored, *material.attached)}


def _blocks_gone(material: Material, compact: dict[str, Rendering]) -> Selection:
    """Old blocks have left, and what stood in them waits for a place again; the block of the turn under way, which was
    fixed at its first step, stays."""
    if not material.has_block:
        return Selection(renderings={**_refilled(material), **decoded_files(material), **compact}, frozen=False)
    placed = {key: r for key, r in compact.items() if r.artifact.place.message is not None}
    return Selection(renderings={**decoded_files(material), **placed}, frozen=False, keeps_block=True)


def _compacted(material: Material, tools: Tools) -> dict[str, Rendering]:
    renderings = {}
    for artifact in material.artifacts:
        is_span = artifact.place.span is not None
        text = artifact.content if is_span else tools.compact(artifact.content)
        if len(text) < len(artifact.content):
            renderings[artifact.artifact_id] = in_full(artifact, text)
    return renderings
