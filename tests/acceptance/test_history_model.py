"""Random clients against a plain model of what their histories must be, on both storages (guarantee §3)."""

from tests.support.gateway_process import GatewayProcess
from tests.support.history_machine import check_histories
from tests.support.history_world import World
from tests.support.mock_upstream import MockUpstream


def test_s3_histories_are_what_the_model_says(
    gateway: GatewayProcess, upstream: MockUpstream, module_storage_url: str
) -> None:
    """§3: by id, by session, by itself; deltas, resends, edits, tool loops, failures, several at once."""
    with World(gateway, upstream, module_storage_url) as world:
        check_histories(world, examples=60, steps=12, always_the_same=True)
