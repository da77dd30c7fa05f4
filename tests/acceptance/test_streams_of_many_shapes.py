"""Streams as providers really send them: cut anywhere, with comments, named events, extras (guarantee §1, §6)."""

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.support.answers import Json, read_stream, user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

ASK: Any = [user("hi")]
CHAT = {"model": "small", "messages": ASK}
TEXT = "größer 🌊 – 海は広い"
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
COST = 9 * Decimal("1e-06") + 4 * Decimal("2e-06")
HEAD = {"id": "up-1", "object": "chat.completion.chunk", "created": 1, "model": "small"}


def chunk(delta: Json, finish: str | None = None, **more: Any) -> Json:
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


WHOLE = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "größer 🌊"}),
    chunk({"content": " – 海は広い"}),
    chunk({}, "stop"),
    {**HEAD, "choices": [], "usage": USAGE},
]


def sse(chunks: list[Json], end: str = "\n", done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(c, ensure_ascii=False)}{end}{end}" for c in chunks]
    return "".join([*lines, f"data: [DONE]{end}{end}" if done else ""]).encode()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_s1_events_split_anywhere(one_gateway: GatewayProcess, upstream: MockUpstream, size: int) -> None:
    """Writes that end inside an event, a field name or a character change nothing."""
    upstream.reply(text=TEXT, usage=USAGE, split_bytes=size)
    wire = read_stream(one_gateway, CHAT)
    assert wire.text == TEXT
    assert wire.finish["response_metadata"]["cost"]["total_cost"] == COST


ODD = {
    "CRLF": sse(WHOLE, "\r\n"),
    "CR": sse(WHOLE, "\r"),
    "no space after the colon": sse(WHOLE).replace(b"data: ", b"data:"),
    "comments and keep-alives": b": OPENROUTER PROCESSING\n\n" + sse(WHOLE).replace(b"\n\n", b"\n\n: ping\n\n\n"),
    "named events, ids, retry": sse(WHOLE).replace(b"data: ", b"event: completion\nid: 7\nretry: 10\ndata: "),
    "several data lines an event": sse(WHOLE).replace(b', "choices"', b',\ndata: "choices"'),
    "a byte order mark": b"\xef\xbb\xbf" + sse(WHOLE),
    "no [DONE]": sse(WHOLE, done=False),
    "no blank line at the end": sse(WHOLE).removesuffix(b"\n\n"),
    "something after [DONE]": sse(WHOLE) + b": bye\n\n",
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("size", [None, 1])
def test_s1_any_valid_event_stream(
    one_gateway: GatewayProcess, upstream: MockUpstream, name: str, size: int | None
) -> None:
    """What the standard for event streams allows is read; what goes out is always plain `data:`."""
    upstream.reply(raw_sse=ODD[name], split_bytes=size)
    wire = read_stream(one_gateway, CHAT)
    assert wire.chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert wire.text == TEXT
    assert wire.finish["response_metadata"]["usage"] == USAGE
