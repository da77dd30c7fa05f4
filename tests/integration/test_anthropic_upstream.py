"""Anthropic's Messages over the gateway's own connections, on its wire format (guarantee §10.9)."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.clock import SystemClock
from gateway.core.config.settings import Settings
from gateway.core.errors import (
    UpstreamAuth,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamOverflow,
    UpstreamRefused,
)
from gateway.core.formats.stream_record import StreamRecord
from gateway.core.types.chat import JsonAnswer, ModelDeployment, NativeRequest, RequestCaller
from gateway.core.types.upstreams import UpstreamRequest
from gateway.upstream.http.answers import HttpUpstream
from gateway.upstream.http.anthropic_adapter import AnthropicUpstream
from gateway.upstream.http_client import ConnectionPool
from gateway.upstream.routing.catalogue import ModelCatalogue
from gateway.upstream.routing.protocols import KnownProtocols
from gateway.upstream.routing.router import ConfiguredRouter
from tests.support import anthropic_wire as wire
from tests.support.answers import assistant, function_tool, image_part, system, tool_call, user
from tests.support.mock_provider import MockProvider

Json = dict[str, Any]
ASK: Json = user("What is the weather in Bern?")
TOOLS = [function_tool("weather", parameters={"type": "object", "properties": {}})]
SEARCHED = wire.message(
    wire.text("I look it up."),
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Bern"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result"}]},
    {**wire.text("It rains."), "citations": [{"type": "web_search_result_location", "url": "https://e.org"}]},
)


@pytest.fixture
async def claude() -> AsyncIterator[AnthropicUpstream]:
    pool = ConnectionPool(5)
    yield AnthropicUpstream(HttpUpstream(pool), SystemClock())
    await pool.aclose()


def deployment(provider: MockProvider, key: str | None = "sk-operators-own", **more: Any) -> ModelDeployment:
    """What routing makes of a model of Anthropic's for a request of Messages."""
    params = {"model": "anthropic/claude-sonnet-4-5", "api_base": provider.url, **({"api_key": key} if key else {})}
    settings = Settings.model_validate({"model_list": [{"model_name": "m", "litellm_params": {**params, **more}}]})
    found = ConfiguredRouter(settings, ModelCatalogue()).deployment("m", RequestCaller("t", "sk-clients-own"))
    spoken, fallback = KnownProtocols(SystemClock()).of(found, NativeRequest("anthropic"))
    assert fallback is None
    return spoken


async def ask(claude: AnthropicUpstream, at: ModelDeployment, stream: bool, **fields: Any) -> tuple[Json, Json]:
    """An answer's choice and usage, whole or put together from a stream."""
    body = {"model": at.provider_model, "messages": [ASK], "max_tokens": 100, **fields}
    if not stream:
        answer: JsonAnswer = await claude.complete(at, UpstreamRequest(body))
        return answer.body["choices"][0], answer.body["usage"]
    record = StreamRecord(1)
    async with claude.stream(at, UpstreamRequest({**body, "stream": True})) as opened:
        async for batch in opened.batches():
            for chunk in batch:
                record.add(chunk)
        assert opened.done
    (choice,) = record.completion()["choices"]
    return choice, record.usage or {}


@pytest.mark.parametrize("stream", [False, True])
async def test_s10_9_an_answer(provider: MockProvider, claude: AnthropicUpstream, stream: bool) -> None:
    """§10.9: thoughts with their signatures, text, calls and usage come back in the inner form."""
    provider.reply(wire.CALLS)
    choice, usage = await ask(claude, deployment(provider), stream, tools=TOOLS)
    message = choice["message"]
    assert message["content"] == "Let me look."
    assert message["thinking_blocks"] == [wire.THOUGHT]
    assert message["reasoning_content"] == wire.THOUGHT["thinking"]
    assert [
        (c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message["tool_calls"]
    ] == [("toolu_1", "weather", {"city": "Bern", "days": 2}), ("toolu_2", "clock", {})]
    assert "native_blocks" not in message
    assert choice["finish_reason"] == "tool_calls"
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (22, 42, 64)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 7, "cache_creation_tokens": 5}
    assert usage["cache_creation"]["ephemeral_1h_input_tokens"] == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_s10_9_blocks_of_its_own(provider: MockProvider, claude: AnthropicUpstream, stream: bool) -> None:
    """§10.9: what a chat has no place for is kept as it came, in its order, and goes up again the same."""
    provider.reply(SEARCHED)
    at = deployment(provider)
    choice, _ = await ask(claude, at, stream)
    message = choice["message"]
    assert message["content"] == "I look it up.It rains."
    if not stream:  # the shared events of tests do not cut citations
        assert message["native_blocks"] == SEARCHED["content"]
    await ask(claude, at, False, messages=[ASK, message, user("And Basel?")])
    assert provider.last.body["messages"][1]["content"] == message["native_blocks"]


async def test_s10_9_a_request(provider: MockProvider, claude: AnthropicUpstream) -> None:
    """§10.9: a chat of the inner form goes up in Anthropic's words, with its key and version; what the client said in
    those words goes up untouched."""
    at = deployment(provider, extra_headers={"Anthropic-Beta": "fine-grained-2025"})
    messages = [
        system([{**wire.text("Be brief."), "cache_control": {"type": "ephemeral"}}]),
        ASK,
        assistant("Let me look.", thinking_blocks=[wire.THOUGHT], tool_calls=[tool_call("c.1", "weather", '{"a": 1}')]),
        {"role": "tool", "tool_call_id": "c.1", "content": "Rain", "is_error": True},
        user([image_part("data:image/png;base64,AAAA")]),
    ]
    own = {
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": []},
        "anthropic_beta": ["context-2025", "fine-grained-2025"],
    }
    fields = {"stop": "END", "tool_choice": "required", "parallel_tool_calls": False, "n": 1, "user": "u1"}
    headers = {"openai-organization": "org-1", "traceparent": "00-1"}
    body = {"model": at.provider_model, "messages": messages, "max_tokens": 100, "tools": TOOLS, **fields}
    await claude.complete(at, UpstreamRequest(body, own, headers))
    record = provider.last
    assert record.path == "/v1/messages"
    assert record.headers["x-api-key"] == "sk-operators-own"
    assert "authorization" not in record.headers
    assert record.headers["anthropic-version"] == "2023-06-01"
    assert record.headers["anthropic-beta"] == "fine-grained-2025,context-2025"
    assert record.headers["traceparent"] == "00-1"
    assert "openai-organization" not in record.headers
    assert record.body == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "system": messages[0]["content"],
        "messages": [
            user([wire.text(ASK["content"])]),
            assistant([wire.THOUGHT, wire.text("Let me look."), wire.tool_use("c_1", "weather", a=1)]),
            user(
                [
                    {"type": "tool_result", "tool_use_id": "c_1", "content": "Rain", "is_error": True},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                ]
            ),
        ],
        "stop_sequences": ["END"],
        "tools": [{"name": "weather", "input_schema": {"type": "object", "properties": {}}}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "metadata": {"user_id": "u1"},
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": []},
    }


FAULTS: list[tuple[int, Json, type[UpstreamError]]] = [
    (529, wire.error("overloaded_error", "Overloaded"), UpstreamRefused),
    (429, wire.error("rate_limit_error", "Too many tokens per minute"), UpstreamRefused),
    (400, wire.error("invalid_request_error", "max_tokens: Field required"), UpstreamRefused),
    (400, wire.error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), UpstreamOverflow),
    (401, wire.error("authentication_error", "invalid x-api-key"), UpstreamAuth),
    (200, {"type": "message", "content": "none"}, UpstreamInvalidResponse),
    (200, wire.error("api_error", "Internal server error"), UpstreamRefused),
]


@pytest.mark.parametrize(("status", "body", "kind"), FAULTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_s10_9_faults(
    provider: MockProvider, claude: AnthropicUpstream, status: int, body: Json, kind: type[UpstreamError], stream: bool
) -> None:
    """§10.9: an error keeps its status, its wait and its words; an overflow its figures."""
    provider.fail(status, body, retry_after="7", anthropic_ratelimit_requests_remaining="0")
    with pytest.raises(kind) as raised:
        await ask(claude, deployment(provider), stream)
    error = raised.value
    assert type(error) is kind
    if isinstance(error, UpstreamRefused):
        assert error.original == body
        assert error.status == (500 if status == 200 else status)
        assert error.headers["retry-after"] == "7"
        assert error.headers["anthropic-ratelimit-requests-remaining"] == "0"
    if isinstance(error, UpstreamOverflow):
        assert (error.reported, error.limit) == (210000, 200000)


async def test_s10_9_a_clients_own_key(provider: MockProvider, claude: AnthropicUpstream) -> None:
    """§10.9: the refusal of a client's own key is the client's to read."""
    said = wire.error("authentication_error", "invalid x-api-key")
    provider.fail(401, said)
    with pytest.raises(UpstreamRefused) as raised:
        await ask(claude, deployment(provider, None), False)
    assert (raised.value.status, raised.value.original) == (401, said)
    assert provider.last.headers["x-api-key"] == "sk-clients-own"


START = wire.event({"type": "message_start", "message": {**wire.message(), "content": []}})
BEGIN = wire.event({"type": "content_block_start", "index": 0, "content_block": wire.text("")})
SAID = wire.event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Rain"}})
PING = wire.event({"type": "ping"})
STRANGE = wire.event({"type": "content_block_pondered", "index": 0})


@pytest.mark.parametrize("code", [("overloaded_error", 529), ("rate_limit_error", 429), ("strange_error", 502)])
async def test_s10_9_an_error_in_a_stream(
    provider: MockProvider, claude: AnthropicUpstream, code: tuple[str, int]
) -> None:
    """§10.9: an error after the stream has begun is the provider's own, with the status of its type."""
    said = wire.error(code[0], "No more")
    provider.script(START, BEGIN, SAID, STRANGE, wire.event(said))
    with pytest.raises(UpstreamRefused) as raised:
        await ask(claude, deployment(provider), True)
    assert (raised.value.status, raised.value.original) == (code[1], said)


async def test_s10_9_pings_break_the_silence(provider: MockProvider, claude: AnthropicUpstream) -> None:
    """§10.9: a model that thinks for long is not given up as long as its provider pings."""
    events = [START, *[PING] * 8, BEGIN, SAID, *wire.events(wire.message())[-2:]]
    provider.script(*events, piece_delay=0.15)
    choice, _ = await ask(claude, replace(deployment(provider), idle_timeout=1.0, first_byte_timeout=5.0), True)
    assert choice["message"]["content"] == "Rain"


def test_s10_9_without_litellm() -> None:
    """§10.9: nothing of litellm is imported for it."""
    code = "import sys, gateway.upstream.http.anthropic_adapter; assert 'litellm' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
