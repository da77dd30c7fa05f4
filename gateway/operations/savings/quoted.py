"""Texts that an answer quotes for an exact match: an edit fails where the model does not have them verbatim."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gateway.base import jsons

Json = dict[str, Any]
OLD_SIDES = frozenset({"old_string", "old_str", "oldString", "oldText", "old_text", "search"})
"""Names of arguments that hold what is to be replaced."""
MIN_CHARS = 4
"""A shorter text stands anywhere."""
PATCH, UPDATE = "*** Begin Patch", "*** Update File"
LINE_NUMBER = re.compile(r"(?m)^[ \t]*\d+(?:[→\t|:-]| ?\| ?)")
"""As reading tools print them in front of lines."""


def quoted(answer: Json) -> list[str]:
    """What the tool calls of an answer quote."""
    found: list[str] = []
    for call in answer.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        written = function.get("arguments") if isinstance(function, dict) else None
        try:
            arguments = jsons.loads(written) if isinstance(written, str) else written
        except ValueError:
            continue
        found += _old_sides(arguments)
    return [text for text in dict.fromkeys(found) if len(text.strip()) >= MIN_CHARS]


def _old_sides(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _old_sides(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if isinstance(each, str) and name in OLD_SIDES:
                yield each
            elif isinstance(each, str) and PATCH in each:
                yield from _hunks(each)
            else:
                yield from _old_sides(each)


def _hunks(patch: str) -> Iterator[str]:
    """The old side of each hunk: its context and the lines that it takes out, in one piece."""
    lines: list[str] = []
    is_update = False
    for line in [*patch.split("\n"), "***"]:
        if line.startswith(("***", "@@")):
            yield "\n".join(lines)
            lines = []
            is_update = line.startswith(UPDATE) if line.startswith("***") else is_update
        elif is_update and line[:1] in ("", " ", "-"):
            lines.append(line[1:])


class Verbatim:
    """Whether texts stand verbatim in one message; each message is read once."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Json, tuple[str, ...]]] = {}

    def has(self, messages: Sequence[Json], text: str) -> bool:
        """Also as it stands without the numbers of its lines."""
        return any(text in each for message in messages for each in self._of(message))

    def _of(self, message: Json) -> tuple[str, ...]:
        known = self._texts.get(id(message))
        if known is None:
            known = self._texts[id(message)] = message, tuple(_texts(message))
        return known[1]


def _texts(message: Json) -> Iterator[str]:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str):
            yield text
            if message.get("role") == "tool" and LINE_NUMBER.search(text):
                yield LINE_NUMBER.sub("", text)
    for call in message.get("tool_calls") or ():
        try:
            arguments = jsons.loads(call["function"]["arguments"])
        except (KeyError, TypeError, ValueError):
            continue
        yield from jsons.texts_in(arguments)
