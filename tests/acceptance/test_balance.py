"""Requests of all kinds, many at once, some cancelled, some failed: the bill balances (guarantee §6)."""

from tests.support.balance import check_balance
from tests.support.factory import GatewayFactory
from tests.support.mixed_requests import Provider, configured_models, mixed, send_all
from tests.support.mock_upstream import MockUpstream


async def test_s6_the_sum_of_all_bills_is_what_the_provider_charged(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str
) -> None:
    """Every request one row; each bill, and their sum, as the provider reckons it, to the last digit."""
    gateway = start_gateway({"storage": {"url": storage_url}, "model_list": configured_models(upstream)})
    upstream.handler = provider = Provider(mixed(250, seed=7))
    seen = await send_all([gateway], provider, at_once=40)
    check_balance([gateway], storage_url, provider, seen)
    assert "Traceback" not in gateway.log_text()
