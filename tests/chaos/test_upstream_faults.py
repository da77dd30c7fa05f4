"""Each fault of an upstream through each API of the gateway's, over each API of the upstream's (guarantee §7, §10)."""

from collections.abc import Iterator

import pytest

from tests.support.factory import GatewayFactory
from tests.support.faults.ways import CLASSES, WAYS, Crossing, Way, config
from tests.support.mock_upstream import MockUpstream

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def crossing(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> Iterator[Crossing]:
    found = Crossing(module_start_gateway(config(module_upstream)), module_upstream)
    yield found
    found.close()


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_s7_each_fault_at_each_edge(crossing: Crossing, way: Way, kind: str) -> None:
    """Each is told in the client's own shape and status, leaves its row in the ledger, and leaks nothing; the next
    request is answered as if nothing had been."""
    table = CLASSES[kind](way.words)
    failures = crossing.failures(way, table)
    assert not failures, f"{len(failures)} of {len(table)}:\n" + "\n".join(failures[:20])
