"""Freeform tools go up as functions and come back as what they were (guarantee §1.11)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.formats.responses.response_completion import ResponseChunks
from gateway.core.formats.responses.response_events import ResponseEvents
from gateway.core.formats.stream_record import StreamRecord
from gateway.core.formats.tool_calls import FreeformChunks, input_of, names_of, with_freeform, without_freeform
from gateway.core.types.items import TYPED, arguments_of, typed_item
from tests.support.answers import assistant, function_tool, tool_call

Json = dict[str, Any]
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
GRAMMAR = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: line+"}}
PATCH: Json = {"type": "custom", "custom": {"name": "apply_patch", "description": "Patches.", "format": GRAMMAR}}
LOCAL: Json = {"type": "function", "function": {"name": "local_shell"}, TYPED: {"type": "local_shell"}}
SHELL: Json = function_tool("shell", parameters={})


def called(name: str, text: str, number: int) -> Json:
    """A call of one of the tools."""
    if name == "local_shell":
        held = {"command": ["echo", text]}
        function = {"name": name, "arguments": arguments_of("local_shell_call", held)}
        return {"id": f"c{number}", "type": "function", "function": function, TYPED: "local_shell_call"}
    if name == "apply_patch":
        return {"id": f"c{number}", "type": "custom", "custom": {"name": name, "input": text}}
    return tool_call(f"c{number}", name, text)


def body(calls: list[Json], *typed: Json, **more: Any) -> Json:
    return {"tools": [PATCH, SHELL, *typed], "messages": [assistant(None, tool_calls=calls)], **more}


CALLS = st.lists(st.tuples(st.sampled_from(["apply_patch", "shell", "local_shell"]), TEXT), min_size=1, max_size=4)


@given(CALLS, st.booleans(), st.lists(st.integers(1, 7), min_size=1))
def test_s1_11_calls_go_up_and_come_back(calls: list[tuple[str, str]], ascii_only: bool, sizes: list[int]) -> None:
    """§1.11: whole and in a stream, however it is cut, a model's answer is what the client's own resend says."""
    made = [called(name, text, number) for number, (name, text) in enumerate(calls)]
    asked = body(made, LOCAL)
    names = names_of(asked)
    assert names == {"apply_patch": "custom_tool_call", "local_shell": "local_shell_call"}
    sent = without_freeform(asked, keeps_allowed=False)
    assert not names_of(sent)
    assert TYPED not in json.dumps(sent)
    up = sent["messages"][0]["tool_calls"]
    assert all(call["type"] == "function" for call in up)
    for call in up if not ascii_only else ():
        if call["function"]["name"] in names:
            again = json.dumps(json.loads(call["function"]["arguments"]))
            call["function"] = {**call["function"], "arguments": again}
    message = assistant(None, tool_calls=up)
    whole = with_freeform({"choices": [{"message": message}]}, names)
    assert whole["choices"][0]["message"]["tool_calls"] == made
    chunks, record = FreeformChunks(names), StreamRecord(1)
    deltas: list[Json] = []
    for index, call in enumerate(up):
        arguments = call["function"]["arguments"]
        deltas.append({"tool_calls": [{**call, "index": index, "function": {**call["function"], "arguments": ""}}]})
        at, number = 0, 0
        while at < len(arguments):
            piece = arguments[at : at + sizes[number % len(sizes)]]
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            at, number = at + len(piece), number + 1
    told: list[Json] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    told.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    for choice in told:
        record.add(chunks.of({"choices": [choice]}))
    assert record.completion()["choices"][0]["message"]["tool_calls"] == made


@pytest.mark.parametrize("name", ["local_shell", "apply_patch"])
def test_s1_11_a_call_is_whole_where_its_upstream_ends_its_item(name: str) -> None:
    """§1.11: what a call is done with says what it does, also where the upstream knows functions alone."""
    made, names = called(name, "ls", 1), names_of(body([], LOCAL))
    function = {
        "name": name,
        "arguments": '{"command": ["echo", "ls"]}' if name == "local_shell" else '{"patch": "ls"}',
    }
    item = {"type": "function_call", "id": "fc_1", "call_id": "c1", **function}
    response = {"id": "resp_1", "status": "completed", "output": [item], "usage": None}
    told: list[Json] = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": function["arguments"]},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    reading, chunks, events = ResponseChunks(as_items=True), FreeformChunks(names), ResponseEvents({})
    given_back = [
        event
        for each in told
        for chunk in reading.of(each)
        for event in events.of([{**chunks.of(chunk), "id": "chatcmpl-1"}])
    ]
    (done,) = [event["item"] for event in given_back if event["type"] == "response.output_item.done"]
    (shown,) = events.end()[-1]["response"]["output"]
    assert done == shown
    assert done.get("action", {}).get("command", done.get("input")) == (["echo", "ls"] if TYPED in made else "ls")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input": "a\\nb"}', "a\nb"),
        ('{"input": "a\nb"}', "a\nb"),
        ('{"patch": "a"}', "a"),
        ('"a"', "a"),
        ("*** Begin", "*** Begin"),
        ({"input": "a"}, "a"),
        ("", ""),
        (None, ""),
        ('{"a": "x", "b": "y"}', '{"a": "x", "b": "y"}'),
    ],
)
def test_s1_11_what_a_model_makes_of_it(arguments: Any, text: str) -> None:
    """§1.11: a model that calls the argument otherwise, or sends the text alone, is understood; whole and streamed."""
    assert input_of(arguments) == text
    if isinstance(arguments, str):
        chunks, record = FreeformChunks({"f": "custom_tool_call"}), StreamRecord(1)
        call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        record.add(chunks.of({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}))
        record.add(chunks.of({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}))
        assert record.completion()["choices"][0]["message"]["tool_calls"][0]["custom"]["input"] == text


@pytest.mark.parametrize(
    ("kind", "arguments", "held"),
    [
        ("shell_call", '{"commands": "ls"}', {"commands": ["ls"]}),
        ("shell_call", '{"action": {"commands": ["ls"], "timeout_ms": 5.0}}', {"commands": ["ls"], "timeout_ms": 5}),
        ("shell_call", '{"commands": ["l', {"commands": []}),
        ("shell_call", '{"commands": ["ls"], "timeout_ms": Infinity, "x": 1}', {"commands": ["ls"]}),
        ("shell_call", "[" * 99999, {"commands": []}),
        (
            "local_shell_call",
            '{"command": "ls | wc"}',
            {"type": "exec", "command": ["bash", "-lc", "ls | wc"], "env": {}},
        ),
        ("local_shell_call", None, {"type": "exec", "command": [], "env": {}}),
        ("local_shell_call", '{"command": ["\\ud800"]}', {"type": "exec", "command": ["\ufffd"], "env": {}}),
        ("apply_patch_call", '{"path": "a", "diff": "+x"}', {"type": "update_file", "path": "a", "diff": "+x"}),
        ("apply_patch_call", '{"type": "delete_file", "path": "a", "diff": ""}', {"type": "delete_file", "path": "a"}),
    ],
)
def test_s1_11_what_a_model_makes_of_an_action(kind: str, arguments: Any, held: Json) -> None:
    """§1.11: whatever a model writes, the client gets an action of its type, and nothing of what is half written."""
    item = typed_item(kind, arguments)
    assert held == item.get("action", item.get("operation"))
    assert typed_item(kind, arguments_of(kind, arguments)) == item


def test_s1_11_the_grammar_is_told_and_choices_are_mapped() -> None:
    chosen = {"type": "custom", "custom": {"name": "apply_patch"}}
    sent = without_freeform(body([], tool_choice=chosen), keeps_allowed=False)
    assert sent["tool_choice"] == function_tool("apply_patch")
    assert sent["tools"][0]["function"]["description"].endswith("this lark grammar:\nstart: line+")
    assert sent["tools"][1] == SHELL
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [chosen]}}
    sent = without_freeform(body([], tool_choice=allowed), keeps_allowed=False)
    assert (len(sent["tools"]), sent["tool_choice"]) == (1, "required")
    kept = without_freeform(body([], tool_choice=allowed), keeps_allowed=True)
    assert kept["tool_choice"]["allowed_tools"]["tools"] == [function_tool("apply_patch")]
    assert len(kept["tools"]) == 2
