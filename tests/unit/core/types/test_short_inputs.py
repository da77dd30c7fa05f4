"""Calls without their long inputs (guarantee §4 I7)."""

import json
from typing import Any

import pytest

from gateway.core.types import items
from gateway.core.types.short_inputs import MAX_HEAD, MIN_LONG_INPUT, with_short_inputs

Json = dict[str, Any]
LINE = "The harbour has lamps.\n"
LONG = LINE * 60


def calling(*calls: Json, **fields: Any) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def call(arguments: Any, name: str = "write", **fields: Any) -> Json:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": written}, **fields}


def given(message: Json) -> Any:
    return json.loads(message["tool_calls"][0]["function"]["arguments"])


def test_s4_i7_long_inputs_keep_their_first_line_and_short_ones_all() -> None:
    message = calling(call({"path": "pier.py", "content": LONG, "edits": [{"new": LONG, "line": 10**25}]}))
    short = given(with_short_inputs(message))
    assert short["path"] == "pier.py"
    assert short["edits"][0]["line"] == 10**25
    for text in (short["content"], short["edits"][0]["new"]):
        assert text.startswith(f"{LINE}[{len(LONG) - len(LINE):,} characters are left out")
    assert given(message)["content"] == LONG


def test_s4_i7_a_freeform_input_is_cut_alike() -> None:
    custom = {"id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": LONG}}
    short = with_short_inputs(calling(custom))["tool_calls"][0]
    assert short["custom"]["name"] == "apply_patch"
    assert len(short["custom"]["input"]) < 200


@pytest.mark.parametrize(
    "message",
    [
        calling(call({"content": "x" * (MIN_LONG_INPUT - 1)})),
        calling(call({f"k{number}": "x" for number in range(MIN_LONG_INPUT)})),
        calling(call('{"content": "' + "x" * MIN_LONG_INPUT)),
        calling(call({"diff": LONG}, **{items.TYPED: items.PATCH})),
        calling(call({"content": LONG}), **{items.SIGNED: [{"type": "thinking"}]}),
        calling(call({"content": LONG}), reasoning_details=[{"type": "reasoning.encrypted", "data": "x"}]),
        calling(call({"content": LONG}, extra_content={"google": {"thought_signature": "x"}})),
        calling(call({"content": LONG}, provider_specific_fields={"thought_signature": "x"})),
        calling(call({"content": LONG}), reasoning_items=[{"type": "reasoning", "id": "rs_1"}]),
        {"role": "assistant", "content": LONG},
        {"role": "user", "content": LONG, "tool_calls": [call({"content": LONG})]},
        calling({"id": "c1", "type": "function", "function": {"name": "f", "arguments": None}}),
    ],
    ids=[
        "short",
        "many short",
        "no JSON",
        "typed",
        "signed",
        "sealed",
        "Google",
        "LiteLLM",
        "reasoning",
        "words",
        "a user",
        "none",
    ],
)
def test_s4_i7_what_has_nothing_long_or_may_not_change_stays(message: Json) -> None:
    assert with_short_inputs(message) is message


def test_s4_i7_empty_fields_of_a_provider_seal_nothing() -> None:
    message = calling(call({"content": LONG}), provider_specific_fields={"refusal": None}, reasoning_details=[])
    assert given(with_short_inputs(message))["content"].startswith(LINE)


def test_s4_i7_once_is_enough() -> None:
    short = with_short_inputs(calling(call({"content": LONG})))
    assert with_short_inputs(short) is short


def test_s12_10_no_half_of_a_line_stays_that_masking_would_know_whole() -> None:
    for text in ("x" * MAX_HEAD + "y\n" + LONG, "j.doe@example.com " * 60):
        assert given(with_short_inputs(calling(call({"content": text}))))["content"].startswith("[")
