"""Requests of all kinds, many at once, some cancelled, some failed: the bill balances (guarantee §5, §6)."""

import pytest

from tests.support.answers import Json
from tests.support.balance import check_balance
from tests.support.edges import EDGES
from tests.support.factory import GatewayFactory
from tests.support.marks import few_or_many
from tests.support.mixed_requests import Provider, configured_models, mixed, send_all
from tests.support.mock_upstream import MockUpstream
from tests.support.planned_balance import check_planned_balance
from tests.support.planned_requests import PlannedProvider, planned, planned_models
from tests.support.postgres import Postgres
from tests.support.valkey import Valkey

SILENT: Json = {"server": {"keepalive": 0}}
"""No signs of life: with one comes the id of its request to a client that is to leave before its answer begins."""


def many(number: int, seed: int, at_once: int) -> object:
    """A row for `make chaos`."""
    return pytest.param(number, seed, at_once, marks=pytest.mark.chaos)


@pytest.mark.parametrize(("number", "seed", "at_once"), [(80, 7, 40), many(1000, 1, 100)])
async def test_s6_the_sum_of_all_bills_is_what_the_provider_charged(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str, number: int, seed: int, at_once: int
) -> None:
    """Every request one row, by whichever API it came (§10.1, §10.7); each bill, and their sum, as the provider
    reckons it, to the last digit."""
    gateway = start_gateway({**SILENT, "storage": {"url": storage_url}, "model_list": configured_models(upstream)})
    upstream.handler = provider = Provider(mixed(number, seed, EDGES))
    seen = await send_all([gateway], provider, at_once)
    check_balance([gateway], storage_url, provider, seen)
    assert "Traceback" not in gateway.log_text()


@few_or_many(25, 400)
@pytest.mark.chaos
async def test_s6_the_sum_of_all_planned_bills_is_what_was_charged_for_all_models(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str, number: int
) -> None:
    """Planners and summarizers that are late, broken, worthless, or left by the client; several choices, streams that
    are cut or left: each call on its bill once, firm ones as charged to the last digit, the others told apart."""
    seconds: Json = {"planner_timeout": 8.0, "summarizer_timeout": 8.0}
    config = {**SILENT, "model_list": planned_models(upstream), "context": {"planning": "auto", **seconds}}
    gateway = start_gateway({**config, "storage": {"url": storage_url}})
    upstream.handler = provider = PlannedProvider(planned(number, seed=11), seed=12)
    seen = await send_all([gateway], provider, at_once=40)
    check_planned_balance([gateway], storage_url, provider, seen)
    assert "Traceback" not in gateway.log_text()


@pytest.mark.chaos
async def test_s6_the_bills_of_two_gateways_on_one_database_are_what_the_provider_charged(
    start_gateway: GatewayFactory, upstream: MockUpstream, postgres: Postgres
) -> None:
    storage_url = postgres.new_database()
    config = {**SILENT, "storage": {"url": storage_url}, "model_list": configured_models(upstream)}
    gateways = [start_gateway(config), start_gateway(config)]
    upstream.handler = provider = Provider(mixed(1000, 2, EDGES))
    seen = await send_all(gateways, provider, at_once=100)
    check_balance(gateways, storage_url, provider, seen)


@pytest.mark.chaos
async def test_s6_the_bills_of_planned_requests_of_two_gateways_are_what_was_charged_for_all_models(
    start_gateway: GatewayFactory, upstream: MockUpstream, postgres: Postgres, valkey: Valkey
) -> None:
    """Late and broken planners and summarizers, clients that leave them, summaries of one cache."""
    storage_url = postgres.new_database()
    config = {
        **SILENT,
        "storage": {"url": storage_url},
        "cache": {"url": valkey.url, "timeout": 2.0},
        "model_list": planned_models(upstream),
        "context": {"planning": "auto", "planner_timeout": 5.0, "summarizer_timeout": 5.0},
    }
    gateways = [start_gateway(config) for _ in range(2)]
    upstream.handler = provider = PlannedProvider(planned(800, seed=5), seed=6)
    seen = await send_all(gateways, provider, at_once=60)
    check_planned_balance(gateways, storage_url, provider, seen)
