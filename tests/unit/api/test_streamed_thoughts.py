"""§10: OpenAI's SDK merges the signed thoughts of a streamed chat; what a client collected of them goes up whole."""

import json
from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from gateway.api.chat.endpoint import ChatAdapter
from gateway.api.request.body_cache import BodyCache
from gateway.core.clock import SystemClock
from gateway.core.config.settings import Settings
from gateway.core.formats.anthropic.plain_blocks import with_whole_thoughts
from tests.unit.making import chat

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
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def test_openais_sdk_merges_a_stream_with_thoughts() -> None:
    """Its helpers refuse entries of a list without an `index`."""
    writer = ChatAdapter(Settings(), BodyCache(1, SystemClock())).writer(chat([]))
    deltas: list[Json] = [{"role": "assistant"}, *({"thinking_blocks": [each]} for each in PIECES)]
    sent = writer.events([chunk(each) for each in deltas]) + writer.events([chunk(None), chunk({}, "stop")])
    state = ChatCompletionStreamState()
    for line in sent.decode().split("\n\n"):
        if line and (told := json.loads(line.removeprefix("data: ")))["choices"][0]["delta"] is not None:
            state.handle_chunk(ChatCompletionChunk.model_validate(told))
    message = state.get_final_completion().choices[0].message.model_dump()
    assert with_whole_thoughts(message)["thinking_blocks"] == WHOLE


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
    message = {"role": "assistant", "content": "So.", "thinking_blocks": blocks}
    found = with_whole_thoughts(message)
    assert found == {**message, "thinking_blocks": expected}
    assert (found is message) == (blocks == expected)
