"""The histories of `tests/acceptance/test_history_model.py`, many more and longer ones (guarantee §3)."""

import pytest

from tests.support.factory import GatewayFactory
from tests.support.history_machine import check_histories
from tests.support.history_world import World
from tests.support.mock_upstream import MockUpstream


@pytest.mark.chaos
def test_s3_long_histories_are_what_the_model_says(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str
) -> None:
    """§3: a thousand histories of up to forty steps."""
    with World(start_gateway({"storage": {"url": storage_url}}), upstream, storage_url) as world:
        check_histories(world, examples=1000, steps=40, always_the_same=False)
