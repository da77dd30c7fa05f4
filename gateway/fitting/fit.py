"""Chooses what stands in the window (contract §4 I1-I6).

Everything in full if it fits; else compacted; else the old blocks leave; else a reduction. No selection is returned
whose exact count is over budget.
"""

from dataclasses import replace

from gateway.fitting.count import Counting
from gateway.fitting.reduction import Reduction
from gateway.fitting.tools import Limits, Tools, fitted_as, in_full
from gateway.models.selection import Fitted, Material, Rendering, Selection


def fit(material: Material, limits: Limits, counting: Counting, tools: Tools) -> Fitted:
    """The best selection that fits.

    Raises:
        ContextLengthExceeded: not even the current message and its latest tool step fit.
    """
    full = Selection(renderings=_unplaced(material, full_blocks=True))
    fitted = _try(material, full, limits, counting, tools)
    if fitted is not None or limits.tokens is None:
        return fitted or fitted_as(full, tools.assemble(material, full), counting.estimate, counting)
    compact = _compacted(material, tools)
    shown = {key: r for key, r in compact.items() if r.artifact.place.message is not None or key in full.renderings}
    compacted = replace(full, renderings={**full.renderings, **shown})
    refilled = replace(full, renderings={**_refilled(material), **full.renderings, **compact}, frozen=False)
    for selection in (compacted, refilled):
        fitted = _try(material, selection, limits, counting, tools)
        if fitted is not None:
            return fitted
    return Reduction(material, limits, counting, tools).run()


def _try(material: Material, selection: Selection, limits: Limits, counting: Counting, tools: Tools) -> Fitted | None:
    """The selection if it fits. What cannot exceed the budget by its bytes alone is only estimated."""
    if limits.tokens is None:
        return None
    forwarded = tools.assemble(material, selection)
    if counting.upper_bound(forwarded) <= limits.tokens:
        return fitted_as(selection, forwarded, counting.estimate, counting)
    if counting.exact(forwarded).total <= limits.tokens:
        return fitted_as(selection, forwarded, counting.exact, counting)
    return None


def _unplaced(material: Material, *, full_blocks: bool) -> dict[str, Rendering]:
    """What cannot stand as it was sent: attachments and results told as text that stand in no earlier block, and
    decoded files."""
    standing = {name for message in material.messages for name in message.standing}
    fixed = bool(material.messages) and material.messages[material.current].rendered is not None
    renderings = {}
    for artifact in material.artifacts:
        is_file = artifact.place.part is not None and artifact.place.span is None
        waits = artifact.place.message is None and artifact.standing_name not in standing and not fixed
        if is_file or (waits and full_blocks):
            renderings[artifact.artifact_id] = in_full(artifact, artifact.content)
    return renderings


def _refilled(material: Material) -> dict[str, Rendering]:
    """Once the old blocks have left, what stood in them waits for a place again."""
    return {a.artifact_id: in_full(a, a.content) for a in (*material.restored, *material.attached)}


def _compacted(material: Material, tools: Tools) -> dict[str, Rendering]:
    renderings = {}
    for artifact in material.artifacts:
        text = tools.compact(artifact.content)
        if len(text) < len(artifact.content):
            renderings[artifact.artifact_id] = in_full(artifact, text)
    return renderings
