"""A whole answer in chunks: guarantee §6's rules for streams hold for it."""

from typing import Any

import pytest

from gateway.api.request.stored_answer import replayed_chunks

BILL = {"request_id": "req_1", "usage": {"total_tokens": 3}, "cost": {"total_cost": 1}, "timings_ms": {}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}


def body(*choices: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "system_fingerprint": "fp",
        "service_tier": "flex",
        "citations": ["x"],
        "choices": [{"index": n, "finish_reason": "stop", "logprobs": None, **each} for n, each in enumerate(choices)],
        "usage": {"total_tokens": 3, "cost": 1},
        "response_metadata": BILL,
        "conversation": {"id": "conv_1"},
    }


@pytest.mark.parametrize("usage", [True, False])
def test_s6_the_bill_stands_where_it_always_does(usage: bool) -> None:
    """What is known at first on the first chunk; all on the last finish chunk; the usage chunk only if asked for."""
    two = [{"message": {"role": "assistant", "content": text}} for text in ("a", "b")]
    chunks = replayed_chunks(body(*two), 2, include_usage=usage)
    finishes = [n for n, chunk in enumerate(chunks) if any(c.get("finish_reason") for c in chunk["choices"])]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[0]["response_metadata"] == {"request_id": "req_1", "timings_ms": {}}
    assert chunks[0]["citations"] == ["x"]
    assert chunks[finishes[-1]]["response_metadata"] == BILL
    assert [n for n, chunk in enumerate(chunks) if "response_metadata" in chunk and chunk["choices"]] == [
        0,
        finishes[-1],
    ]
    assert all(chunks[n]["conversation"] == {"id": "conv_1"} for n in (0, finishes[-1]))
    assert {chunk["id"] for chunk in chunks} == {"chatcmpl-1"}
    assert {(chunk["system_fingerprint"], chunk["service_tier"]) for chunk in chunks} == {("fp", "flex")}
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert [chunk for chunk in chunks if not chunk["choices"]] == ([chunks[-1]] if usage else [])
    assert chunks[-1].get("usage") == ({"total_tokens": 3, "cost": 1} if usage else None)
    assert ("usage" in chunks[0]) is usage


def test_s6_every_field_of_a_message() -> None:
    """Tool calls with their places, reasoning, what a provider adds to a choice."""
    message = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CALL, CALL]}
    logprobs = {"content": [{"token": "a"}]}
    choice = {"message": message, "finish_reason": "tool_calls", "logprobs": logprobs, "content_filter": {"x": 1}}
    chunks = replayed_chunks(body(choice), 1, include_usage=False)
    [said] = [c for chunk in chunks for c in chunk["choices"] if c["delta"].get("tool_calls")]
    assert said["delta"]["tool_calls"] == [{"index": 0, **CALL}, {"index": 1, **CALL}]
    assert said["delta"]["reasoning_content"] == "hm"
    assert said["logprobs"] == logprobs
    assert chunks[-1]["choices"][0]["content_filter"] == {"x": 1}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
