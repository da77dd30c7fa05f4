"""A count of tokens of its own, by OpenAI's published rules, against which the gateway's is held."""

import json
import os
from functools import cache, lru_cache
from typing import Any

import tiktoken

from gateway.context.tokens.counter import vocabulary_folder

LOW_DETAIL, MAX_TILES, TILE = 85, 8, 170


@cache
def encoding() -> tiktoken.Encoding:
    """o200k_base, from litellm's wheel."""
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(vocabulary_folder()))
    return tiktoken.get_encoding("o200k_base")


@lru_cache(60_000)
def text_tokens(text: str) -> int:
    """Tokens of a text, of which most come again in the next request; special tokens in it are text."""
    return len(encoding().encode_ordinary(text))


def message_tokens(message: dict[str, Any]) -> int:
    """Three tokens of frame, the role, and what the message says: the OpenAI cookbook's rule."""
    total = 3 + text_tokens(message["role"])
    content = message.get("content")
    for part in content if isinstance(content, list) else [{"type": "text", "text": content or ""}]:
        total += _part_tokens(part)
    for call in message.get("tool_calls") or ():
        total += text_tokens(call["function"]["name"]) + text_tokens(call["function"]["arguments"])
    return total


def _part_tokens(part: dict[str, Any]) -> int:
    if part["type"] == "text":
        return text_tokens(part["text"])
    if part["type"] == "image_url":
        low = part["image_url"].get("detail") == "low"
        return LOW_DETAIL if low else LOW_DETAIL + MAX_TILES * TILE
    return text_tokens(json.dumps(part))


def tool_tokens(tools: list[dict[str, Any]]) -> int:
    """The OpenAI cookbook's rule for tools: 7 a function, 3 for properties, 3 each, enums, 12 at the end."""
    total = 12 if tools else 0
    for function in (tool["function"] for tool in tools):
        total += 7 + text_tokens(f"{function['name']}:{function.get('description', '').rstrip('.')}")
        properties = function["parameters"]["properties"]
        total += 3 if properties else 0
        for name, schema in properties.items():
            total += 3
            for item in schema.get("enum", ()):
                total += 3 + text_tokens(item)
            total -= 3 if "enum" in schema else 0
            total += text_tokens(f"{name}:{schema['type']}:{schema.get('description', '').rstrip('.')}")
    return total


def prompt_tokens(messages: list[dict[str, Any]], forward: dict[str, Any] | None = None) -> int:
    """A whole prompt, with the three tokens that begin the answer."""
    tools = tool_tokens((forward or {}).get("tools", []))
    return 3 + tools + sum(message_tokens(message) for message in messages)
