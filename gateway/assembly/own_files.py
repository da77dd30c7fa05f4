"""Files that are kept here, put in where messages name them by ids that no upstream knows (guarantee §14.6)."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.models.items import named_file


def with_own_files(messages: Sequence[dict[str, Any]], files: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with these files in the place of their ids. The same files give the same JSON each time."""
    return [_filled(message, files) for message in messages]


def _filled(message: dict[str, Any], files: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    named = [named_file(part) if isinstance(part, dict) else None for part in content]
    if files.keys().isdisjoint(name for name in named if name is not None):
        return message
    pairs = zip(content, named, strict=True)
    parts = [{**part, "file": files[name]} if name is not None and name in files else part for part, name in pairs]
    return {**message, "content": parts}
