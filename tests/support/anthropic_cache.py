"""Anthropic's prompt cache, as its documentation says: what is read, what is written, and what it refuses."""

import hashlib
import json
from typing import Any

from tests.support import anthropic_wire as wire

Json = dict[str, Any]
MAX_MARKS, LOOKBACK = 4, 20
CHARS_PER_TOKEN = 4
MIN_TOKENS = 1024


class PromptCache:
    """Remembers prefixes of prompts that ended with a mark."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def usage(self, body: Json) -> Json:
        """What a request costs, and from now on is cached.

        Raises:
            wire.Refused: Anthropic would answer with 400.
        """
        digest, size = hashlib.sha256(), 0
        ends: list[tuple[bytes, int]] = []
        marks: list[int] = []
        for number, (where, block) in enumerate(_blocks(body)):
            mark = block.get("cache_control")
            text = json.dumps([where, {k: v for k, v in block.items() if k != "cache_control"}], sort_keys=True)
            digest.update(text.encode())
            size += len(text) // CHARS_PER_TOKEN
            ends.append((digest.digest(), size))
            if mark is not None:
                _demand(mark == {"type": "ephemeral"}, "cache_control: of another type")
                said = block["type"] != "text" or block["text"].strip()
                _demand(said, "cache_control cannot be set for empty text")
                marks.append(number)
        _demand(len(marks) <= MAX_MARKS, "A maximum of 4 blocks with cache_control may be provided.")
        read = max((self._read(ends, mark) for mark in marks), default=0)
        written = max((ends[mark][1] for mark in marks if ends[mark][1] >= MIN_TOKENS), default=0)
        self._known |= {ends[mark][0] for mark in marks if ends[mark][1] >= MIN_TOKENS}
        return wire.usage(size - max(read, written), 5, read=read, written=max(0, written - read))

    def _read(self, ends: list[tuple[bytes, int]], mark: int) -> int:
        """Tokens of the longest known prefix that ends with a mark's block, or some blocks before it."""
        return max(
            (size for digest, size in ends[max(0, mark - LOOKBACK) : mark + 1] if digest in self._known), default=0
        )


def _demand(holds: object, words: str) -> None:
    if not holds:
        raise wire.Refused(words)


def _blocks(body: Json) -> list[tuple[str, Json]]:
    """All blocks in the order in which they are cached."""
    found = [("tools", {"type": "tool", **tool}) for tool in body.get("tools") or ()]
    found += [("system", block) for block in body.get("system") or ()]
    for message in body["messages"]:
        content = message["content"]
        blocks = [wire.text(content)] if isinstance(content, str) else content
        for block in blocks:
            inner = block.get("content") if block["type"] == "tool_result" else ()
            marked = any("cache_control" in part for part in inner or () if isinstance(part, dict))
            _demand(not marked, "cache_control cannot be set for what a block holds")
        found += [(message["role"], block) for block in blocks]
    return found
