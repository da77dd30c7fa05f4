"""Anthropic's Messages API as it goes over the wire: answers, events and errors."""

import json
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]
THOUGHT = {"type": "thinking", "thinking": "The user wants the weather.", "signature": "c2lnbmF0dXJl+/=="}
REDACTED = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}


class Refused(Exception):
    """Anthropic would answer with 400 and this message."""

    @property
    def body(self) -> Json:
        return error("invalid_request_error", str(self))


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def tool_use(call_id: str, name: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def usage(prompt: int = 10, completion: int = 5, *, read: int = 0, written: int = 0, hour: int = 0) -> Json:
    """`prompt` are the tokens that are neither read from the cache nor written to it; `hour` are part of `written`."""
    split = {"ephemeral_5m_input_tokens": written - hour, "ephemeral_1h_input_tokens": hour}
    return {
        "input_tokens": prompt,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "cache_creation": split,
        "output_tokens": completion,
        "service_tier": "standard",
    }


def message(*blocks: Json, spent: Json | None = None, stop: str = "end_turn") -> Json:
    """A whole answer."""
    return {
        "id": "msg_013Zva2CMHLNnjNjtJ7pwErs",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": list(blocks),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": spent or usage(),
    }


CALLS = message(
    THOUGHT,
    text("Let me look."),
    tool_use("toolu_1", "weather", city="Bern", days=2),
    tool_use("toolu_2", "clock"),
    spent=usage(10, 42, read=7, written=5, hour=3),
    stop="tool_use",
)
"""Thinks, says something, and calls two tools."""


def events(answer: Json) -> list[bytes]:
    """The same answer as a stream, text and arguments in pieces, as Anthropic cuts them."""
    spent = answer["usage"]
    begun = {**answer, "content": [], "stop_reason": None, "usage": {**spent, "output_tokens": 1}}
    found: list[Json] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(answer["content"]):
        start, deltas = _cut(block)
        found.append({"type": "content_block_start", "index": index, "content_block": start})
        found += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        found.append({"type": "content_block_stop", "index": index})
        if index == 0:
            found.append({"type": "ping"})
    delta = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    found.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": spent["output_tokens"]}})
    found.append({"type": "message_stop"})
    return [event(one) for one in found]


def event(data: Json) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def error(kind: str, words: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"}


def _cut(block: Json) -> tuple[Json, Iterable[Json]]:
    if block["type"] == "text":
        return text(""), [{"type": "text_delta", "text": piece} for piece in _halves(block["text"])]
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _halves(block["thinking"])]
        start = {"type": "thinking", "thinking": "", "signature": ""}
        return start, [*deltas, {"type": "signature_delta", "signature": block["signature"]}]
    if block["type"] == "tool_use":
        pieces = ["", *_halves(json.dumps(block["input"]))] if block["input"] else [""]
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block, []


def _halves(words: str) -> list[str]:
    middle = (len(words) + 1) // 2
    return [words[:middle], words[middle:]]
