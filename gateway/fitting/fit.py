"""Chooses what stands in the window (contract §4 I1-I6).

What was forwarded before and everything new in full if that fits; else compacted; else the old blocks leave; else a
reduction. No selection is returned whose exact count is over budget.
"""

from dataclasses import replace
from functools import cache

from gateway.fitting.count import Counting
from gateway.fitting.recall import with_recalled
from gateway.fitting.reduction import Reduction
from gateway.fitting.tools import Limits, Tools, fitted_as, in_full
from gateway.models.selection import Fitted, Material, Rendering, Selection


def fit(material: Material, limits: Limits, counting: Counting, tools: Tools) -> Fitted:
    """The best selection that fits: what was forwarded before stays as it was while everything new has room behind it;
    else one pass decides everything anew and frees enough for several turns (contract §4 I7).

    Raises:
        ContextLengthExceeded: not even the current message and its latest tool step fit.
    """
    frozen = _frozen(material)
    if limits.tokens is None:
        return fitted_as(frozen, tools.assemble(material, frozen), counting.estimate, counting)
    fitted = _try(material, frozen, limits.tokens, counting, tools)
    if fitted is not None:
        fitted = with_recalled(material, fitted, limits, counting, tools)
    if fitted is not None:
        return fitted
    return replace(_anew(material, frozen, limits, counting, tools), anew=True)


def _anew(material: Material, frozen: Selection, limits: Limits, counting: Counting, tools: Tools) -> Fitted:
    """What leaves, in the order of §4 I5, until the rest is no more than the target."""
    budget = limits.tokens or 0
    tools = replace(tools, compact=cache(tools.compact))
    target = min(limits.target or budget, budget)
    compact = _compacted(material, tools)
    placed = (r for r in compact.values() if r.artifact.place.message is not None)
    shown = {r.artifact.artifact_id: r for r in placed} | {k: r for k, r in compact.items() if k in frozen.renderings}
    compacted = replace(frozen, renderings={**frozen.renderings, **shown})
    refilled = _blocks_gone(material, compact)
    for selection in (compacted, refilled):
        fitted = _try(material, selection, target, counting, tools)
        if fitted is not None:
            return fitted
    return Reduction(material, limits, counting, tools).run()


def _frozen(material: Material) -> Selection:
    """What was forwarded before, as it was, and everything since in full."""
    frame, messages = material.frame, material.messages
    renderings = _unplaced(material)
    if frame is None:
        return Selection(renderings=renderings)
    first = next((i for i, message in enumerate(messages) if message.message_id == frame.first), 0)
    left = frozenset(i for i, message in enumerate(messages) if message.message_id in frame.left)
    return Selection(first if frame.first is not None else 0, left, renderings)


def _try(material: Material, selection: Selection, tokens: int, counting: Counting, tools: Tools) -> Fitted | None:
    """The selection if it fits. What cannot exceed the budget by its bytes alone is only estimated."""
    forwarded = tools.assemble(material, selection)
    if counting.upper_bound(forwarded) <= tokens:
        return fitted_as(selection, forwarded, counting.estimate, counting)
    if counting.fits(forwarded, tokens):
        return fitted_as(selection, forwarded, counting.exact, counting)
    return None


def _unplaced(material: Material) -> dict[str, Rendering]:
    """What cannot stand as it was sent: attachments and results told as text that stand in no earlier block, and
    decoded files. What a pass has decided on is not put in again."""
    frame = material.frame
    known = {name for message in material.messages for name in message.standing}
    known |= frame.decided if frame is not None else frozenset()
    fixed = material.has_block
    waiting = (a for a in (*material.restored, *material.attached) if a.standing_name not in known and not fixed)
    return _files(material) | {a.artifact_id: in_full(a, a.content) for a in waiting}


def _files(material: Material) -> dict[str, Rendering]:
    files = (a for a in material.placed if a.place.part is not None and a.place.span is None)
    return {a.artifact_id: in_full(a, a.content) for a in files}


def _refilled(material: Material) -> dict[str, Rendering]:
    """Once the old blocks have left, what stood in them waits for a place again."""
    return {a.artifact_id: in_full(a, a.content) for a in (*material.restored, *material.attached)}


def _blocks_gone(material: Material, compact: dict[str, Rendering]) -> Selection:
    """Old blocks have left, and what stood in them waits for a place again; the block of the turn under way, which was
    fixed at its first step, stays."""
    if not material.has_block:
        return Selection(renderings={**_refilled(material), **_files(material), **compact}, frozen=False)
    placed = {key: r for key, r in compact.items() if r.artifact.place.message is not None}
    return Selection(renderings={**_files(material), **placed}, frozen=False, keeps_block=True)


def _compacted(material: Material, tools: Tools) -> dict[str, Rendering]:
    renderings = {}
    for artifact in material.artifacts:
        is_span = artifact.place.span is not None
        text = artifact.content if is_span else tools.compact(artifact.content)
        if len(text) < len(artifact.content):
            renderings[artifact.artifact_id] = in_full(artifact, text)
    return renderings
