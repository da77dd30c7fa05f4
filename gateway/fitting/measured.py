"""The unreduced candidate: what it takes in full, found out as exactly as it matters (contract §5)."""

from collections.abc import Sequence

from gateway.fitting.count import Counting
from gateway.fitting.tools import Limits, Tools, in_full
from gateway.models.selection import Material, Rendering, Selection, Unreduced


def measured(
    material: Material, limits: Limits, counting: Counting, tools: Tools, shares: Sequence[float] = ()
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
