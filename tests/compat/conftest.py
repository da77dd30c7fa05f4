"""A gateway with keys of its own before the scripted model, one for each module of clients."""

from collections.abc import Iterator

import pytest

from tests.compat.running import KEY
from tests.compat.scripted import script
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream


@pytest.fixture(scope="module")
def scripted_upstream(module_upstream: MockUpstream) -> Iterator[MockUpstream]:
    """The scripted model. No client may bring the gateway to send it what is invalid."""
    script(module_upstream)
    yield module_upstream
    found = list(module_upstream.violations)
    module_upstream.clear()
    assert not found, "the upstream was sent invalid requests"


@pytest.fixture(scope="module")
def compat_gateway(scripted_upstream: MockUpstream, module_start_gateway: GatewayFactory) -> GatewayProcess:
    """A gateway that knows `KEY` alone, and leaves models that it does not list to its upstream: clients ask for those
    of embeddings, speech and pictures."""
    keys = [{"key": KEY, "tenant": "compat"}]
    return module_start_gateway({"auth": {"keys": keys}, "upstream": {"api_key": "sk-upstream", "unlisted": "relay"}})
