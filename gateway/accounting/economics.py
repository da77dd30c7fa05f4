"""Whether a plan saves more than it costs: estimates in exact decimals, told beside the bill (`models.economics`)."""

from collections.abc import Mapping
from decimal import Decimal

from gateway.accounting.cost import EXACT, ZERO, Rates
from gateway.models.economics import Comparison
from gateway.models.metadata import PICO

LEAST_REQUESTS, MOST_REQUESTS = 3, 20
"""What artifacts come into is asked about more than once; however long a conversation was, no more is counted on."""


def expected_requests(answers: int) -> int:
    """How many requests will forward what this one decides, itself included: a conversation that has had so many
    answers is taken to get as many again (the estimate that knows least of its end)."""
    return min(MOST_REQUESTS, max(LEAST_REQUESTS, 1 + answers))


def compare(
    prices: Mapping[str, Decimal],
    *,
    candidate_tokens: int,
    saved_tokens: int,
    invalidated_tokens: int,
    requests: int,
    planning_cost: Decimal | None,
) -> Comparison:
    """What a smaller context saves over the requests that will forward it, beside what making it costs.

    The first request pays the full input price for what is left out, each further one the price of cached input, as the
    prefix would have been cached by then. Tokens of the frozen prefix that change are paid for in full once more.

    Args:
        prices: the primary model's, by LiteLLM's names.
        candidate_tokens: the context without the plan, which decides the context tier.
        saved_tokens: how many of these the plan leaves out.
        invalidated_tokens: how many were cached and will not be.
        planning_cost: of planner and summarizer, USD; None if unknown.
    """
    rates = Rates(prices, candidate_tokens, None)
    full = rates.find("input_cost_per_token")
    saving = invalidation = None
    if full is not None:
        cached = _cached(rates, full)
        saving = _told(EXACT.multiply(full + cached * (requests - 1), saved_tokens))
        invalidation = _told(EXACT.multiply(full - cached, invalidated_tokens))
    return Comparison(saved_tokens, requests, saving, planning_cost, invalidated_tokens, invalidation)


def _cached(rates: Rates, full: Decimal) -> Decimal:
    """The price of cached input; a model without one has no cache that would lower a bill."""
    price = rates.find("cache_read_input_token_cost")
    return full if price is None else min(price, full)


def _told(value: Decimal) -> Decimal:
    return max(ZERO, value).quantize(PICO, context=EXACT)
