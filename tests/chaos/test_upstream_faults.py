"""Each fault of an upstream through each API of the gateway's, over each API of the upstream's (guarantee §7, §10)."""

import pytest

from tests.support.faults.ways import CLASSES, WAYS, Crossing, Way

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_s7_each_fault_at_each_edge(crossing: Crossing, way: Way, kind: str) -> None:
    """Each is told in the client's own shape and status, leaves its row in the ledger, and leaks nothing; the next
    request is answered as if nothing had been."""
    table = CLASSES[kind](way.words)
    failures = crossing.failures(way, table)
    assert not failures, f"{len(failures)} of {len(table)}:\n" + "\n".join(failures[:20])
