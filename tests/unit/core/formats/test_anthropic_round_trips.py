"""Answers go out as Anthropic's blocks and come back as the chat's message that they were; events say what the whole
message says (guarantee §10.7, §10.8)."""

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import UpstreamInvalidResponse
from gateway.core.formats.anthropic import serializer
from gateway.core.formats.anthropic.message_events import MessageChunks, MessageEvents
from gateway.core.formats.anthropic.request_parser import assistant_message
from gateway.core.formats.stream_record import StreamRecord
from gateway.upstream.http.mending import check_choices
from tests.support.messages import EVENT, MESSAGE, put_together

Json = dict[str, Any]
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
NAME = st.text("abcdefgh_", min_size=1, max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAME, inner, max_size=3),
    max_leaves=8,
)
INPUT = st.dictionaries(NAME, VALUES, max_size=4)
SIGNED = st.builds(lambda text, sign: {"type": "thinking", "thinking": text, "signature": sign}, TEXT, TEXT)
REDACTED = st.builds(lambda data: {"type": "redacted_thinking", "data": data}, TEXT)
SAID = st.builds(lambda text: {"type": "text", "text": text}, TEXT)
CALL = st.builds(lambda name, given: {"type": "tool_use", "id": "", "name": name, "input": given}, NAME, INPUT)
SERVER = st.builds(lambda name: {"type": "server_tool_use", "id": "s1", "name": name, "input": {}}, NAME)


def numbered(blocks: list[Json]) -> list[Json]:
    """The blocks with ids for the calls among them."""
    return [{**block, "id": f"t{n}"} if block["type"] == "tool_use" else block for n, block in enumerate(blocks)]


@given(st.lists(SIGNED | REDACTED, max_size=2), SAID, st.lists(CALL, max_size=3))
def test_an_answer_comes_back_as_the_message_that_it_was(thoughts: list[Json], said: Json, calls: list[Json]) -> None:
    blocks = numbered([*thoughts, said, *calls])
    message = assistant_message(blocks, "messages[1].content")
    assert "native_blocks" not in message
    assert message["content"] == said["text"]
    assert serializer.content_blocks(message) == blocks
    assert assistant_message(serializer.content_blocks(message), "") == message


@given(st.lists(SIGNED | REDACTED | SAID | CALL | SERVER, min_size=1, max_size=6))
def test_blocks_in_any_order_come_back_in_theirs(blocks: list[Json]) -> None:
    """What a chat cannot hold, or not in this order, is kept as it came; several texts are still one answer's."""
    blocks = numbered(blocks)
    message = assistant_message(blocks, "messages[1].content")
    if "native_blocks" in message:
        assert serializer.content_blocks(message) == blocks
    else:
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        back = serializer.content_blocks(message)
        assert [block for block in back if block["type"] != "text"] == [b for b in blocks if b["type"] != "text"]
        assert [block["text"] for block in back if block["type"] == "text"] == (["".join(texts)] if texts else [])


def pieces(text: str, cuts: list[int]) -> list[str]:
    """A text in pieces, which may be empty."""
    at = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in itertools.pairwise(at)] or [""]


@given(
    st.one_of(st.none(), TEXT),
    st.lists(SIGNED | REDACTED, max_size=2),
    st.one_of(st.none(), TEXT),
    st.lists(st.tuples(NAME, INPUT), max_size=3),
    st.lists(st.integers(0, 60), max_size=5),
    st.randoms(use_true_random=False),
)
def test_events_say_what_the_whole_message_says(
    plain: str | None, signed: list[Json], text: str | None, calls: list[Any], cuts: list[int], random: Any
) -> None:
    """However the chunks are cut, and however the pieces of calls that come at once are mixed."""
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    message: Json = {"role": "assistant", "content": text}
    if signed:
        message["thinking_blocks"] = signed
        for block in signed:
            if block["type"] == "thinking":
                begun = {"type": "thinking"}
                told = [{**begun, "thinking": piece} for piece in pieces(block["thinking"], cuts)]
                told.append({**begun, "thinking": "", "signature": block["signature"]})
                deltas += [{"thinking_blocks": [each]} for each in told]
            else:
                deltas.append({"thinking_blocks": [block]})
    elif plain:
        message["reasoning_content"] = plain
        deltas += [{"reasoning_content": piece} for piece in pieces(plain, cuts)]
    deltas += [{"content": piece} for piece in pieces(text or "", cuts)]
    message["tool_calls"] = []
    queues: list[list[Json]] = []
    for n, (name, arguments) in enumerate(calls):
        written = json.dumps(arguments)
        message["tool_calls"].append({"id": f"c{n}", "function": {"name": name, "arguments": written}})
        first = {"index": n, "id": f"c{n}", "function": {"name": name, "arguments": ""}}
        queues.append([first, *({"index": n, "function": {"arguments": p}} for p in pieces(written, cuts))])
    while any(queues):
        queue = random.choice([each for each in queues if each])
        deltas.append({"tool_calls": [queue.pop(0)]})
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}
    finish = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}
    whole = serializer.as_message(
        {"id": "chatcmpl-1", "model": "m", "usage": usage, "choices": [{"message": message, **finish}]}, "m"
    )
    MESSAGE.validate_json(json.dumps(whole), strict=True)
    shared = {"id": "chatcmpl-1", "model": "m"}
    chunks: list[Json] = [{**shared, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks += [{**shared, "choices": [finish]}, {**shared, "choices": [], "usage": usage}]
    writer = MessageEvents("m")
    events = [event for chunk in chunks for event in writer.of([chunk])] + writer.end()
    for event in events:
        if event["type"] != "ping":
            EVENT.validate_json(json.dumps(event), strict=True)
    assert by_id(put_together(events)) == by_id(whole)


def by_id(message: Json) -> Json:
    """The message with its calls in the order of their ids: those that come at once may be told in another."""
    return {**message, "content": sorted(message["content"], key=lambda block: block.get("id", ""))}


KEYS = ("type", "text", "thinking", "signature", "id", "index", "function", "name", "arguments", "content")
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=6,
)
FUNCTION = ODD | st.fixed_dictionaries({}, optional={"name": ODD, "arguments": ODD})
CALLS = st.lists(st.fixed_dictionaries({}, optional={"id": ODD, "index": ODD, "function": FUNCTION}), max_size=3)
SPOKEN = ("content", "reasoning_content", "reasoning", "thinking_blocks", "refusal")
ANY_MESSAGE = st.fixed_dictionaries({}, optional={**dict.fromkeys(SPOKEN, ODD), "tool_calls": ODD | CALLS})
ENDED = {"index": st.just(0), "finish_reason": ODD, "stop_reason": ODD, "stop_details": ODD}


@given(st.fixed_dictionaries({"message": ANY_MESSAGE}, optional=ENDED), ODD)
def test_nothing_that_an_upstream_says_breaks_an_answer(choice: Json, usage: Any) -> None:
    """Whatever passes as a completion, or as chunks, is a message or events that Anthropic's own models take."""
    try:
        check_choices([choice], "message")
    except UpstreamInvalidResponse:
        return
    serializer.canonical_calls(choice)
    whole = serializer.as_message({"id": "chatcmpl-1", "choices": [choice], "usage": usage}, "m", ["x"])
    MESSAGE.validate_json(json.dumps(whole), strict=True)
    chunk = {"id": "chatcmpl-1", "choices": [{**choice, "delta": choice["message"]}], "usage": usage}
    writer = MessageEvents("m", ["x"])
    for event in writer.of([chunk]) + writer.end():
        if event["type"] != "ping":
            EVENT.validate_json(json.dumps(event), strict=True)


PAGE = {"type": "web_search_result_location", "url": "https://e.test/", "title": "E", "cited_text": "x"}
PLACE = {"type": "char_location", "cited_text": "x", "document_index": 0, "document_title": "t", "start_char_index": 0}
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
TOLD: list[tuple[Json, list[Json]]] = [
    (
        {"type": "compaction", "content": None},
        [{"type": "compaction_delta", "content": "So "}, {"type": "compaction_delta", "content": "far."}],
    ),
    (
        SEARCH,
        [
            {"type": "input_json_delta", "partial_json": '{"query":'},
            {"type": "input_json_delta", "partial_json": '"e"}'},
        ],
    ),
    (FOUND, []),
    ({"type": "text", "text": "", "citations": []}, [{"type": "text_delta", "text": "héé"}]),
    (
        {"type": "text", "text": "", "citations": []},
        [
            {"type": "citations_delta", "citation": PLACE},
            {"type": "text_delta", "text": "hi"},
            {"type": "citations_delta", "citation": PAGE},
            {"type": "voice_delta", "voice": "soft"},
        ],
    ),
    ({"type": "drawing", "lines": [1]}, [{"type": "drawing_delta", "lines": [2], "done": True}]),
    (
        {"type": "tool_use", "id": "t1", "name": "f", "input": {}, "caller": {"type": "direct"}},
        [{"type": "input_json_delta", "partial_json": "{}"}],
    ),
]
"""Blocks as they begin, and their deltas."""
BLOCKS: list[Json] = [
    {"type": "compaction", "content": "So far."},
    {**SEARCH, "input": {"query": "e"}},
    FOUND,
    {"type": "text", "text": "héé", "citations": []},
    {"type": "text", "text": "hi", "citations": [PLACE, PAGE], "voice": "soft"},
    {"type": "drawing", "lines": [1, 2], "done": True},
    {"type": "tool_use", "id": "t1", "name": "f", "input": {}, "caller": {"type": "direct"}},
]


def told_events() -> tuple[list[Json], list[Json]]:
    """A stream of Anthropic's with all that a chat has no words for, and those of its events that are to come back as
    they are."""
    exact: list[Json] = []
    for index, (block, deltas) in enumerate(TOLD):
        exact.append({"type": "content_block_start", "index": index, "content_block": block})
        exact += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        exact.append({"type": "content_block_stop", "index": index})
    exact.insert(-3, {"type": "weather_changed", "to": "rain"})
    usage = {"input_tokens": 10, "output_tokens": 1}
    message = {"id": "msg_up", "type": "message", "role": "assistant", "model": "claude", "content": [], "mood": "calm"}
    start = {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}
    delta = {"stop_reason": "tool_use", "stop_sequence": None, "stop_mood": "tired"}
    end = {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5, "ink": 3}, "weather": "fine"}
    return [start, {"type": "ping"}, *exact, end, {"type": "message_stop"}], exact


def test_s1_7_a_stream_passes_on_what_no_chat_has_words_for() -> None:
    """§1.7: citations, compactions, and kinds of blocks, deltas, events and fields that nobody knows yet."""
    sent, exact = told_events()
    reader, record = MessageChunks(created=1), StreamRecord(1)
    chunks = [chunk for event in sent for chunk in reader.of(event)]
    for chunk in chunks:
        record.add(chunk)
    writer = MessageEvents("claude")
    events = [*writer.of(chunks), *writer.end()]
    kinds = ("message_start", "ping", "message_delta", "message_stop")
    assert [event for event in events if event["type"] not in kinds] == exact
    assert events[0]["message"]["mood"] == "calm"
    (ended,) = (event for event in events if event["type"] == "message_delta")
    assert (ended["delta"]["stop_mood"], ended["usage"]["ink"], ended["weather"]) == ("tired", 3, "fine")
    assert "mood" not in ended


def test_s1_7_what_a_stream_brought_is_kept_and_goes_up_again() -> None:
    """§1.7: the message is what a whole answer would be, and its blocks go up as they came."""
    sent, _ = told_events()
    reader, record = MessageChunks(created=1), StreamRecord(1)
    for event in sent:
        for chunk in reader.of(event):
            record.add(chunk)
    whole = {"id": "msg_up", "content": BLOCKS, "stop_reason": "tool_use", "usage": None, "mood": "calm"}
    message = record.completion()["choices"][0]["message"]
    assert message == serializer.message_of(BLOCKS)
    assert serializer.as_message(serializer.completion_of(whole, 1), "claude")["content"] == BLOCKS
    assert serializer.as_message(serializer.completion_of(whole, 1), "claude")["mood"] == "calm"
    assert serializer.as_turns([{"role": "user", "content": "go"}, message])[1][1]["content"] == BLOCKS
    cited = {"url": "https://e.test/", "title": "E", "start_index": 3, "end_index": 5}
    assert message["annotations"] == [{"type": "url_citation", "url_citation": cited}]
