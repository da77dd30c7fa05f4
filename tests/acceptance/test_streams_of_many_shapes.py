"""Streams as providers really send them: cut anywhere, with comments, named events, extras (guarantee §1, §6)."""

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.support.answers import Json, bill_of, read_stream, user
from tests.support.factory import ClientFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

ASK: Any = [user("hi")]
CHAT = {"model": "small", "messages": ASK}
TEXT = "größer 🌊 – 海は広い"
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
COST = 9 * Decimal("1e-06") + 4 * Decimal("2e-06")
HEAD = {"id": "up-1", "object": "chat.completion.chunk", "created": 1, "model": "small"}


def chunk(delta: Json, finish: str | None = None, **more: Any) -> Json:
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


WHOLE = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "größer 🌊"}),
    chunk({"content": " – 海は広い"}),
    chunk({}, "stop"),
    {**HEAD, "choices": [], "usage": USAGE},
]


def sse(chunks: list[Json], end: str = "\n", done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(c, ensure_ascii=False)}{end}{end}" for c in chunks]
    return "".join([*lines, f"data: [DONE]{end}{end}" if done else ""]).encode()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_s1_events_split_anywhere(one_gateway: GatewayProcess, upstream: MockUpstream, size: int) -> None:
    """Writes that end inside an event, a field name or a character change nothing."""
    upstream.reply(text=TEXT, usage=USAGE, split_bytes=size)
    wire = read_stream(one_gateway, CHAT)
    assert wire.text == TEXT
    assert wire.finish["response_metadata"]["cost"]["total_cost"] == COST


ODD = {
    "CRLF": sse(WHOLE, "\r\n"),
    "CR": sse(WHOLE, "\r"),
    "no space after the colon": sse(WHOLE).replace(b"data: ", b"data:"),
    "comments and keep-alives": b": OPENROUTER PROCESSING\n\n" + sse(WHOLE).replace(b"\n\n", b"\n\n: ping\n\n\n"),
    "named events, ids, retry": sse(WHOLE).replace(b"data: ", b"event: completion\nid: 7\nretry: 10\ndata: "),
    "several data lines an event": sse(WHOLE).replace(b', "choices"', b',\ndata: "choices"'),
    "a byte order mark": b"\xef\xbb\xbf" + sse(WHOLE),
    "no [DONE]": sse(WHOLE, done=False),
    "no blank line at the end": sse(WHOLE).removesuffix(b"\n\n"),
    "something after [DONE]": sse(WHOLE) + b": bye\n\n",
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("size", [None, 1])
def test_s1_any_valid_event_stream(
    one_gateway: GatewayProcess, upstream: MockUpstream, name: str, size: int | None
) -> None:
    """What the standard for event streams allows is read; what goes out is always plain `data:`."""
    upstream.reply(raw_sse=ODD[name], split_bytes=size)
    wire = read_stream(one_gateway, CHAT)
    assert wire.chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert wire.text == TEXT
    assert wire.finish["response_metadata"]["usage"] == USAGE


def test_s1_unknown_fields_of_chunks_come_back(
    one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """`reasoning_content`, `logprobs`, `service_tier`, `system_fingerprint` and unknown fields come back untouched."""
    logprobs = {"content": [{"token": "a", "logprob": -0.25, "bytes": [97], "top_logprobs": []}], "refusal": None}
    upstream.reply(
        message={"role": "assistant", "reasoning_content": "let me think", "content": "so it is", "annotations": [1]},
        extra={"service_tier": "default", "provider": "Mock", "x_groq": {"id": "1"}},
    )
    chunks = list(make_client(one_gateway).chat.completions.create(model="small", messages=ASK, stream=True))
    assert (
        "".join((c.choices[0].delta.model_extra or {}).get("reasoning_content", "") for c in chunks) == "let me think"
    )
    assert [(c.choices[0].delta.model_extra or {}).get("annotations") for c in chunks].count([1]) == 1
    for each in chunks:
        assert each.service_tier == "default"
        assert each.system_fingerprint == "fp_mock"
        assert (each.model_extra or {})["provider"] == "Mock"
        assert (each.model_extra or {})["x_groq"] == {"id": "1"}
    upstream.reply(choices=[{"message": {"content": "a"}, "logprobs": logprobs, "content_filter_results": {"hate": 0}}])
    wire = read_stream(one_gateway, {**CHAT, "logprobs": True})
    assert [c["choices"][0].get("logprobs") for c in wire.chunks].count(
        {**logprobs, "content": [{"token": "a", "logprob": Decimal("-0.25"), "bytes": [97], "top_logprobs": []}]}
    ) == 1
    assert any(c["choices"][0].get("content_filter_results") == {"hate": 0} for c in wire.chunks)


def test_s6_extras_without_choices_ride_on_the_next_chunk(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """An unasked `choices: []` chunk is never sent: its extras ride on the next one (Azure's filters, citations)."""
    filters = {**HEAD, "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    citations = {**HEAD, "choices": [], "citations": ["https://example.org"]}
    late = {**HEAD, "choices": [], "usage": USAGE, "sources": ["late"]}
    upstream.reply(chunks=[filters, *WHOLE[:2], citations, *WHOLE[2:4], late])
    wire = read_stream(one_gateway, CHAT)
    assert wire.text == TEXT
    assert wire.chunks[0]["prompt_filter_results"] == [{"prompt_index": 0}]
    with_citations = [c for c in wire.chunks if "citations" in c]
    assert [c["choices"][0]["delta"] for c in with_citations] == [{"content": " – 海は広い"}]
    assert wire.finish["sources"] == ["late"]
    assert wire.finish["response_metadata"]["usage"] == USAGE


def test_s6_chunks_without_the_choices_key(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Never a chunk without `choices`, even if upstream sends one."""
    upstream.reply(chunks=[{**HEAD, "warmup": True}, *WHOLE])
    wire = read_stream(one_gateway, CHAT)
    assert wire.text == TEXT
    assert wire.chunks[0]["warmup"] is True


@pytest.mark.parametrize("asked", [True, False])
def test_s6_usage_on_every_chunk(one_gateway: GatewayProcess, upstream: MockUpstream, asked: bool) -> None:
    """Providers that send running usage with each chunk: the last counts, the client gets one usage chunk or none."""
    running = [
        {**each, "usage": {"prompt_tokens": 9, "completion_tokens": n, "total_tokens": 9 + n}}
        for n, each in enumerate(WHOLE[:4], 1)
    ]
    upstream.reply(chunks=running)
    wire = read_stream(one_gateway, {**CHAT, **({"stream_options": {"include_usage": True}} if asked else {})})
    assert wire.finish["response_metadata"]["usage"] == USAGE
    assert wire.finish["response_metadata"]["cost"]["total_cost"] == COST
    assert [bool(c.get("usage")) for c in wire.chunks] == [False] * 4 + [True] * asked


def test_s6_finish_and_usage_in_one_chunk(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Some providers report usage on the finish chunk itself."""
    upstream.reply(chunks=[*WHOLE[:3], {**WHOLE[3], "usage": USAGE}])
    wire = read_stream(one_gateway, CHAT)
    assert wire.finish["response_metadata"]["cost"]["total_cost"] == COST
    assert not wire.finish.get("usage")


def test_s6_a_chunk_after_the_finish_chunk(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """What upstream sends after its finish chunk still comes through, and there is one bill."""
    after = {**HEAD, "choices": [{"index": 0, "delta": {"annotations": ["late"]}, "finish_reason": None}]}
    upstream.reply(chunks=[*WHOLE[:4], after, WHOLE[4]])
    wire = read_stream(one_gateway, CHAT)
    assert any(c["choices"][0]["delta"].get("annotations") == ["late"] for c in wire.chunks)
    assert wire.finish["response_metadata"]["cost"]["total_cost"] == COST
    assert sum("cost" in c.get("response_metadata", {}) for c in wire.chunks) == 1


def test_s1_upstreams_headers_come_with_a_stream(
    one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """`x-ratelimit-*` and `openai-*` come back; `x-request-id` is the gateway's own."""
    upstream.reply(
        text="x", headers={"x-ratelimit-remaining-tokens": "42", "openai-version": "2020-10-01", "x-own": "1"}
    )
    raw = make_client(one_gateway).chat.completions.with_raw_response.create(model="small", messages=ASK, stream=True)
    assert raw.headers["x-ratelimit-remaining-tokens"] == "42"
    assert raw.headers["openai-version"] == "2020-10-01"
    assert raw.headers["x-request-id"].startswith("req_")
    assert "mock" not in raw.headers["x-request-id"]
    chunks = list(raw.parse())
    assert bill_of(chunks[-1])["request_id"] == raw.headers["x-request-id"]
