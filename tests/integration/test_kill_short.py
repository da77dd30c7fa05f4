"""The kill loop of tests/chaos, once through its moments: what is acknowledged survives `kill -9` (guarantee §3.6)."""

from tests.chaos.kill_loop import MOMENTS, KillLoop
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream


def test_a_kill_at_each_moment_of_a_turn_loses_nothing_acknowledged_and_leaves_nothing_half(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str
) -> None:
    loop = KillLoop(start_gateway({"storage": {"url": storage_url}}), upstream, storage_url, seed=6)
    loop.run(len(MOMENTS))
    assert loop.acknowledged >= 1
    assert loop.acknowledged + loop.kept + loop.lost <= len(MOMENTS)
