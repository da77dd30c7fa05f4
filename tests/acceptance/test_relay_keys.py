"""What is relayed with an operator's key, and whose key goes where (guarantee §1, §8)."""

from typing import Any

import pytest

from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import ProcessError

KEY, OWN = "gateway-key-1", "sk-operator"


@pytest.fixture(scope="module")
def module_operator_gateway(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    """An operator's key for the default upstream, one embedding model elsewhere, and the gateway's own keys."""
    params = {"model": "openai/real-name", "api_base": f"{module_upstream.url}/other/v1", "api_key": "sk-entry"}
    keyless = {"model": "openai/local", "api_base": f"{module_upstream.url}/local/v1"}
    return module_start_gateway(
        {
            "model_list": [
                {"model_name": "embedder", "litellm_params": {**params, "dimensions": 8}},
                {"model_name": "m", "litellm_params": {"model": "openai/m"}},
                {"model_name": "claude", "litellm_params": {"model": "anthropic/claude-sonnet-4-5", "api_key": "k"}},
                {"model_name": "local-embedder", "litellm_params": keyless},
            ],
            "upstream": {"api_base": module_upstream.base_url, "api_key": OWN},
            "auth": {"keys": [{"key": KEY, "tenant": "acme"}]},
            "files": {"serve": "off"},
            "server": {"relay": ["POST /v1/rerank", "threads/*/messages", "GET things/*"]},
        }
    )


@pytest.fixture
def operator(module_operator_gateway: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    return module_operator_gateway


@pytest.mark.parametrize("wrong", ["FETCH /v1/files", "../files", "/v1/files/..", "POST https://x/v1", "a//b", "", 7])
def test_s9_a_relay_line_that_is_none(start_gateway: GatewayFactory, wrong: Any) -> None:
    """What could not be meant is an error at start that names file and path."""
    gateway = start_gateway({"server": {"relay": ["POST batches", wrong]}}, start=False)
    with pytest.raises(ProcessError):
        gateway.start()
    assert "server.relay[1]" in gateway.log_text()
