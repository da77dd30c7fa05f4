"""What a provider's prompt cache costs, how long it lives, and why less was read from it than earlier requests promise
(guarantee §6.11).

The sums of a branch hold digests of what its request forwarded: of its tools, of its system messages, and of each of
its latest messages with all before it. So no history is walked, and any replica can find the cause.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from itertools import takewhile
from typing import Any

from gateway.billing.cost import EXACT_MONEY, TokenRates
from gateway.core import jsons
from gateway.core.frozen_records import record
from gateway.core.types import bill, conversation, items
from gateway.core.types.chat import ChatRequest
from gateway.core.types.content_parts import dicts_of
from gateway.core.types.prompt_digests import BYTES_EACH, PromptDigests, without_mark

LIFETIME = timedelta(minutes=5)
"""Lifetime of an unused prompt cache, where its client asks for no other: Anthropic's, and that of others that charge
for cache writes."""
LIFETIME_AT_LEAST = timedelta(minutes=10)
"""Lifetime of an unused prompt cache at providers that promise none: OpenAI names five to ten minutes."""
FOR_AN_HOUR = timedelta(hours=1)
FOR_A_DAY = timedelta(days=1)
READ, WRITE = "cache_read_input_token_cost", "cache_creation_input_token_cost"
WRITE_HOUR = "cache_creation_input_token_cost_above_1hr"
RETENTION = "prompt_cache_retention"


@record
class CacheRates:
    """USD per token of a prompt: read from the cache, and written to it."""

    read: Decimal
    write: Decimal

    def prompt(self, tokens: int, known: int) -> Decimal:
        """Computes what a prompt costs in USD if its first `known` tokens are read from the cache."""
        known = max(0, min(known, tokens))
        return EXACT_MONEY.add(EXACT_MONEY.multiply(self.read, known), EXACT_MONEY.multiply(self.write, tokens - known))


def cache_rates(
    prices: Mapping[str, Decimal], prompt_tokens: int, *, for_an_hour: bool = False, service_tier: Any = None
) -> CacheRates | None:
    """Returns the cache rates of a model; None where a price is unknown, or where cached input is no cheaper.
    `prices`: USD per token by LiteLLM's names; `prompt_tokens`: of the prompt, which decides the context tier;
    `for_an_hour`: what is written is cached for an hour; `service_tier`: by which the call is charged, as its answer
    states."""
    rates = TokenRates(prices, prompt_tokens, service_tier)
    full, read = rates.find("input_cost_per_token"), rates.find(READ)
    if full is None or read is None or read >= full:
        return None
    write = rates.find(WRITE_HOUR, WRITE) if for_an_hour else rates.find(WRITE)
    return CacheRates(read, full if write is None else write)


def cache_lifetime(
    request: ChatRequest, prices: Mapping[str, Decimal], messages: Iterable[Mapping[str, Any]]
) -> timedelta:
    """Returns how long the provider's cache holds what a request leaves in it at most, as its client wants it. Marks of
    an hour, and OpenAI's retention, are looked for in each message.
    `prices`: the model's, USD per token by LiteLLM's names; `messages`: those of the whole conversation: marks are
    forwarded again with those that are not sent again."""
    for fields in _bodies(request):
        if fields.get(RETENTION) is not None:
            return FOR_AN_HOUR if fields[RETENTION] == "in_memory" else FOR_A_DAY
    marks = [mark.value for mark in request.native.marks] if request.native is not None else []
    tools = [tool for fields in _bodies(request) for tool in dicts_of(fields.get("tools"))]
    marks += [mark for each in (*_bodies(request), *tools, *messages) for mark in breakpoints_in(each)]
    if any(isinstance(mark, dict) and mark.get("ttl") == "1h" for mark in marks):
        return FOR_AN_HOUR
    return LIFETIME if WRITE in prices else LIFETIME_AT_LEAST


def _bodies(request: ChatRequest) -> Iterable[Mapping[str, Any]]:
    yield request.forward
    if request.native is not None:
        yield request.native.fields


MARKED_PARTS = ("content", "tool_calls", items.ANTHROPIC_BLOCKS)
MAX_BREAKPOINTS = 4
"""Anthropic accepts no more in a request."""


def breakpoints_in(value: Mapping[str, Any]) -> list[Any]:
    """Returns the breakpoints of a message or a tool, those of its parts, calls and function first."""
    found: list[Any] = []
    for name in MARKED_PARTS:
        parts = value.get(name)
        if type(parts) is list:  # mostly not
            found += [part[items.BREAKPOINT] for part in parts if type(part) is dict and items.BREAKPOINT in part]
    function = value.get("function")
    if type(function) is dict and items.BREAKPOINT in function:
        found.append(function[items.BREAKPOINT])
    if items.BREAKPOINT in value:
        found.append(value[items.BREAKPOINT])
    return found


def are_marked(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether any of these messages has a breakpoint. Mostly none has: this takes a third of the time in which
    each would list its own."""
    fields = set[str]().union(*messages)
    if items.BREAKPOINT in fields:
        return True
    named = fields.intersection(MARKED_PARTS)
    lists = [parts for name in named for message in messages if type(parts := message.get(name)) is list]
    return any(items.BREAKPOINT in part for parts in lists for part in parts if type(part) is dict)


def all_breakpoints(
    request: ChatRequest, prices: Mapping[str, Decimal], messages: Sequence[Mapping[str, Any]]
) -> tuple[int, ...] | None:
    """Returns the indexes of the forwarded messages behind which the client set breakpoints, if these are all that its
    provider accepts; None if another can be set, or if the provider needs none, as it charges for no cache writes."""
    if WRITE not in prices:
        return None
    tools = [tool for fields in _bodies(request) for tool in fields.get("tools") or ()]
    at = [index for index, message in enumerate(messages) for _ in breakpoints_in(message)]
    beside = sum(1 for fields in (*_bodies(request), *tools) for _ in breakpoints_in(fields))
    if request.native is not None:
        roles = [message["role"] for message in request.messages]
        leading = next((i for i, role in enumerate(roles) if role not in conversation.INSTRUCTION_ROLES), len(roles))
        moved = len(messages) - len(roles)
        own = (mark.message for mark in request.native.marks)
        at += [index if index < leading else index + moved for index in own]
    return tuple(at) if len(at) + beside >= MAX_BREAKPOINTS else None


MAX_MESSAGES = 256
"""The latest messages that have a digest of their own."""
BLOCK = 256
SLACK_DIVISOR = 50
"""Providers cache in blocks and count tokens their own way: a shortfall of `BLOCK` tokens, or of one in
`SLACK_DIVISOR`, is no break."""
MIN_CACHED_TOKENS = 4096
"""Tokens from which on every provider with a prompt cache that does not report it caches a prompt."""
TOOLS, SYSTEM, MODEL, TTL, PROVIDER = "tools", "system", "model", "ttl", "provider"


def sent_prompt(route: str, tools: Sequence[Any], digests: PromptDigests) -> bill.SentPrompt:
    """Shortens the digests of a prompt to what is stored of them."""
    plain = jsons.canonical([without_mark(tool) for tool in tools])
    told = hashlib.blake2b(plain, digest_size=BYTES_EACH).hexdigest()
    first = max(0, digests.count - MAX_MESSAGES)
    latest = digests.each[first * BYTES_EACH :]
    short = bytearray(bill.DIGEST_BYTES_EACH * (digests.count - first))
    for at in range(bill.DIGEST_BYTES_EACH):
        short[at :: bill.DIGEST_BYTES_EACH] = latest[at::BYTES_EACH]
    return bill.SentPrompt(route, told, digests.system, first, bytes(short))


def tools_of(request: ChatRequest) -> Sequence[Any]:
    """Returns the tools of a request, in its client's own form where its provider gets that."""
    native = request.native.fields.get("tools") if request.native is not None else None
    return native or request.forward.get("tools") or request.forward.get("functions") or ()


def has_new_head(before: bill.SentPrompt, tools: Sequence[Any], messages: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether tools or system messages differ from those of the previous request, so that nothing behind them
    can be read from a prompt cache, whatever was forwarded of it."""
    head = list(takewhile(lambda message: message["role"] in conversation.INSTRUCTION_ROLES, messages))
    now = sent_prompt(before.route, tools, PromptDigests().followed_by(head))
    return (now.tools, now.system) != (before.tools, before.system)


def broke_at(before: bill.SentPrompt, now: bill.SentPrompt, *, is_same_model: bool) -> str:
    """Names what changed since a request whose prompt the provider did not read from its cache: `model` (or its route),
    `ttl` (the cache had expired, whatever else changed), `tools`, `system`, `message N` (from 1, of those that were
    forwarded), or `provider` (nothing did)."""
    if not is_same_model or before.route != now.route:
        return MODEL
    if now.at - before.at > before.lifetime:
        return TTL
    if before.tools != now.tools:
        return TOOLS
    if before.system != now.system:
        return SYSTEM
    for count in range(1 + max(before.first, now.first), before.count + 1):
        if before.digest_after(count) != now.digest_after(count):
            return f"message {count}"
    return PROVIDER


def fell_short(promised: int, cached: int) -> bool:
    """Returns whether a provider read clearly less than it had in its cache."""
    return cached < promised - max(BLOCK, promised // SLACK_DIVISOR)
