"""What goes up to Anthropic and what comes back, as translations (guarantee §10.9)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import InvalidRequest
from gateway.core.formats.anthropic.message_events import MessageChunks
from gateway.core.formats.anthropic.request_parser import MessageReader
from gateway.core.formats.anthropic.serializer import (
    as_turns,
    completion_of,
    fault_status,
    is_message,
    message_of,
    messages_request,
)
from gateway.core.formats.stream_record import StreamRecord
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.items import items_of
from tests.support import anthropic_wire as wire

Json = dict[str, Any]
NOW = 1_750_000_000
USER: Json = {"role": "user", "content": "And then?"}
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda text: bool(text.strip())
)
THOUGHT = st.builds(lambda t, s: {"type": "thinking", "thinking": t, "signature": s}, WORDS, st.just("c2ln"))
REDACTED = st.builds(lambda d: {"type": "redacted_thinking", "data": d}, st.just("ZW5j"))
TEXT = st.builds(wire.text, WORDS)
HOSTED = st.builds(lambda q: {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"q": q}}, WORDS)
VALUES = st.one_of(st.integers(-(10**6), 10**6), WORDS, st.booleans(), st.none(), st.lists(WORDS, max_size=2))
KINDS = st.sampled_from(["type", "text", "thinking", "usage", "content", "id", "input", "citation", "stop_reason"])
INPUTS = st.dictionaries(WORDS, VALUES, max_size=3)


@st.composite
def answers(draw: st.DrawFn) -> list[Json]:
    """The blocks of an answer: in the usual order, or in any."""
    blocks = draw(st.lists(st.one_of(THOUGHT, REDACTED, TEXT, HOSTED), max_size=5))
    calls = [wire.tool_use(f"toolu_{n}", "search") for n in range(draw(st.integers(0, 3)))]
    for call in calls:
        call["input"] = draw(INPUTS)
    if draw(st.booleans()):
        order = {"thinking": 0, "redacted_thinking": 0, "text": 1, "tool_use": 2, "server_tool_use": 1}
        return sorted([*blocks, *calls], key=lambda block: order[block["type"]])
    return draw(st.permutations([*blocks, *calls]))


OWN: list[Json] = [
    {"type": "document", "source": {"type": "url", "url": "https://e.org/a.pdf"}, "title": "A"},
    {"type": "document", "source": {"type": "file", "file_id": "file_1"}, "citations": {"enabled": True}},
    {"type": "search_result", "source": "https://e.org", "title": "E", "content": [wire.text("found")]},
    {"type": "container_upload", "file_id": "file_2"},
    {"type": "pondered", "about": {"type": "x"}},
]
"""Blocks of a user that no chat has words for."""


def streamed(answer: Json) -> Json:
    """The completion that the events of an answer add up to."""
    chunks, record = MessageChunks(NOW), StreamRecord(1)
    for event in wire.events(answer):
        for chunk in chunks.of(json.loads(event.partition(b"data: ")[2])):
            record.add(chunk)
    assert chunks.ended
    return {**record.completion(), "usage": record.usage}


@given(answers())
def test_s10_9_an_answer_goes_up_again_as_it_came(blocks: list[Json]) -> None:
    """§10.9: the blocks of an answer are in the next request the same and in the same order, whole or streamed."""
    answer = wire.message(*blocks)
    whole = completion_of(answer, NOW)["choices"][0]["message"]
    for message in (whole, streamed(answer)["choices"][0]["message"]) if blocks else ():
        results = [{"role": "tool", "tool_call_id": c["id"], "content": "x"} for c in message.get("tool_calls") or ()]
        _, turns = as_turns([USER, message, *results, USER])
        assert turns[1]["content"] == blocks


@given(answers())
def test_s10_9_a_stream_says_what_a_whole_answer_says(blocks: list[Json]) -> None:
    """§10.9: a streamed answer adds up to the whole one."""
    answer = wire.message(*blocks, spent=wire.usage(10, 42, read=7, written=5))
    whole, told = completion_of(answer, NOW), streamed(answer)
    for name in ("tool_calls", "thinking_blocks", "native_blocks", "reasoning_content"):
        one, other = (each["choices"][0]["message"].get(name) for each in (whole, told))
        if name == "tool_calls":
            one, other = (
                [
                    {**c, "function": {**c["function"], "arguments": json.loads(c["function"]["arguments"])}}
                    for c in each
                ]
                for each in (one or [], other or [])
            )
        assert one == other, name
    assert whole["usage"] == told["usage"]
    assert (whole["id"], whole["model"], whole["created"]) == (told["id"], told["model"], told["created"])


def test_s10_9_calls_that_left_are_not_sent() -> None:
    """§10.9: of blocks that are kept as they came, calls and thoughts that were taken out of the message leave, too."""
    message = message_of([wire.text("a"), wire.THOUGHT, wire.text("b"), wire.tool_use("t1", "x")])
    assert "native_blocks" in message
    kept = {k: v for k, v in message.items() if k not in ("tool_calls", "thinking_blocks")}
    _, turns = as_turns([USER, kept, USER])
    assert turns[1]["content"] == [wire.text("a"), wire.text("b")]


def test_s10_9_ids_are_ones_that_anthropic_takes() -> None:
    """§10.9: ids of other providers' calls are made fit, and each is one call's: local servers repeat them."""

    def step(call_id: str) -> list[Json]:
        call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{"}}
        answer = {"role": "assistant", "content": None, "tool_calls": [call]}
        return [answer, {"role": "tool", "tool_call_id": call_id, "content": "r"}]

    _, turns = as_turns([USER, *step("call/1"), *step("call/1"), *step("call_1")])
    calls = [b for turn in turns for b in turn["content"] if b["type"] == "tool_use"]
    results = [b for turn in turns for b in turn["content"] if b["type"] == "tool_result"]
    assert [call["id"] for call in calls] == ["call_1", "call_1_2", "call_1_3"]
    assert [result["tool_use_id"] for result in results] == ["call_1", "call_1_2", "call_1_3"]
    assert calls[0]["input"] == {"arguments": "{"}, "what is no JSON is not lost"


def test_s10_9_roles_take_turns() -> None:
    """§10.9: instructions in front are the system's, later ones stay; what one role says together is one message."""
    messages: list[Json] = [
        {"role": "system", "content": "S"},
        {"role": "developer", "content": "D"},
        {"role": "user", "content": "a"},
        {"role": "user", "content": [wire.text("b"), wire.text(" ")]},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": "c", "cache_control": {"type": "ephemeral"}},
        {"role": "system", "content": "later"},
    ]
    system, turns = as_turns(messages)
    assert system == [wire.text("S"), wire.text("D")]
    assert turns == [
        {"role": "user", "content": [wire.text("a"), wire.text("b")]},
        {"role": "assistant", "content": [{**wire.text("c"), "cache_control": {"type": "ephemeral"}}]},
        {"role": "system", "content": [wire.text("later")]},
    ]


def test_s10_9_marks_of_a_result_stand_on_it() -> None:
    """§10.9: a mark inside a tool's result is one on the result, where Anthropic takes it."""
    marked = [{**wire.text("r"), "cache_control": {"type": "ephemeral"}}]
    _, turns = as_turns([{"role": "tool", "tool_call_id": "t", "content": marked}])
    result = turns[0]["content"][0]
    assert result["cache_control"] == {"type": "ephemeral"}
    assert result["content"] == [wire.text("r")]


def test_s10_9_documents_and_sound() -> None:
    """§10.9: files go up as documents, text as text; sound is refused by name."""

    def sent(part: Json) -> Json:
        _, turns = as_turns([{"role": "user", "content": [part]}])
        found: Json = turns[0]["content"][0]
        return found

    pdf = {"type": "file", "file": {"file_data": "data:application/pdf;base64,QUJD", "filename": "a.pdf"}}
    assert sent(pdf)["source"] == {"type": "base64", "media_type": "application/pdf", "data": "QUJD"}
    assert sent(pdf)["title"] == "a.pdf"
    text = {"type": "file", "file": {"file_data": "data:text/plain;base64,QUJD", "filename": "document.txt"}}
    assert sent(text) == {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "ABC"}}
    assert sent({"type": "file", "file": {"file_id": "file_1"}})["source"] == {"type": "file", "file_id": "file_1"}
    assert sent({"type": "image_url", "image_url": {"url": "https://e.org/a.png"}})["source"]["type"] == "url"
    messages, sound = [{"role": "user", "content": "hear"}], {"type": "input_audio", "input_audio": {}}
    with pytest.raises(InvalidRequest) as refused:
        as_turns([*messages, {"role": "user", "content": [{"type": "text", "text": "this"}, sound]}])
    assert refused.value.param == "messages[1].content[1]"


def test_s14_6_a_picture_by_an_id_that_is_not_kept_here_goes_up_as_it_came() -> None:
    """Where nothing is put in its place; another API's upstream cannot be asked for it."""
    block = {"type": "image", "source": {"type": "file", "file_id": "file-1"}, "context": "a map"}
    reader = MessageReader()
    reader.read({"role": "user", "content": [block]}, "messages[0]")
    assert as_turns(reader.messages)[1] == [{"role": "user", "content": [block]}]
    assert reader.needs == ["messages[0].content[0].source.file_id"]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("block", OWN, ids=[f"{block['type']}-{n}" for n, block in enumerate(OWN)])
def test_s10_9_a_users_blocks_go_up_as_they_came(block: Json, inside: bool) -> None:
    """§10.9: a block that no chat has words for is in the request as the client sent it, in results too."""
    said = {"type": "tool_result", "tool_use_id": "t1", "content": [block]} if inside else block
    reader = MessageReader()
    reader.read({"role": "assistant", "content": [wire.tool_use("t1", "f")]}, "messages[0]")
    reader.read({"role": "user", "content": [said]}, "messages[1]")
    _, turns = as_turns(reader.messages)
    assert turns[-1]["content"] == [said]
    last = reader.messages[-1]
    (item,) = items_of(ConversationMessage(str(last["role"]), last, message_id="msg_1"))
    (part,) = item["output" if inside else "content"]
    assert part == {"type": "input_text", "text": f"({block['type']})"}


def test_s10_9_limits_and_choices() -> None:
    """§10.9: a limit is always named; a chat's other words have Anthropic's in their place, or none."""
    tools = [{"type": "function", "function": {"name": name, "strict": True}} for name in ("f", "shell")]
    body: Json = {"model": "c", "messages": [USER], "tools": tools, "tool_choice": {"function": {"name": "f"}}}
    body |= {"stream_options": {"include_usage": True}, "seed": 1, "stop": ["a"], "top_k": 5}
    body |= {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}}
    native: Json = {"tools": [{"type": "web_search_20250305", "name": "web_search"}, {"name": "f", "input_schema": {}}]}
    found, betas = messages_request(body, native)
    assert betas == []
    assert found["max_tokens"] == 4096
    assert [tool["name"] for tool in found["tools"]] == ["web_search", "f", "shell"]
    assert found["tool_choice"] == {"type": "tool", "name": "f"}
    assert found["output_config"] == {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    assert (found["stop_sequences"], found["top_k"]) == (["a"], 5)
    assert not {"seed", "stream_options", "stop", "response_format"} & found.keys()


def test_s7_1_the_system_alone_is_no_request() -> None:
    with pytest.raises(InvalidRequest) as caught:
        messages_request({"model": "c", "messages": [{"role": "developer", "content": "Be brief."}]})
    assert caught.value.param == "messages"


def test_s10_9_effort() -> None:
    """§10.9: an effort that the operator configured is a budget to think with, unless the client says something."""
    body: Json = {"model": "c", "messages": [USER], "reasoning_effort": "medium", "max_tokens": 8000}
    assert messages_request(body)[0]["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert "thinking" not in messages_request({**body, "max_tokens": 100})[0]
    assert "thinking" not in messages_request({**body, "max_tokens": 1024})[0]
    for most in (1025, 2048, 2049):  # the budget is to be below the limit of the answer
        assert messages_request({**body, "max_tokens": most})[0]["thinking"]["budget_tokens"] == most - 1
    assert messages_request(body, {"thinking": {"type": "disabled"}})[0]["thinking"]["type"] == "disabled"


def test_s10_data_that_is_not_base64_is_encoded() -> None:
    """§10: a data URL may have it in other words (RFC 2397)."""
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/gif,GIF89a%00"}},
        {"type": "file", "file": {"file_data": "DATA:text/plain,Clause%2014"}},
    ]
    (turn,) = messages_request({"model": "c", "messages": [{"role": "user", "content": parts}]})[0]["messages"]
    assert turn["content"][0]["source"] == {"type": "base64", "media_type": "image/gif", "data": "R0lGODlhAA=="}
    assert turn["content"][1]["source"] == {"type": "text", "media_type": "text/plain", "data": "Clause 14"}


@pytest.mark.parametrize("value", [None, [], {}, {"content": "a"}, {"content": [1]}, {"content": [{"text": "a"}]}])
def test_s10_9_what_is_no_message(value: Any) -> None:
    """§10.9: an answer whose blocks cannot be read is none."""
    assert not is_message(value)


@pytest.mark.parametrize(("event", "status"), [({}, 502), ({"error": "x"}, 502), ({"error": {"type": []}}, 502)])
def test_s10_9_an_unknown_fault(event: Json, status: int) -> None:
    """§10.9: an error of a type that nobody knows is the upstream's fault."""
    assert fault_status(event) == status


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda v: st.lists(v) | st.dictionaries(KINDS, v)))
def test_s10_9_strange_events(value: Any) -> None:
    """§10.9: events that are none of Anthropic's never make the reader fail."""
    chunks = MessageChunks(NOW)
    for kind in ("message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"):
        chunks.of({"type": kind, "index": 0, "message": value, "content_block": value, "delta": value, "usage": value})


@pytest.mark.parametrize("value", [None, True, -1, [], {"a": [None]}])
@pytest.mark.parametrize("block", [wire.text(""), {"type": "server_tool_use", "id": "s", "name": "f", "input": {}}])
def test_s7_a_piece_that_is_no_text_says_nothing(block: Json, value: Any) -> None:
    """Anthropic's clients add the pieces of a text up: what is none would break them."""
    chunks = MessageChunks(NOW)
    chunks.of({"type": "message_start", "message": {"id": "msg_1", "model": "m", "role": "assistant", "content": []}})
    chunks.of({"type": "content_block_start", "index": 0, "content_block": block})
    for kind, name in (("text_delta", "text"), ("input_json_delta", "partial_json")):
        assert chunks.of({"type": "content_block_delta", "index": 0, "delta": {"type": kind, name: value}}) == []


def test_s1_9_streamed_arguments_that_are_no_json_are_read_leniently() -> None:
    """NaN, a line end as it is and half a character: the call keeps all else, as where it came whole."""
    chunks = MessageChunks(NOW)
    begun = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
    pieces = ('{"a": NaN, "b": "one\ntwo', '", "c": "\\ud83d"}')
    events: list[Json] = [
        {"type": "message_start", "message": {"id": "msg_1", "model": "m", "role": "assistant", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": begun},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}}
            for piece in pieces
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    for event in events:
        chunks.of(event)
    assert chunks.message()["content"][0]["input"] == {"a": None, "b": "one\ntwo", "c": "\ufffd"}


def test_s3_3_results_of_calls_that_share_an_id_go_to_one_each() -> None:
    """They are paired in order, in one answer and over several."""
    call = {"id": "0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call, call]}
    said = [{"role": "tool", "tool_call_id": "0", "content": text} for text in ("one", "two")]
    _, turns = as_turns([asks, *said, asks, *said])
    ids = [[block.get("id") or block["tool_use_id"] for block in turn["content"]] for turn in turns]
    assert ids == [["0", "0_2"], ["0", "0_2"], ["0_3", "0_4"], ["0_3", "0_4"]]
