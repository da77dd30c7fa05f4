"""What an upstream says in the wrong type is of the right one at each edge, so that SDKs in strict mode take it."""

import json
from typing import Any

import pytest

from gateway.core.errors import UpstreamRefused
from gateway.core.formats.anthropic.message_events import MessageEvents, error_body, sound_message
from gateway.core.formats.anthropic.serializer import as_message, ended
from gateway.core.formats.responses.request_parser import read_input
from gateway.core.formats.responses.response_completion import (
    ResponseChunks,
    completion_of,
    echo,
    message_of,
    response_of,
)
from gateway.core.formats.responses.response_events import ResponseEvents
from gateway.core.formats.responses.response_request import input_items
from gateway.core.formats.stream_record import StreamRecord
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.items import items_of
from tests.support.answers import assistant, tool_call, tool_result
from tests.support.messages import MESSAGE
from tests.support.strict_responses import check_event, check_response

Json = dict[str, Any]
ODD: list[Any] = [True, -1, 10**30, "x", [1], {"a": 1}]
SAID = {"role": "assistant", "content": "yes"}


def completion(**more: Any) -> Json:
    choice = {"index": 0, "message": SAID, "finish_reason": "stop"}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], **more}


@pytest.mark.parametrize("odd", ODD, ids=str)
@pytest.mark.parametrize("name", ["model", "created", "usage"])
def test_a_completion_of_odd_types(name: str, odd: Any) -> None:
    value = {"prompt_tokens": odd, "completion_tokens": odd, "total_tokens": odd} if name == "usage" else odd
    found = completion(**{name: value})
    check_response(response_of(found, echo({}, store=True)))
    MESSAGE.validate_json(json.dumps(as_message(found, "m")), strict=True)


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_a_stop_sequence_that_is_none(odd: Any) -> None:
    choice = {"index": 0, "message": SAID, "finish_reason": "stop", "stop_reason": "end_turn", "stop_sequence": odd}
    MESSAGE.validate_json(json.dumps(as_message(completion(choices=[choice]), "m")), strict=True)


@pytest.mark.parametrize("reason", [{"stop_reason": "eos_token"}, ended({"stop_reason": "later_reason"})], ids=str)
def test_a_stop_reason_that_is_not_known_here(reason: Json) -> None:
    """§1: Anthropic's later ones are passed on; other servers name the words that ended an answer in the same field."""
    choice = {"index": 0, "message": SAID, "finish_reason": "stop", **reason}
    told = as_message(completion(choices=[choice]), "m")["stop_reason"]
    assert told == ("later_reason" if "later_reason" in reason.values() else "end_turn")


def test_an_answer_that_mistral_cut_at_the_end_of_the_window_is_not_told_as_whole() -> None:
    cut = {"index": 0, "message": SAID, "finish_reason": "model_length"}
    found = response_of(completion(choices=[cut]), echo({}, store=True))
    events = ResponseEvents(echo({}, store=True))
    events.of([completion(choices=[{**cut, "delta": SAID}])])
    for each in (found, events.end()[-1]["response"]):
        assert (each["status"], each["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert as_message(completion(choices=[cut]), "m")["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_a_stream_that_ends_for_an_odd_reason(odd: Any) -> None:
    events = ResponseEvents(echo({}, store=True))
    events.of([completion(choices=[{"index": 0, "delta": SAID, "finish_reason": odd}])])
    assert events.end()[-1]["type"] == "response.completed"


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_error_whose_code_is_no_string(odd: Any) -> None:
    original = {"error": {"message": "down", "type": "x", "param": odd, "code": odd}}
    (event,) = ResponseEvents(echo({}, store=True)).fault(UpstreamRefused(500, original, {}))
    check_event(event)


@pytest.mark.parametrize("odd", [True, -1, 10**30, {"a": 1}], ids=str)
def test_a_content_that_is_none(odd: Any) -> None:
    (item,) = items_of(ConversationMessage("assistant", {"role": "assistant", "content": odd}, message_id="msg_1"))
    assert (item["type"], item["content"]) == ("message", [])


def test_items_of_no_type_are_none() -> None:
    said: list[Json] = [
        {},
        {"type": None},
        {"type": 7},
        {"type": "message", "content": [{"type": "output_text", "text": "yes"}]},
    ]
    message = message_of(said)
    assert "output_items" not in message
    kept = {"role": "assistant", "content": "yes", "output_items": said[:3]}
    assert [item["type"] for item in items_of(ConversationMessage("assistant", kept, message_id="msg_1"))] == [
        "message"
    ]


def test_an_error_of_another_upstream_is_kept_for_clients_of_messages() -> None:
    """§7: its body is wrapped, with the original under `error.upstream`."""
    original = {"error": {"message": "slow down", "type": "tokens", "param": None, "code": "rate_limit_exceeded"}}
    told = error_body(UpstreamRefused(429, original, {}, "slow down"), "req_1")["error"]
    assert (told["type"], told["message"], told["upstream"]) == ("rate_limit_error", "slow down", original)


def streamed(*choices: Json) -> Json:
    """The response that a stream of these choices, one in a chunk, ends as."""
    events = ResponseEvents(echo({}, store=True))
    told = [*events.of([completion(choices=[choice]) for choice in choices]), *events.end()]
    for event in told:
        check_event(event)
    found: Json = told[-1]["response"]
    return found


def test_a_streamed_response_is_of_one_choice() -> None:
    said = [(1, "b"), (0, "a"), (1, "b"), (0, "a")]
    choices = [{"index": index, "delta": {"content": text}, "finish_reason": None} for index, text in said]
    (message,) = streamed(*choices)["output"]
    assert message["content"][0]["text"] == "bb"


def test_a_streamed_content_of_parts_is_told_whole() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    parts = [{"type": "text", "text": "so", "index": 0}, " it is", {"type": "refusal", "refusal": "no"}, picture]
    message, drawn = streamed({"index": 0, "delta": {"content": parts}, "finish_reason": "stop"})["output"]
    assert [part.get("text") or part["refusal"] for part in message["content"]] == ["so it is", "no"]
    assert (drawn["type"], drawn["result"]) == ("image_generation_call", "iVBORw0KGgo=")


TEXT = {"type": "output_text", "text": "yes", "annotations": []}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}"}
IN_OTHER_WORDS: dict[str, list[Any]] = {
    "no type": [{"role": "assistant", "content": [TEXT]}],
    "a text": [{"type": "message", "role": "assistant", "content": "yes"}],
    "a text among parts": [{"type": "message", "content": ["yes"]}],
    "a part of a chat": [{"type": "message", "content": [{"type": "text", "text": "yes"}]}],
    "no items beside it": [None, "x", {"type": "message", "content": [TEXT]}],
}


@pytest.mark.parametrize("output", IN_OTHER_WORDS.values(), ids=IN_OTHER_WORDS)
@pytest.mark.parametrize("tells_items", [True, False])
def test_a_response_that_says_its_text_in_other_words(output: list[Any], tells_items: bool) -> None:
    """It is heard whole and streamed, and once."""
    response = {"id": "r", "status": "completed", "output": [*output, CALL]}
    said = completion_of(response)["choices"][0]["message"]
    assert (said["content"], len(said["tool_calls"])) == ("yes", 1)
    chunks = ResponseChunks(as_items=False)
    done = [{"type": "response.output_item.done", "output_index": n, "item": each} for n, each in enumerate(output)]
    events = [*(done if tells_items else ()), {"type": "response.completed", "response": response}]
    deltas = [choice["delta"] for event in events for chunk in chunks.of(event) for choice in chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "yes"
    assert sum(len(delta.get("tool_calls") or ()) for delta in deltas) == 1


def test_what_an_answer_said_beside_its_text_is_taken_back() -> None:
    """A part of a type that nobody knows stays in its place for whoever made it; a refusal is a field of the message,
    as it is stored."""
    other = {"type": "zorp", "x": 1}
    refusal = {"type": "refusal", "refusal": "no"}
    output = [{"type": "message", "id": "msg_x", "role": "assistant", "content": [other, TEXT, refusal]}]
    stored = message_of(output)
    shown = items_of(ConversationMessage("assistant", stored, message_id="msg_" + "0" * 32))
    (again,), _, hosted = read_input(shown)
    names = ("content", "refusal")
    assert [again.body[name] for name in names] == [stored[name] for name in names] == ["yes", "no"]
    assert [kind for _, kind in hosted] == ["zorp"]
    assert [part["type"] for part in input_items([again.body])[0]["content"]] == ["zorp", "output_text", "refusal"]


@pytest.mark.parametrize("tells_parts", [True, False])
@pytest.mark.parametrize("after", [[TEXT], []], ids=len)
def test_a_streamed_part_of_another_type_stays_in_its_place(after: list[Json], tells_parts: bool) -> None:
    """As it does in an answer that is not streamed, and where a stored one is streamed again."""
    content: list[Json] = [TEXT, {"type": "zorp", "x": 1}, *after]
    item = {"type": "message", "id": "msg_x", "role": "assistant", "content": content}
    told: list[Json] = [{"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}}]
    for number, part in enumerate(content if tells_parts else ()):
        place = {"output_index": 0, "content_index": number}
        if part is TEXT:
            told.append({"type": "response.output_text.delta", **place, "delta": part["text"]})
        told.append({"type": "response.content_part.done", **place, "part": part})
    told.append({"type": "response.output_item.done", "output_index": 0, "item": item})
    told.append({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [item]}})
    chunks, record, shown = ResponseChunks(as_items=True), StreamRecord(1), ResponseEvents(echo({}, store=True))
    events: list[Json] = []
    for chunk in [chunk for event in told for chunk in chunks.of(event)]:
        record.add(chunk)
        events += shown.of([{**chunk, "id": "chatcmpl-1"}])
    (message,) = (events + shown.end())[-1]["response"]["output"]
    stored = record.completion()["choices"][0]
    again = ResponseEvents(echo({}, store=True))
    again.of([completion(choices=[{"index": 0, "delta": stored["message"], "finish_reason": "stop"}])])
    (replayed,) = again.end()[-1]["response"]["output"]
    for each in (message, replayed):
        assert [part["type"] for part in each["content"]] == [part["type"] for part in content]
        assert each["content"][1] == content[1]
    assert "other_part" not in json.dumps(stored)


@pytest.mark.parametrize("said", [[], [{"type": "message", "role": "assistant", "content": [TEXT]}]], ids=len)
def test_thoughts_that_led_to_nothing_do_not_go_back(said: list[Json]) -> None:
    """OpenAI refuses thoughts without the item that they led to: an answer that was cut amid them can go on."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    sent = input_items([message_of([*said, thought]), {"role": "user", "content": "go on"}], keeps=True)
    assert [item.get("type") for item in sent] == [*(each["type"] for each in said), None]


def test_s4_i3_calls_that_share_an_id_go_to_responses_as_pairs() -> None:
    """Local servers repeat ids; each result belongs to its own call."""
    calls = [tool_call(name, "f") for name in ("call_0", "call_1")]
    results = [tool_result(name, name) for name in ("call_1", "call_0")]
    sent = input_items([assistant(None, tool_calls=calls), *results] * 2)
    called, answered = ([i["call_id"] for i in sent if i["type"].endswith(kind)] for kind in ("call", "output"))
    assert called == ["call_0", "call_1", "call_0_2", "call_1_2"]
    assert answered == ["call_1", "call_0", "call_1_2", "call_0_2"]


@pytest.mark.parametrize("odd", [None, 5, {"a": 1}], ids=str)
def test_a_message_without_a_model_or_with_a_text_that_is_none(odd: Any) -> None:
    """LiteLLM would refuse all of it."""
    found = sound_message({"model": odd, "content": [{"type": "text", "text": odd}, {"type": "text", "text": "yes"}]})
    assert [found["model"], *(block["text"] for block in found["content"])] == ["", "", "yes"]


def test_a_freeform_call_that_a_client_of_messages_did_not_ask_for() -> None:
    """It is one of the function that stands for such a tool, whole and streamed."""
    calls: list[Json] = [
        {"id": f"call_{name}", "type": "custom", "custom": {"name": name, "input": "1 + 1"}} for name in "ab"
    ]
    asked = [{"name": name, "input": {"input": "1 + 1"}} for name in "ab"]
    whole = as_message(completion(choices=[{"message": {"role": "assistant", "tool_calls": calls}}]), "m")
    assert [{name: block[name] for name in ("name", "input")} for block in whole["content"]] == asked
    events = MessageEvents("m")
    found = []
    for index, call in enumerate(calls):
        begun = {**call, "index": index, "custom": {"name": call["custom"]["name"], "input": ""}}
        pieces = [{"index": index, "custom": {"input": piece}} for piece in ("1", " + 1")]
        deltas = [{"tool_calls": [each]} for each in (begun, *pieces)]
        found += [e for delta in deltas for e in events.of([completion(choices=[{"index": 0, "delta": delta}])])]
    found += events.of([completion(choices=[{"index": 0, "delta": {}, "finish_reason": "tool_calls"}])])
    found += events.end()
    names = [event["content_block"]["name"] for event in found if event["type"] == "content_block_start"]
    given = [event["delta"]["partial_json"] for event in found if "partial_json" in event.get("delta", {})]
    assert [{"name": n, "input": json.loads(g)} for n, g in zip(names, given, strict=True)] == asked
