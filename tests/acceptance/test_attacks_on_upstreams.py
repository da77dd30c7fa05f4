"""Attacks by which a gateway is made to call another host, show its key there, or let another model answer (guarantee
§1, §2, §8, §12.1). `trap` listens where nothing may ever come.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, user
from tests.support.factory import shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply
from tests.support.sockets import RawClient, get, post

KEY, NARROW, OPERATORS = "gw-key-of-attackers", "gw-key-of-one-model", "sk-upstream"
CHAT: Json = {"model": "small", "messages": [user("hi")], "max_tokens": 9}
RESPONSE: Json = {"model": "small", "input": "hi"}
EMBEDDINGS: Json = {"model": "small", "input": "hi"}
BODIES = {"chat/completions": CHAT, "responses": RESPONSE, "messages": CHAT, "embeddings": EMBEDDINGS}


@pytest.fixture
def trap(elsewhere: MockUpstream) -> Iterator[MockUpstream]:
    """A host that nobody configured; a test fails if anything comes there."""
    yield elsewhere
    assert not elsewhere.requests
    assert not elsewhere.connections_open


def settings_of_baited(_: MockUpstream) -> dict[str, Any]:
    keys = [{"key": KEY, "tenant": "mallory"}, {"key": NARROW, "tenant": "mallory", "models": ["small"]}]
    return {"auth": {"keys": keys}}


untried = shared_gateway(settings_of_baited)


@pytest.fixture
def baited(untried: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    """A gateway that knows that its upstream does not speak Responses: it has asked once."""
    assert ask(untried, "responses", RESPONSE).status_code == 200
    upstream.clear()
    return untried


def ask(gateway: GatewayProcess, path: str, body: Json, key: str = KEY, **headers: str) -> httpx.Response:
    return gateway.post(f"/{path}", json=body, headers=headers, key=key)


def all_came_with_the_operators_key(upstream: MockUpstream) -> bool:
    return {record.headers.get("authorization") for record in upstream.requests} == {f"Bearer {OPERATORS}"}


def options(at: str) -> list[Json]:
    """Fields by which other gateways let a request choose address, key and provider."""
    return [
        {"api_base": at, "base_url": at, "api_key": "sk-evil", "api_version": "../../x", "organization": "evil"},
        {"custom_llm_provider": "ollama", "litellm_params": {"api_base": at}, "deployment_id": "x", "endpoint": at},
        {"user_config": {"model_list": [{"model_name": "small", "litellm_params": {"api_base": at}}]}},
        {"extra_headers": {"authorization": "Bearer evil", "host": "evil"}, "headers": {"host": "evil"}},
        {"extra_body": {"api_base": at}, "extra_query": {"api-version": "x"}, "proxy": at, "http_client": at},
        {"success_callback": ["langfuse"], "langfuse_host": at, "langfuse_secret_key": "x", "callbacks": [at]},
        {"litellm_metadata": {"user_api_key": "x"}, "litellm_session_id": "x", "webhook_url": at, "callback_url": at},
    ]


@pytest.mark.parametrize("path", BODIES)
def test_s8_no_field_of_a_body_names_address_or_key(
    baited: GatewayProcess, upstream: MockUpstream, trap: MockUpstream, path: str
) -> None:
    """SSRF by `api_base` and its kin, and callbacks that carry secrets: a request may hold such fields as any other;
    they change neither where it goes nor with which key. (Where litellm calls a provider they are a 400:
    `unit/upstream/test_litellm_arguments.py`.)"""
    for fields in options(trap.base_url):
        answer = ask(baited, path, {**BODIES[path], **fields})
        assert answer.status_code in (200, 400), answer.text
    assert upstream.requests
    assert all_came_with_the_operators_key(upstream)
    mocked = ask(baited, path, {**BODIES[path], "mock_response": "made up", "mock_testing_fallbacks": True})
    assert "made up" not in mocked.text


STEERING = {
    "x-portkey-custom-host": "{url}",
    "x-portkey-provider": "openai",
    "x-portkey-config": '{{"custom_host": "{url}"}}',
    "x-litellm-api-base": "{url}",
    "x-api-base": "{url}",
    "x-upstream-url": "{url}",
    "x-target-url": "{url}",
    "x-base-url": "{url}",
    "x-forwarded-host": "{host}",
    "x-forwarded-prefix": "/evil",
    "x-original-url": "/v1/files",
    "x-rewrite-url": "/v1/files",
    "x-http-method-override": "GET",
    "forwarded": "host={host}",
    "x_original_url": "/v1/files",
    "x_forwarded_user": "root",
    "x_http_method_override": "DELETE",
    "proxy_authorization": "Basic eDp5",
    "content_length": "3",
    "transfer_encoding": "chunked",
    "x_api_key": "sk-evil",
}


@pytest.mark.parametrize("path", BODIES)
def test_s8_no_header_names_address_or_key(
    baited: GatewayProcess, upstream: MockUpstream, trap: MockUpstream, path: str
) -> None:
    """SSRF by a header that names the host (CVE-2025-66405); headers with underscores, which some servers take for
    those with hyphens; headers by which a server takes a request for another than the one that was checked."""
    host = trap.url.removeprefix("http://")
    headers = {name: value.format(url=trap.base_url, host=host) for name, value in STEERING.items()}
    assert ask(baited, path, BODIES[path], **headers).status_code == 200
    assert ask(baited, path, BODIES[path], host=host).status_code == 200
    assert all_came_with_the_operators_key(upstream)
    kept = ("x-portkey", "x-litellm", "x-api-base", "x-upstream-url", "x-target-url", "x-base-url")
    for record in upstream.requests:
        assert record.path == f"/v1/{'chat/completions' if path in ('responses', 'messages') else path}"
        assert f"http://{record.headers['host']}" == upstream.url
        up = [name for name in record.headers if name.replace("_", "-") in {n.replace("_", "-") for n in STEERING}]
        assert not [name for name in up if name not in ("content-length",) and not name.startswith(kept)]


def urls(at: str) -> dict[str, list[Json]]:
    """Bodies that hold addresses, in every place that takes one."""
    picture = {"type": "image_url", "image_url": {"url": f"{at}/a.png"}}
    parts = [picture, {"type": "file", "file": {"file_data": f"{at}/a.pdf", "filename": f"{at}/a.pdf"}}]
    hosted = [{"type": "mcp", "server_label": "x", "server_url": at, "authorization": "x"}]
    found: dict[str, list[Json]] = {
        "chat/completions": [{**CHAT, "messages": [user([{"type": "text", "text": "see"}, part])]} for part in parts],
        "responses": [
            {"model": "small", "input": [user([{"type": "input_image", "image_url": f"{at}/a.png"}])]},
            {"model": "small", "input": [user([{"type": "input_file", "file_url": f"{at}/a.pdf"}])]},
            {**RESPONSE, "tools": hosted},
            {**RESPONSE, "background": True, "webhook": at},
        ],
        "messages": [
            {**CHAT, "messages": [user([{"type": "image", "source": {"type": "url", "url": f"{at}/a.png"}}])]},
            {**CHAT, "messages": [user([{"type": "document", "source": {"type": "url", "url": f"{at}/a.pdf"}}])]},
            {**CHAT, "mcp_servers": [{"type": "url", "name": "x", "url": at}]},
        ],
    }
    for source in (
        f"{at}/a.txt",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_FLUSHALL",
        "//evil/x",
        "../../etc/passwd",
    ):
        found["chat/completions"].append(
            {**CHAT, "attachments": [{"content": "text", "source": source, "title": source}]}
        )
        found["chat/completions"].append({**CHAT, "attachments": [{"attachment_id": source}]})
    return found


def test_s2_no_address_in_a_request_is_fetched(
    baited: GatewayProcess, upstream: MockUpstream, trap: MockUpstream
) -> None:
    """SSRF by pictures, documents, sources, tools and webhooks: no URL is fetched, no file of this machine is read, and
    an id of a file is no path."""
    for path, bodies in urls(trap.base_url).items():
        for body in bodies:
            answer = ask(baited, path, body)
            assert answer.status_code < 500, (body, answer.text)
            assert "root:" not in answer.text
    assert {record.path for record in upstream.requests} == {"/v1/chat/completions"}
    assert "root:" not in "".join(str(record.body) for record in upstream.requests)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_s8_a_redirect_by_an_upstream_is_not_followed(
    baited: GatewayProcess, upstream: MockUpstream, trap: MockUpstream, code: int
) -> None:
    """An upstream that was taken over sends prompts and key elsewhere: a redirect is no answer, and no client of ours
    is sent there with its key."""
    for path, at in (("chat/completions", "POST /v1/chat/completions"), ("embeddings", "POST /v1/embeddings")):
        upstream.routes[at] = Reply(status=code, body=b"moved", headers={"location": f"{trap.url}/{path}"})
        for body in (BODIES[path], {**BODIES[path], "stream": True}):
            answer = ask(baited, path, body)
            assert answer.status_code == 502 or 300 <= answer.status_code < 400
            assert path == "embeddings" or answer.status_code == 502


def test_s8_a_redirect_of_a_clients_file_or_models_is_not_followed(
    own_key_gateway: GatewayProcess, upstream: MockUpstream, trap: MockUpstream
) -> None:
    """The same of what is read beside a chat, with the client's own key; and no id leads to another path."""
    moved = Reply(status=302, body=b"", headers={"location": f"{trap.url}/v1/x"})
    upstream.routes.update({"GET /v1/files/file-1": moved, "GET /v1/models": moved})
    with own_key_gateway.http("sk-own") as client:
        for file_id in ("file-1", "../models", "file-1/../../x", "file-1?x=1", "file-1#", "@evil/x", f"{trap.url}/x"):
            part = {"type": "file", "file": {"file_id": file_id}}
            for body in ({**CHAT, "attachments": [{"attachment_id": file_id}]}, {**CHAT, "messages": [user([part])]}):
                client.post("/chat/completions", json=body)
        assert client.get("/models").status_code == 502
    paths = {record.path for record in upstream.requests}
    assert paths <= {"/v1/files/file-1", "/v1/models", "/v1/chat/completions"}


BESIDE: list[Json] = [
    {"models": ["gpt-4o"]},
    {"models": ["small", "openai/gpt-4o"], "route": "fallback"},
    {"fallbacks": ["gpt-4o"]},
    {"fallbacks": [{"small": ["gpt-4o"]}]},
    {"fallbacks": [{"model": "gpt-4o", "messages": []}]},
    {"context_window_fallbacks": [{"small": ["gpt-4o"]}]},
]


@pytest.mark.parametrize("path", BODIES)
def test_s12_1_no_field_lets_a_model_answer_that_the_key_does_not_name(
    baited: GatewayProcess, upstream: MockUpstream, path: str
) -> None:
    """A list of models bypassed by another field, which some upstreams go by (OpenRouter's `models`, LiteLLM's
    `fallbacks`); by the spelling of `model`, by a path in it."""
    for fields in BESIDE:
        refused = ask(baited, path, {**BODIES[path], **fields}, NARROW)
        assert refused.status_code in (400, 403), (fields, refused.text)
    for name in (
        "small/../gpt-4o",
        "small#gpt-4o",
        "small?model=gpt-4o",
        "gpt-4o\u200b",
        " small",
        "SMALL",
        "small,gpt-4o",
    ):
        assert ask(baited, path, {**BODIES[path], "model": name}, NARROW).status_code in (400, 403, 404), name
    odd_ones: list[Json] = [{"Model": "gpt-4o"}, {"model": ["gpt-4o"]}, {"model": {"id": "gpt-4o"}}]
    for odd in odd_ones:
        assert ask(baited, path, {**BODIES[path], **odd}, NARROW).status_code == 400, odd
    assert not upstream.requests
    assert ask(baited, path, {**BODIES[path], "models": ["small"]}, NARROW).status_code in (200, 400)


def test_s10_16_a_page_that_says_it_comes_by_a_proxy_is_a_page(one_gateway: GatewayProcess) -> None:
    """DNS rebinding: a page whose name leads here may set a proxy's headers on what it reads, and sends no `Origin`
    with that. It reads nothing all the same."""
    proxied = ("x-forwarded-for", "x-real-ip", "forwarded", "x-forwarded-host")
    for path in (
        "/conversations",
        "/chat/completions",
        "/models",
        "/memory?user=ann",
        "/organization/costs?start_time=1",
    ):
        for name in proxied:
            headers = {"host": "evil.example:8000", name: "127.0.0.1"}
            answer = one_gateway.get(path, headers=headers, key=None)
            assert answer.status_code == 403, (path, name)
            assert one_gateway.request("HEAD", path, headers=headers, key=None).status_code == 403


def test_s7_no_answer_leads_to_a_host_that_the_request_names(baited: GatewayProcess, upstream: MockUpstream) -> None:
    """A forged `Host` in a redirect, which a client follows with its key: none is made of it."""
    paths = [
        "/v1/models/",
        "/v1/chat/completions/",
        "/v1/conversations/",
        "/v1/responses/",
        "/v1/gateway/keys/",
        "/ui/",
    ]
    key = f"authorization: Bearer {KEY}"
    with RawClient(baited) as client:
        for path in [*paths, "//evil.example/v1/models", "/v1//evil.example", "/ui/login/?to=//evil.example"]:
            for data in (get(path, key), post(b"{}", key, path=path)):
                found = client.ask(data.replace(b"host: gateway", b"host: evil.example", 1))
                assert "evil" not in found.headers.get("location", ""), path
    assert all("evil" not in str(record.headers) for record in upstream.requests)


def test_s8_only_configured_hosts_are_called(
    baited: GatewayProcess, upstream: MockUpstream, trap: MockUpstream
) -> None:
    """Names with an address, a userinfo or a fragment in them (`@`, `#`, `\\`) and absolute request targets: there is
    no check whose answer could change by DNS before it is used, since only the configuration names hosts."""
    host = trap.url.removeprefix("http://")
    key = f"authorization: Bearer {KEY}"
    with RawClient(baited) as client:
        for target in (
            f"http://{host}/v1/embeddings",
            f"//{host}/v1/embeddings",
            f"/v1/@{host}/x",
            f"/v1/embeddings@{host}",
        ):
            client.ask(post(b'{"model": "small", "input": "x"}', key, path=target))
    names: list[Any] = [
        f"openai/small@{host}",
        f"small#@{host}",
        f"http://{host}/v1",
        f"small\\@{host}",
        "file:///etc/passwd",
    ]
    for path, body in BODIES.items():
        for name in names:
            assert ask(baited, path, {**body, "model": name}).status_code in (400, 404)
    assert all(f"http://{record.headers['host']}" == upstream.url for record in upstream.requests)
