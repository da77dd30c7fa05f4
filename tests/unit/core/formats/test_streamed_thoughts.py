"""§10: OpenAI's SDK merges the signed thoughts of a streamed chat; what a client collected of them goes up whole."""

from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from gateway.core.formats.anthropic.plain_blocks import with_whole_thoughts
from gateway.core.formats.stream_record import ChunkRelay, StreamRecord
from gateway.core.types.items import SIGNED

Json = dict[str, Any]
REDACTED: Json = {"type": "redacted_thinking", "data": "sealed"}
PIECES: list[Json] = [
    {"type": "thinking", "thinking": "The lamp", "signature": None},
    {"type": "thinking", "thinking": " is violet."},
    {"type": "thinking", "thinking": "", "signature": "signed"},
    REDACTED,
    {"type": "thinking", "thinking": "Or is it?", "signature": "signed at once"},
    {"type": "thinking", "thinking": "Yes."},
    {"type": "thinking", "thinking": "", "signature": "signed again"},
]
WHOLE: list[Json] = [
    {"type": "thinking", "thinking": "The lamp is violet.", "signature": "signed"},
    REDACTED,
    {"type": "thinking", "thinking": "Or is it?", "signature": "signed at once"},
    {"type": "thinking", "thinking": "Yes.", "signature": "signed again"},
]


def chunk(delta: Json | None, finish: str | None = None) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def test_openais_sdk_merges_a_stream_with_thoughts() -> None:
    """Its helpers refuse entries of a list without an `index`."""
    envelope = {"object": "chat.completion.chunk", "created": 1, "model": "m"}
    relay = ChunkRelay("c", 1, include_usage=False, envelope=envelope, numbers_thoughts=True)
    state = ChatCompletionStreamState()
    deltas: list[Json] = [{"role": "assistant"}, *({SIGNED: [each]} for each in PIECES), {"content": "So."}]
    for delta in deltas:
        for sent in relay.push([chunk(delta)], dict):
            state.handle_chunk(ChatCompletionChunk.model_validate(sent))
    message = state.current_completion_snapshot.choices[0].message.model_dump()
    assert with_whole_thoughts(message)[SIGNED] == WHOLE
    assert "index" not in str(relay.record.completion()["choices"][0]["message"])


def test_s1_openrouters_thoughts_are_stored_whole() -> None:
    """§1: the signature is that of all pieces; those of another index, or without one, are apart."""
    text = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    sealed = {"type": "reasoning.encrypted", "data": "sealed", "index": 1}
    other = {"type": "reasoning.summary", "summary": "Violet.", "index": 2}
    pieces: list[Json] = [
        {**text, "text": "The lamp"},
        {**text, "text": " is violet.", "signature": None},
        {**text, "signature": "signed"},
        *(sealed, sealed, other, {**other, "index": 3}),
        {**text, "text": "So."},
        *({"type": "reasoning.text", "text": each} for each in "ab"),
    ]
    record = StreamRecord(1)
    for each in pieces:
        record.add(chunk({"reasoning_details": [each]}))
    found = record.completion()["choices"][0]["message"]["reasoning_details"]
    assert found == [{**text, "text": "The lamp is violet.", "signature": "signed"}, *pieces[3:]]


def test_s1_a_stream_of_openais_protocol_comes_down_as_written() -> None:
    relay = ChunkRelay("c", 1, include_usage=False)
    (sent,) = relay.push([chunk({SIGNED: PIECES[:1]})], dict)
    assert sent["choices"] == chunk({SIGNED: PIECES[:1]})["choices"]


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        (PIECES, WHOLE),
        (WHOLE, WHOLE),
        ([{"index": 3, **WHOLE[0]}], WHOLE[:1]),
        ([PIECES[0], WHOLE[2]], [PIECES[0], WHOLE[2]]),  # of two providers
        ([PIECES[0], REDACTED], [PIECES[0], REDACTED]),
    ],
)
def test_thoughts_that_a_client_collected_are_whole_again(blocks: list[Json], expected: list[Json]) -> None:
    message = {"role": "assistant", "content": "So.", SIGNED: blocks}
    found = with_whole_thoughts(message)
    assert found == {**message, SIGNED: expected}
    assert (found is message) == (blocks == expected)
