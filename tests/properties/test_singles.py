"""Single requests of each flavour, at random: chats, tool loops with parallel calls and repeated ids, documents
attached, in files or pasted, and a bit of everything (guarantee §4)."""

import pytest

from tests.properties.cases import CHATS, DOCUMENTS, FLAVOURS, TOOL_LOOPS, Flavour
from tests.properties.running import CASES, check_singles

FOUND = {
    "a turn proved too long, and what was quoted of it did not come back": (CHATS, (100511, 101689, 101709)),
    "the same beginning of a passage was taken again and again": (CHATS, (13_010_792,)),
    "JSON with numbers beyond a double was cut at the tags in its strings": (DOCUMENTS, (10_615_047,)),
    "a task's document of dense text was not given up, and the request refused": (TOOL_LOOPS, (10_003_478, 10_022_325)),
    "an attached record with a doubled key was called a repetition by the check": (DOCUMENTS, (619_978_125_040,)),
}
"""Requests that once showed a fault."""


@pytest.mark.parametrize("flavour", FLAVOURS, ids=[flavour.name for flavour in FLAVOURS])
def test_s4_the_invariants_hold(flavour: Flavour) -> None:
    """§4 I1, §4 I2, §4 I3, and §4 I4 above all where users speak amid the steps: what began the turn is forwarded."""
    tally = check_singles(flavour, range(CASES))
    assert tally.cases == CASES
    assert tally.outcomes["heuristic"] > CASES / 10
    assert tally.outcomes["passthrough"] > CASES / 50
    assert tally.outcomes["refused"] > CASES / 100
    assert tally.known.total() < CASES / 10


@pytest.mark.parametrize(("flavour", "seeds"), FOUND.values(), ids=FOUND)
def test_s4_requests_that_once_showed_a_fault(flavour: Flavour, seeds: tuple[int, ...]) -> None:
    assert check_singles(flavour, seeds).cases == len(seeds)
