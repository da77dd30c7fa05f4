"""Reasoning events: what led to an answer, stored without its results, and back."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.models.tool_steps import parse_reasoning_events_to_steps, reasoning_events
from tests.unit.making import NOW, assistant, stored, tool, user

TURN = [
    user("q"), assistant(None, "a", "b", name="search", arguments='{"x":1}'), tool("b", "two"), tool("a", "one"),
    assistant("and", "a", name="fetch"), tool("a", "three"),
]  # fmt: skip
IDS = [f"msg_{n}" for n in range(len(TURN))]


def test_events_come_back_as_the_steps_that_they_were_with_results_from_their_messages() -> None:
    messages = [replace(m, created_at=NOW) for m in stored(TURN)]
    events = reasoning_events(messages, NOW, IDS)
    assert all("result" not in event for event in events)
    steps = parse_reasoning_events_to_steps(events, {"msg_2": "two", "msg_3": "one", "msg_5": "three"})
    assert [(s.step, s.tool, s.tool_call_id, s.arguments, s.result) for s in steps] == [
        (1, "search", "b", '{"x":1}', "two"), (1, "search", "a", '{"x":1}', "one"), (2, "fetch", "a", "{}", "three"),
    ]  # fmt: skip
    assert all(s.called_at == s.answered_at == NOW for s in steps)


def test_only_the_steps_since_the_last_text_belong_to_an_answer() -> None:
    messages = stored([*TURN, assistant("done"), user("next")])
    assert reasoning_events(messages, NOW, [None] * 8) == []
    later = stored([*TURN, assistant("done"), user("next"), *TURN[4:]])
    assert [e["tool"] for e in reasoning_events(later, NOW, [None] * 10)] == ["fetch"]


def test_events_of_unknown_types_are_passed_over_and_a_result_of_its_own_counts() -> None:
    events: list[dict[str, Any]] = [{"type": "thought", "text": "x"}, {"type": "tool_step", "tool": "t", "result": [1]}]
    (step,) = parse_reasoning_events_to_steps(events)
    assert (step.tool, step.result, step.called_at) == ("t", [1], None)


@pytest.mark.parametrize("results", [None, {}])
def test_a_result_whose_message_is_gone_is_none(results: dict[str, str] | None) -> None:
    (step,) = parse_reasoning_events_to_steps([{"type": "tool_step", "result_message_id": "msg_9"}], results)
    assert step.result is None


def test_a_call_of_a_function_is_a_step_under_its_name() -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    messages = stored([user("q"), call, {"role": "function", "name": "f", "content": "found"}])
    (event,) = reasoning_events(messages, NOW, IDS[:3])
    assert (event["tool"], event["tool_call_id"], event["result_message_id"]) == ("f", "f", "msg_2")
    (step,) = parse_reasoning_events_to_steps([event], {"msg_2": "found"})
    assert (step.step, step.arguments, step.result) == (1, "{}", "found")
