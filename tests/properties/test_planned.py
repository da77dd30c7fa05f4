"""Guarantee §4 holds whatever a planner says: random plans, trusted and not, over everything that a client may send."""

import pytest

from tests.properties.cases import FLAVOURS, Flavour
from tests.properties.running import CASES, check_singles, check_talks
from tests.support.marks import few_or_many

SHARE = 2
"""Every so manieth case, beside all of those without a plan."""


@pytest.mark.parametrize("planned", ["untrusted", "trusted"])
@pytest.mark.parametrize("flavour", FLAVOURS, ids=[flavour.name for flavour in FLAVOURS])
def test_s4_the_invariants_hold_with_any_plan(flavour: Flavour, planned: str) -> None:
    tally = check_singles(flavour, range(CASES // SHARE // 2), planned)
    assert tally.outcomes["heuristic"] > tally.cases / 10


@few_or_many(2, 400)
@pytest.mark.parametrize("planned", ["untrusted", "trusted"])
def test_s4_the_invariants_hold_from_turn_to_turn_with_any_plan(planned: str, number: int) -> None:
    """I7 above all: what a plan made of an artifact stands as it was while everything fits."""
    assert check_talks(range(number), planned) >= number
