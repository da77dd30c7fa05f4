"""What of a request litellm is handed (guarantee §1, §8)."""

from typing import Any

import pytest

from gateway.core.config.settings import Settings
from gateway.core.errors import InvalidRequest
from gateway.core.types.chat import ModelDeployment, RequestCaller
from gateway.upstream.litellm.provider import arguments
from gateway.upstream.routing.catalogue import ModelCatalogue
from gateway.upstream.routing.router import ConfiguredRouter

BASE = {"messages": [], "model": "x"}
OWNED = {"guardrail_list", "ttl"}


def deployment(model: str = "anthropic/claude", client_key: str | None = None, **params: Any) -> ModelDeployment:
    entry = {"model_name": "m", "litellm_params": {"model": model, **params}}
    settings = Settings.model_validate({"model_list": [entry]})
    return ConfiguredRouter(settings, ModelCatalogue()).deployment("m", RequestCaller("t", client_key))


def test_fields_that_litellm_knows_and_others_go_up() -> None:
    body = {**BASE, "temperature": 0.1, "top_k": 3, "metadata": {"a": "b"}, "store": True}
    found = arguments(deployment(api_key="sk"), body, OWNED)
    assert found == {
        "messages": [],
        "temperature": 0.1,
        "top_k": 3,
        "api_key": "sk",
        "model": "anthropic/claude",
        "num_retries": 0,
        "max_retries": 0,
        "_skip_mcp_handler": True,
    }


def test_what_litellm_rewrites_are_copies() -> None:
    """§3: what was sent is stored as it was sent."""
    body: dict[str, Any] = {**BASE, "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}
    found = arguments(deployment(api_key="sk"), body, OWNED)
    assert found["messages"] == body["messages"]
    found["messages"][0]["content"].clear()
    assert body["messages"][0]["content"]


def test_an_entrys_defaults_give_way_and_its_credentials_do_not() -> None:
    at = deployment("bedrock/x", aws_region_name="eu", temperature=0.5, rpm=5, fallbacks=["y"], drop_params=True)
    assert at.parameters == {"temperature": 0.5}
    found = arguments(at, {**at.parameters, **BASE, "temperature": 1}, OWNED)
    assert (found["aws_region_name"], found["drop_params"], found["temperature"]) == ("eu", True, 1)
    assert not {"rpm", "fallbacks", "api_key"} & set(found)


@pytest.mark.parametrize(
    "field",
    [
        *("api_base", "api_key", "base_url", "aws_session_token", "vertex_credentials", "azure_ad_token", "model_id"),
        *("mock_response", "fallbacks", "custom_llm_provider", "extra_headers", "client", "guardrail_list", "ttl"),
        *("_skip_mcp_handler", "litellm_logging_obj", "input_cost_per_token", "num_retries", "deployment_id"),
    ],
)
def test_what_is_the_operators_is_refused_from_a_client(field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        arguments(deployment(api_key="sk"), {**BASE, field: "x"}, OWNED)
    assert caught.value.param == field


@pytest.mark.parametrize(
    ("tool", "field"),
    [
        ({"type": "function"}, "tools[1].function"),
        ({"type": "function", "function": {}}, "tools[1].function.name"),
        ({"type": "function", "function": {"name": None}}, "tools[1].function.name"),
        ({"type": "function", "function": {"name": "g", "parameters": "x"}}, "tools[1].function.parameters"),
        ({"type": "function", "function": {"name": "g", "parameters": True}}, "tools[1].function.parameters"),
        ({"type": "custom", "name": "g"}, "tools[1].custom"),
        ({"function": {"name": "g"}}, "tools[1].type"),
    ],
)
def test_s7_1_a_tool_that_is_none_is_refused_by_its_place(tool: dict[str, Any], field: str) -> None:
    """litellm's own error was a key in quotation marks."""
    tools = [{"type": "function", "function": {"name": "f"}}, tool]
    with pytest.raises(InvalidRequest) as caught:
        arguments(deployment(api_key="sk"), {**BASE, "tools": tools}, OWNED)
    assert caught.value.param == field
    assert arguments(deployment(api_key="sk"), {**BASE, "tools": tools[:1]}, OWNED)["tools"] == tools[:1]


def test_gemini_takes_further_fields_in_its_body() -> None:
    found = arguments(deployment("gemini/pro", api_key="sk"), {**BASE, "labels": {}, "cachedContent": "c"}, OWNED)
    assert found["extra_body"] == {"labels": {}, "cachedContent": "c"}


def test_no_key_is_taken_from_elsewhere() -> None:
    """§8: litellm looks into the environment where it is given none."""
    assert arguments(deployment(client_key="sk-c"), BASE, OWNED)["api_key"] == "sk-c"
    assert arguments(deployment("ollama/llama", api_base="http://x"), BASE, OWNED)["api_key"] == "no-key"
