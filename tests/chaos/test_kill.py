"""`kill -9` between any two moments of a turn, on each storage (guarantee §3.6)."""

import pytest

from tests.chaos.kill_loop import MOMENTS, KillLoop
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream

MANY = 30


@pytest.mark.parametrize("kills", [len(MOMENTS), pytest.param(MANY, marks=pytest.mark.chaos)])
def test_s3_6_kills_lose_no_acknowledged_turn_and_leave_no_half_or_doubled_one(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str, kills: int
) -> None:
    """§3.6: at least once at each moment: before the call, while the model answers, around the commit, after it."""
    loop = KillLoop(start_gateway({"storage": {"url": storage_url}}), upstream, storage_url, seed=kills)
    loop.run(kills)
    assert loop.acknowledged >= max(1, kills // 6), "kills after the acknowledgement"
    assert loop.acknowledged + loop.kept + loop.lost <= kills
    if kills == MANY:
        assert loop.lost >= kills // 4, "kills before the commit"
