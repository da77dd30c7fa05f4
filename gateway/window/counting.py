"""Tokens of what is forwarded: exact where it matters, a bound and an estimate from its bytes where it does not."""

from dataclasses import dataclass
from typing import Any

from gateway.base import jsons
from gateway.models.conversation import INSTRUCTION_ROLES
from gateway.models.tool_steps import RESULT_ROLES
from gateway.models.window import Forwarded, Material
from gateway.ports import TokenCounter

REPLY_TOKENS = 3
"""Tokens with which each reply is primed (OpenAI's cookbook, "How to count tokens with tiktoken")."""
FRAME_TOKENS = 4
"""Tokens around each message, for estimates: role and separators."""
MOST_FRAME_TOKENS = 12
"""More tokens than any tokenizer here puts around a message, for bounds."""
BYTES_PER_TOKEN = 4
"""Bytes of an average token, JSON's own among them: OpenAI's rule of thumb."""
MEDIA = ("image_url", "input_audio")
ANSWER_BYTES = 20_000
"""Longer answers are not counted for later requests: that would keep other requests waiting for milliseconds."""
MOST_NEW_COUNTS = 250
"""Counts of older messages that one request stores at most; the next requests store the rest."""


@dataclass(frozen=True, slots=True)
class PromptCount:
    """`total` is the sum of `breakdown` (guarantee §6)."""

    total: int
    breakdown: dict[str, int]


class PromptCounter:
    """Counts forwarded messages of one request for one model, tools and schema included.

    Messages are known by identity: candidates share most of them, and each is counted once.
    """

    def __init__(self, counter: TokenCounter, forward: dict[str, Any], material: Material, margin: float) -> None:
        self._counter = counter
        self._forward = forward
        self._material = material
        self._margin = margin
        extras = {k: forward[k] for k in ("tools", "functions", "response_format") if forward.get(k)}
        self._extra_bytes = len(jsons.dumps(extras)) if extras else 0
        self._tools: int | None = None
        self._known: dict[int, tuple[dict[str, Any], int]] = {}
        self._plain: dict[int, tuple[dict[str, Any], int]] | None = None
        self._sizes: dict[int, tuple[dict[str, Any], tuple[int, int]]] = {}
        self._bounds: dict[int, tuple[dict[str, Any], int]] = {}

    def text(self, text: str) -> int:
        """Tokens of a text."""
        return self._counter.text(text)

    def message(self, message: dict[str, Any]) -> int:
        """Exact tokens of a message; those of a stored form are read from the store."""
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = (message, self._count(message))
        return known[1]

    def total(self, forwarded: Forwarded) -> int:
        """The exact count, without its breakdown."""
        return REPLY_TOKENS + self._tool_tokens() + sum(map(self.message, forwarded.messages))

    def fits(self, forwarded: Forwarded, tokens: int) -> bool:
        """Whether the exact count is no more than `tokens`."""
        return self.up_to(forwarded, tokens) <= tokens

    def up_to(self, forwarded: Forwarded, tokens: float) -> int:
        """The exact count if it is at most `tokens`, else a number between `tokens` and the count. Counting stops once
        that is certain: a prompt that is far too long takes longer to count than to reduce."""
        least = [self._least(message) for message in forwarded.messages]
        total = REPLY_TOKENS + self._tool_tokens() + sum(least)
        for message, bound in zip(reversed(forwarded.messages), reversed(least), strict=True):
            if total > tokens:
                break
            total += self.message(message) - bound
        return total

    def exact(self, forwarded: Forwarded) -> PromptCount:
        """Counted with the model's tokenizer, or with another one and a margin learned from upstream's reports."""
        block = self._counter.text(forwarded.block) if forwarded.block else 0
        counts = [self.message(message) for message in forwarded.messages]
        return self._sum(forwarded, counts, self._tool_tokens(), block)

    def estimate(self, forwarded: Forwarded) -> PromptCount:
        """Estimated from bytes, for figures, not for decisions. Media count as the tokenizer counts them."""
        sizes = [self._size(message) for message in forwarded.messages]
        counts = [size // BYTES_PER_TOKEN + media + FRAME_TOKENS for size, media in sizes]
        tools = self._extra_bytes // BYTES_PER_TOKEN
        return self._sum(forwarded, counts, tools, len(forwarded.block) // BYTES_PER_TOKEN)

    def upper_bound(self, forwarded: Forwarded) -> float:
        """Never less than the exact count: no token of a byte-level vocabulary is shorter than one byte."""
        framed = sum(sum(self._size(message)) + MOST_FRAME_TOKENS for message in forwarded.messages)
        return (framed + self._extra_bytes + REPLY_TOKENS) * self._margin

    @property
    def margin(self) -> float:
        """Tokens of the model per token counted, as known when this request was counted."""
        return self._counter.margin

    @property
    def is_exact(self) -> bool:
        """Whether anything was counted exactly; what surely fits is only estimated."""
        return self._plain is not None

    def counted(self, message: dict[str, Any]) -> dict[str, int]:
        """The count to store with that form of a message, by tokenizer; empty if it was not counted."""
        found = self._plain.get(id(message)) if self._plain else None
        return {self._counter.tokenizer: found[1]} if found else {}

    def counted_anew(self) -> list[tuple[str, dict[str, int]]]:
        """Counts of stored messages that had none until now, by message id: at most `MOST_NEW_COUNTS`."""
        found: list[tuple[str, dict[str, int]]] = []
        for message in self._material.messages:
            if len(found) < MOST_NEW_COUNTS and message.message_id and message.tokens and not message.tokens.by:
                counts = self.counted(message.tokens.of)
                found += [(message.message_id, counts)] if counts else []
        return found

    def counted_answer(self, message: dict[str, Any]) -> dict[str, int]:
        """The count to store with an answer, so that no later request has to count it; empty if this request counted
        nothing exactly, or if the answer is long."""
        if self._plain is None or len(jsons.dumps(message)) > ANSWER_BYTES:
            return {}
        self.message(message)
        return self.counted(message)

    def _tool_tokens(self) -> int:
        if self._tools is None:
            self._tools = self._counter.tools(self._forward)
        return self._tools

    def _count(self, message: dict[str, Any]) -> int:
        counts = self._plain_counts()
        known = counts.get(id(message))
        if known is None:
            plain = self._counter.plain(message)
            if plain is None:
                return self._counter.message(message)
            known = counts[id(message)] = (message, plain)
        return self._counter.with_margin(known[1])

    def _least(self, message: dict[str, Any]) -> int:
        """The message's tokens if they are known already, else a bound that is never more."""
        if id(message) in self._known or id(message) in self._plain_counts():
            return self.message(message)
        known = self._bounds.get(id(message))
        if known is None:
            known = self._bounds[id(message)] = (message, self._counter.least(message))
        return known[1]

    def _plain_counts(self) -> dict[int, tuple[dict[str, Any], int]]:
        """Counts without a margin by form of a message, beginning with those that were stored."""
        if self._plain is None:
            name = self._counter.tokenizer
            stored = [m.tokens for m in self._material.messages if m.tokens is not None]
            self._plain = {id(known.of): (known.of, known.by[name]) for known in stored if name in known.by}
        return self._plain

    def _sum(self, forwarded: Forwarded, counts: list[int], tools: int, block: int) -> PromptCount:
        parts = {"system": REPLY_TOKENS, "tools": tools, "history": 0, "artifacts": 0, "current": 0}
        for index, tokens in zip(forwarded.indexes, counts, strict=True):
            role = self._material.messages[index].role if index >= 0 else "system"
            if role in INSTRUCTION_ROLES:
                parts["system"] += tokens
            elif role in RESULT_ROLES:
                parts["artifacts"] += tokens
            elif index < self._material.current:
                parts["history"] += tokens
            elif index == self._material.current and block:
                parts["artifacts"] += min(block, tokens)
                parts["current"] += max(0, tokens - block)
            else:
                parts["current"] += tokens
        return PromptCount(sum(parts.values()), parts)

    def _size(self, message: dict[str, Any]) -> tuple[int, int]:
        """Bytes of a message as JSON without its media, and the tokens of its media."""
        known = self._sizes.get(id(message))
        if known is None:
            known = self._sizes[id(message)] = (message, self._measure(message))
        return known[1]

    def _measure(self, message: dict[str, Any]) -> tuple[int, int]:
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        media = [part for part in parts if isinstance(part, dict) and part.get("type") in MEDIA]
        if not media:
            return len(jsons.dumps(message)), 0
        rest = [part for part in parts if not (isinstance(part, dict) and part.get("type") in MEDIA)]
        return len(jsons.dumps({**message, "content": rest})), self._counter.message({"content": media})
