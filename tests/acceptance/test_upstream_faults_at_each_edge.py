"""One fault of each class through every second API, over each API of the upstream's (guarantee §7, §10): `make chaos`
has all of them (`tests/chaos/test_upstream_faults.py`)."""

import pytest

from tests.support.faults.ways import CLASSES, WAYS, Crossing, Way, flooded
from tests.support.faults.words import ANTHROPIC, CHAT, RESPONSES


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_s7_a_fault_of_each_class_at_each_edge(crossing: Crossing, way: Way, kind: str) -> None:
    """§10.8: it is told in the client's own shape and status, leaves its row in the ledger, and leaks nothing; the next
    request is answered as if nothing had been."""
    name, fault = next(iter(CLASSES[kind](way.words).items()))
    if kind == "floods":
        flooded(crossing, way, fault)
        return
    failures = crossing.failures(way, {name: fault})
    assert not failures, failures[0]


def test_s7_each_class_has_its_faults() -> None:
    """What stands for all of a class is one of many."""
    counts = [{name: len(make(words)) for name, make in CLASSES.items()} for words in (CHAT, RESPONSES, ANTHROPIC)]
    assert all(min(each.values()) >= 7 for each in counts)
    assert sum(number for name, number in counts[0].items() if name != "shapes") >= 230
