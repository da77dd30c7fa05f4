"""JSON that no honest client sends to `/v1/messages`: each field of each odd kind, and documents of odd shapes (§7)."""

import json
from itertools import product
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, assistant, text_part, user
from tests.support.faults.refusals import changed, places
from tests.support.gateway_process import GatewayProcess
from tests.support.hostile import ODD, REFUSED, nothing_is_left
from tests.support.marks import few_or_many
from tests.support.messages import HEADERS, TOOL
from tests.support.mock_upstream import MockUpstream

TEXT = text_part("hello")
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
PAPER = {"type": "document", "title": "t", "source": {"type": "text", "media_type": "text/plain", "data": "a"}}
FOUND = {"type": "search_result", "source": "s", "title": "t", "content": [TEXT]}
MARK = {"cache_control": {"type": "ephemeral"}}
FULL: Json = {
    "model": "gpt-4o",
    "max_tokens": 100,
    "system": [{**TEXT, **MARK}],
    "messages": [
        user([TEXT, PICTURE, PAPER, FOUND]),
        assistant(
            [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {**TEXT, **MARK},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Bern"}},
            ]
        ),
        user(
            [
                {"type": "tool_result", "tool_use_id": "t1", "content": [TEXT, PICTURE], "is_error": True},
                {**TEXT, **MARK},
            ]
        ),
    ],
    "stream": False,
    "temperature": 1,
    "top_p": 1,
    "top_k": 3,
    "stop_sequences": ["x"],
    "tools": [{**TOOL, **MARK, "strict": True}],
    "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
    "metadata": {"user_id": "u"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}, "effort": "low"},
    "context_management": {
        "edits": [
            {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 3000}},
            {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}},
        ]
    },
    "service_tier": "auto",
    "mcp_servers": [],
    "container": "c",
    "store": True,
    "conversation": {"id": "conv_x"},
    "attachments": [{"content": "text", "title": "t"}],
    "context": {"mode": "auto", "max_input_tokens": 1000, "session": "s"},
    "unknown": {"a": [1]},
}
PLAIN: Json = {"model": "gpt-4o", "max_tokens": 100, "messages": [user("hello")]}


def base(name: str) -> Json:
    """A valid request with that field, and as little else as hides nothing behind another error."""
    tools = {"tools": FULL["tools"]} if name in ("tool_choice", "messages") else {}
    return {**PLAIN, **tools, name: FULL[name]}


def asked(client: httpx.Client, raw: bytes, path: str = "/messages") -> httpx.Response:
    """The answer, which is never a fault of the gateway's, and in Anthropic's shape."""
    answer = client.post(path, content=raw, headers={**HEADERS, "content-type": "application/json"})
    assert answer.status_code == 200 or 400 <= answer.status_code < 500, (answer.status_code, answer.text[:500])
    if answer.status_code != 200:
        told = answer.json()
        assert (told["type"], told["request_id"]) == ("error", answer.headers["x-request-id"])
        assert isinstance(told["error"]["type"], str)
        assert isinstance(told["error"]["message"], str)
    return answer


def refuse_odd_values(gateway: GatewayProcess, upstream: MockUpstream, name: str, step: int) -> None:
    """Each is answered, or a 4xx by the gateway that names the field, with nothing sent or left behind."""
    upstream.strict = False
    with gateway.http() as client:
        for number, (path, odd) in list(enumerate(product(places(FULL[name], (name,)), ODD)))[::step]:
            before = len(upstream.requests)
            body = {"stream": number % 3 == 0, **changed(base(name), path, odd)}
            answer = asked(client, json.dumps(body).encode())
            if answer.status_code == 200 or len(upstream.requests) > before:
                continue
            param = answer.json()["error"].get("param") or ""
            assert param.startswith(name), (path, odd, answer.json())
            assert nothing_is_left(client, answer), (path, odd)
    upstream.violations.clear()


@few_or_many(len(ODD) + 1, 1)
@pytest.mark.parametrize("name", FULL)
def test_s7_odd_values_in_every_field(
    one_gateway: GatewayProcess, upstream: MockUpstream, name: str, number: int
) -> None:
    """Every so manieth pair, so that each place and each value has its turn; of few places every fourth."""
    many = len(list(places(FULL[name]))) > 2
    refuse_odd_values(one_gateway, upstream, name, number if many else min(number, 4))


def test_s7_documents_that_are_no_request(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A 4xx; nothing is sent or left behind, and `count_tokens` refuses the same."""
    with one_gateway.http() as client:
        for name, raw in REFUSED.items():
            body = raw.replace(b'{"model":"gpt-4o",', b'{"model":"gpt-4o","max_tokens":9,')
            answer = asked(client, body)
            assert answer.status_code == 400, name
            assert answer.json()["error"]["type"] == "invalid_request_error"
            assert nothing_is_left(client, answer)
            counted = asked(client, body, "/messages/count_tokens")
            assert counted.status_code == 400, name
    assert not upstream.chats


USER = {"role": "user"}
ORPHAN = {"type": "tool_result", "tool_use_id": "x", "content": "y"}
TABLE: list[tuple[Json, str]] = [
    ({"model": 7}, "model"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"messages": [{**USER, "content": [ORPHAN]}]}, "messages[0].content[0]"),
    ({"messages": [{**USER, "content": [{"type": "image"}]}]}, "messages[0].content[0].source"),
    ({"tools": [{}]}, "tools[0].name"),
    ({"context": {"mode": "fast"}}, "context.mode"),
    ({"attachments": [{}]}, "attachments[0]"),
]
"""`unit/core/formats/test_anthropic_reading.py` and `unit/api/test_wire.py` have each field."""


def test_s7_bad_input_names_the_field(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """400 in Anthropic's shape with the field as the client knows it; nothing goes up, nothing is stored."""
    with one_gateway.http() as client:
        for change, named in TABLE:
            body: dict[str, Any] = {k: v for k, v in {**PLAIN, **change}.items() if v is not None}
            answer = asked(client, json.dumps(body).encode())
            assert answer.status_code == 400, (change, answer.text)
            error = answer.json()["error"]
            assert error["type"] == "invalid_request_error"
            assert (error.get("param") or "").startswith(named), (change, error)
            assert named in error["message"], (change, error)
            assert nothing_is_left(client, answer)
    assert not upstream.chats
