"""What a provider's prompt cache costs, and how long it lives."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from gateway.billing.cost import EXACT_MONEY, TokenRates
from gateway.core.types import items
from gateway.core.types.chat import ChatRequest
from gateway.core.types.conversation import parts_of

LIFETIME = timedelta(minutes=5)
"""How long a prompt cache lives that nobody uses, where its client asks for nothing else: Anthropic's, and those of
others that charge for what they take in."""
LIFETIME_AT_LEAST = timedelta(minutes=10)
"""The same for providers that promise no time: OpenAI names five to ten minutes."""
FOR_AN_HOUR = timedelta(hours=1)
FOR_A_DAY = timedelta(days=1)
READ, WRITE, WRITE_HOUR = (
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
    "cache_creation_input_token_cost_above_1hr",
)
RETENTION = "prompt_cache_retention"


@dataclass(frozen=True, slots=True)
class CacheRates:
    """USD per token of a prompt: read from the cache, and taken into it."""

    read: Decimal
    write: Decimal

    def prompt(self, tokens: int, known: int) -> Decimal:
        """What a prompt costs of which the first `known` tokens are read from the cache."""
        known = max(0, min(known, tokens))
        return EXACT_MONEY.add(EXACT_MONEY.multiply(self.read, known), EXACT_MONEY.multiply(self.write, tokens - known))


def cache_rates(
    prices: Mapping[str, Decimal], prompt_tokens: int, *, for_an_hour: bool = False, service_tier: Any = None
) -> CacheRates | None:
    """The rates of a model; None where a price is unknown, or where cached input is no cheaper.
    `prices`: USD per token by LiteLLM's names; `prompt_tokens`: of the prompt, which decides the context tier;
    `for_an_hour`: what is written is kept for an hour; `service_tier`: by which the call is charged, as its answer
    says."""
    rates = TokenRates(prices, prompt_tokens, service_tier)
    full, read = rates.find("input_cost_per_token"), rates.find(READ)
    if full is None or read is None or read >= full:
        return None
    write = rates.find(WRITE_HOUR, WRITE) if for_an_hour else rates.find(WRITE)
    return CacheRates(read, full if write is None else write)


def cache_lifetime(request: ChatRequest, prices: Mapping[str, Decimal]) -> timedelta:
    """How long what a request leaves in its provider's cache lives at most, as its client wants it. Marks of an hour,
    and OpenAI's retention, are looked for in each message.
    `prices`: the model's, USD per token by LiteLLM's names."""
    for fields in _bodies(request):
        if fields.get(RETENTION) is not None:
            return FOR_AN_HOUR if fields[RETENTION] == "in_memory" else FOR_A_DAY
    marks = [mark.value for mark in request.native.marks] if request.native is not None else []
    if any(map(_is_for_an_hour, marks)) or any(map(_has_hour, _marked(request))):
        return FOR_AN_HOUR
    return LIFETIME if WRITE in prices else LIFETIME_AT_LEAST


def _bodies(request: ChatRequest) -> Iterable[Mapping[str, Any]]:
    yield request.forward
    if request.native is not None:
        yield request.native.fields


def _marked(request: ChatRequest) -> Iterable[Any]:
    for fields in _bodies(request):
        yield fields
        yield from fields.get("tools") or ()
    for message in request.messages:
        yield message
        yield from parts_of(message.get("content"))


def _has_hour(value: Any) -> bool:
    return isinstance(value, dict) and items.BREAKPOINT in value and _is_for_an_hour(value[items.BREAKPOINT])


def _is_for_an_hour(value: Any) -> bool:
    return isinstance(value, dict) and value.get("ttl") == "1h"
