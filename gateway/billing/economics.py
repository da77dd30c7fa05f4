"""What leaving out saves, in USD: at most, as a plan promises, and as a bill realises it (guarantee §5, ADR 16)."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from gateway.billing.cost import EXACT, ZERO, TokenRates
from gateway.core.types.bill import PICO, READ, LeftOutTokens, PlanComparison, told

MIN_REQUESTS, MAX_REQUESTS = 3, 20
"""Bounds of how many requests are expected to forward what is decided now: artifacts are asked about more than once,
and however long a conversation was, no more than this is counted on."""
MIN_CACHED = 4096
"""Tokens: providers cache no shorter prompt (OpenAI from 1,024, others up to this)."""


def expected_requests(answers: int) -> int:
    """How many requests will forward what this one decides, itself included: a conversation that has had so many
    answers is expected to get as many again (the estimate that knows least of its end)."""
    return min(MAX_REQUESTS, max(MIN_REQUESTS, 1 + answers))


def saving_of(prices: Mapping[str, Decimal], tokens: int, requests: int, prompt_tokens: int) -> Decimal | None:
    """What so many tokens cost in so many requests: the full input price in the first, that of cached input in further
    ones, as the prefix would have been cached by then. None if the price is unknown.
    `prices`: the primary model's, USD per token by LiteLLM's names; `prompt_tokens`: of the prompt that holds them,
    which decides the context tier."""
    rates = TokenRates(prices, prompt_tokens, None)
    full = rates.find("input_cost_per_token")
    if full is None:
        return None
    return _rounded(EXACT.multiply(full + _cached_price(rates, full) * (requests - 1), tokens))


def compare(
    prices: Mapping[str, Decimal],
    *,
    candidate_tokens: int,
    saved_tokens: int,
    invalidated_tokens: int,
    requests: int,
    planning_cost: Decimal | None,
) -> PlanComparison:
    """What a smaller context saves over the requests that will forward it, beside what making it costs.

    Tokens of the frozen prefix that change are paid for in full once more.

    Args:
        prices: the primary model's, USD per token by LiteLLM's names.
        candidate_tokens: the context without the plan, which decides the context tier.
        saved_tokens: how many of these the plan leaves out.
        invalidated_tokens: how many were cached and will not be.
        planning_cost: of planner and summarizer, USD; None if unknown.
    """
    rates = TokenRates(prices, candidate_tokens, None)
    full = rates.find("input_cost_per_token")
    saving = saving_of(prices, saved_tokens, requests, candidate_tokens)
    invalidation = None
    if full is not None:
        invalidation = _rounded(EXACT.multiply(full - _cached_price(rates, full), invalidated_tokens))
    return PlanComparison(saved_tokens, requests, saving, planning_cost, invalidated_tokens, invalidation)


def realised(left: LeftOutTokens, usage: Mapping[str, Any], prices: Mapping[str, Decimal]) -> Decimal | None:
    """What was saved in one request, by what the upstream reported of it. None if the price is unknown.

    What this request would have sent for the first time is worth the full input price; the rest that of cached input,
    where the upstream says how much it read from its cache, and did read where it could.
    """
    rates = TokenRates(prices, int(usage.get("prompt_tokens") or 0) + max(0, left.tokens), None)
    full = rates.find("input_cost_per_token")
    if full is None:
        return None
    fresh = max(0, min(left.fresh, left.tokens))
    again = _cached_price(rates, full) if _reads_cache(usage, left.unchanged) else full
    value = EXACT.add(EXACT.multiply(full, fresh), EXACT.multiply(again, left.tokens - fresh))
    return value.quantize(PICO, context=EXACT)


def as_realised(
    promised: dict[str, Any] | None, left: LeftOutTokens | None, usage: Mapping[str, Any], prices: Mapping[str, Decimal]
) -> dict[str, Any] | None:
    """A bill's `economics` once its usage is known: what a plan promised, and what this request saved. None if it has
    neither; a call that was not charged saved nothing.
    `promised`: the comparison of a plan, if one was made."""
    if left is None or not usage.get("prompt_tokens"):
        left = replace(left, tokens=0, fresh=0) if left else None
        if promised is None:
            return None
    tokens = left.tokens if left else 0
    saving = realised(left, usage, prices) if left else ZERO
    if promised is None:
        promised = {"saved_tokens": tokens, "saving": saving, "pending": False}
    return {**promised, "realised_tokens": tokens, "realised_saving": saving}


def _reads_cache(usage: Mapping[str, Any], unchanged: int) -> bool:
    """Whether what an earlier request had sent would have been read from the upstream's cache.

    An upstream that never says what it read bills nothing at that price. One that says it read nothing of a long prefix
    that it had been sent before keeps none.
    """
    reported = told(usage, READ)
    return bool(reported) and (any(reported) or unchanged < MIN_CACHED)


def _cached_price(rates: TokenRates, full: Decimal) -> Decimal:
    """The price of cached input; a model without one has no cache that would lower a bill."""
    price = rates.find("cache_read_input_token_cost")
    return full if price is None else min(price, full)


def _rounded(value: Decimal) -> Decimal:
    return max(ZERO, value).quantize(PICO, context=EXACT)
