"""Counts a prompt's tokens: exactly where it matters, by a bound from its bytes or an estimate where it does not."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from gateway.core import jsons, ports
from gateway.core.frozen_records import record
from gateway.core.types import conversation, items, tool_steps, window
from gateway.core.types.conversation import CountableForm, MessageCache
from gateway.core.types.window import ForwardedMessages, WindowInputs

REPLY_TOKENS = 3
"""Tokens with which each reply is primed (OpenAI's cookbook, "How to count tokens with tiktoken")."""
GUESSED = ("input_audio", "file", "input_image")
PART_OF_ROLE = {
    **dict.fromkeys(conversation.INSTRUCTION_ROLES, "system"),
    **dict.fromkeys(tool_steps.RESULT_ROLES, "artifacts"),
}
"""Parts of the breakdown; other messages are of the history or the current turn, by their place."""
COUNTED_BYTES = 30_000
"""Uncounted messages with fewer bytes in total are counted rather than estimated."""
ESTIMATED_SHARE, MISSED_SHARE = 0.5, 0.2
"""Share of the limit up to which an estimate from samples shows that a prompt fits; and share of all bytes that may lie
between two samples (an 18th of all characters, of four bytes each) with each byte a token of its own."""
ANSWER_BYTES = 20_000
"""Longer answers are not counted for later requests: that would keep other requests waiting for milliseconds."""
MAX_STALE = 1000
"""Cached sizes of forms that are no longer forwarded; beyond that number the cache is cleared."""
MAX_NEW_COUNTS = 250
"""Counts of older messages that one request stores at most; the next requests store the rest."""


@record
class PromptCount:
    """`total` is the sum of `breakdown` (guarantee §6); `estimated` if any of it is not a count."""

    total: int
    breakdown: dict[str, int]
    estimated: bool


class PromptCounter:
    """Counts forwarded messages of one request for one model, tools and schema included.

    Counts are cached by the identity of a message: selections share most messages, and each is counted once.
    """

    def __init__(
        self,
        counter: ports.TokenCounter,
        forward: dict[str, Any],
        material: WindowInputs,
        cache: MessageCache | None = None,
    ) -> None:
        """`cache` of the forms of stored messages, shared with later requests."""
        self._counter, self._forward, self._material = counter, forward, material
        self.text = counter.text
        """Tokens of a text."""
        extras = {k: forward[k] for k in ("tools", "functions", "response_format") if forward.get(k)}
        self._extra_bytes = len(jsons.dumps(extras)) if extras else 0
        self._tools: int | None = None
        self._known: dict[int, tuple[dict[str, Any], int]] = {}
        self._plain: dict[int, tuple[dict[str, Any], int]] | None = None
        self._forms: dict[int, CountableForm] = {}
        self._cached = cache.forms if cache is not None else {}
        self._lasting = {id(message.body) for message in material.messages if message.is_stored_form}
        if len(self._cached) > len(self._lasting) + MAX_STALE:
            self._cached.clear()
        self._listed: tuple[ForwardedMessages, list[CountableForm]] | None = None
        self._bounds: dict[int, tuple[dict[str, Any], int]] = {}
        self._least_texts: dict[int, tuple[str, int]] = {}
        self._total: tuple[ForwardedMessages, int] | None = None
        self._bound: tuple[ForwardedMessages, float] | None = None
        self._estimate: tuple[ForwardedMessages, PromptCount] | None = None

    def least_text(self, text: str) -> int:
        """Returns a lower bound of a text's tokens."""
        known = self._least_texts.get(id(text))
        if known is None:
            known = self._least_texts[id(text)] = (text, self._counter.least({"content": text}))
        return known[1]

    def texts(self, texts: Sequence[str]) -> int:
        """Estimates the tokens of all these texts together."""
        return self._counter.estimate_texts(texts, list(map(len, texts)))[0]

    def message(self, message: dict[str, Any]) -> int:
        """Counts the tokens of a message exactly; the count of a stored form is read from the store."""
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = (message, self._count(message))
        return known[1]

    def total(self, forwarded: ForwardedMessages) -> int:
        """Counts the forwarded tokens exactly, without a breakdown."""
        return REPLY_TOKENS + self._tool_tokens() + sum(map(self.message, forwarded.messages))

    def fits(self, forwarded: ForwardedMessages, tokens: int) -> bool:
        """Returns whether the exact count is no more than `tokens`."""
        return self.up_to(forwarded, tokens) <= tokens

    def up_to(self, forwarded: ForwardedMessages, tokens: float) -> int:
        """Returns the exact count if it is at most `tokens`, else a number between `tokens` and the count. Counting
        stops when that is certain: a prompt that is far too long takes longer to count than to reduce."""
        if self._total is not None and self._total[0] is forwarded:
            return self._total[1]
        least = [self._least(message) for message in forwarded.messages]
        total = REPLY_TOKENS + self._tool_tokens() + sum(least)
        for message, bound in zip(reversed(forwarded.messages), reversed(least), strict=True):
            if total > tokens:
                break
            total += self.message(message) - bound
        else:
            if total <= tokens:  # every message was counted
                self._total = forwarded, total
        return total

    def nearly(self, forwarded: ForwardedMessages) -> int:
        """Estimates the count within a few per cent: by the counts of known messages, and by samples of the others.
        That takes some milliseconds however long the messages are."""
        counts = self._plain_counts()
        unknown = [m for m in forwarded.messages if id(m) not in self._known and id(m) not in counts]
        if sum(self._form(message).max_tokens for message in unknown) <= COUNTED_BYTES:
            return self.total(forwarded)
        skipped = {id(message) for message in unknown}
        known = sum(self.message(m) for m in forwarded.messages if id(m) not in skipped)
        return REPLY_TOKENS + self._tool_tokens() + known + self._estimated(unknown)[0]

    def _estimated(self, messages: list[dict[str, Any]]) -> tuple[int, bool]:
        """Estimates the tokens of messages, and returns whether they were counted."""
        return self._estimated_forms(list(map(self._form, messages)))

    def _estimated_forms(self, forms: Sequence[CountableForm]) -> tuple[int, bool]:
        tokens, counted = self._counter.estimate_parts([form.parts for form in forms])
        calls = sum(form.calls for form in forms) if self.saved_per_call else 0
        return tokens - self._counter.with_margin(self.saved_per_call * calls), counted

    def exact(self, forwarded: ForwardedMessages) -> PromptCount:
        """Counts with the model's tokenizer, or with another one and a margin learned from upstream's reports."""
        block = self._counter.text(forwarded.block) + self._pages(forwarded) if forwarded.block else 0
        counts = [self.message(message) for message in forwarded.messages]
        parts = self._parts()
        for message, index, tokens in zip(forwarded.messages, forwarded.indexes, counts, strict=True):
            self._add(parts, index, tokens, block if message is forwarded.rendered else 0)
        return self._sum(parts, estimated=_hold_guesses(forwarded.messages))

    def estimate(self, forwarded: ForwardedMessages) -> PromptCount:
        """Estimates the prompt for figures, and where all limits are far: counts samples of each long part of the
        breakdown."""
        if self._estimate is None or self._estimate[0] is not forwarded:
            self._estimate = forwarded, self._estimate_of(forwarded)
        return self._estimate[1]

    def _estimate_of(self, forwarded: ForwardedMessages) -> PromptCount:
        parts, estimated = self._parts(), _hold_guesses(forwarded.messages)
        groups: dict[str, list[CountableForm]] = defaultdict(list)
        stored = self._stored_counts
        for form, index in zip(self._forms_of(forwarded), forwarded.indexes, strict=True):
            message = form.message
            known = stored.get(id(message))
            if message is forwarded.rendered and forwarded.block:
                tokens, counted = self._counter.estimate([message])
                block, whole = self._counter.estimate_texts([forwarded.block], [len(forwarded.block)])
                estimated |= not (counted and whole)
                self._add(parts, index, tokens, block + self._pages(forwarded))
            elif known is not None:
                self._add(parts, index, self._as_taken(message, known[1]))
            else:
                groups[self._part_of(index)].append(form)
        for part, forms in groups.items():
            tokens, counted = self._estimated_forms(forms)
            estimated |= not counted
            parts[part] += tokens
        return self._sum(parts, estimated=estimated)

    def upper_bound(self, forwarded: ForwardedMessages) -> float:
        """Returns at least the exact count: no token of a byte-level vocabulary is shorter than one byte."""
        if self._bound is not None and self._bound[0] is forwarded:
            return self._bound[1]
        texts = sum([form.max_tokens for form in self._forms_of(forwarded)]) + self._extra_bytes + REPLY_TOKENS
        rounded = (1 + self.added_per_message) * len(forwarded.messages)
        bound = texts * max(1.0, self._counter.margin) + rounded
        self._bound = forwarded, bound
        return bound

    def fits_by_bound(self, forwarded: ForwardedMessages, tokens: float) -> bool:
        """Returns whether a prompt surely has no more than `tokens`, without counting it: by its bytes, or by samples
        if much of it has not been counted yet."""
        bound = self.upper_bound(forwarded)
        left = tokens - MISSED_SHARE * bound
        if bound <= tokens or left < 0:
            return bound <= tokens
        if self._plain is not None:
            return False
        return self._is_uncounted(forwarded) and self.estimate(forwarded).total <= min(ESTIMATED_SHARE * tokens, left)

    def _is_uncounted(self, forwarded: ForwardedMessages) -> bool:
        """Returns whether the messages without a stored count have more than `COUNTED_BYTES` bytes."""
        stored, size = self._stored_counts, 0
        for message in forwarded.messages:
            if id(message) not in stored:
                size += self._form(message).max_tokens
                if size > COUNTED_BYTES:
                    return True
        return False

    @property
    def margin(self) -> float:
        """The model's tokens per counted token, as known when this request was counted."""
        return self._counter.margin

    @cached_property
    def added_per_message(self) -> int:
        """Tokens that each message takes beyond its stored count (ADR 13)."""
        return self._counter.added_per_message

    @property
    def is_own(self) -> bool:
        """Whether this is the model's own tokenizer, as far as is known."""
        return self._counter.is_own

    @cached_property
    def saved_per_call(self) -> int:
        """Tokens that each tool call takes less than its stored count, as upstream's reports have shown (ADR 13)."""
        if not self._counter.saved(1):
            return 0
        return self._counter.saved(sum(_calls(message.body) for message in self._material.messages))

    @property
    def is_exact(self) -> bool:
        """Whether anything was counted exactly; a prompt that surely fits is only estimated."""
        return self._plain is not None

    def counted(self, message: dict[str, Any]) -> dict[str, int]:
        """Returns the count to store with this form of a message, by tokenizer; empty if it was not counted."""
        found = self._plain.get(id(message)) if self._plain else None
        return {self._counter.tokenizer: found[1]} if found else {}

    def new_counts(self) -> list[tuple[str, dict[str, int]]]:
        """Returns new counts of stored messages that had none until now, by message id: at most `MAX_NEW_COUNTS`."""
        found: list[tuple[str, dict[str, int]]] = []
        for message in self._material.messages:
            if len(found) < MAX_NEW_COUNTS and message.message_id and message.tokens and not message.tokens.by:
                counts = self.counted(message.tokens.of)
                found += [(message.message_id, counts)] if counts else []
        return found

    def counted_answer(self, message: dict[str, Any]) -> dict[str, int]:
        """Returns the count to store with an answer, so that no later request has to count it; empty if this request
        counted nothing exactly, or if the answer is long."""
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
        return self._as_taken(message, known[1])

    def _as_taken(self, message: dict[str, Any], plain: int) -> int:
        """Returns the tokens that a message with this plain count takes."""
        return self._counter.with_margin(plain - self.saved_per_call * _calls(message)) + self.added_per_message

    def _least(self, message: dict[str, Any]) -> int:
        """Returns the message's tokens if they are known, else a lower bound."""
        if id(message) in self._known or id(message) in self._plain_counts():
            return self.message(message)
        known = self._bounds.get(id(message))
        if known is None:
            known = self._bounds[id(message)] = (message, self._counter.least(message))
        return known[1]

    def _plain_counts(self) -> dict[int, tuple[dict[str, Any], int]]:
        """Returns the counts without a margin by form of a message, initially those that were stored."""
        if self._plain is None:
            self._plain = dict(self._stored_counts)
            changed = self.saved_per_call or self.added_per_message
            if self._counter.margin == 1.0 and not changed:  # then the plain counts are the final ones
                self._known.update(self._plain)
        return self._plain

    @cached_property
    def _stored_counts(self) -> dict[int, tuple[dict[str, Any], int]]:
        name = self._counter.tokenizer
        stored = [m.tokens for m in self._material.messages if m.tokens is not None]
        return {id(known.of): (known.of, known.by[name]) for known in stored if name in known.by}

    def _parts(self) -> dict[str, int]:
        return {"system": REPLY_TOKENS, "tools": self._tool_tokens(), "history": 0, "artifacts": 0, "current": 0}

    def _add(self, parts: dict[str, int], index: int, tokens: int, block: int = 0) -> None:
        """Adds a message's tokens to its part of the breakdown; the tokens of its block count as artifacts."""
        shown = min(block, tokens)
        parts["artifacts"] += shown
        parts[self._part_of(index)] += tokens - shown

    def _pages(self, forwarded: ForwardedMessages) -> int:
        """Counts the tokens of the PDF pages behind the block."""
        return self._counter.message({"content": list(forwarded.pages)}) if forwarded.pages else 0

    def _part_of(self, index: int) -> str:
        if index == window.MEMORY_INDEX:
            return "history"
        role = self._material.messages[index].role if index >= 0 else "system"
        return PART_OF_ROLE.get(role) or ("history" if index < self._material.current else "current")

    def _sum(self, parts: dict[str, int], *, estimated: bool) -> PromptCount:
        return PromptCount(sum(parts.values()), parts, estimated or not self._counter.is_own)

    def _forms_of(self, forwarded: ForwardedMessages) -> list[CountableForm]:
        if self._listed is None or self._listed[0] is not forwarded:
            known = self._cached
            self._listed = forwarded, [known.get(id(each)) or self._form(each) for each in forwarded.messages]
        return self._listed[1]

    def _form(self, message: dict[str, Any]) -> CountableForm:
        name = id(message)
        known = self._cached.get(name) or self._forms.get(name)
        if known is None:
            known = CountableForm.of(message, self._counter.parts(message), _calls(message))
            lasts = name in self._lasting and not known.parts.media  # their tokens depend on the model
            (self._cached if lasts else self._forms)[name] = known
        return known


def prompt_tokens(counter: ports.TokenCounter, messages: Sequence[dict[str, Any]], forward: dict[str, Any]) -> int:
    """Counts the tokens of a prompt of these messages, as a `PromptCounter` does."""
    total = REPLY_TOKENS + counter.tools(forward)
    saved = counter.saved(sum(map(_calls, messages)))
    for message in messages:
        plain = counter.plain(message)
        if plain is None:
            total += counter.message(message)
        else:
            total += counter.with_margin(plain - saved * _calls(message)) + counter.added_per_message
    return total


def _calls(message: dict[str, Any]) -> int:
    """Returns the number of a message's tool calls."""
    return len(message.get("tool_calls") or ())


def _hold_guesses(messages: Sequence[dict[str, Any]]) -> bool:
    """Returns whether some tokens can only be guessed: audio, files that the model reads itself, images by address."""
    contents = [message.get("content") for message in messages]
    return any(any(map(_is_guess, content)) for content in contents if type(content) is list)


def _is_guess(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind != "image_url":
        return kind in GUESSED
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    return not (isinstance(url, str) and items.is_data_url(url))
