"""A thousand clients that leave at random moments (guarantee §3.6, §3.7)."""

import pytest

from tests.support.factory import GatewayFactory
from tests.support.leaving import check_that_leaving_clients_leave_no_trace
from tests.support.mock_upstream import MockUpstream


@pytest.mark.chaos
def test_a_thousand_leaving_clients_leave_no_trace(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str
) -> None:
    """§3.7: over a pool of two; no transaction stays open, no memory held, no bill lost."""
    gateway = start_gateway({"storage": {"url": storage_url, "pool_size": 2}})
    check_that_leaving_clients_leave_no_trace(gateway, upstream, storage_url, 1000)
