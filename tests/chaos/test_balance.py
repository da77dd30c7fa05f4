"""A thousand requests of all kinds, many at once: the bill balances (guarantee §6)."""

import pytest

from tests.support.balance import check_balance
from tests.support.factory import GatewayFactory
from tests.support.mixed_requests import Provider, configured_models, mixed, send_all
from tests.support.mock_upstream import MockUpstream
from tests.support.planned_balance import check_planned_balance
from tests.support.planned_requests import PlannedProvider, planned, planned_models
from tests.support.postgres import Postgres
from tests.support.valkey import Valkey


@pytest.mark.chaos
async def test_a_thousand_bills_are_what_the_provider_charged(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str
) -> None:
    gateway = start_gateway({"storage": {"url": storage_url}, "model_list": configured_models(upstream)})
    upstream.handler = provider = Provider(mixed(1000, seed=1))
    seen = await send_all([gateway], provider, at_once=100)
    check_balance([gateway], storage_url, provider, seen)


@pytest.mark.chaos
async def test_the_bills_of_two_gateways_on_one_database_are_what_the_provider_charged(
    start_gateway: GatewayFactory, upstream: MockUpstream, postgres: Postgres
) -> None:
    storage_url = postgres.new_database()
    config = {"storage": {"url": storage_url}, "model_list": configured_models(upstream)}
    gateways = [start_gateway(config), start_gateway(config)]
    upstream.handler = provider = Provider(mixed(1000, seed=2))
    seen = await send_all(gateways, provider, at_once=100)
    check_balance(gateways, storage_url, provider, seen)


@pytest.mark.chaos
async def test_the_bills_of_planned_requests_of_two_gateways_are_what_was_charged_for_all_models(
    start_gateway: GatewayFactory, upstream: MockUpstream, postgres: Postgres, valkey: Valkey
) -> None:
    """Late and broken planners and summarizers, clients that leave them, summaries of one cache."""
    storage_url = postgres.new_database()
    config = {
        "storage": {"url": storage_url},
        "cache": {"url": valkey.url, "timeout": 2.0},
        "model_list": planned_models(upstream),
        "context": {"planning": "auto", "planner_timeout": 5.0, "summarizer_timeout": 5.0},
    }
    gateways = [start_gateway(config) for _ in range(2)]
    upstream.handler = provider = PlannedProvider(planned(800, seed=5), seed=6)
    seen = await send_all(gateways, provider, at_once=60)
    check_planned_balance(gateways, storage_url, provider, seen)
