"""Clients that leave at random moments leave the storage as it was (guarantee §3.6, §3.7); a thousand: tests/chaos."""

from tests.support.factory import GatewayFactory
from tests.support.leaving import check_that_leaving_clients_leave_no_trace
from tests.support.mock_upstream import MockUpstream


def test_s3_7_a_hundred_leaving_clients_leave_no_trace(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str
) -> None:
    """§3.7: over a pool of two; no transaction stays open, every call has its bill, all requests work afterwards."""
    gateway = start_gateway({"storage": {"url": storage_url, "pool_size": 2}})
    check_that_leaving_clients_leave_no_trace(gateway, upstream, storage_url, 100)
