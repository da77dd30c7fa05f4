"""What a client sends is what the model's provider gets, in every mode, plain and streamed (guarantee §1)."""

from typing import Any

import pytest

from tests.support.answers import Json, user
from tests.support.exact_json import MODES, ODD, as_written, keys_in_order
from tests.support.factory import shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

BODY = (
    b'{"model": "gpt-4o", "x_top": %(odd)b, "temperature": 1, "top_p": 1.0, "seed": -9223372036854775808, '
    b'"messages": [{"role": "user", "content": "hi", "x_message": %(odd)b}, '
    b'{"role": "assistant", "content": "", "x_call": %(odd)b, "tool_calls": [{"id": "c", "type": "function", '
    b'"index": 0, "x": %(odd)b, "function": {"name": "f", "arguments": "{\\"a\\":  1.0}", "x": %(odd)b}}]}, '
    b'{"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "", "x_part": %(odd)b}]}], '
    b'"tools": [{"type": "function", "function": {"name": "f", "description": "", "parameters": %(odd)b}}], '
    b'"stream": %(stream)b}'
)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stream", [b"false", b"true"])
def test_s1_every_value_goes_up_as_written(
    one_gateway: GatewayProcess, upstream: MockUpstream, mode: str, stream: bytes
) -> None:
    """Unknown fields at the top, in messages, parts, calls and tools: numbers, key order, empty values, characters."""
    raw = BODY % {b"odd": ODD, b"stream": stream}
    answer = one_gateway.post("/chat/completions", content=raw, headers={"x-context-mode": mode})
    assert answer.status_code == 200, answer.text
    sent, meant = as_written(upstream.last.raw), as_written(raw)
    if stream == b"true":
        assert sent.pop("stream_options") == {"include_usage": True}
    assert sent == meant
    for name in ("messages", "x_top", "tools"):
        assert keys_in_order(sent[name]) == keys_in_order(meant[name])


def test_s1_every_value_is_put_back_as_written(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """What stood in a system message, a question and an answer stands in front of the next one, on each storage."""
    first = b'{"model": "gpt-4o", "messages": [{"role": "system", "content": "s", "x": %b}, {"role": "user", ' % ODD
    first += b'"content": "hi", "x": %b}]}' % ODD
    said = b'{"role": "assistant", "content": "so", "x": %b}' % ODD
    upstream.reply(body=b'{"id": "u", "object": "chat.completion", "choices": [{"index": 0, "message": %b}]}' % said)
    answer = gateway.post("/chat/completions", content=first).json()
    more = {"model": "gpt-4o", "messages": [user("more")], "conversation": answer["conversation"]}
    gateway.post("/chat/completions", json=more)
    meant = [*as_written(first)["messages"], as_written(said), user("more")]
    assert as_written(upstream.last.raw)["messages"] == meant


TOOL: Json = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
FORMAT: Json = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"type": "object"}}}
BODIES: dict[str, Json] = {
    "a structured answer": {"response_format": FORMAT},
    "tools": {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
    "parallel tools": {"tools": [TOOL], "parallel_tool_calls": False},
    "functions of old": {"functions": [{"name": "f", "parameters": {}}], "function_call": {"name": "f"}},
    "functions of old, by rule": {"functions": [{"name": "f"}], "function_call": "auto"},
    "several choices": {"n": 2, "seed": 1},
    "logprobs": {"logprobs": True, "top_logprobs": 20, "logit_bias": {"1": -100}},
    "audio out": {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}},
    "a prediction": {"prediction": {"type": "content", "content": "x"}},
    "search": {"web_search_options": {"user_location": None}},
    "limits": {"max_tokens": 5, "stop": ["\n", ""], "frequency_penalty": 0, "presence_penalty": -2.0},
    "newer limits": {"max_completion_tokens": 5, "reasoning_effort": "minimal", "verbosity": "low"},
    "who asks": {"user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "prompt_cache_retention": "24h"},
    "tiers": {"service_tier": "flex"},
    "nulls": {
        "stop": None,
        "tools": None,
        "temperature": None,
        "n": None,
        "stream_options": None,
        "user": None,
        "stream": None,
    },
    "other providers' own": {"thinking": {"type": "enabled"}, "top_k": 5, "provider": {"order": ["a"]}, "extra": [{}]},
    "metadata of another kind": {"metadata": {"nested": {"x": 1}}},
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("mode", MODES)
def test_s1_every_parameter_goes_up(one_gateway: GatewayProcess, upstream: MockUpstream, mode: str, name: str) -> None:
    """Known or not, nothing is checked, changed or added that the gateway has no business with."""
    body = {"model": "gpt-4o", "messages": [user("hi")], **BODIES[name]}
    answer = one_gateway.post("/chat/completions", json={**body, "context": {"mode": mode}})
    assert answer.status_code == 200, answer.text
    assert upstream.last.body == body


@pytest.mark.parametrize("options", [{"include_obfuscation": False}, {"include_usage": False, "x": 1.5}, {}, None])
@pytest.mark.parametrize("mode", MODES)
def test_s6_options_of_a_stream_go_up(
    one_gateway: GatewayProcess, upstream: MockUpstream, mode: str, options: Json | None
) -> None:
    """The client's own, with usage asked for in any case; a chunk with it goes to who asked alone."""
    body = {"model": "gpt-4o", "messages": [user("hi")], "stream": True, "stream_options": options}
    answer = one_gateway.post("/chat/completions", json={**body, "context": {"mode": mode}})
    assert upstream.last.body == {**body, "stream_options": {**(options or {}), "include_usage": True}}
    assert '"choices":[]' not in answer.text


PARTS: dict[str, list[Any]] = {
    "an image's address": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}],
    "an image": [{"type": "text", "text": ""}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}],
    "sound": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}],
    "video of another provider": [{"type": "video_url", "video_url": {"url": "https://example.org/v.mp4"}}],
    "a cached text": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
    "an unknown part": [{"type": "x_new", "x": {"y": [1.0, None]}}, {"type": "text", "text": "and text"}],
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("mode", MODES)
def test_s1_every_part_goes_up(one_gateway: GatewayProcess, upstream: MockUpstream, mode: str, name: str) -> None:
    """Images, sound and parts that nobody here knows; no URL in them is fetched (the mock has none of these paths)."""
    upstream.strict = False
    messages = [{"role": "system", "content": PARTS[name][:1]}, user(PARTS[name])]
    body = {"model": "gpt-4o", "messages": messages, "context": {"mode": mode}}
    assert one_gateway.post("/chat/completions", json=body).status_code == 200
    assert upstream.last.body["messages"] == messages
    assert len(upstream.requests) == 1


NOT_UP = {"cookie": "a=b", "x-context-planning": "never", "x-private": "mine"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("streamed", [False, True])
def test_s1_headers_go_up(one_gateway: GatewayProcess, upstream: MockUpstream, mode: str, streamed: bool) -> None:
    """`OpenAI-Organization`, `-Project` and `-Beta`; none of the gateway's own, no cookie, no `Host` of the gateway."""
    sent = {"openai-organization": "org-1", "openai-project": "p", "openai-beta": "a=v2", "x-context-mode": mode}
    body = {"model": "gpt-4o", "messages": [user("hi")], "stream": streamed}
    one_gateway.post("/chat/completions", json=body, headers={**sent, **NOT_UP})
    found = upstream.last.headers
    assert [found.get(name) for name in sent] == ["org-1", "p", "a=v2", None]
    assert not set(NOT_UP) & set(found)
    assert found["host"] == upstream.url.removeprefix("http://")
    assert found["authorization"] == "Bearer sk-upstream"


relaying_gateway = shared_gateway({"upstream": {"unlisted": "relay"}})
"""A gateway whose default upstream is asked for models that are not listed."""


@pytest.mark.parametrize("mode", MODES)
def test_s1_a_model_that_is_not_listed(relaying_gateway: GatewayProcess, upstream: MockUpstream, mode: str) -> None:
    """Relayed, it goes to the default upstream under its own name, with the client's key; its cost is unknown, not
    0."""
    body = {"model": "vendor/new-model:free", "messages": [user("hi")], "context": {"mode": mode}}
    answer = relaying_gateway.post("/chat/completions", json=body, key="sk-client").json()
    assert upstream.last.body == {"model": "vendor/new-model:free", "messages": [user("hi")]}
    assert upstream.last.headers["authorization"] == "Bearer sk-client"
    assert answer["response_metadata"]["cost"]["priced"] is False
    assert answer["response_metadata"]["cost"]["total_cost"] is None
