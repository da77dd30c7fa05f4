"""Requests of all kinds whose contexts are planned, many at once: the bill balances (guarantee §5, §6)."""

from tests.support.factory import GatewayFactory
from tests.support.mixed_requests import send_all
from tests.support.mock_upstream import MockUpstream
from tests.support.planned_balance import check_planned_balance
from tests.support.planned_requests import PlannedProvider, planned, planned_models


async def test_s6_the_sum_of_all_planned_bills_is_what_was_charged_for_all_models(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str
) -> None:
    """Planners and summarizers that are late, broken, worthless, or left by the client; several choices, streams that
    are cut or left: each call on its bill once, firm ones as charged to the last digit, the others told apart."""
    seconds = {"planner_timeout": 8.0, "summarizer_timeout": 8.0}
    config = {"model_list": planned_models(upstream), "context": {"planning": "auto", **seconds}}
    gateway = start_gateway({**config, "storage": {"url": storage_url}})
    upstream.handler = provider = PlannedProvider(planned(160, seed=11), seed=12)
    seen = await send_all([gateway], provider, at_once=40)
    check_planned_balance([gateway], storage_url, provider, seen)
    assert "Traceback" not in gateway.log_text()
