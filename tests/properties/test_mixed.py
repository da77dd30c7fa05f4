"""A bit of everything, at random (guarantee §4)."""

from tests.properties.cases import MIXED
from tests.properties.running import CASES, check_singles


def test_s4_the_invariants_hold() -> None:
    tally = check_singles(MIXED, range(CASES))
    assert tally.cases == CASES
    assert tally.outcomes["heuristic"] > CASES / 10
    assert tally.outcomes["passthrough"] > CASES / 50
    assert tally.outcomes["refused"] > CASES / 100
    assert tally.known.total() < CASES / 10
