"""Streams that do not end well: broken by upstream, abandoned by the client (guarantee §3.6, §7)."""

import json
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from openai import APITimeoutError, OpenAI

from tests.support.answers import (
    assistant,
    bill_of,
    conversation_of,
    read_stream,
    stored,
    stored_of,
    user,
    wait_for_bill,
)
from tests.support.factory import shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import PATIENCE, wait_until

ASK: Any = [user("count for me")]
CHAT = {"model": "small", "messages": ASK}


impatient = shared_gateway({"upstream": {"idle": 0.4}})
"""A gateway that waits 0.4 s between two chunks."""


HEAD = {"id": "up-1", "object": "chat.completion.chunk", "created": 1, "model": "small"}
ONE, TWO = (
    {**HEAD, "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]}
    for text in ("one", " two")
)
FAULT = {"error": {"message": "the model fell over", "type": "server_error", "param": None, "code": "boom"}}


def cut(upstream: MockUpstream) -> None:
    upstream.reply(text="one two three four", cut_after=3)


def reset(upstream: MockUpstream) -> None:
    upstream.reply(text="one two three four", cut_after=3, reset=True, chunk_delay=0.05)


def stall(upstream: MockUpstream) -> None:
    upstream.reply(text="one two three four", stall_after=3)


def end_early(upstream: MockUpstream) -> None:
    upstream.reply(chunks=[ONE, TWO], send_done=False)


def rubbish(upstream: MockUpstream) -> None:
    upstream.reply(raw_sse=b"".join(b"data: %b\n\n" % each for each in (dumped(ONE), dumped(TWO), b'{"half')))


def error_event(upstream: MockUpstream) -> None:
    upstream.reply(chunks=[ONE, TWO, FAULT], send_done=False)


def named_error_event(upstream: MockUpstream) -> None:
    events = [b"data: %b\n\n" % dumped(each) for each in (ONE, TWO)]
    upstream.reply(raw_sse=b"".join([*events, b"event: error\ndata: %b\n\n" % dumped(FAULT)]))


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


WAYS: list[tuple[Callable[[MockUpstream], None], str]] = [
    (cut, "upstream_interrupted"),
    (reset, "upstream_interrupted"),
    (stall, "upstream_timeout"),
    (end_early, "upstream_interrupted"),
    (rubbish, "upstream_invalid_response"),
    (error_event, "boom"),
    (named_error_event, "boom"),
]


@pytest.mark.parametrize(("way", "code"), WAYS, ids=[way.__name__ for way, _ in WAYS])
def test_s7_a_broken_stream_ends_with_an_error_event(
    impatient: GatewayProcess, upstream: MockUpstream, way: Callable[[MockUpstream], None], code: str
) -> None:
    """An error event and no [DONE]; the turn is `partial`, its text stays as delivered, its cost is recorded."""
    way(upstream)
    wire = read_stream(impatient, CHAT)
    assert wire.text == "one two"
    assert not wire.done
    assert wire.error is not None
    assert set(wire.error) >= {"message", "type", "param", "code"}
    assert wire.error["code"] == code
    bill = stored(impatient, wire.chunks[0]["id"])
    assert bill["status"] == "partial"
    assert bill["response_metadata"]["cost"]["estimated"] is True
    assert bill["response_metadata"]["usage"]["completion_tokens"] == 2
    assert bill["response_metadata"]["cost"]["total_cost"] > 0
    follow_up = {"conversation": wire.chunks[0]["conversation"], "model": "small", "messages": [user("go on")]}
    read_stream(impatient, follow_up)
    assert upstream.last.body["messages"] == [*ASK, assistant("one two"), user("go on")]


def test_s7_a_stream_that_breaks_before_any_chunk(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Nothing was delivered: the turn is `failed`, its cost recorded, and it is no part of any rebuilt history."""
    first = read_stream(gateway, CHAT)
    conversation = first.finish["conversation"]
    upstream.reply(text="lost", cut_after=0)
    body = {**CHAT, "conversation": conversation, "messages": [user("lost question")], "stream": True}
    answer = gateway.post("/chat/completions", json=body)
    assert "[DONE]" not in answer.text
    assert "upstream_interrupted" in answer.text
    turns = stored_of(gateway, conversation["id"])
    assert [turn["status"] for turn in turns] == ["complete", "failed"]
    assert turns[1]["response_metadata"]["cost"]["estimated"] is True
    assert turns[1]["response_metadata"]["usage"]["completion_tokens"] == 0
    read_stream(gateway, {**CHAT, "conversation": conversation, "messages": [user("again")]})
    assert upstream.last.body["messages"] == [*ASK, assistant(first.text), user("again")]


def test_s3_6_an_abandoned_stream(gateway: GatewayProcess, upstream: MockUpstream, client: OpenAI) -> None:
    """The upstream call is cancelled within 2 s, the turn is `partial`, its cost is recorded as estimated."""
    upstream.reply(text="one two three four five", stall_after=4)
    stream = client.chat.completions.create(model="small", messages=ASK, stream=True)
    seen = [next(stream) for _ in range(4)]
    stream.close()
    assert upstream.last.disconnected.wait(PATIENCE), "the upstream call goes on"
    bill = wait_for_bill(gateway, seen[0].id)
    assert bill["status"] == "partial"
    assert bill["response_metadata"]["cost"]["estimated"] is True
    assert bill["response_metadata"]["usage"]["completion_tokens"] == 3
    assert bill["response_metadata"]["request_id"] == bill_of(seen[0])["request_id"]
    conversation = conversation_of(seen[0])
    client.chat.completions.create(model="small", messages=[user("go on")], extra_body={"conversation": conversation})
    assert upstream.last.body["messages"] == [*ASK, assistant("one two three"), user("go on")]


def test_s3_6_an_abandoned_tool_call_is_left_out(
    gateway: GatewayProcess, upstream: MockUpstream, client: OpenAI
) -> None:
    """Unanswered tool calls of a partial turn are left out on rebuild; its text stays."""
    upstream.reply(text="let me see", tool_calls=[("weather", {"city": "Bern", "days": 12})], stall_after=7)
    tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
    stream = client.chat.completions.create(model="small", messages=ASK, tools=tools, stream=True)
    seen = [next(stream) for _ in range(6)]
    assert seen[-1].choices[0].delta.tool_calls
    stream.close()
    wait_for_bill(gateway, seen[0].id)
    body = {"conversation": conversation_of(seen[0])}
    client.chat.completions.create(model="small", messages=[user("go on")], extra_body=body)
    assert upstream.last.body["messages"] == [*ASK, assistant("let me see"), user("go on")]


@pytest.mark.parametrize("streamed", [True, False])
def test_s3_6_abandoned_before_any_byte(
    gateway: GatewayProcess, upstream: MockUpstream, client: OpenAI, streamed: bool
) -> None:
    """The call is cancelled, the turn is `failed` and billed, and no history holds it."""
    first = client.chat.completions.create(model="small", messages=ASK)
    body = {"conversation": conversation_of(first)}
    upstream.reply(text="too late", gate=threading.Event())
    with pytest.raises(APITimeoutError):
        client.with_options(timeout=0.3).chat.completions.create(
            model="small", messages=[user("lost")], extra_body=body, stream=streamed
        )
    assert upstream.last.disconnected.wait(PATIENCE), "the upstream call goes on"
    wait_until(lambda: len(stored_of(gateway, body["conversation"])) == 2, "the bill")
    bill = stored_of(gateway, body["conversation"])[1]
    assert bill["status"] == "failed"
    assert bill["response_metadata"]["cost"]["estimated"] is True
    assert bill["response_metadata"]["cost"]["total_cost"] > 0
    client.chat.completions.create(model="small", messages=[user("again")], extra_body=body)
    text = first.choices[0].message.content or ""
    assert upstream.last.body["messages"] == [*ASK, assistant(text), user("again")]


def test_s7_a_half_sent_request_is_no_exchange(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A client that goes away in the middle of its own request reaches no upstream."""

    def half() -> Any:
        yield b'{"model": "small", "messages": ['
        raise httpx.ReadError("the client falls over")

    with pytest.raises(httpx.ReadError):
        one_gateway.post("/chat/completions", content=half())
    read_stream(one_gateway, CHAT)
    assert len(upstream.chats) == 1
