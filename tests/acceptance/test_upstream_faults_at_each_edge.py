"""One fault of each class through each API, over each API of the upstream's (guarantee §7, §10): `make chaos` has all
of them (`tests/chaos/test_upstream_faults.py`)."""

import pytest

from tests.support.faults.ways import CLASSES, WAYS, Crossing, Way, flooded


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_s7_a_fault_of_each_class_at_each_edge(crossing: Crossing, way: Way, kind: str) -> None:
    """It is told in the client's own shape and status, leaves its row in the ledger, and leaks nothing; the next
    request is answered as if nothing had been."""
    name, fault = next(iter(CLASSES[kind](way.words).items()))
    if kind == "floods":
        flooded(crossing, way, fault)
        return
    failures = crossing.failures(way, {name: fault})
    assert not failures, failures[0]


@pytest.mark.parametrize("kind", CLASSES)
def test_s7_each_class_has_its_faults(kind: str) -> None:
    """What stands for all of a class is one of many."""
    assert all(len(CLASSES[kind](way.words)) >= 7 for way in WAYS)
    told = sum(len(CLASSES[name](WAYS[0].words)) for name in CLASSES if name != "shapes")
    assert told >= 230
