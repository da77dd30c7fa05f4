"""Streams of `/v1/responses` through the gateway (guarantee §10.2); `test_responses_round_trips` has every event."""

from typing import Any

import httpx

from tests.support.answers import Json, tool_call, usage_of
from tests.support.factory import ClientFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.strict_responses import check_response, create, events, read_events

ASK: Json = {"model": "small", "input": "Tell me of the sea"}
LOGPROBS: Json = {"content": [{"token": "a", "logprob": -0.1, "bytes": None, "top_logprobs": []}], "refusal": None}
CALLS: Any = [tool_call("call_1", "look", '{"at": 1}'), tool_call("call_2", "look", '{"at": 2}')]
CALLING: Json = {"content": None, "reasoning_content": "Hm.", "tool_calls": CALLS}


def test_s10_2_items_are_those_of_the_conversations_api(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Streamed or whole, a response shows the ids under which its items are stored."""
    for stream in (False, True):
        upstream.reply(message=CALLING, usage=usage_of(1, 1))
        response = events(gateway, ASK)[-1]["response"] if stream else create(gateway, ASK)
        path = f"/conversations/{response['conversation']['id']}/items?order=asc"
        stored = gateway.get(path).json()["data"]
        assert [item["id"] for item in stored[1:]] == [item["id"] for item in response["output"]]
        assert stored[1:] == response["output"]


def test_s10_2_an_answer_that_is_cut_short_is_incomplete(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """`response.incomplete`, with the reason in OpenAI's words."""
    for reason, told in (("length", "max_output_tokens"), ("content_filter", "content_filter")):
        upstream.reply(text="The sea", finish_reason=reason, usage=usage_of(1, 1))
        last = events(one_gateway, ASK)[-1]
        assert last["type"] == "response.incomplete"
        assert last["response"]["incomplete_details"] == {"reason": told}
        assert last["response"]["output"][-1]["status"] == "incomplete"
        upstream.reply(text="The sea", finish_reason=reason, usage=usage_of(1, 1))
        whole = create(one_gateway, ASK)
        assert (whole["status"], whole["incomplete_details"]) == ("incomplete", {"reason": told})


def test_s10_2_log_probabilities_come_with_their_tokens(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    body = {**ASK, "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    upstream.reply(choices=[{"message": {"content": "a"}, "logprobs": LOGPROBS}], usage=usage_of(1, 1))
    whole = create(one_gateway, body)
    assert (upstream.last.body["logprobs"], upstream.last.body["top_logprobs"]) == (True, 2)
    (part,) = whole["output"][0]["content"]
    assert [(each["token"], each["bytes"]) for each in part["logprobs"]] == [("a", [97])]
    upstream.reply(chunks=[{**_chunk({"content": "a"}), "choices": [_choice({"content": "a"}, None, LOGPROBS)]}])
    found = events(one_gateway, body)
    (delta,) = [event for event in found if event["type"] == "response.output_text.delta"]
    assert [each["token"] for each in delta["logprobs"]] == ["a"]
    assert found[-1]["response"]["output"][0]["content"] == whole["output"][0]["content"]


def test_s10_2_the_sdks_stream_helper_and_parse(
    one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """`responses.stream` and `responses.parse` with a structured output."""
    from pydantic import BaseModel

    class Place(BaseModel):
        name: str

    client = make_client(one_gateway)
    upstream.reply(text='{"name": "sea"}', usage=usage_of(1, 1))
    parsed = client.responses.parse(model="small", input="where", text_format=Place)
    assert parsed.output_parsed == Place(name="sea")
    sent = upstream.last.body["response_format"]
    assert (sent["type"], sent["json_schema"]["name"], sent["json_schema"]["strict"]) == ("json_schema", "Place", True)
    upstream.reply(text='{"name": "sea"}', usage=usage_of(1, 1))
    with client.responses.stream(model="small", input="where", text_format=Place) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.output_parsed == Place(name="sea")
    upstream.reply(message={"content": "Wait.", "tool_calls": CALLS}, usage=usage_of(1, 1))
    with client.responses.stream(model="small", input="look") as calling:
        last = calling.get_final_response()
    assert [item.type for item in last.output] == ["message", "function_call", "function_call"]


def test_s10_2_a_stream_is_repeated_by_its_key(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """With an `Idempotency-Key` the same response comes again, as a stream or whole, and is charged once."""
    upstream.reply(message=CALLING, usage=usage_of(1, 1))
    first = events(gateway, ASK, idempotency_key="key-1")[-1]["response"]
    again = events(gateway, ASK, idempotency_key="key-1")[-1]["response"]
    assert again["output"] == first["output"]
    assert again["id"] == first["id"]
    assert again["response_metadata"] == first["response_metadata"]
    assert len(upstream.chats) == 1


def _chunk(delta: Json, finish: str | None = None) -> Json:
    shared = {"id": "chatcmpl-x", "object": "chat.completion.chunk", "created": 1, "model": "small"}
    return {**shared, "choices": [_choice(delta, finish)]}


def _choice(delta: Json, finish: str | None, logprobs: Any = None) -> Json:
    return {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": logprobs}


def test_s10_17_a_broken_response_is_read_again_as_it_was_told(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """`failed`, with the error and with what was delivered, whole and in events."""
    upstream.reply(text="one two three four five six", cut_after=4)
    headers = {"authorization": "Bearer sk-test"}
    url = f"{one_gateway.base_url}/responses"
    told = read_events(httpx.post(url, json={**ASK, "stream": True}, headers=headers, timeout=30).text)
    failed = told[-1]["response"]
    found = httpx.get(f"{url}/{failed['id']}", headers=headers, timeout=30).json()
    check_response(found)
    assert (found["status"], found["error"]) == ("failed", failed["error"])
    assert [each["status"] for each in found["output"]] == ["incomplete"]
    assert found["output"][0]["content"][0]["text"] == failed["output"][0]["content"][0]["text"]
    again = read_events(httpx.get(f"{url}/{failed['id']}?stream=true", headers=headers, timeout=30).text)
    assert [{k: v for k, v in each.items() if k != "sequence_number"} for each in again[-2:-1]] == [
        {k: v for k, v in each.items() if k != "sequence_number"} for each in told[-2:-1]
    ]
    assert (again[-1]["type"], again[-1]["response"]["error"]) == ("response.failed", failed["error"])
