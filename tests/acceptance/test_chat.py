"""The official SDK, sync and async, with nothing changed but the base URL (guarantee §1)."""

from typing import Any

import httpx
import pytest
from openai import NotFoundError

from tests.support.answers import user
from tests.support.factory import ClientFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

ASK: Any = [user("hello there")]


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
