"""Conversations of several turns: resent and by id, with tool loops, attachments, edits, at random (guarantee §4)."""

import pytest

from tests.properties.running import CASES, check_talks
from tests.support.edges import EDGES

CONVERSATIONS = CASES // 4
REQUESTS = 4 * CONVERSATIONS
BRANCH_WITH_A_FROZEN_EXTRACT = 10_028_115
FOUND = (10_108_015, 10_218_212, 10_228_031, 10_018_309, 10_128_440, 10_978_115, 10_738_469, 10_068_438)
"""Conversations that once showed a fault: the block said what another artifact in the window says; room was made for
what the window held compacted; messages before large ones left although the window held those reduced; a document
attached to a branch was left out, as the branch that was left had reduced a result that says the same; the bill said of
a result that it was shown in full, as an older one with the same words had been compacted before it left."""


def test_s4_the_invariants_hold_from_turn_to_turn() -> None:
    """I7 above all: what was forwarded stays as it was while everything fits."""
    assert check_talks(range(CONVERSATIONS)) >= REQUESTS


def test_s4_i7_an_extract_stays_frozen_on_a_shorter_branch_that_fits_whole() -> None:
    """A client goes back to a time before the conversation overflowed: what was forwarded then is forwarded again."""
    assert check_talks([BRANCH_WITH_A_FROZEN_EXTRACT]) > 3


@pytest.mark.chaos
def test_s4_conversations_that_once_showed_a_fault() -> None:
    assert check_talks(FOUND) > len(FOUND)


def test_s4_i4_what_began_the_turn_stays_whatever_is_said_amid_its_steps() -> None:
    """By all three APIs, at each step, with I7 from step to step."""
    assert check_talks(range(CONVERSATIONS), edges=EDGES, amid=0.5) >= REQUESTS
