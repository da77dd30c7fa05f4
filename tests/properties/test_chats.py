"""Conversations without tools, at random (guarantee §4)."""

from tests.properties.cases import CHATS
from tests.properties.running import CASES, check_singles


def test_s4_the_invariants_hold() -> None:
    tally = check_singles(CHATS, range(CASES))
    assert tally.cases == CASES
    assert tally.outcomes["heuristic"] > CASES / 10
    assert tally.outcomes["passthrough"] > CASES / 50
    assert tally.outcomes["refused"] > CASES / 100
    assert tally.known.total() < CASES / 10


def test_room_that_a_turn_leaves_again_does_not_stay_free() -> None:
    """A turn was taken as messages, proved too long, and what was quoted of it did not come back."""
    assert check_singles(CHATS, (100511, 101689, 101709)).cases == 3


def test_room_beside_the_beginning_of_a_long_passage_does_not_stay_free() -> None:
    """The same beginning was taken again and again, and nothing of what follows it."""
    assert check_singles(CHATS, (13_010_792,)).cases == 1
