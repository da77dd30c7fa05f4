"""`/v1/messages` by Anthropic's SDK, with nothing changed but the base URL (guarantee §10.7)."""

from typing import Any

import anthropic
import httpx
import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.messages import TOOL, ask, asked, post, sdk, whole
from tests.support.mock_upstream import MockUpstream

Json = dict[str, Any]


def test_s10_7_a_message(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """The plainest use: the model's answer as a message of Anthropic's, with its conversation and bill."""
    answer = whole(gateway, asked(system="Be brief."))
    assert answer["id"].startswith("msg_")
    assert answer["content"] == [{"type": "text", "text": "echo: hello there"}]
    assert (answer["role"], answer["stop_reason"], answer["model"]) == ("assistant", "end_turn", "gpt-4o")
    assert answer["usage"]["output_tokens"] == 3
    assert answer["usage"]["cost"] == answer["response_metadata"]["cost"]["total_cost"]
    assert answer["conversation"]["id"] == answer["response_metadata"]["conversation_id"]
    assert upstream.last.body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello there"},
    ]


def test_s10_7_the_sdks_own_methods(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """`create`, and `stream` with its helpers: both give the same message."""
    with sdk(one_gateway) as client:
        plain = client.messages.create(**asked())
        with client.messages.stream(**asked()) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
    assert text == "echo: hello there"
    assert [block.type for block in final.content] == [block.type for block in plain.content] == ["text"]
    assert final.stop_reason == plain.stop_reason == "end_turn"
    assert final.usage.input_tokens == plain.usage.input_tokens > 0
    assert final.usage.output_tokens == plain.usage.output_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_s10_7_a_tool_loop(one_gateway: GatewayProcess, upstream: MockUpstream, stream: bool) -> None:
    """Parallel calls, their results, and the answer: each step continues the conversation."""
    upstream.reply(text="Let me see.", tool_calls=[("weather", {"city": "Ulm"}), ("weather", {"city": "Bonn"})])
    body = asked("And the weather?", tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": False})
    first = ask(one_gateway, body, stream=stream)
    assert first["stop_reason"] == "tool_use"
    assert [block["type"] for block in first["content"]] == ["text", "tool_use", "tool_use"]
    assert [block["input"] for block in first["content"][1:]] == [{"city": "Ulm"}, {"city": "Bonn"}]
    calls = [block["id"] for block in first["content"][1:]]
    results: list[Json] = [
        {"type": "tool_result", "tool_use_id": calls[0], "content": "rain"},
        {"type": "tool_result", "tool_use_id": calls[1], "content": [{"type": "text", "text": "sun"}]},
        {"type": "text", "text": "Go on."},
    ]
    turns = [
        *body["messages"],
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": results},
    ]
    second = ask(one_gateway, {**body, "messages": turns}, stream=stream)
    assert second["stop_reason"] == "end_turn"
    assert second["conversation"] == first["conversation"]
    sent = upstream.last.body["messages"]
    assert [each["role"] for each in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert [each["content"] for each in sent[2:]] == ["rain", "sun", "Go on."]
    assert upstream.last.body["tools"][0]["function"]["parameters"] == TOOL["input_schema"]


ERRORS: list[tuple[Json, Json, type[anthropic.APIStatusError], str]] = [
    ({}, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, anthropic.BadRequestError, ""),
    ({}, {"model": "gpt-5o"}, anthropic.NotFoundError, "not_found_error"),
    ({"status": 429, "headers": {"retry-after": "7"}}, {}, anthropic.RateLimitError, "rate_limit_error"),
    ({"status": 500}, {}, anthropic.InternalServerError, "api_error"),
]


@pytest.mark.parametrize(("reply", "more", "kind", "name"), ERRORS)
def test_s10_8_errors_have_anthropics_shape(
    one_gateway: GatewayProcess,
    upstream: MockUpstream,
    reply: Json,
    more: Json,
    kind: type[anthropic.APIStatusError],
    name: str,
) -> None:
    """Each is the SDK's class for its status, and names the field as the client knows it."""
    if reply:
        upstream.reply(**reply)
    with sdk(one_gateway) as client, pytest.raises(kind) as failed:
        client.messages.create(**{**asked(), **more})
    told: Any = failed.value.body
    assert told["type"] == "error"
    assert told["error"]["type"] == (name or "invalid_request_error")
    assert name or told["error"]["message"].startswith("messages[0].content[0].text")
    assert told["request_id"] == failed.value.response.headers["x-request-id"]
    assert failed.value.response.headers.get("retry-after") == reply.get("headers", {}).get("retry-after")


def test_s10_8_other_paths_have_it_too(one_gateway: GatewayProcess) -> None:
    """What the gateway says before a request is read, and where nothing is."""
    told = [post(one_gateway, asked(), path).json() for path in ("messages/nowhere", "messages/batches/x")]
    told.append(httpx.get(f"{one_gateway.base_url}/messages").json())
    assert [each["type"] for each in told] == ["error"] * 3
    assert [each["error"]["type"] for each in told] == ["not_found_error", "not_found_error", "invalid_request_error"]
