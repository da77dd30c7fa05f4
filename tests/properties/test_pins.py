"""Messages that are pinned at random, in requests of all kinds and from turn to turn (guarantee §4, §11)."""

import pytest

from tests.properties.cases import FLAVOURS, Flavour
from tests.properties.running import CASES, check_singles, check_talks

CONVERSATIONS, REQUESTS = 80, 300


@pytest.mark.parametrize("flavour", FLAVOURS, ids=[flavour.name for flavour in FLAVOURS])
def test_s11_8_what_is_pinned_is_in_every_window_and_the_invariants_hold(flavour: Flavour) -> None:
    tally = check_singles(flavour, range(CASES // 4), pins=True)
    assert tally.cases == CASES // 4
    assert tally.outcomes["heuristic"] > CASES / 60
    assert tally.outcomes["refused"] > CASES / 400


def test_s11_8_what_is_pinned_stays_from_turn_to_turn() -> None:
    assert check_talks(range(CONVERSATIONS), pins=True) >= REQUESTS


def test_s11_8_a_plan_takes_nothing_of_what_is_pinned() -> None:
    assert check_talks(range(CONVERSATIONS // 4), "trusted", pins=True) >= REQUESTS / 5
