"""Tool loops with parallel calls and repeated ids, at random (guarantee §4)."""

import pytest

from tests.properties.cases import AMID_LOOPS, TOOL_LOOPS, Flavour
from tests.properties.running import CASES, check_singles


@pytest.mark.parametrize("flavour", [TOOL_LOOPS, AMID_LOOPS], ids=["steps", "amid them users speak"])
def test_s4_the_invariants_hold(flavour: Flavour) -> None:
    """I4 above all, where users speak amid the steps: the message that began the turn is forwarded."""
    tally = check_singles(flavour, range(CASES))
    assert tally.cases == CASES
    assert tally.outcomes["heuristic"] > CASES / 10
    assert tally.outcomes["passthrough"] > CASES / 50
    assert tally.outcomes["refused"] > CASES / 100
    assert tally.known.total() < CASES / 10
