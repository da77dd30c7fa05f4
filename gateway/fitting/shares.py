"""Who has which part of the room above the floor (contract §4 I5; the heuristic of §5)."""

from collections.abc import Iterable

from gateway.fitting.choice import BLOCK_TOKENS, CHARS_PER_TOKEN, LABEL_TOKENS
from gateway.fitting.transcript import Said
from gateway.models.selection import Material

LITTLE_HELD, MOST_TURNS = 0.6, 0.9
"""Up to that part of everything that the room holds, turns have their share of it alone; where it holds nearly all,
they have most of it."""
BEST, BEST_SHARE = 3, 0.3
"""How many passages, the best, come before any turn, and the part of the room that they may take."""
KEPT_SHARE = 0.08
"""Part of the room for what a user asked to be kept to, and for how the conversation began."""
ROOMY = 1000
"""Room in which labels are no great matter."""
OLD_SHARE = 0.15
"""Part of the room that has to be left for what is old, so that only that is reduced."""
LATEST_SHARE = 0.4
"""Part of the room for the results of the latest tool step, which the model has not seen yet."""


def share_of_turns(share: float, room: float, material: Material, told: Iterable[Said]) -> float:
    """The part of the room for turns as they were: `share`, and the more the less has to be left out, since whatever
    is torn out of them is understood less well.

    Args:
        room: in tokens.
        told: all that may be quoted of messages.
    """
    if room < ROOMY and not material.artifacts:
        return 1.0  # labels would take more of it than they leave
    chars = sum(a.size_chars for a in material.searched) + sum(len(each.text) for each in told)
    held = min(1.0, room * CHARS_PER_TOKEN / max(1, chars))
    grown = max(0.0, (held - LITTLE_HELD) / (1 - LITTLE_HELD))
    return share + (MOST_TURNS - share) * grown if share < MOST_TURNS else share


def kept_tokens(room: float) -> float:
    """Tokens for what a user asked to be kept to."""
    kept = room * KEPT_SHARE
    if room >= ROOMY:
        kept += BLOCK_TOKENS + LABEL_TOKENS  # a block for them alone, if need be
    return kept
