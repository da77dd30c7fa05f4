"""Streams: what comes through, where the bill stands, and what no client may ever meet (guarantee §6)."""

import json
from decimal import Decimal
from typing import Any

import anthropic
import openai
import pytest
from openai import OpenAI

from tests.support.answers import bill_of, conversation_of, extra, read_stream, stored, user
from tests.support.edges import EDGES, PATHS, Edge, said_by
from tests.support.factory import ClientFactory, shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

ASK: Any = [user("Tell me of the sea")]
TEXT = "The sea is wide – größer als alles 🌊, and  keeps its  white space.\n\n"
CHAT = {"model": "small", "messages": ASK}
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
COST = 11 * Decimal("1e-06") + 7 * Decimal("2e-06")


def test_s6_a_stream_carries_the_answer_and_its_bill(upstream: MockUpstream, client: OpenAI) -> None:
    """The first chunk says what is known, the finish chunk all: ids, conversation, bill."""
    upstream.reply(text=TEXT, usage=USAGE)
    with client.chat.completions.with_streaming_response.create(model="small", messages=ASK, stream=True) as raw:
        chunks = list(raw.parse())
        header = raw.headers["x-conversation-id"]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].id.startswith("chatcmpl-")
    assert "mock" not in chunks[0].id, "the id is the gateway's, not upstream's"
    first, last = chunks[0], chunks[-1]
    assert last.choices[0].finish_reason == "stop"
    assert conversation_of(first) == conversation_of(last) == header
    assert all("response_metadata" not in (chunk.model_extra or {}) for chunk in chunks[1:-1])
    known, bill = bill_of(first), bill_of(last)
    assert known["request_id"] == bill["request_id"] == raw.headers["x-request-id"]
    assert "cost" not in known
    assert known["context_utilization"]["budget_tokens"] == bill["context_utilization"]["budget_tokens"] == 4096 - 512
    assert bill["usage"] == USAGE
    assert Decimal(str(bill["cost"]["total_cost"])) == COST
    assert bill["cost"]["estimated"] is False
    assert bill["upstream_id"].startswith("chatcmpl-mock")


def test_s3_6_the_turn_is_committed_before_done(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A turn counts as answered with [DONE]; by then turn and bill are committed."""
    upstream.reply(text=TEXT, usage=USAGE)
    wire = read_stream(gateway, CHAT)
    found = stored(gateway, wire.chunks[0]["id"])
    assert found["choices"][0]["message"]["content"] == TEXT
    assert found["response_metadata"] == wire.finish["response_metadata"]
    assert found["conversation"] == wire.finish["conversation"]


def test_s6_the_usage_chunk_that_was_asked_for(
    one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """`choices: []` with usage, `usage.cost`, `usage.cost_details` and `response_metadata`, last of all."""
    upstream.reply(text=TEXT, usage={**USAGE, "prompt_tokens_details": {"cached_tokens": 0}})
    client = make_client(one_gateway)
    chunks = list(
        client.chat.completions.create(model="small", messages=ASK, stream=True, stream_options={"include_usage": True})
    )
    *others, last = chunks
    assert last.choices == []
    assert all(chunk.choices and chunk.usage is None for chunk in others)
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens, last.usage.total_tokens) == (11, 7, 18)
    assert last.usage.prompt_tokens_details is not None
    assert Decimal(str(extra(last.usage, "cost"))) == COST
    details = {name: Decimal(str(part)) for name, part in extra(last.usage, "cost_details").items()}
    assert details == {"upstream_inference_cost": COST, "planner_cost": 0, "summarizer_cost": 0}
    assert bill_of(last) == bill_of(others[-1])
    assert last.id == others[0].id


def test_s6_upstream_without_stream_options(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """If upstream refuses to report usage, the gateway tries again without, and counts itself."""
    upstream.refuse_stream_options = True
    upstream.reply(text="alpha beta gamma")
    wire = read_stream(one_gateway, CHAT)
    assert wire.text == "alpha beta gamma"
    assert ["stream_options" in chat.body for chat in upstream.chats] == [True, False]
    assert upstream.chats[0].body["messages"] == upstream.chats[1].body["messages"]
    assert wire.finish["response_metadata"]["cost"]["estimated"] is True
    assert wire.finish["response_metadata"]["usage"]["completion_tokens"] == 3


def test_s6_the_finish_chunk_alone_waits_for_usage(
    one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """Text flows while upstream is still writing; only the finish chunk is held until usage is known."""
    upstream.reply(text="one two three", stall_after=5)  # role, three words, finish; then usage waits
    chunks = iter(make_client(one_gateway).chat.completions.create(model="small", messages=ASK, stream=True))
    seen = [next(chunks) for _ in range(4)]
    assert "".join(c.choices[0].delta.content or "" for c in seen) == "one two three"
    upstream.release()
    (last,) = list(chunks)
    assert last.choices[0].finish_reason == "stop"
    assert bill_of(last)["cost"]["estimated"] is False


SILENCE = 0.3
"""Seconds of `server.keepalive` here."""
SAID = {"model": "small", "messages": [{"role": "user", "content": "Tell me of the sea"}], "max_tokens": 50}
SIGN = {
    "chat": b": keepalive\n\n",
    "responses": b": keepalive\n\n",
    "messages": b'event: ping\ndata: {"type":"ping"}\n\n',
}
OWN_END = {"chat": b"data: [DONE]", "responses": b"event: response.completed", "messages": b"event: message_stop"}


alive = shared_gateway({"server": {"keepalive": SILENCE}, "routing": {"retries": 1, "backoff": 0.01}})
"""A gateway that gives signs of life soon."""


def streamed(gateway: GatewayProcess, edge: Edge, **more: Any) -> tuple[int, bytes]:
    """Status and all bytes."""
    answer = gateway.post(f"/{PATHS[edge]}", json={**said_by(edge, SAID), "stream": True, **more})
    return answer.status_code, answer.content


@pytest.mark.parametrize("edge", EDGES)
def test_s1_8_signs_of_life_while_nothing_comes(alive: GatewayProcess, upstream: MockUpstream, edge: Edge) -> None:
    """Before the answer, and between its chunks: headers and a sign, and then the answer as ever."""
    upstream.reply(text="wide", delay_first=4 * SILENCE, chunk_delay=3 * SILENCE)
    status, raw = streamed(alive, edge)
    assert (status, raw.count(SIGN[edge]) >= 5, OWN_END[edge] in raw) == (200, True, True), raw
    assert raw.startswith(SIGN[edge])
    assert raw.rstrip().rpartition(b"\n\n")[2].startswith(OWN_END[edge]), "nothing behind the end"


@pytest.mark.parametrize("edge", EDGES)
def test_s1_8_what_fails_behind_a_sign_is_an_event(alive: GatewayProcess, upstream: MockUpstream, edge: Edge) -> None:
    """Its status was said: the error stands in the stream, in the API's own form, and there is no end of an answer."""
    upstream.reply(status=400, delay_first=3 * SILENCE)
    status, raw = streamed(alive, edge)
    assert (status, OWN_END[edge] in raw) == (200, False)
    events = [json.loads(each) for line in raw.split(b"\n") if (each := line.removeprefix(b"data: ")) is not line]
    assert "scripted 400" in str(events[-1]), raw
    shape = {"chat": "error", "responses": "message", "messages": "error"}[edge]
    assert shape in events[-1]
    upstream.reply(status=400)
    assert streamed(alive, edge)[0] == 400, "without a sign it is a status"


@pytest.mark.parametrize("edge", EDGES)
def test_s1_8_a_sign_is_no_answer(alive: GatewayProcess, upstream: MockUpstream, edge: Edge) -> None:
    """Until something of an answer was sent an upstream may be tried again, and a key still answers once."""
    upstream.reply(status=503, delay_first=3 * SILENCE)
    upstream.reply(text="second", delay_first=2 * SILENCE)
    status, raw = streamed(alive, edge)
    assert (status, OWN_END[edge] in raw, len(upstream.chats)) == (200, True, 2), raw
    assert b"second" in raw
    assert b"conv_" in raw, "what was known too late for a header stands in the stream"


UPSTREAMS_OWN = b": OPENROUTER PROCESSING\n\n"
CHUNK = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}]}\n\n'
LAST = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


@pytest.mark.in_turn("sign")
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("sign", [UPSTREAMS_OWN, b": one\n: two\n\n", b"\n\n\n", b":\r\n\r\n"])
@pytest.mark.parametrize("begun", [True, False])
def test_s1_8_an_upstreams_signs_are_passed_on(
    one_gateway: GatewayProcess, upstream: MockUpstream, edge: Edge, sign: bytes, begun: bool
) -> None:
    """Comments before the first chunk stand before it, and those between chunks come as they do; so do empty lines."""
    is_text = bytes(sign.strip(b":\r\n"))
    later = 0.1 if is_text or not begun else 3.0  # empty ones are passed on a second after the last chunk was
    upstream.reply(raw=[HEAD, *([CHUNK] if begun else []), 1.1, sign, later, sign, 0.1, CHUNK, LAST])
    status, raw = streamed(one_gateway, edge)
    assert (status, OWN_END[edge] in raw) == (200, True)
    lines = raw.splitlines()
    if begun or is_text:
        signs = [n for n, line in enumerate(lines) if line.startswith(b"event: ping" if edge == "messages" else b":")]
        words = [n for n, line in enumerate(lines) if b'"a"' in line]
        assert any((words[0] if begun else -1) < n < words[-1] for n in signs), raw
        assert edge == "messages" or not is_text or is_text.split(b"\n")[0] in raw


def test_s1_8_official_clients_read_past_signs(
    alive: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """OpenAI's and Anthropic's own SDKs, in each API."""
    client = make_client(alive)
    slow: Any = {"text": "wide", "delay_first": 2 * SILENCE, "chunk_delay": 2 * SILENCE}
    upstream.reply(**slow)
    chunks = list(client.chat.completions.create(model="small", messages=ASK, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "wide"
    upstream.reply(**slow)
    with client.responses.stream(model="small", input="hi") as events:
        assert events.get_final_response().output_text == "wide"
    with anthropic.Anthropic(base_url=alive.url, api_key="sk-test", max_retries=0) as claude:
        upstream.reply(**slow)
        with claude.messages.stream(model="small", max_tokens=9, messages=ASK) as message:
            assert "".join(message.text_stream) == "wide"
        upstream.reply(status=400, delay_first=2 * SILENCE)
        with (
            pytest.raises(anthropic.APIStatusError),
            claude.messages.stream(model="small", max_tokens=9, messages=ASK) as message,
        ):
            message.get_final_text()
    upstream.reply(status=400, delay_first=2 * SILENCE)
    with pytest.raises(openai.APIError, match="scripted 400"):
        list(client.chat.completions.create(model="small", messages=ASK, stream=True))
