"""Gateways that the acceptance tests share, beside `gateway`, which comes once on each kind of storage."""

import pytest

from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream


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


@pytest.fixture(scope="module")
def module_own_key_gateway(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    """The module's gateway without any key of an operator's; tests take `own_key_gateway`."""
    return module_start_gateway({"model_list": [], "upstream": {"api_base": module_upstream.base_url}})


@pytest.fixture
def own_key_gateway(module_own_key_gateway: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """A gateway that only forwards the client's own key to its default upstream, on SQLite."""
    return module_own_key_gateway
