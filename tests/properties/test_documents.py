"""Documents: attached, in files, pasted into messages, at random (guarantee §4)."""

from tests.properties.cases import DOCUMENTS
from tests.properties.running import CASES, check_singles

FOUND = (10_615_047,)
"""Requests that once showed a fault: JSON with numbers beyond a double was cut at the tags in its strings."""


def test_s4_documents_that_once_showed_a_fault() -> None:
    assert check_singles(DOCUMENTS, FOUND).cases == len(FOUND)


def test_s4_the_invariants_hold() -> None:
    tally = check_singles(DOCUMENTS, range(CASES))
    assert tally.cases == CASES
    assert tally.outcomes["heuristic"] > CASES / 10
    assert tally.outcomes["passthrough"] > CASES / 50
    assert tally.outcomes["refused"] > CASES / 100
    assert tally.known.total() < CASES / 10
