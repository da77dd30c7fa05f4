"""Chooses what stands in the window (guarantee §4 I1-I6).

What was forwarded before and everything new in full if that fits; else compacted; else the old blocks leave; else a
reduction. No selection is returned whose exact count is over budget.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gateway.models.artifacts import Artifact
from gateway.models.window import Fitted, Material, Planned, Rendering, Selection, Unreduced
from gateway.window.budget import Limits, Tools, counted, fitted_as, in_full
from gateway.window.candidates import run_of_turns
from gateway.window.counting import PromptCounter
from gateway.window.plan import NO_PLAN, followed, guarded, searches
from gateway.window.recall import with_recalled
from gateway.window.reduction import Reduction

# Lossless compaction, which comes before anything is left out (guarantee §4 I5).


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


# The unreduced candidate: what it takes in full, found out as exactly as it matters (guarantee §5).


def measured(
    material: Material, limits: Limits, counting: PromptCounter, tools: Tools, shares: Sequence[float] = ()
) -> Unreduced:
    """What was forwarded before, as it was, and everything since in full.

    Args:
        shares: of the budget; on which side of each of them it is must be known, as it is of the budget itself.
    """
    selection = _frozen(material)
    forwarded = tools.assemble(material, selection)
    budget, filled = limits.tokens, limits.filled
    if budget is None or filled is None:
        return Unreduced(selection, forwarded, counting.estimate(forwarded).total)
    if counting.upper_bound(forwarded) <= min([filled, *(share * budget for share in shares)]):
        return Unreduced(selection, forwarded, counting.estimate(forwarded).total)
    tokens = counting.up_to(forwarded, budget)
    return Unreduced(selection, forwarded, tokens, anew=tokens > filled)


def _frozen(material: Material) -> Selection:
    """What was forwarded before, as it was, and everything since in full."""
    frame, messages = material.frame, material.messages
    renderings = _unplaced(material)
    if frame is None:
        return Selection(renderings=renderings)
    first = next((i for i, message in enumerate(messages) if message.message_id == frame.first), 0)
    return Selection(first if frame.first is not None else 0, material.left, renderings)


def _unplaced(material: Material) -> dict[str, Rendering]:
    """What cannot stand as it was sent: attachments and results told as text that stand in no earlier block, and
    decoded files. What a pass has decided on is not put in again."""
    frame = material.frame
    known = {name for message in material.messages for name in message.standing}
    known |= frame.decided if frame is not None else frozenset()
    fixed = material.has_block
    reduced = _reduced_in_blocks(material)
    apart = (a for a in (*material.restored, *material.attached) if not (fixed or a.standing_name in known))
    waiting = (a for a in apart if a.content_id not in reduced)
    return decoded_files(material) | {a.artifact_id: in_full(a, a.content) for a in waiting}


def _reduced_in_blocks(material: Material) -> frozenset[str]:
    """What stands in earlier blocks as less than it is: a plan may have made it so while everything had room."""
    if material.frame is None:
        return frozenset()
    inside = {(material.messages[a.place.message or 0].message_id, a.content_id) for a in material.placed}
    decisions = material.frame.decisions.items()
    every = {(name, each.artifact_id) for name, found in decisions for each in found}
    return frozenset(name for _, name in every - inside)


def decoded_files(material: Material) -> dict[str, Rendering]:
    """Files of messages as text: whoever cannot take them as they came is shown them so."""
    files = (a for a in material.placed if a.place.part is not None and a.place.span is None)
    return {a.artifact_id: in_full(a, a.content) for a in files}


def fit(
    material: Material,
    limits: Limits,
    counting: PromptCounter,
    tools: Tools,
    planned: Planned | None = None,
    unreduced: Unreduced | None = None,
) -> Fitted:
    """The best selection that fits: what was forwarded before stays as it was while everything new has room behind it;
    else one pass decides everything anew and frees enough for several turns (guarantee §4 I7).

    Args:
        planned: a plan that is followed for artifacts that do not stand in the window as an earlier request had them
            forwarded, and for all once something has to leave (guarantee §5).
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
    material: Material, frozen: Selection, limits: Limits, counting: PromptCounter, tools: Tools, planned: Planned
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
