"""Tokens counted anew, by OpenAI's published rules and with tiktoken itself: the least that a prompt can take."""

import json
from typing import Any

from tests.support.o200k import text_tokens, tool_tokens

Json = dict[str, Any]
FRAME, REPLY = 3, 3
LOW, HIGH_MOST = 85, 85 + 8 * 170
ONE_TILE = 85 + 170


def of_message(message: Json) -> int:
    """Three tokens of frame, the role, and all that the message says."""
    total = FRAME + text_tokens(message["role"])
    content = message.get("content")
    for part in content if isinstance(content, list) else [{"type": "text", "text": content or ""}]:
        total += _of_part(part)
    for call in message.get("tool_calls") or ():
        total += text_tokens(call["function"]["name"]) + text_tokens(call["function"]["arguments"])
    return total + text_tokens(message.get("reasoning_content") or "")


def of_pictures(messages: list[Json]) -> int:
    """What of that are pictures: no margin belongs to them."""
    parts = [p for m in messages if isinstance(m.get("content"), list) for p in m["content"]]
    return sum(_of_part(part) for part in parts if part["type"] == "image_url")


def of_extras(body: Json) -> int:
    """Tools and schema."""
    schema = body.get("response_format")
    return _of_tools(body) + (text_tokens(json.dumps(schema["json_schema"]["schema"])) if schema else 0)


def of_prompt(messages: list[Json], body: Json) -> int:
    """A whole prompt, with the three tokens that begin the answer."""
    return REPLY + of_extras(body) + sum(map(of_message, messages))


def most_beside(messages: list[Json], body: Json) -> int:
    """By how much a careful count may exceed this one: frames of messages, parts, calls, names and definitions."""
    total = 12 + 60 * len(body.get("tools") or ()) + (30 if body.get("response_format") else 0)
    for message in messages:
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        total += 3 + len(parts) + 14 * len(message.get("tool_calls") or ()) + (2 if message.get("name") else 0)
        total += sum(60 for p in parts if p.get("type") == "file")
    return total


def _of_tools(body: Json) -> int:
    flat = []
    for tool in body.get("tools") or ():
        function = tool["function"]
        simple = {n: {k: v for k, v in p.items() if k in ("type", "description")} for n, p in _properties(function)}
        flat.append({"function": {**function, "parameters": {"properties": simple}}})
    return tool_tokens(flat)


def _properties(function: Json) -> list[tuple[str, Json]]:
    return list(function["parameters"]["properties"].items())


def _of_part(part: Json) -> int:
    if part["type"] == "text":
        return text_tokens(part["text"])
    if part["type"] == "image_url":
        image = part["image_url"]
        if image.get("detail") == "low":
            return LOW
        return ONE_TILE if image["url"].startswith("data:") else HIGH_MOST
    return text_tokens(json.dumps(part))
