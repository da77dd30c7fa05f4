"""Conversations of several turns: resent and by id, with tool loops, attachments, edits, at random (guarantee §4)."""

from tests.properties.running import check_talks

CONVERSATIONS = 130
REQUESTS = 600


def test_s4_the_invariants_hold_from_turn_to_turn() -> None:
    """I7 above all: what was forwarded stays as it was while everything fits."""
    assert check_talks(range(CONVERSATIONS)) >= REQUESTS
