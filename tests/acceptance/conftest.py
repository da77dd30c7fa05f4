"""Replicas that the acceptance tests share."""

from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI

from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres


@pytest.fixture(scope="module")
def replicas_database(postgres: Postgres) -> str:
    """The database that the module's replicas share."""
    return postgres.new_database()


@pytest.fixture(scope="module")
def module_replicas(replicas_database: str, module_start_gateway: GatewayFactory) -> list[GatewayProcess]:
    """The module's two gateways on one PostgreSQL; tests take `replicas`."""
    return [module_start_gateway({"storage": {"url": replicas_database}}) for _ in range(2)]


@pytest.fixture
def replicas(module_replicas: list[GatewayProcess], upstream: MockUpstream) -> list[GatewayProcess]:
    """Two on one database."""
    return module_replicas


@pytest.fixture
async def replica_clients(replicas: list[GatewayProcess]) -> AsyncIterator[list[AsyncOpenAI]]:
    """An SDK's client of each."""
    made = [AsyncOpenAI(base_url=each.base_url, api_key="sk-test", max_retries=0, timeout=30) for each in replicas]
    yield made
    for client in made:
        await client.close()
