"""Thousands of cancelled streams (guarantee §3.6)."""

import pytest

from tests.support.cancelled_streams import check_that_cancelled_streams_leave_no_trace
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream


@pytest.mark.chaos
def test_three_thousand_cancelled_streams_leave_no_trace(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str
) -> None:
    gateway = start_gateway({"storage": {"url": storage_url}, "upstream": {"max_connections": 100}})
    check_that_cancelled_streams_leave_no_trace(gateway, upstream, 3000, 100)
