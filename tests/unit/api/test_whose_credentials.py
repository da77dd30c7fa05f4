"""Whose page and whose key: what may spend an operator's key, and where a client's own may go (guarantee §10.16)."""

from typing import Any

import httpx
import pytest

from tests.support.answers import user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

CHAT: Any = {"model": "small", "messages": [user("hi")]}
OURS = "gw-key-of-ours-1"
FOREIGN = ["https://evil.example", "http://127.0.0.1.evil.example:8000", "null", "https://localhost.evil.example", "x"]
NEAR = ["http://localhost:3000", "http://127.0.0.1:5173", "http://[::1]:8080"]


def send(gateway: GatewayProcess, path: str = "chat/completions", body: Any = CHAT, **headers: str) -> httpx.Response:
    """A request with no key but those that are named."""
    return gateway.post(f"/{path}", json=body, headers=headers, key=None)


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages", "embeddings"])
def test_s10_16_a_foreign_page_cannot_spend_an_operators_key(
    one_gateway: GatewayProcess, upstream: MockUpstream, path: str
) -> None:
    """By its `Origin`, or by a name that was made to lead here; a page of this machine is none, nor a client."""
    body: Any = {**CHAT, "input": "x", "max_tokens": 10}
    if path == "responses":
        del body["messages"], body["max_tokens"]
    for origin in FOREIGN:
        answer = send(one_gateway, path, body, origin=origin)
        assert (answer.status_code, answer.json()["error"]["message"][:9]) == (403, "A page of"), origin
        assert "server.cors_origins" in answer.json()["error"]["message"]
    for host in ("evil.example", "evil.example:8000", "localhost.evil.example"):
        assert send(one_gateway, path, body, host=host).status_code == 403, host
    assert not upstream.requests
    for headers in ({"origin": NEAR[0]}, {"origin": NEAR[1]}, {"origin": NEAR[2]}, {"host": "localhost:8000"}, {}):
        assert send(one_gateway, path, body, **headers).status_code == 200, headers
    assert send(one_gateway, path, body, host="gateway.internal").status_code == 200
    assert send(one_gateway, path, body, host="a.example", **{"x-forwarded-for": "10.0.0.1"}).status_code == 200


def test_s10_16_where_keys_or_origins_are_configured_they_decide(start_gateway: GatewayFactory) -> None:
    named = start_gateway({"server": {"cors_origins": ["https://app.example"]}})
    assert send(named, origin="https://app.example").status_code == 200
    assert send(named, origin="https://evil.example").status_code == 403
    guarded = start_gateway({"auth": {"keys": [{"key": OURS, "tenant": "alice"}]}})
    page = {"origin": "https://evil.example", "authorization": f"Bearer {OURS}"}
    assert send(guarded, **page).status_code == 200
    assert send(guarded, origin="https://evil.example").status_code == 401


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages", "embeddings"])
def test_s10_16_x_api_key_is_a_key_of_ours_on_every_path(
    start_gateway: GatewayFactory, upstream: MockUpstream, path: str
) -> None:
    """Where keys are configured; it goes up with none of them."""
    gateway = start_gateway({"auth": {"keys": [{"key": OURS, "tenant": "alice"}]}})
    body: Any = {**CHAT, "input": "x", "max_tokens": 10}
    if path == "responses":
        del body["messages"], body["max_tokens"]
    named = {"x-api-key": OURS}
    assert send(gateway, path, body, **named).status_code == 200
    assert OURS not in str([record.headers for record in upstream.requests])
    assert send(gateway, path, body, **{"x-api-key": "gw-of-nobody"}).status_code == 401
    wrong = {**named, "authorization": "Bearer gw-of-nobody"}
    assert send(gateway, path, body, **wrong).status_code == 401, "the bearer token outranks it"


def test_s10_16_a_key_of_anthropics_does_not_go_to_openai(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """As a bearer token, on paths that are managed and on those that are relayed."""
    settings: Any = {"model_list": [], "upstream": {"api_base": upstream.base_url, "api_key": None}}
    gateway = start_gateway(settings)
    for key in ("sk-ant-api03-secret", "sk-ant-oat01-secret"):
        for path, body in (
            ("chat/completions", {**CHAT, "model": "gpt-4o"}),
            ("embeddings", {"model": "e", "input": "x"}),
        ):
            send(gateway, path, body, authorization=f"Bearer {key}")
            gateway.get("/files", key=key)
    assert upstream.requests
    assert "secret" not in str([record.headers for record in upstream.requests])
    send(gateway, "embeddings", {"model": "e", "input": "x"}, authorization="Bearer sk-mine")
    assert upstream.requests[-1].headers["authorization"] == "Bearer sk-mine"
