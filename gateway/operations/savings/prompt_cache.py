"""A provider's prompt cache for one session: what of each prompt it has read before, and what it charges (guarantee
§13.12)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import Any

from gateway.accounting.cost import price_call
from gateway.base import jsons
from gateway.economy.rates import READ, WRITE
from gateway.models.items import BREAKPOINT
from gateway.ports import TokenCounter
from gateway.turn.ranges import plain_parts

Json = dict[str, Any]
MIN_CACHED_TOKENS = 1024
"""Providers cache no shorter prompt."""
BLOCK_TOKENS = 128
"""OpenAI counts cached tokens in such blocks."""
MIN_PARTIAL_CHARS = 200
"""Of a message that begins like an earlier one, from which on that is looked at."""
REPLY_TOKENS = 3
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Segment:
    """A message of a prompt, or its tools in front of it."""

    digest: bytes
    text: str
    tokens: int


class Segments:
    """Prompts as segments; each message is counted once."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._known: dict[bytes, Segment] = {}
        self._by_identity: dict[int, tuple[Json, Segment]] = {}

    def of_prompt(self, messages: Sequence[Json], tools: Sequence[Json] | None) -> list[Segment]:
        """Marks for caches, which move from request to request, are no part of what is compared."""
        offered = {"tools": list(tools)} if tools else {}
        return [self._segment({"tools": tools}, lambda: self._counter.tools(offered)), *map(self._message, messages)]

    def tokens_of(self, message: Json) -> int:
        return self._message(message).tokens

    def partial(self, text: str) -> int:
        """Tokens of the beginning of a segment's text."""
        return self._counter.text(text)

    def _message(self, message: Json) -> Segment:
        known = self._by_identity.get(id(message))
        if known is None:  # the message is kept, so that no other one can have its identity
            bare = unmarked(message)
            known = self._by_identity[id(message)] = message, self._segment(bare, lambda: self._counter.message(bare))
        return known[1]

    def _segment(self, value: Json, count: Any) -> Segment:
        text = jsons.dumps(value)
        digest = _digest(text)
        found = self._known.get(digest)
        if found is None:
            found = self._known[digest] = Segment(digest, text.decode(), count())
        return found


def unmarked(message: Json) -> Json:
    """A message without its marks for caches."""
    content = message.get("content")
    if isinstance(content, list):
        parts = plain_parts(content)
        if len(parts) == 1 and set(parts[0]) == {"type", "text"} and parts != content:
            message = {**message, "content": parts[0]["text"]}  # a text that became a part to be marked
        else:
            message = {**message, "content": parts}
    return {name: value for name, value in message.items() if name != BREAKPOINT}


class PromptCache:
    """What a provider's cache knows of one session's prompts.

    Where writing has a price (Anthropic), what begins like an earlier prompt, message by message, is read, and the rest
    is written. Where reading alone has one (OpenAI), what begins alike is cached token by token, in blocks. Without
    such a price nothing is cached. What was not used for `lifetime` seconds is gone.
    """

    def __init__(self, prices: Mapping[str, Decimal], segments: Segments, lifetime: float) -> None:
        self._segments, self._lifetime, self._prices = segments, lifetime, prices
        self._writes, self._reads = WRITE in prices, READ in prices
        self._seen: dict[bytes, float] = {}
        self._behind: dict[bytes, dict[str, float]] = {}

    def usage(self, prompt: Sequence[Segment], at: float, completion: int) -> Json:
        """The usage that the provider reports of a call, in OpenAI's words; the prompt is known from then on."""
        total = REPLY_TOKENS + sum(segment.tokens for segment in prompt)
        known = self._look(prompt, at)
        usage: Json = {
            "prompt_tokens": total,
            "completion_tokens": completion,
            "total_tokens": total + completion,
        }
        if total < MIN_CACHED_TOKENS or not self._reads:
            return usage
        if not self._writes:
            cached = known // BLOCK_TOKENS * BLOCK_TOKENS if known >= MIN_CACHED_TOKENS else 0
            return {**usage, "prompt_tokens_details": {"cached_tokens": cached}}
        written = total - known
        details: Json = {"cached_tokens": known, "cache_creation_tokens": written}
        if self._lifetime >= HOUR:
            details["cache_creation_token_details"] = {"ephemeral_1h_input_tokens": written}
        return {**usage, "prompt_tokens_details": details}

    def cost(self, usage: Json) -> Decimal:
        """
        Raises:
            ValueError: the model has no known price.
        """
        cost = price_call("primary", "", usage, self._prices).total
        if cost is None:
            raise ValueError("the model has no known price")
        return cost

    def _look(self, prompt: Sequence[Segment], at: float) -> int:
        chain = [b""]
        for segment in prompt:
            chain.append(_digest(chain[-1] + segment.digest))
        count = next((i for i in range(len(prompt), 0, -1) if self._is_warm(self._seen.get(chain[i]), at)), 0)
        known = sum(segment.tokens for segment in prompt[:count])
        if not self._writes and count < len(prompt):
            known += self._partly(chain[count], prompt[count], at)
        for number, segment in enumerate(prompt):
            self._seen[chain[number + 1]] = at
            if not self._writes:
                self._behind.setdefault(chain[number], {})[segment.text] = at
        return known

    def _partly(self, before: bytes, segment: Segment, at: float) -> int:
        others = [text for text, last in self._behind.get(before, {}).items() if self._is_warm(last, at)]
        best = max((_common(segment.text, text) for text in others), default=0)
        if best <= MIN_PARTIAL_CHARS:
            return 0
        return min(segment.tokens - 1, self._segments.partial(segment.text[:best]))

    def _is_warm(self, last: float | None, at: float) -> bool:
        return last is not None and at - last <= self._lifetime


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
