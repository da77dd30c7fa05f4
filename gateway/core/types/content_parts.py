"""Reads the content of a message, which is a text or a list of parts."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any


def parts_of(content: object) -> Sequence[Any]:
    """Returns the parts of a content, uncopied; empty for a text, and for anything that is no content."""
    return content if isinstance(content, list) else ()


def dicts_of(content: object) -> Iterator[dict[str, Any]]:
    return (part for part in parts_of(content) if isinstance(part, dict))


def as_parts(content: Any) -> list[Any]:
    """Returns a content as parts: a text becomes one text part."""
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def texts_of(content: object, kind: str | None = None) -> Iterator[str]:
    """Yields the texts of a content: itself, or those of its parts.
    `kind`: required type of a part; None: any part with a text."""
    if isinstance(content, str):
        yield content
        return
    for part in parts_of(content):
        if isinstance(part, dict) and (kind is None or part.get("type") == kind):
            text = part.get("text")
            if isinstance(text, str):
                yield text


def map_parts(message: dict[str, Any], change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Applies `change` to each part of a message's content that is an object; returns the same message if none
    changes."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    parts = [change(part) if isinstance(part, dict) else part for part in content]
    is_same = all(new is old for new, old in zip(parts, content, strict=True))
    return message if is_same else {**message, "content": parts}


def content_text(content: Any) -> str | None:
    """Returns the text of a content that is text only, else None; a string equals its text parts. Reasoning is left
    out: clients of other APIs do not send it again."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") in ("text", "thinking") for part in content
    ):
        return "".join(str(part.get("text", "")) for part in content if part["type"] == "text")
    return None
