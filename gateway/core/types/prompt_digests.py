"""Digests of what was forwarded: of each message together with all before it."""

import hashlib
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

from gateway.core import jsons
from gateway.core.types import conversation, items
from gateway.core.types.content_parts import as_parts

BYTES_EACH = 6
"""Bytes of a message's digest."""
BREAKPOINT_KEY = f'"{items.BREAKPOINT}"'.encode()


class PromptDigests:
    """Digests of a prompt's messages. Marks of prompt caches are left out, since they move on.

    Attributes:
        count: of the messages.
        each: of each message, `BYTES_EACH` bytes: the digest of it and all before it.
        system: the digest of the leading system messages, in hex.
        marked: indexes of the messages that may carry a mark.
    """

    __slots__ = ("_is_head", "_running", "count", "each", "marked", "system")

    def __init__(self) -> None:
        self._running = hashlib.blake2b(digest_size=BYTES_EACH)
        self._is_head = True
        self.count, self.each = 0, b""
        self.system = self._running.hexdigest()
        self.marked: tuple[int, ...] = ()

    def followed_by(self, messages: Sequence[Mapping[str, Any]]) -> Self:
        """Returns the digests of a prompt that goes on with these messages. Only they are digested."""
        if not messages:
            return self
        made, found, marked = copy(self), [self.each], []
        running = made._running = self._running.copy()
        for index, message in enumerate(messages, self.count):
            raw = jsons.canonical(message)
            if is_marked := BREAKPOINT_KEY in raw:
                marked.append(index)
            if is_marked or type(message.get("content")) is list:
                raw = jsons.canonical(unmarked(message))
            running.update(raw)
            found.append(running.digest())
            if made._is_head:
                made._is_head = message["role"] in conversation.INSTRUCTION_ROLES
                made.system = running.hexdigest() if made._is_head else made.system
        made.count, made.each, made.marked = self.count + len(messages), b"".join(found), (*self.marked, *marked)
        return made


def unmarked(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Removes the marks of prompt caches from a message, and merges a single text part, which only carries a mark."""
    plain: Mapping[str, Any] = without_mark(message)
    if type(message.get("content")) is not list:
        return plain
    parts = plain_parts(message["content"])
    is_text = len(parts) == 1 and isinstance(parts[0], dict) and parts[0].keys() == {"type", "text"}
    return {**plain, "content": parts[0]["text"] if is_text else parts}


def plain_parts(content: Any) -> list[Any]:
    """Returns the parts of a content without breakpoints of prompt caches, which move on (guarantee §4 I7)."""
    return [without_mark(part) for part in as_parts(content)]


def without_mark(value: Any) -> Any:
    """Returns a part or a tool without its own mark."""
    if isinstance(value, dict) and items.BREAKPOINT in value:
        return {name: each for name, each in value.items() if name != items.BREAKPOINT}
    return value
