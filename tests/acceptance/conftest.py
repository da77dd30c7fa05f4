"""Gateways that the acceptance tests share, beside `gateway`, which comes once on each kind of storage."""

from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI

from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres


@pytest.fixture(scope="module")
def module_one_gateway(module_start_gateway: GatewayFactory) -> GatewayProcess:
    """The module's gateway on SQLite; tests take `one_gateway`."""
    return module_start_gateway()


@pytest.fixture
def one_gateway(module_one_gateway: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """A gateway with the default configuration on SQLite alone, where the kind of storage cannot matter."""
    if not module_one_gateway.alive:
        module_one_gateway.start()
    return module_one_gateway


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def module_guarded(module_start_gateway: GatewayFactory, request: pytest.FixtureRequest) -> GatewayProcess:
    """The module's gateway with its `KEYS`, once on each kind of storage; tests take `guarded`."""
    storage = {} if request.param == "sqlite" else {"url": request.getfixturevalue("postgres").new_database()}
    return module_start_gateway({"auth": {"keys": request.module.KEYS}, "storage": storage})


@pytest.fixture
def guarded(module_guarded: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """A gateway with the keys that its module names."""
    return module_guarded


@pytest.fixture(scope="module")
def module_own_key_gateway(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    """The module's gateway without any key of an operator's; tests take `own_key_gateway`."""
    return module_start_gateway({"model_list": [], "upstream": {"api_base": module_upstream.base_url}})


@pytest.fixture
def own_key_gateway(module_own_key_gateway: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """A gateway that only forwards the client's own key to its default upstream, on SQLite."""
    return module_own_key_gateway


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
