"""Chooses what stands in the window (contract §4 I1-I6).

What was forwarded before and everything new in full if that fits; else compacted; else the old blocks leave; else a
reduction. No selection is returned whose exact count is over budget.
"""

from collections.abc import Iterator
from dataclasses import replace

from gateway.fitting.candidates import run_of_turns
from gateway.fitting.compacted import compacted, is_shorter, with_recallable
from gateway.fitting.count import Counting
from gateway.fitting.measured import decoded_files, measured
from gateway.fitting.planned import NO_PLAN, guarded, searches
from gateway.fitting.planned_in_full import followed
from gateway.fitting.recall import with_recalled
from gateway.fitting.reduction import Reduction
from gateway.fitting.tools import Limits, Tools, counted, fitted_as, in_full
from gateway.models.artifacts import Artifact
from gateway.models.planned import Planned
from gateway.models.selection import Fitted, Material, Selection, Unreduced


def fit(
    material: Material,
    limits: Limits,
    counting: Counting,
    tools: Tools,
    planned: Planned | None = None,
    unreduced: Unreduced | None = None,
) -> Fitted:
    """The best selection that fits: what was forwarded before stays as it was while everything new has room behind it;
    else one pass decides everything anew and frees enough for several turns (contract §4 I7).

    Args:
        planned: a plan that is followed for artifacts that do not stand in the window as an earlier request had them
            forwarded, and for all once something has to leave (contract §5).
        unreduced: if that was `measured` before.

    Raises:
        ContextLengthExceeded: not even the current message and its latest tool step fit.
    """
    known = unreduced or measured(material, limits, counting, tools)
    if limits.filled is None:
        return fitted_as(known.selection, known.forwarded, counting.estimate, counting)
    plan = planned or NO_PLAN
    fitted = None if known.anew else counted(known.selection, known.forwarded, limits.filled, counting)
    if fitted is not None:
        fitted = with_recalled(material, fitted, limits, counting, tools, searches(plan))
    if fitted is None:
        fitted = replace(_anew(material, known.selection, limits, counting, tools, plan), anew=True)
    elif planned is not None:
        fitted = followed(material, fitted, planned, counting, tools)
    return replace(fitted, guarded=guarded(planned, material, fitted)) if planned is not None else fitted


def _anew(
    material: Material, frozen: Selection, limits: Limits, counting: Counting, tools: Tools, planned: Planned
) -> Fitted:
    """What leaves, in the order of §4 I5, until the rest is no more than the target."""
    material = compacted(material, tools.compact)
    for selection in (_compact(material, frozen), _blocks_gone(material)):
        fitted = counted(selection, tools.assemble(material, selection), limits.aim, counting)
        if fitted is not None:
            return followed(material, fitted, planned, counting, tools)
    return Reduction(with_recallable(material, tools.compact), limits, counting, tools, planned).run()


def _compact(material: Material, frozen: Selection) -> Selection:
    """The window as it was, with what stands in messages as they were sent, or is put into a block now, compacted."""
    shown = {a.artifact_id for a in _shortened(material)} | frozen.renderings.keys()
    renderings = {a.artifact_id: in_full(a, a.content) for a in material.artifacts if a.artifact_id in shown}
    return replace(frozen, renderings=renderings)


def _blocks_gone(material: Material) -> Selection:
    """Old blocks have left, and what stood in them waits for a place again; the block of the turn under way, which was
    fixed at its first step, stays."""
    waiting = () if material.has_block else (*material.restored, *material.attached)
    shorter = (a for a in material.placed if is_shorter(a))
    shown = decoded_files(material) | {a.artifact_id: in_full(a, a.content) for a in (*shorter, *waiting)}
    turns = run_of_turns(material)
    first = turns[0].start if turns else material.current
    left = frozenset(index for index in material.left if index >= first)
    return Selection(first, left, shown, frozen=False, keeps_block=material.has_block)


def _shortened(material: Material) -> Iterator[Artifact]:
    """What compaction makes shorter in messages that stand as they were sent."""
    for artifact in material.placed:
        index = artifact.place.message
        if index is not None and material.messages[index].rendered is None and is_shorter(artifact):
            yield artifact
