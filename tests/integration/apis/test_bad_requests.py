"""Bad input is a 4xx that names the field; it is never a 5xx, nothing goes up and nothing is stored (guarantee §7)."""

import itertools
import json
from typing import Any

import pytest

from tests.chaos.audit import all_rows
from tests.support.answers import Json, ok, user
from tests.support.factory import GatewayFactory, shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import free_port

ASK = [user("hello")]
PDF = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,%%%"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}

APIS: dict[str, Json] = {
    "/chat/completions": {"messages": ASK},
    "/responses": {"input": ASK},
    "/messages": {"messages": ASK, "max_tokens": 100},
}
CHATS, MESSAGES = "/chat/completions", "/messages"
ORPHAN = {"type": "tool_result", "tool_use_id": "x", "content": "y"}
TABLE: list[tuple[str, Json, str]] = [
    (CHATS, {"model": None}, "model"),
    (CHATS, {"messages": [*ASK, None]}, "messages[1]"),
    (CHATS, {"messages": [user([{"type": "file", "file": PDF}])]}, "messages[0].content[0]"),
    (CHATS, {"messages": [*ASK, {"role": "tool", "content": "x", "tool_call_id": "c"}]}, "messages[1]"),
    (CHATS, {"messages": [*ASK, {"role": "assistant", "tool_calls": [CALL]}, *ASK]}, "messages[1]"),
    (CHATS, {"context": {"models": {"context_planner": "unknown"}}}, "context.models"),
    (CHATS, {"attachments": [{"content": "x", "attachment_id": "file-1"}]}, "attachments[0]"),
    (MESSAGES, {"model": 7}, "model"),
    (MESSAGES, {"max_tokens": 0}, "max_tokens"),
    (MESSAGES, {"messages": [user([ORPHAN])]}, "messages[0].content[0]"),
    (MESSAGES, {"messages": [user([{"type": "image"}])]}, "messages[0].content[0].source"),
    (MESSAGES, {"tools": [{}]}, "tools[0].name"),
    (MESSAGES, {"context": {"mode": "fast"}}, "context.mode"),
    (MESSAGES, {"attachments": [{}]}, "attachments[0]"),
]
"""`unit/api/test_wire.py` has each field and each header, `unit/core/formats/test_anthropic_reading.py` each of
Anthropic's."""


@pytest.mark.parametrize(("path", "change", "named"), TABLE, ids=[json.dumps(row[1])[:60] for row in TABLE])
def test_s7_bad_input_names_the_field(
    one_gateway: GatewayProcess, upstream: MockUpstream, path: str, change: Json, named: str
) -> None:
    """400 in the API's own shape with the field as its client knows it; nothing goes up, nothing is stored."""
    body = {"model": "small", **APIS[path], **change}
    answer = one_gateway.post(path, json={k: v for k, v in body.items() if v is not None})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert answer.json().get("type") == ("error" if path == MESSAGES else None)
    assert path == MESSAGES or set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert (error["param"] or "").startswith(named)
    assert named in error["message"]
    assert not upstream.chats
    assert one_gateway.get(f"/chat/completions/{answer.headers['x-request-id']}").status_code == 404


def test_s7_a_zero_byte_is_text_like_any_other(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """U+0000 is valid JSON; PostgreSQL cannot store it as text, but that is not the client's trouble."""
    text = "before\u0000after"
    answer = ok(gateway.post("/chat/completions", json={"model": "gpt-4o", "messages": [user(text)]}))
    body: Any = {"model": "gpt-4o", "conversation": answer["conversation"], "messages": ASK}
    assert gateway.post("/chat/completions", json=body).status_code == 200
    assert upstream.last.body["messages"][0] == user(text)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing/here", 404),
        ("GET", "/nothing", 404),
        ("DELETE", "/v1/models", 405),
        ("GET", "/v1/models/no-such-model", 404),
        ("GET", "/v1/chat/completions/chatcmpl-unknown", 404),
        ("GET", "/v1/chat/completions/req_unknown", 404),
        ("GET", "/v1/chat/completions?conversation=conv_unknown", 404),
    ],
)
def test_s7_unknown_paths_and_ids(one_gateway: GatewayProcess, method: str, path: str, status: int) -> None:
    """OpenAI's shape and a request id on every answer."""
    answer = one_gateway.request(method, one_gateway.url + path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/models", "GET, HEAD"),
        ("PUT", "/v1/conversations/conv_1/items", "DELETE, GET, HEAD, POST"),
        ("TRACE", "/v1/organization/costs", "GET, HEAD"),
        ("PROPFIND", "/v1/chat/completions", "GET, HEAD, POST"),
        ("TRACE", "/v1/nothing", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"),
        ("PUT", "/ui/conversations", "GET, HEAD"),
        ("GET", "/ui/logout", "POST"),
    ],
)
def test_s7_a_refused_method_is_told_the_others(
    one_gateway: GatewayProcess, method: str, path: str, allowed: str
) -> None:
    """RFC 9110, 15.5.6: `Allow` lists them."""
    answer = one_gateway.request(method, one_gateway.url + path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert path.startswith("/ui") or answer.json()["error"]["code"] == "method_not_allowed"


narrow = shared_gateway({"server": {"max_body_bytes": 2000}})


@pytest.mark.parametrize("chunked", [False, True])
def test_s7_a_body_too_large(narrow: GatewayProcess, upstream: MockUpstream, chunked: bool) -> None:
    """413, by the declared length or once it is too long; the next request on the port works."""
    raw = json.dumps({"model": "gpt-4o", "messages": [user("x" * 4000)]}).encode()
    answer = narrow.post("/chat/completions", content=iter([raw[:1500], raw[1500:]]) if chunked else raw)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"
    assert not upstream.chats
    assert narrow.post("/chat/completions", json={"model": "gpt-4o", "messages": ASK}).status_code == 200


KEYS: dict[str, Json] = {
    "free": {},
    "expired": {"expires_at": "2020-01-01T00:00:00Z"},
    "narrow": {"models": ["gpt-4o-mini"]},
    "poor": {"budgets": [{"usd": "0.000000000001"}]},
    "limited": {"limits": {"rpm": 5}},
}
REFUSALS: dict[str, tuple[int, str, Json]] = {
    "an unknown key": (401, "nobody", {}),
    "a key that has expired": (401, "expired", {}),
    "another model": (403, "narrow", {}),
    "an unknown model": (404, "free", {"model": "nobodys"}),
    "too large": (413, "free", {"metadata": {"a": "x" * 20_000}}),
    "a used up budget": (429, "poor", {}),
    "a limiter that is down": (503, "limited", {}),
    "a wrong field": (400, "free", {"conversation": 7}),
    "a wrong field of ours": (400, "free", {"context": {"mode": "fast"}}),
    "a prompt that cannot fit": (400, "free", {"context": {"max_input_tokens": 1}}),
    "an unknown conversation": (404, "free", {"conversation": "conv_unknown"}),
}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def module_refusing(module_start_gateway: GatewayFactory, request: pytest.FixtureRequest) -> GatewayProcess:
    storage = {} if request.param == "sqlite" else {"url": request.getfixturevalue("postgres").new_database()}
    keys = [{"key": f"gw-{name}-key", "tenant": name, **said} for name, said in KEYS.items()]
    return module_start_gateway(
        {
            "auth": {"keys": keys},
            "limits": {"when_down": "closed"},
            "cache": {"url": f"redis://127.0.0.1:{free_port()}/0"},
            "server": {"max_body_bytes": 10_000},
            "storage": storage,
        }
    )


def stored(gateway: GatewayProcess) -> dict[str, list[str]]:
    """All rows of all tables, but for the signs of life of the process, and the key that it makes once for its
    storage."""
    assert gateway.config is not None
    url = gateway.config["storage"]["url"]
    tables = all_rows(url).items()
    return {name: sorted(map(repr, found)) for name, found in tables if name not in ("processes", "secrets")}


@pytest.mark.parametrize("why", [*REFUSALS, "no JSON"])
def test_s6_10_a_refused_request_leaves_no_row(
    module_refusing: GatewayProcess, upstream: MockUpstream, why: str
) -> None:
    """In no table, in any API, whole or streamed: neither content nor a bill."""
    status, key, wrong = REFUSALS.get(why, (400, "free", {}))
    before = stored(module_refusing)
    with module_refusing.http(f"gw-{key}-key") as client:
        for path, stream in itertools.product(APIS, (False, True)):
            body = json.dumps({"model": "gpt-4o", **APIS[path], "stream": stream, **wrong})
            answer = client.post(path, content=body[:-1] if why == "no JSON" else body)
            assert answer.status_code == status, answer.text
    assert stored(module_refusing) == before
    assert not upstream.chats


def test_s6_10_an_answered_request_leaves_its_rows(module_refusing: GatewayProcess, upstream: MockUpstream) -> None:
    """Those of which a refused one leaves none."""
    before = stored(module_refusing)
    assert (
        module_refusing.post(
            "/chat/completions", json={"model": "gpt-4o", "messages": ASK}, key="gw-free-key"
        ).status_code
        == 200
    )
    after = stored(module_refusing)
    added = {name for name in after if len(after[name]) > len(before[name])}
    assert {"conversations", "messages", "ledger", "ledger_calls"} <= added
