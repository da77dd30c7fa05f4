"""The chunks of a stream, put together, are the answer that was not streamed."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.formats.stream_record import StreamRecord
from tests.support.reply import Reply, render

ALPHABET = 'ab "{}\\\né🙂'


def record(chunks: list[dict[str, Any]], choices: int = 1) -> StreamRecord:
    made = StreamRecord(choices)
    for chunk in chunks:
        made.add(chunk)
    return made


def delta(index: int = 0, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "x", "choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


def test_a_last_word_of_zeros_takes_no_usage_back() -> None:
    """Some servers report usage with the finish reason, and zeros in the chunk of usage that was asked for."""
    said = {"prompt_tokens": 100, "completion_tokens": 3, "total_tokens": 103}
    zeros = dict.fromkeys(said, 0)
    begun = [delta(content="a"), {**delta(finish="stop"), "usage": zeros}]
    assert record(begun).usage == zeros
    for last in (zeros, {}, {"prompt_tokens": None}):
        assert record([*begun, {"choices": [], "usage": said}, {"choices": [], "usage": last}]).usage == said


def test_a_usage_in_two_parts_is_one() -> None:
    """Some servers tell what was sent with the first chunk and what was answered with the last."""
    details = {"prompt_tokens_details": {"cached_tokens": 4}}
    sent = {"prompt_tokens": 100, "completion_tokens": 0, "total_tokens": 100, **details}
    for answered in ({"completion_tokens": 3}, {"prompt_tokens": 0, "completion_tokens": 3, "total_tokens": 3}):
        chunks = [{**delta(content="a"), "usage": sent}, {**delta(finish="stop"), "usage": answered}]
        whole = {"prompt_tokens": 100, "completion_tokens": 3, "total_tokens": 103, **details}
        assert record(chunks).usage == whole
        assert record([*chunks, {"choices": [], "usage": whole}]).usage == whole
    growing = [{**delta(content="a"), "usage": {**sent, "completion_tokens": count}} for count in (1, 2, 3)]
    assert (record(growing).usage or {})["completion_tokens"] == 3


def streamed(reply: Reply, **request: Any) -> list[dict[str, Any]]:
    """The chunks that the mock upstream, which knows nothing of the gateway, makes of an answer."""
    import json

    asked = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, **request}
    pieces = render(reply, asked, 1, 7).pieces
    return [json.loads(piece[6:]) for piece in pieces if piece != b"data: [DONE]\n\n"]


def whole(reply: Reply, **request: Any) -> dict[str, Any]:
    import json

    body: dict[str, Any] = json.loads(b"".join(render(reply, {"model": "m", **request}, 1, 7).pieces))
    return body


def said(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if value is not None}


REPLIES = {
    "text": (Reply(text="Grüße, Welt!\n 🙂"), {}),
    "choices": (Reply(text="one two"), {"n": 3}),
    "calls": (Reply(text="I look", tool_calls=[("search", {"q": "a"}), ("fetch", {"url": "https://x"})]), {}),
    "calls alone": (Reply(text="", tool_calls=[("search", {})]), {}),
    "unknown fields": (Reply(message={"role": "assistant", "content": "42", "reasoning_content": "6 × 7",
                                      "blocks": [1, {"a": 2}]}), {}),
    "refusal": (Reply(message={"role": "assistant", "content": "", "refusal": "I will not"}), {}),
    "tier": (Reply(text="a", extra={"service_tier": "flex", "system_fingerprint": "fp"}), {}),
}  # fmt: skip


@pytest.mark.parametrize(("reply", "request_fields"), REPLIES.values(), ids=list(REPLIES))
def test_a_stream_put_together_is_the_whole_answer(reply: Reply, request_fields: dict[str, Any]) -> None:
    expected = whole(reply, **request_fields)
    made = record(streamed(reply, **request_fields), request_fields.get("n", 1))
    got = made.completion()
    assert made.begun_are_finished
    assert made.usage == expected["usage"]
    assert [c["finish_reason"] for c in got["choices"]] == [c["finish_reason"] for c in expected["choices"]]
    for one, other in zip(got["choices"], expected["choices"], strict=True):
        assert {"content": "", **said(one["message"])} == {"content": "", **said(other["message"])}
    top = ("id", "model", "created", "system_fingerprint", "service_tier", "object")
    assert [got.get(name) for name in top] == [expected.get(name) for name in top]


@given(text=st.text(ALPHABET, max_size=60), cuts=st.lists(st.integers(0, 60), max_size=8))
def test_however_arguments_and_text_are_cut_they_come_together(text: str, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), 60]
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    first = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    chunks = [delta(role="assistant", tool_calls=[first])]
    for piece in pieces:
        chunks += [delta(content=piece), delta(tool_calls=[{"index": 0, "function": {"arguments": piece}}])]
    message = record(chunks).completion()["choices"][0]["message"]
    assert message["content"] == (text or None), "an empty text beside calls is none"
    assert message["tool_calls"] == [{"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}]


def test_nothing_is_begun_before_a_choice_and_finished_only_when_all_are() -> None:
    made = StreamRecord(2)
    made.add({"id": "x", "choices": []})
    assert (made.begun, made.begun_are_finished) == (False, False)
    made.add(delta(0, "stop"))
    assert (made.begun, made.begun_are_finished, made.asked_are_finished) == (True, True, False)
    made.add(delta(1, content="a"))
    assert (made.begun_are_finished, made.asked_are_finished) == (False, False)
    made.add(delta(1, "length"))
    assert (made.begun_are_finished, made.asked_are_finished) == (True, True)
    assert made.envelope == {"id": "x"}


def test_calls_without_an_index_are_told_apart_by_their_place() -> None:
    calls = [{"id": "a", "function": {"name": "f", "arguments": "{}"}}, {"id": "b", "function": {"name": "g"}}]
    message = record([delta(tool_calls=calls)]).completion()["choices"][0]["message"]
    assert [(c["id"], c["function"]["name"]) for c in message["tool_calls"]] == [("a", "f"), ("b", "g")]


def test_logprobs_are_joined_and_a_message_is_not_changed_by_reading_it() -> None:
    one = delta(content="a")
    one["choices"][0]["logprobs"] = {"content": [{"token": "a"}], "refusal": None}
    two = delta(content="b", finish="stop")
    two["choices"][0]["logprobs"] = {"content": [{"token": "b"}]}
    made = record([one, two])
    assert made.completion()["choices"][0]["logprobs"]["content"] == [{"token": "a"}, {"token": "b"}]
    assert made.completion() == made.completion()


def test_an_upstream_that_ends_without_saying_why_gets_a_reason_for_each_choice() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    made = record([delta(0, content="a"), delta(1, tool_calls=[call]), delta(2, "length")], 3)
    assert [(c["index"], c["finish_reason"]) for c in made.missing_finishes()] == [(0, "stop"), (1, "tool_calls")]
    assert record([delta(0, "stop")]).missing_finishes() == []


def test_thoughts_are_put_together_with_their_signatures() -> None:
    """§1: pieces of a thought are one block, ended by its signature; hidden ones stand by themselves."""
    record = StreamRecord(1)
    hidden = {"type": "redacted_thinking", "data": "x"}
    for block in (
        {"type": "thinking", "thinking": "one "},
        {"type": "thinking", "thinking": "two"},
        {"type": "thinking", "thinking": "", "signature": "s1"},
        hidden,
        {"type": "thinking", "thinking": "three", "signature": "s2"},
        {"type": "thinking", "thinking": "four"},
    ):
        record.add({"choices": [{"index": 0, "delta": {"thinking_blocks": [block]}}]})
    assert record.completion()["choices"][0]["message"]["thinking_blocks"] == [
        {"type": "thinking", "thinking": "one two", "signature": "s1"},
        hidden,
        {"type": "thinking", "thinking": "three", "signature": "s2"},
        {"type": "thinking", "thinking": "four"},
    ]
