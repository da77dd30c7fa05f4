"""Tools in a namespace: one name in a chat, the name and its namespace in Responses (guarantee §10.1)."""

from typing import Any

import pytest

from gateway.core.errors import InvalidRequest
from gateway.core.formats.responses.item_reader import MAX_FUNCTION_NAME_CHARS, joined
from gateway.core.formats.responses.request_parser import read_request
from gateway.core.formats.responses.response_completion import response_of
from gateway.core.formats.responses.response_events import ResponseEvents

CLOSE = {"type": "function", "name": "close", "parameters": {"type": "object"}, "strict": False}
PATCH = {"type": "custom", "name": "patch"}
GROUP = {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [CLOSE, PATCH]}
PLAIN = {"type": "function", "name": "agents", "parameters": {"type": "object"}}
NAMED = {"name": "close", "namespace": "agents"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "agents__close", "arguments": "{}"}}


def _body(**more: Any) -> dict[str, Any]:
    return {"model": "m", "input": "Hi", "tools": [PLAIN, GROUP], **more}


def test_s10_1_a_chat_has_them_by_one_name() -> None:
    reading = read_request(_body(tool_choice={"type": "function", **NAMED}))
    tools = reading.chat["tools"]
    assert [tool[tool["type"]]["name"] for tool in tools] == ["agents", "agents__close", "agents__patch"]
    assert tools[1]["function"] == {"name": "agents__close", "parameters": {"type": "object"}, "strict": False}
    assert reading.chat["tool_choice"] == {"type": "function", "function": {"name": "agents__close"}}
    assert not reading.native.needs


def test_s10_1_a_call_comes_and_goes_by_both_names() -> None:
    item = {"type": "function_call", "call_id": "call_1", "arguments": "{}", **NAMED}
    output = {"type": "function_call_output", "call_id": "call_1", "output": "closed"}
    assert read_request(_body(input=[item, output])).chat["messages"][0]["tool_calls"] == [CALL]
    message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    choice = {"index": 0, "finish_reason": "tool_calls"}
    whole = response_of({"id": "chatcmpl-1", "choices": [{**choice, "message": message}]}, _body())
    events = ResponseEvents(_body())
    delta = {"tool_calls": [{"index": 0, **CALL}]}
    told = [*events.of([{"id": "chatcmpl-1", "choices": [{**choice, "delta": delta}]}]), *events.end()]
    shown = [*whole["output"], *(event["item"] for event in told if "item" in event), *told[-1]["response"]["output"]]
    assert [NAMED | each for each in shown] == shown
    assert len(shown) == 4


def test_s10_1_a_long_name_is_cut_to_what_a_chat_may_have() -> None:
    names = {joined("n" * 40, "t" * 30 + end) for end in "ab"}
    assert [len(name) for name in names] == [MAX_FUNCTION_NAME_CHARS, MAX_FUNCTION_NAME_CHARS]
    assert joined("n" * 30, "t" * 32) == "n" * 30 + "__" + "t" * 32


@pytest.mark.parametrize(
    ("group", "param"),
    [
        ({**GROUP, "name": ""}, "tools[0].name"),
        ({**GROUP, "tools": None}, "tools[0].tools"),
        ({**GROUP, "tools": [CLOSE, {"type": "web_search"}]}, "tools[0].tools[1]"),
        ({**GROUP, "tools": [{"type": "function"}]}, "tools[0].tools[0].name"),
    ],
)
def test_s7_what_is_no_namespace_is_named(group: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_request({"model": "m", "input": "Hi", "tools": [group]})
    assert caught.value.param == param
