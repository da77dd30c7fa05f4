"""`POST /v1/responses` for every model, by translation (guarantee §10.1)."""

import json
from typing import Any

from openai import OpenAI

from tests.support.answers import exact, stored, usage_of
from tests.support.factory import ClientFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.strict_responses import create, events, refused

TEXT = "The sea is wide."
TOOL: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True, "description": "x"}
CALL: Any = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}


def test_s10_1_a_response_is_the_answer_of_a_chat_with_its_bill(
    gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """What is asked goes up as a chat; what comes back is a response with every field, and the same bill."""
    upstream.reply(text=TEXT, usage=usage_of(11, 7))
    body = {
        "model": "small",
        "input": "Tell me of the sea",
        "instructions": "Be brief.",
        "max_output_tokens": 99,
        "temperature": 0.5,
        "metadata": {"a": "b"},
    }
    found = create(gateway, body)
    sent = upstream.last.body
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Tell me of the sea"},
    ]
    assert (sent["max_completion_tokens"], sent["temperature"]) == (99, 0.5)
    assert not {"input", "instructions", "max_output_tokens", "stream_options"} & sent.keys()
    assert found["id"].startswith("resp_")
    (item,) = found["output"]
    assert item["content"] == [{"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}]
    assert (found["status"], found["instructions"], found["metadata"]) == ("completed", "Be brief.", {"a": "b"})
    assert (found["usage"]["input_tokens"], found["usage"]["output_tokens"]) == (11, 7)
    kept = stored(gateway, found["id"].replace("resp_", "chatcmpl-"))
    assert kept["response_metadata"] == found["response_metadata"]
    assert kept["conversation"] == found["conversation"]
    assert found["usage"]["cost"] == found["response_metadata"]["cost"]["total_cost"]


def test_s10_1_tools_over_two_steps_by_resend(upstream: MockUpstream, client: OpenAI) -> None:
    """The SDK's loop: what was answered is sent again with the result, and the conversation goes on."""
    upstream.reply(tool_calls=[CALL], usage=usage_of(5, 5))
    asked: Any = [{"role": "user", "content": "look please"}]
    first = client.responses.create(model="small", input=asked, tools=[TOOL])
    (call,) = first.output
    assert call.type == "function_call"
    assert (call.name, call.arguments, call.call_id) == ("look", '{"at": 1}', "call_1")
    assert upstream.last.body["tools"] == [
        {
            "type": "function",
            "function": {"name": "look", "parameters": {"type": "object"}, "strict": True, "description": "x"},
        }
    ]
    upstream.reply(text="seen")
    asked += [item.model_dump(exclude_none=True) for item in first.output]
    asked.append({"type": "function_call_output", "call_id": "call_1", "output": "a boat"})
    second = client.responses.create(model="small", input=asked, tools=[TOOL])
    assert second.output_text == "seen"
    assert second.conversation == first.conversation
    assert upstream.last.body["messages"] == [
        {"role": "user", "content": "look please"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "a boat"},
    ]


def test_s10_2_a_stream_says_the_same_in_events(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Each event is one of the SDK's, in OpenAI's order; the last has the response with its bill."""
    upstream.reply(text=TEXT, usage=usage_of(11, 7))
    found = events(one_gateway, {"model": "small", "input": "Tell me of the sea"})
    kinds = [event["type"] for event in found]
    assert list(dict.fromkeys(kinds)) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert "".join(event["delta"] for event in found if event["type"] == "response.output_text.delta") == TEXT
    response = found[-1]["response"]
    assert response["output"] == [found[-2]["item"]]
    kept = stored(one_gateway, response["id"].replace("resp_", "chatcmpl-"))
    assert kept["response_metadata"] == response["response_metadata"]
    assert response["usage"]["input_tokens"] == 11


def test_s10_1_errors_name_the_field_of_the_request(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """`input[i]…`, never `messages[i]…`."""
    body: Any = {"model": "small", "input": [{"role": "user", "content": "x"}]}
    upstream.reply(text="known", usage=usage_of(1, 1))
    create(one_gateway, body)  # from here on it is known that the upstream has no responses
    orphan = {"type": "function_call_output", "call_id": "call_9", "output": "y"}
    assert refused(one_gateway, {**body, "input": [*body["input"], orphan]})["param"] == "input[1]"
    call = {"type": "function_call", "call_id": "call_8", "name": "look", "arguments": "{}"}
    said = {"role": "assistant", "content": "I look."}
    unanswered = refused(one_gateway, {**body, "input": [*body["input"], said, call, *body["input"]]})
    assert unanswered["param"] == "input[2]"
    assert "after input[2]" in unanswered["message"]
    assert refused(one_gateway, {**body, "background": True})["param"] == "background"
    assert refused(one_gateway, {**body, "max_output_tokens": -1})["param"] == "max_output_tokens"
    hosted: Any = {"tools": [{"type": "web_search"}, {"type": "image_generation"}, TOOL]}
    assert (
        refused(one_gateway, {**body, **hosted, "tool_choice": {"type": "web_search"}}, 400)["param"] == "tool_choice"
    )
    assert len(upstream.chats) == 1
    upstream.reply(text="known", usage=usage_of(1, 1))
    found = create(one_gateway, {**body, **hosted, "tool_choice": "auto"})
    assert [tool["function"]["name"] for tool in upstream.last.body["tools"]] == [TOOL["name"]]
    told = [f"hosted_tool_left_out: {kind} (upstream.hosted_tools)" for kind in ("web_search", "image_generation")]
    assert found["response_metadata"]["context_utilization"]["warnings"] == told
    searched = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    upstream.reply(text="known", usage=usage_of(1, 1))
    again = create(one_gateway, {**body, "input": [*body["input"], searched, {"role": "user", "content": "y"}]})
    assert "web_search_call" in str(again["response_metadata"]["context_utilization"]["warnings"])
    silent = {"type": "message", "role": "assistant", "content": []}
    create(one_gateway, {**body, "input": [*body["input"], silent, {"role": "user", "content": "z"}]})
    assert [message["role"] for message in upstream.last.body["messages"]] == ["user", "user"]


def test_s10_1_what_does_not_fit(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Our window is the rule; `truncation: disabled`, in so many words, asks for an error instead."""
    turns: Any = []
    for number in range(12):
        turns.append({"role": "user", "content": f"{number} " + "many words of an old question " * 60})
        turns.append({"role": "assistant", "content": f"answer {number}"})
    body: Any = {"model": "small", "input": [*turns, {"role": "user", "content": "And now?"}], "store": False}
    for truncation in (None, "auto"):
        upstream.reply(text="Now.", usage=usage_of(1, 1))
        found = create(one_gateway, {**body, "truncation": truncation})
        assert found["truncation"] == "auto"
        assert len(upstream.last.body["messages"]) < len(body["input"])
    asked = len(upstream.chats)
    error = refused(one_gateway, {**body, "truncation": "disabled"})
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
    assert error["message"].startswith("This model's maximum context length is 4096 tokens. However, you requested")
    assert len(upstream.chats) == asked
    upstream.reply(text="Now.", usage=usage_of(1, 1))
    found = create(one_gateway, {"model": "small", "input": "short", "truncation": "disabled"})
    assert found["truncation"] == "disabled"


def test_s10_1_a_dry_run_asks_no_model(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    answer = one_gateway.post("/responses", json={"model": "small", "input": "hi", "context": {"dry_run": True}})
    assert answer.json()["object"] == "context.dry_run"
    assert not upstream.chats


def test_s10_1_a_response_repeats_its_request(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Each field that OpenAI's has, as it was asked; the SDK's models validate all of them."""
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    asked: Any = {
        "instructions": "Be brief.",
        "tools": [TOOL, {"type": "custom", "name": "run", "format": {"type": "text"}}],
        "tool_choice": {"type": "function", "name": "look"},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "parallel_tool_calls": False,
        "max_tool_calls": 3,
        "max_output_tokens": 20,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_logprobs": 1,
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "user": "u",
        "service_tier": "default",
        "truncation": "auto",
        "metadata": {"a": "b"},
    }
    upstream.reply(text="{}", usage=usage_of(1, 1))
    found = create(one_gateway, {"model": "small", "input": "x", **asked})
    assert {name: found[name] for name in asked} == exact(json.dumps(asked))
    assert not {"reasoning", "text", "max_tool_calls", "instructions", "truncation"} & upstream.last.body.keys()
    response = events(one_gateway, {"model": "small", "input": "x", **asked})[0]["response"]
    assert {name: response[name] for name in asked} == exact(json.dumps(asked))


def test_s10_1_a_plain_proxy_with_a_bill(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """`context.mode: off`: nothing is managed or kept; the bill is there."""
    upstream.reply(text=TEXT, usage=usage_of(11, 7))
    body: Any = {"model": "small", "input": "x", "context": {"mode": "off"}}
    found = create(one_gateway, body)
    assert found["output"][0]["content"][0]["text"] == TEXT
    assert found["response_metadata"]["context_utilization"]["tokens_used"] is None
    upstream.reply(text=TEXT, usage=usage_of(11, 7))
    assert events(one_gateway, body)[-1]["response"]["usage"]["input_tokens"] == 11


def test_s10_1_tokens_are_counted_with_the_history_that_is_named(
    gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """What is counted is what the bill of the same request says. No model is asked, and nothing is stored."""
    client, counted = make_client(gateway), make_client(gateway).responses.input_tokens
    body: Any = {"model": "small", "instructions": "Be brief.", "tools": [TOOL]}
    first = client.responses.create(**body, input="Tell me of the sea")
    assert first.conversation is not None
    body["input"] = "And of its tides?"
    named = {"conversation": first.conversation.id}
    found = {}
    for each in ({}, {"previous_response_id": first.id}, named):
        asked = len(upstream.chats)
        found[str(each)] = counted.count(**body, **each)
        assert (len(upstream.chats), found[str(each)].object) == (asked, "response.input_tokens")
        answer: Any = client.responses.create(**body, **each, store=False)
        assert found[str(each)].input_tokens == answer.response_metadata["context_utilization"]["tokens_used"]
    alone, behind, continued = (each.input_tokens for each in found.values())
    assert alone < behind == continued


def test_s10_1_a_count_is_refused_as_its_request_is(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    wrong: Any = (
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"previous_response_id": "resp_none"}, "previous_response_id"),
        ({"conversation": "conv_none"}, "conversation"),
        ({"model": None}, "model"),
        ({"input": [{"type": "compaction_trigger"}]}, "input"),
    )
    with one_gateway.http() as client:
        for more, param in wrong:
            answer = client.post("/responses/input_tokens", json={"model": "small", "input": "hi", **more})
            assert (answer.status_code // 100, answer.json()["error"]["param"]) == (4, param), answer.text
    assert not upstream.chats
