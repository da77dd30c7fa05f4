"""Tokens of what is forwarded: exact where it matters, a bound and an estimate from its bytes where it does not."""

from dataclasses import dataclass
from typing import Any

from gateway.base import jsons
from gateway.models.conversation import ConversationMessage
from gateway.models.tool_steps import RESULT_ROLES
from gateway.models.window import Forwarded, Material
from gateway.ports import TokenCounter

REPLY_TOKENS = 3
BYTES_PER_TOKEN = 4
MEDIA = ("image_url", "input_audio")
ANSWER_BYTES = 20_000
MOST_ANEW = 250


@dataclass(frozen=True, slots=True)
class PromptCount:
    """`total` is the sum of `breakdown` (guarantee §6)."""

    total: int
    breakdown: dict[str, int]


class PromptCounter:
    """Counts forwarded messages of one request for one model, tools and schema included."""

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
        """Exact tokens of a message. It is counted once, in however many candidates it stands as the same object, and
        in however many requests if it stands as it is stored."""
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = (message, self._count(message))
        return known[1]

    @property
    def margin(self) -> float:
        """The model's tokens for one that was counted, as it was known for this count."""
        return self._counter.margin

    @property
    def is_exact(self) -> bool:
        """Whether anything was counted exactly; what surely fits is only estimated."""
        return self._plain is not None

    def counted(self, message: dict[str, Any]) -> dict[str, int]:
        """The count to keep with that form of a message, by tokenizer; empty if it was not counted."""
        found = self._plain.get(id(message)) if self._plain else None
        return {self._counter.tokenizer: found[1]} if found else {}

    def counted_anew(self) -> list[tuple[str, dict[str, int]]]:
        """The stored messages, by id, that had no count to keep until now: at most `MOST_ANEW`."""
        found: list[tuple[str, dict[str, int]]] = []
        for message in self._material.messages:
            if len(found) < MOST_ANEW and message.message_id and message.tokens and not message.tokens.by:
                counts = self.counted(message.tokens.of)
                found += [(message.message_id, counts)] if counts else []
        return found

    def counted_answer(self, message: dict[str, Any]) -> dict[str, int]:
        """The count to keep with an answer, so that no later request has to count it; empty where counts are not
        needed, or counting would keep others waiting."""
        if self._plain is None or len(jsons.dumps(message)) > ANSWER_BYTES:
            return {}
        self.message(message)
        return self.counted(message)

    def _count(self, message: dict[str, Any]) -> int:
        if self._plain is None:
            self._plain = self._stored()
        known = self._plain.get(id(message))
        if known is not None:
            return self._counter.with_margin(known[1])
        plain = self._counter.plain(message)
        if plain is None:
            return self._counter.message(message)
        self._plain[id(message)] = (message, plain)
        return self._counter.with_margin(plain)

    def _least(self, message: dict[str, Any]) -> int:
        """Never more than `message` gives: that itself where it is known already."""
        if self._plain is None:
            self._plain = self._stored()
        if id(message) in self._known or id(message) in self._plain:
            return self.message(message)
        known = self._bounds.get(id(message))
        if known is None:
            known = self._bounds[id(message)] = (message, self._counter.least(message))
        return known[1]

    def _stored(self) -> dict[int, tuple[dict[str, Any], int]]:
        """The counts that came with stored messages, by the form that they are of."""
        name = self._counter.tokenizer
        kept = [m.tokens for m in self._material.messages if m.tokens is not None]
        return {id(known.of): (known.of, known.by[name]) for known in kept if name in known.by}

    def total(self, forwarded: Forwarded) -> int:
        """The exact count, without its breakdown."""
        if self._tools is None:
            self._tools = self._counter.tools(self._forward)
        return REPLY_TOKENS + self._tools + sum(map(self.message, forwarded.messages))

    def fits(self, forwarded: Forwarded, tokens: int) -> bool:
        """Whether the exact count is no more than that."""
        return self.up_to(forwarded, tokens) <= tokens

    def up_to(self, forwarded: Forwarded, tokens: float) -> int:
        """The exact count, or, if it is more than that many tokens, a number between these and it. Counting ends once
        it is sure: what is far too long would take longer to count than to reduce."""
        if self._tools is None:
            self._tools = self._counter.tools(self._forward)
        least = [self._least(message) for message in forwarded.messages]
        total = REPLY_TOKENS + self._tools + sum(least)
        for message, bound in zip(reversed(forwarded.messages), reversed(least), strict=True):
            if total > tokens:
                break
            total += self.message(message) - bound
        return total

    def exact(self, forwarded: Forwarded) -> PromptCount:
        """Counted with the model's tokenizer, or with an estimate calibrated on what upstream reports."""
        if self._tools is None:
            self._tools = self._counter.tools(self._forward)
        block = self._counter.text(forwarded.block) if forwarded.block else 0
        counts = [self.message(message) for message in forwarded.messages]
        return self._sum(forwarded, counts, self._tools, block)

    def estimate(self, forwarded: Forwarded) -> PromptCount:
        """From bytes: good enough for figures, not for decisions. A picture counts as the tokenizer would count it."""
        sizes = [self._size(message) for message in forwarded.messages]
        counts = [size // BYTES_PER_TOKEN + media + 4 for size, media in sizes]
        tools = self._extra_bytes // BYTES_PER_TOKEN
        return self._sum(forwarded, counts, tools, len(forwarded.block) // BYTES_PER_TOKEN)

    def upper_bound(self, forwarded: Forwarded) -> float:
        """Never less than the exact count: no token of a byte-level vocabulary is shorter than one byte."""
        framed = sum(sum(self._size(message)) + 12 for message in forwarded.messages)
        return (framed + self._extra_bytes + REPLY_TOKENS) * self._margin

    def _sum(self, forwarded: Forwarded, counts: list[int], tools: int, block: int) -> PromptCount:
        parts = {"system": REPLY_TOKENS, "tools": tools, "history": 0, "artifacts": 0, "current": 0}
        messages = self._material.messages
        for index, tokens in zip(forwarded.indexes, counts, strict=True):
            message: ConversationMessage | None = messages[index] if index >= 0 else None
            if message is None or message.role in ("system", "developer"):
                parts["system"] += tokens
            elif message.role in RESULT_ROLES:
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
        """Bytes of a message as JSON, and the tokens of its pictures and sounds, which their bytes say nothing of."""
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
