"""The official SDK, sync and async, with nothing changed but the base URL (guarantee §1)."""

from typing import Any

import httpx
import pytest
from openai import NotFoundError
from pydantic import BaseModel

from tests.support.answers import Json, bill_of, conversation_of, ok, user
from tests.support.factory import ClientFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

ASK: Any = [user("hello there")]
UNKNOWN: Json = {
    "temperature": 0.7,
    "seed": 9007199254740993,
    "logit_bias": {"50256": -100},
    "reasoning_effort": "low",
    "safety_identifier": "user-1",
    "prompt_cache_key": "k",
    "x_new": {"nested": [1, 1.5, True, None, "ü"]},
    "tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}],
    "tool_choice": "auto",
    "response_format": {"type": "json_object"},
}


def test_s1_a_chat(gateway: GatewayProcess, make_client: ClientFactory) -> None:
    """The plainest use: the model's answer under the gateway's id, with its conversation and bill."""
    answer = make_client(gateway).chat.completions.create(model="gpt-4o", messages=ASK)
    assert answer.choices[0].message.content == "echo: hello there"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.object == "chat.completion"
    assert answer.model == "gpt-4o"
    assert answer.id.startswith("chatcmpl-")
    assert "mock" not in answer.id
    assert conversation_of(answer).startswith("conv_")
    assert bill_of(answer)["context_utilization"]["strategy"] == "passthrough"


class City(BaseModel):
    name: str
    people: int


def test_s1_structured_output(one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory) -> None:
    """`.parse()` with a pydantic model; its json_schema goes up as the SDK made it."""
    upstream.reply(text='{"name": "Bern", "people": 134000}')
    answer = make_client(one_gateway).chat.completions.parse(model="gpt-4o", messages=ASK, response_format=City)
    assert answer.choices[0].message.parsed == City(name="Bern", people=134000)
    form = upstream.last.body["response_format"]
    assert (form["type"], form["json_schema"]["name"], form["json_schema"]["strict"]) == ("json_schema", "City", True)
    assert form["json_schema"]["schema"]["required"] == ["name", "people"]


def test_s9_models(one_gateway: GatewayProcess, own_key_gateway: GatewayProcess, make_client: ClientFactory) -> None:
    """The configured models; without any, the default upstream's own list."""
    client = make_client(one_gateway)
    assert [model.id for model in client.models.list()] == ["gpt-4o", "gpt-4o-mini", "small", "bench"]
    assert client.models.retrieve("small").object == "model"
    with pytest.raises(NotFoundError) as caught:
        client.models.retrieve("large")
    assert caught.value.code == "model_not_found"
    assert [model.id for model in make_client(own_key_gateway).models.list()] == ["gpt-4o", "gpt-4o-mini", "small"]


def test_s1_connections_are_kept(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Twenty requests in a row take one connection to upstream."""
    with one_gateway.http() as client:
        for _ in range(20):
            assert client.post("/chat/completions", json={"model": "gpt-4o", "messages": ASK}).status_code == 200
    assert upstream.connections_opened <= 1


def test_s1_a_large_answer(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Megabytes come through, streamed or not."""
    text = "0123456789abcde " * 65536
    upstream.reply(text=text)
    answer: httpx.Response = one_gateway.post("/chat/completions", json={"model": "gpt-4o", "messages": ASK})
    assert answer.json()["choices"][0]["message"]["content"] == text


def test_s1_a_slash_at_the_end_of_the_path_is_not_sent_elsewhere(gateway: GatewayProcess) -> None:
    """§1: clients join base URL and path in more than one way; a redirect would lose the body and the scheme."""
    answer = ok(gateway.post("/chat/completions/", json={"model": "gpt-4o", "messages": ASK}, key=None))
    assert answer["response_metadata"]["cost"]["priced"] is True
