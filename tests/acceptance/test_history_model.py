"""Random clients against a plain model of what their histories must be, on both storages (guarantee §3)."""

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.history_machine import check_histories
from tests.support.history_world import World
from tests.support.mock_upstream import MockUpstream


@pytest.mark.parametrize(
    ("examples", "steps", "always_the_same"),
    [(30, 12, True), pytest.param(1000, 40, False, marks=pytest.mark.chaos)],
    ids=["short", "a thousand long ones"],
)
def test_s3_histories_are_what_the_model_says(
    gateway: GatewayProcess,
    upstream: MockUpstream,
    module_storage_url: str,
    examples: int,
    steps: int,
    always_the_same: bool,
) -> None:
    """§3: by id, by session, by itself; deltas, resends, edits, tool loops, failures, several at once."""
    with World(gateway, upstream, module_storage_url) as world:
        check_histories(world, examples=examples, steps=steps, always_the_same=always_the_same)
