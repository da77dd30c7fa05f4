"""Cancelled streams leave the pool of upstream connections healthy (guarantee §3.6)."""

from tests.support.cancelled_streams import check_that_cancelled_streams_leave_no_trace
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream

CONNECTIONS = 30


def test_s3_6_three_hundred_cancelled_streams(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """All connections can still be used, and no descriptor and no upstream call is left over."""
    gateway = start_gateway({"upstream": {"max_connections": CONNECTIONS}})
    check_that_cancelled_streams_leave_no_trace(gateway, upstream, 300, CONNECTIONS)
