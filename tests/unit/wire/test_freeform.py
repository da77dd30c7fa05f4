"""Freeform tools go up as functions and come back as what they were (guarantee §1.11)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.accounting.stream import StreamRecord
from gateway.wire.freeform import FreeformChunks, input_of, names_of, with_freeform, without_freeform

Json = dict[str, Any]
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
GRAMMAR = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: line+"}}
PATCH: Json = {"type": "custom", "custom": {"name": "apply_patch", "description": "Patches.", "format": GRAMMAR}}
SHELL: Json = {"type": "function", "function": {"name": "shell", "parameters": {}}}


def called(name: str, text: str, number: int) -> Json:
    """A call of one of the two tools."""
    if name == "apply_patch":
        return {"id": f"c{number}", "type": "custom", "custom": {"name": name, "input": text}}
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": text}}


def body(calls: list[Json], **more: Any) -> Json:
    return {"tools": [PATCH, SHELL], "messages": [{"role": "assistant", "content": None, "tool_calls": calls}], **more}


CALLS = st.lists(st.tuples(st.sampled_from(["apply_patch", "shell"]), TEXT), min_size=1, max_size=4)


@given(CALLS, st.booleans(), st.lists(st.integers(1, 7), min_size=1))
def test_s1_11_calls_go_up_and_come_back(calls: list[tuple[str, str]], ascii_only: bool, sizes: list[int]) -> None:
    """§1.11: whole and in a stream, however it is cut, a model's answer is what the client's own resend says."""
    made = [called(name, text, number) for number, (name, text) in enumerate(calls)]
    sent = without_freeform(body(made), keeps_allowed=False)
    assert names_of(sent) == frozenset()
    up = sent["messages"][0]["tool_calls"]
    assert all(call["type"] == "function" for call in up)
    for call in up if not ascii_only else ():
        if call["function"]["name"] == "apply_patch":
            call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]))
    message = {"role": "assistant", "content": None, "tool_calls": up}
    whole = with_freeform({"choices": [{"message": message}]}, {"apply_patch"})
    assert whole["choices"][0]["message"]["tool_calls"] == made
    chunks, record = FreeformChunks({"apply_patch"}), StreamRecord(1)
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
        chunks, record = FreeformChunks({"f"}), StreamRecord(1)
        call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        record.add(chunks.of({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}))
        record.add(chunks.of({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}))
        assert record.completion()["choices"][0]["message"]["tool_calls"][0]["custom"]["input"] == text


def test_s1_11_the_grammar_is_told_and_choices_are_mapped() -> None:
    chosen = {"type": "custom", "custom": {"name": "apply_patch"}}
    sent = without_freeform(body([], tool_choice=chosen), keeps_allowed=False)
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "apply_patch"}}
    assert sent["tools"][0]["function"]["description"].endswith("this lark grammar:\nstart: line+")
    assert sent["tools"][1] == SHELL
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [chosen]}}
    sent = without_freeform(body([], tool_choice=allowed), keeps_allowed=False)
    assert (len(sent["tools"]), sent["tool_choice"]) == (1, "required")
    kept = without_freeform(body([], tool_choice=allowed), keeps_allowed=True)
    assert kept["tool_choice"]["allowed_tools"]["tools"] == [
        {"type": "function", "function": {"name": "apply_patch"}},
    ]
    assert len(kept["tools"]) == 2
