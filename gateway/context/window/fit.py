"""Decides what the window holds (guarantee §4 I1-I7).

`fit` tells how: everything is kept if it fits; else it is compacted, then old blocks leave, then artifacts are reduced
and old turns leave. `greedy_fit` is where the run of turns is cut. No selection is returned that is over the budget.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gateway.context.window.counting import PromptCounter
from gateway.context.window.fitting import NO_PLAN, FittingSteps, WindowFitter, in_full, without_hopeless
from gateway.context.window.greedy_fit import SegmentRoom
from gateway.context.window.packing import WindowPacker
from gateway.context.window.plan import followed, guarded
from gateway.context.window.prompt_budget import SelectionLimits
from gateway.context.window.recalled_extracts import with_recalled
from gateway.context.window.turns import once, run_of_turns
from gateway.core.types.artifacts import Artifact
from gateway.core.types.window import (
    ArtifactRendering,
    FullPrompt,
    PackedWindow,
    PlanToFollow,
    WindowInputs,
    WindowSelection,
)


def fit(
    material: WindowInputs,
    limits: SelectionLimits,
    counting: PromptCounter,
    tools: FittingSteps,
    planned: PlanToFollow | None = None,
    unreduced: FullPrompt | None = None,
) -> PackedWindow:
    """The best selection that fits. What was forwarded before stays as it was while everything new fits behind it; else
    one pass decides everything anew and frees enough for several turns (guarantee §4 I5, I7). Remembered things stand
    beside what it kept where they have room (guarantee §11.14).
    `planned`: a plan to follow for artifacts that are forwarded for the first time, and for all once something has to
    leave (guarantee §5); `unreduced`: the result of `count_unreduced`, if that is known.
    Raises ContextLengthExceeded: not even the current message and its latest tool step fit."""
    fitting = WindowFitter(material, limits, counting, tools, planned or NO_PLAN)
    everything = unreduced or count_unreduced(material, limits, counting, tools)
    if limits.usable is None:
        as_it_is = fitting.fitted(everything.selection, everything.forwarded, exact=False)
        return replace(as_it_is, moved=material.moves)
    fitted = _everything_kept(fitting, everything, limits.usable)
    if fitted is None:
        bare = replace(fitting, material=replace(material, things=())) if material.things else fitting
        fitted = _decided_anew(bare, everything.selection)
        if material.things:
            fitted = fitting.fitted_within(limits.usable, fitted.selection) or fitted
        fitted = replace(fitted, new_pass=True)
    return replace(fitted, guarded=guarded(fitting, fitted)) if planned else fitted


def count_unreduced(
    material: WindowInputs,
    limits: SelectionLimits,
    counting: PromptCounter,
    tools: FittingSteps,
    shares: Sequence[float] = (),
) -> FullPrompt:
    """What was forwarded before as it was, and all since in full, counted as exactly as it matters.
    `shares`: shares of the budget. It must be certain on which side of each the count is, and of the budget itself."""
    selection = _frozen(material, SegmentRoom(material, counting), limits.usable)
    if material.repeats.documents:
        selection = once(material, selection)
    return counted(material, selection, limits, counting, tools, shares)


def counted(
    material: WindowInputs,
    selection: WindowSelection,
    limits: SelectionLimits,
    counting: PromptCounter,
    tools: FittingSteps,
    shares: Sequence[float] = (),
) -> FullPrompt:
    """A selection that leaves out nothing of what is new, counted as `count_unreduced` does."""
    budget, usable = limits.tokens, limits.usable
    possible, hopeless = without_hopeless(selection, counting, budget) if budget is not None else (selection, 0)
    forwarded = tools.assemble(material, possible)
    if hopeless:
        return FullPrompt(selection, forwarded, counting.estimate(forwarded).total + hopeless, new_pass=True)
    if budget is None or usable is None:
        return FullPrompt(selection, forwarded, counting.estimate(forwarded).total)
    due = material.has_memory_due
    if counting.surely_fits(forwarded, min([usable, *(share * budget for share in shares)])):
        return FullPrompt(selection, forwarded, counting.estimate(forwarded).total, new_pass=due)
    tokens = counting.up_to(forwarded, budget)
    return FullPrompt(selection, forwarded, tokens, new_pass=due or tokens > usable)


def _everything_kept(fitting: WindowFitter, everything: FullPrompt, tokens: int) -> PackedWindow | None:
    """Everything, with what a new question needs beside it; None if that does not fit."""
    if everything.new_pass:
        return None
    fitted = fitting.fitted_within(tokens, everything.selection, everything.forwarded)
    kept = with_recalled(fitting, fitted) if fitted else None
    return replace(followed(fitting, kept), moved=fitting.material.moves) if kept else None


def fits_compacted(fitting: WindowFitter, frozen: WindowSelection) -> bool:
    """Whether a pass is enough that takes nothing away: what only takes room is compacted (guarantee §4 I5)."""
    return not fitting.material.has_memory_due and _all_compacted(_compacted(fitting), frozen) is not None


def _decided_anew(fitting: WindowFitter, frozen: WindowSelection) -> PackedWindow:
    """One pass, which loses as little as it can."""
    compact = _compacted(fitting)
    return (
        (None if fitting.material.has_memory_due else _all_compacted(compact, frozen))  # a block may quote it
        or _old_blocks_gone(compact)
        or WindowPacker(compact.compacted("recallable")).packed()
    )


def _compacted(fitting: WindowFitter) -> WindowFitter:
    """The same for a pass that decides all anew: compacted, but for what stays word for word."""
    if shaped := fitting.material.shaped:  # references die with what they point to (guarantee §4 I8)
        fitting = replace(fitting, material=fitting.material.in_full(shaped))
    kept = fitting.tools.kept(fitting.material)
    fitting = replace(fitting, kept=tuple(each.artifact_id for each in kept)) if kept else fitting
    return fitting.compacted("placed", "restored", "attached")


def _all_compacted(fitting: WindowFitter, frozen: WindowSelection) -> PackedWindow | None:
    """The same window with compacted content, but for messages that were forwarded in another form before."""
    material, shown = fitting.material, set(frozen.renderings)
    for artifact in material.placed:
        message = material.messages[artifact.place.message or 0]
        if message.rendered is None and _is_shorter(artifact):
            shown.add(artifact.artifact_id)
    renderings = _in_full(a for a in material.artifacts if a.artifact_id in shown)
    changed = replace(frozen, renderings=renderings, keeps_memory=False, segments=len(material.segments))
    return _within_goal(fitting, changed)


def _old_blocks_gone(fitting: WindowFitter) -> PackedWindow | None:
    """All messages without their blocks, compacted. What the blocks showed is put into a new one; but a block that the
    first step of the current turn has fixed stays."""
    material = fitting.material
    for_block = () if material.has_block else (*material.restored, *material.attached)
    shorter = (artifact for artifact in material.placed if _is_shorter(artifact))
    renderings = _in_full((*_files(material), *shorter, *for_block))
    turns = run_of_turns(material)
    first = turns[0].start if turns else material.current
    left_out = frozenset(index for index in material.left if index >= first)
    kept, segments = material.has_block, len(material.segments)
    selection = WindowSelection(first, left_out, renderings, frozen=False, keeps_block=kept, segments=segments)
    return _within_goal(fitting, selection)


def _within_goal(fitting: WindowFitter, selection: WindowSelection) -> PackedWindow | None:
    if fitting.material.repeats.documents:
        selection = once(fitting.material, selection)
    if without_hopeless(selection, fitting.counting, fitting.limits.goal)[1]:
        return None
    fitted = fitting.fitted_within(fitting.limits.goal, selection)
    return followed(fitting, fitted) if fitted else None


def _frozen(material: WindowInputs, room: SegmentRoom, usable: int | None) -> WindowSelection:
    """The window as it was forwarded before, without the turns that leave it now, and everything since in full."""
    files = [each for each in _files(material) if not material.stands_reduced(each)]
    renderings = _in_full((*files, *_new_in_block(material)))
    first = material.frozen_first
    if material.moves:
        left = frozenset(i for i in material.left if i >= first)
        return WindowSelection(first, left, renderings, segments=room.shown(usable))
    if material.frame is None:
        return WindowSelection(renderings=renderings)
    return WindowSelection(first, material.left, renderings, keeps_memory=True)


def _new_in_block(material: WindowInputs) -> list[Artifact]:
    """Attachments, and results forwarded as text, that no earlier block shows and no earlier pass has decided on."""
    if material.has_block:
        return []
    standing = material.messages[material.frozen_first if material.moves else 0 :]
    known = {name for message in standing for name in message.shown_in_full}
    reduced: set[str] = set()
    if frame := material.frame:
        known |= frame.decided
        inside = {(material.messages[a.place.message or 0].message_id, a.content_id) for a in material.placed}
        decided = {(name, each.artifact_id) for name, found in frame.decisions.items() for each in found}
        reduced = {content for _, content in decided - inside}  # which a plan may have made shorter without need
    apart = (*material.restored, *material.attached)
    return [a for a in apart if a.pinned or (a.block_name not in known and a.content_id not in reduced)]


def _files(material: WindowInputs) -> list[Artifact]:
    """What holds files inside messages that the model gets as text."""
    return [a for a in material.placed if a.becomes_text]


def _is_shorter(artifact: Artifact) -> bool:
    """Whether compaction took anything away."""
    return len(artifact.content) < artifact.size_chars


def _in_full(artifacts: Iterable[Artifact]) -> dict[str, ArtifactRendering]:
    return {artifact.artifact_id: in_full(artifact) for artifact in artifacts}
