"""`kill -9` between any two moments of a turn, thirty times on each storage (guarantee §3.6)."""

import pytest

from tests.chaos.kill_loop import KillLoop
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream

KILLS = 30


@pytest.mark.chaos
def test_thirty_kills_lose_no_acknowledged_turn_and_leave_no_half_or_doubled_one(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str
) -> None:
    loop = KillLoop(start_gateway({"storage": {"url": storage_url}}), upstream, storage_url, seed=30)
    loop.run(KILLS)
    assert loop.acknowledged >= KILLS // 6, "kills after the acknowledgement"
    assert loop.lost >= KILLS // 4, "kills before the commit"
