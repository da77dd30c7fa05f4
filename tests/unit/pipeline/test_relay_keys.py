"""What is relayed with an operator's key, and whose key goes where (guarantee §1, §8)."""

from typing import Any

import pytest

from tests.support.answers import Json
from tests.support.factory import GatewayFactory, shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply

KEY, OWN = "gateway-key-1", "sk-operator"
PAID = [
    "embeddings",
    "moderations",
    "audio/speech",
    "audio/transcriptions",
    "images/generations",
    "images/edits",
    "completions",
]
PRIVATE = [
    "GET files",
    "POST files",
    "GET files/file-1",
    "GET files/file-1/content",
    "DELETE files/file-1",
    "GET batches",
    "POST batches",
    "GET responses",
    "POST responses/resp_1",
    "POST responses/resp_1/x",
    "GET embeddings",
    "PUT embeddings",
    "POST retrieval/embeddings/",
    "POST embeddings/x",
    "POST audio",
    "POST audio/",
    "POST %65mbeddings",
    "POST audio%2Fspeech",
    "POST audio/../files",
    "POST audio/%2e%2e/files",
    "POST completions/../files",
    "POST completions;/files",
    "POST EMBEDDINGS",
    "POST vector_stores",
    "GET fine_tuning/jobs",
    "DELETE models/gpt-4o",
    "GET rerank",
    "GET threads/t/messages/m",
    "POST threads/t",
]


def settings_of_operator(upstream: MockUpstream) -> dict[str, Any]:
    params = {"model": "openai/real-name", "api_base": f"{upstream.url}/other/v1", "api_key": "sk-entry"}
    keyless = {"model": "openai/local", "api_base": f"{upstream.url}/local/v1"}
    return {
        "model_list": [
            {"model_name": "embedder", "litellm_params": {**params, "dimensions": 8}},
            {"model_name": "m", "litellm_params": {"model": "openai/m"}},
            {"model_name": "claude", "litellm_params": {"model": "anthropic/claude-sonnet-4-5", "api_key": "k"}},
            {"model_name": "local-embedder", "litellm_params": keyless},
        ],
        "upstream": {"api_base": upstream.base_url, "api_key": OWN},
        "auth": {"keys": [{"key": KEY, "tenant": "acme"}]},
        "files": {"serve": "off"},
        "server": {"relay": ["POST /v1/rerank", "threads/*/messages", "GET things/*"]},
    }


operator = shared_gateway(settings_of_operator)
"""An operator's key for the default upstream, one embedding model elsewhere, and the gateway's own keys."""


relaying = shared_gateway(
    lambda upstream: {
        "upstream": {"api_base": upstream.base_url, "api_key": OWN, "unlisted": "relay"},
        "auth": {"keys": [{"key": KEY, "tenant": "acme"}]},
    }
)
"""As before, and models that are not listed go to the default upstream."""


@pytest.mark.parametrize("path", PAID)
def test_s1_what_an_operators_key_pays_for(operator: GatewayProcess, upstream: MockUpstream, path: str) -> None:
    """POST embeddings, moderations, audio, images, completions: with the operator's key."""
    upstream.routes[f"POST /v1/{path}"] = Reply(json={"ok": True})
    headers = {"x-api-key": KEY, "x-copy": f"key={KEY}", "cookie": "a=b", "openai-project": "p"}
    assert operator.post(f"/{path}", json={"model": "m"}, headers=headers, key=KEY).json() == {"ok": True}
    unnamed = operator.post(f"/{path}", json={"input": "a"}, key=KEY)
    assert (unnamed.status_code, unnamed.json()["error"]["param"]) == (400, "model"), "the upstream would choose one"
    sent = upstream.requests[-1]
    assert len(upstream.requests) == 1
    assert sent.headers["authorization"] == f"Bearer {OWN}"
    assert sent.headers["openai-project"] == "p"
    assert KEY not in str(sent.headers)
    assert "cookie" not in sent.headers


@pytest.mark.parametrize("call", PRIVATE)
def test_s1_what_is_nobodys_to_read(operator: GatewayProcess, upstream: MockUpstream, call: str) -> None:
    """Files, batches, stored responses and all else of the operator's account: 404 `not_relayed`, nothing goes up."""
    method, path = call.split(" ")
    with operator.http(KEY) as plain:
        # A transport of its own: httpx takes `..` out of a path, a hostile client does not.
        request = plain.build_request(method, "/x", content=b"{}")
        request.url = request.url.copy_with(raw_path=f"/v1/{path}".encode())
        answer = plain.send(request)
    assert answer.status_code == 404
    assert answer.json()["error"] == {
        "message": answer.json()["error"]["message"],
        "type": "invalid_request_error",
        "param": None,
        "code": "not_relayed",
    }
    assert not upstream.requests


def test_s1_server_relay_names_more(operator: GatewayProcess, upstream: MockUpstream) -> None:
    """`server.relay`: with a method or for all; a star in the middle is one segment, at the end one or more."""
    for call in ["POST rerank", "GET threads/t/messages", "POST threads/u/messages", "GET things/a", "GET things/a/b"]:
        method, path = call.split(" ")
        upstream.routes[f"{method} /v1/{path}"] = Reply(json={"path": path})
        assert operator.request(method, f"/{path}", key=KEY).json() == {"path": path}
        assert upstream.requests[-1].headers["authorization"] == f"Bearer {OWN}"


def test_s1_a_listed_model_is_served_where_its_entry_says(operator: GatewayProcess, upstream: MockUpstream) -> None:
    """A JSON body's `model` out of `model_list`: its address, key, name and parameters; all else as it came."""
    upstream.routes["POST /other/v1/embeddings"] = Reply(json={"data": []})
    body: Json = {"input": ["a"], "model": "embedder", "x_big": 123456789012345678901234567890, "x": 1.0}
    assert operator.post("/embeddings", json=body, key=KEY).json() == {"data": []}
    sent = upstream.requests[-1]
    assert sent.body == {**body, "model": "real-name", "dimensions": 8}
    assert sent.headers["authorization"] == "Bearer sk-entry"
    upstream.routes["POST /local/v1/embeddings"] = Reply(json={"data": [1]})
    assert operator.post("/embeddings", json={**body, "model": "local-embedder"}, key=KEY).json() == {"data": [1]}
    assert "authorization" not in upstream.requests[-1].headers
    assert KEY not in str(upstream.requests[-1].headers)


def test_s1_a_listed_model_of_another_protocol(operator: GatewayProcess, upstream: MockUpstream) -> None:
    """Its provider has no such path, and the default upstream is not asked in its stead."""
    answer = operator.post("/embeddings", json={"model": "claude", "input": "hi"}, key=KEY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_relayed")
    assert not upstream.requests


@pytest.mark.parametrize("raw", [b'{"model": "m",  "input": 1.0}', b'{"model": 1}', b"[1]", b"no JSON", b"{" * 5000])
def test_s1_another_models_body_is_untouched(relaying: GatewayProcess, upstream: MockUpstream, raw: bytes) -> None:
    """`upstream.unlisted: relay`: byte for byte; what is no JSON is for the upstream to refuse."""
    upstream.routes["POST /v1/embeddings"] = Reply(text="", json={})
    relaying.post("/embeddings", content=raw, headers={"content-type": "application/json"}, key=KEY)
    assert upstream.requests[-1].raw == raw
    assert upstream.requests[-1].headers["content-length"] == str(len(raw))


@pytest.mark.parametrize("status", [401, 403])
def test_s7_a_refused_operators_key(operator: GatewayProcess, upstream: MockUpstream, status: int) -> None:
    """502 `upstream_auth`, without the body: it may name the key."""
    upstream.routes["POST /v1/embeddings"] = Reply(status=status, body=f'{{"error": "{OWN} is wrong"}}'.encode())
    answer = operator.post("/embeddings", json={"model": "m"}, key=KEY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_auth")
    assert OWN not in answer.text


def test_s7_no_error_names_the_operators_key(operator: GatewayProcess, upstream: MockUpstream) -> None:
    """An upstream that quotes the key in another error."""
    upstream.routes["POST /v1/embeddings"] = Reply(status=400, json={"error": {"message": f"bad: {OWN}", "code": "c"}})
    answer = operator.post("/embeddings", json={"model": "m"}, key=KEY)
    assert (answer.status_code, answer.json()["error"]) == (400, {"message": "bad: ***", "code": "c"})


def test_s8_with_keys_and_no_key_for_the_upstream(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """The client's key goes nowhere and the default upstream has none: nothing is relayed but to listed models."""
    gateway = start_gateway({"auth": {"keys": [{"key": KEY, "tenant": "acme"}]}})
    upstream.routes["POST /v1/moderations"] = Reply(json={"results": []})
    for path, code in (("/embeddings", "model_not_found"), ("/batches", "not_relayed")):
        answer = gateway.post(path, json={"model": "unlisted"}, key=KEY)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, code)
    assert not upstream.requests
    assert gateway.post("/moderations", json={"model": "gpt-4o"}, key=KEY).json() == {"results": []}
    assert upstream.requests[-1].headers["authorization"] == "Bearer sk-upstream"


def test_s8_the_operators_key_outranks_the_clients(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """As in chats: with `OPENAI_API_KEY` and no `auth.keys` the client's own token is not sent."""
    gateway = start_gateway({"model_list": []}, {"OPENAI_API_KEY": OWN})
    upstream.routes["POST /v1/embeddings"] = Reply(json={})
    gateway.post("/embeddings", json={"model": "m"}, key="sk-client")
    assert upstream.requests[-1].headers["authorization"] == f"Bearer {OWN}"
    assert gateway.get("/files", key="sk-client").json()["error"]["code"] == "not_relayed"


def test_s8_an_operators_model_beside_the_clients_own_upstream(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """Listed models with the operator's key, all else with the client's: each call has one of the two."""
    for call in ("POST moderations", "POST batches", "POST files", "GET files"):
        upstream.routes[call.replace(" ", " /v1/")] = Reply(json={})
    credentials = {"x-api-key": "sk-client", "api-key": "other"}
    one_gateway.post("/moderations", json={"model": "gpt-4o"}, headers=credentials, key="sk-client")
    assert upstream.requests[-1].headers["authorization"] == "Bearer sk-upstream"
    assert not set(credentials) & set(upstream.requests[-1].headers)
    for method, path, body in (
        ("POST", "/batches", {"endpoint": "/v1/embeddings"}),
        ("POST", "/files", {"model": "gpt-4o"}),
        ("GET", "/files", None),
    ):
        assert one_gateway.request(method, path, json=body, headers=credentials, key="sk-client").json() == {}
        sent = upstream.requests[-1]
        assert sent.headers["authorization"] == "Bearer sk-client"
        assert not set(credentials) & set(sent.headers)
        assert sent.body == body
    unlisted = one_gateway.post("/moderations", json={"model": "unlisted"}, key="sk-client")
    assert unlisted.json()["error"]["code"] == "model_not_found"


def test_s1_another_way_to_say_who_asks(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A client that names its key in a header of another provider's: it was not meant for the default upstream, and
    no other is made of it."""
    upstream.routes["POST /v1/messages/batches"] = Reply(json={"type": "message"})
    assert own_key_gateway.post("/messages/batches", json={}, headers={"x-api-key": "sk-ant"}, key=None).json() == {
        "type": "message"
    }
    assert "sk-ant" not in str(upstream.requests[-1].headers)
    assert "authorization" not in upstream.requests[-1].headers
