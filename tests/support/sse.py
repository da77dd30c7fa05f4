"""A stream of chat completion chunks, read as a client reads it: its events, and the messages that they add up to."""

import json
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]
DONE = b"data: [DONE]\n\n"


def without_comments(stream: str) -> str:
    """The stream without its comments, which are signs of life and no events (guarantee §1.11)."""
    blocks = stream.split("\n\n")
    return "\n\n".join(block for block in blocks if not block.startswith(":"))


def chunks_of(stream: bytes) -> list[Json]:
    """The JSON of all whole data events before `[DONE]`."""
    events = stream.partition(DONE)[0].split(b"\n\n")
    return [json.loads(event.removeprefix(b"data: ")) for event in events if event.startswith(b"data: ")]


def messages_of(chunks: Iterable[Json]) -> list[Json]:
    """The assistant's messages, one for each choice, texts and arguments of calls put together."""
    messages: dict[int, Json] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            message = messages.setdefault(choice["index"], {"role": "assistant", "content": ""})
            message["content"] += choice["delta"].get("content") or ""
            for part in choice["delta"].get("tool_calls") or ():
                _add_call(message.setdefault("tool_calls", []), part)
    return [messages[index] for index in sorted(messages)]


def _add_call(calls: list[Json], part: Json) -> None:
    if part["index"] == len(calls):
        calls.append({k: v for k, v in part.items() if k != "index"} | {"function": dict(part["function"])})
    else:
        calls[part["index"]]["function"]["arguments"] += part["function"].get("arguments", "")
