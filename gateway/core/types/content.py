"""The content of a message: a text, or parts, each an object with a type."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any


def parts_of(content: object) -> Sequence[Any]:
    """Returns the parts of a content; none of a text, and of what is no content. They are not copied."""
    return content if isinstance(content, list) else ()


def dicts_of(content: object) -> Iterator[dict[str, Any]]:
    return (part for part in parts_of(content) if isinstance(part, dict))


def as_parts(content: Any) -> list[Any]:
    """Returns a content as parts: a text as the one part that says the same."""
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def texts_of(content: object, kind: str | None = None) -> Iterator[str]:
    """Yields the texts of a content: itself, or those of its parts.
    `kind`: of which type parts must be; None: whatever has a text."""
    if isinstance(content, str):
        yield content
        return
    for part in parts_of(content):
        if isinstance(part, dict) and (kind is None or part.get("type") == kind):
            text = part.get("text")
            if isinstance(text, str):
                yield text


def map_parts(message: dict[str, Any], change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Returns the message with each part of its content that is an object as `change` makes it; the same message where
    it changes none."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    parts = [change(part) if isinstance(part, dict) else part for part in content]
    is_same = all(new is old for new, old in zip(parts, content, strict=True))
    return message if is_same else {**message, "content": parts}
