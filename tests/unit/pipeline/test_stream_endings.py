"""Streams that do not end well: broken by upstream, abandoned by the client (guarantee §3.6, §7)."""

import threading
from typing import Any

import httpx
import pytest
from openai import APITimeoutError, OpenAI

from tests.support.answers import (
    assistant,
    bill_of,
    conversation_of,
    read_stream,
    stored_of,
    user,
    wait_for_bill,
)
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import PATIENCE, wait_until

ASK: Any = [user("count for me")]
CHAT = {"model": "small", "messages": ASK}


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
