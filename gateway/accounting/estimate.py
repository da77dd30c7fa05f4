"""Between what and what a call will cost, before it is made (contract §5, `dry_run`)."""

from collections.abc import Mapping
from decimal import Decimal

from gateway.accounting.cost import EXACT, Rates, rounded

CHEAPER_INPUT = ("cache_read_input_token_cost",)
DEARER_INPUT = ("cache_creation_input_token_cost", "cache_creation_input_token_cost_above_1hr")
DEARER_OUTPUT = ("output_cost_per_reasoning_token",)


def estimated_cost(
    prices: Mapping[str, Decimal], prompt_tokens: int, most_tokens: int | None, service_tier: str | None = None
) -> dict[str, Decimal | None]:
    """The least and the most in USD; None where a price, or how long the answer may be, is not known.

    At the least nothing is answered and all of the prompt comes from the provider's cache; at the most all of it is
    written there and the answer is as long as it may be, thoughts included. A provider may serve a request in another
    tier than it asks for, so both count.

    Args:
        most_tokens: of all choices together.
        service_tier: that the request asks for.
    """
    least: list[Decimal] = []
    most: list[Decimal] = []
    for tier in dict.fromkeys((None, service_tier)):
        rates = Rates(prices, prompt_tokens, tier)
        read, written = rates.find("input_cost_per_token"), rates.find("output_cost_per_token")
        if read is None or written is None:
            return {"min": None, "max": None}
        least.append(_of(prompt_tokens, min([read, *_known(rates, CHEAPER_INPUT)])))
        answer = _of(most_tokens or 0, max([written, *_known(rates, DEARER_OUTPUT)]))
        most.append(_of(prompt_tokens, max([read, *_known(rates, DEARER_INPUT)])) + answer)
    return {"min": min(least), "max": max(most) if most_tokens is not None else None}


def _known(rates: Rates, names: tuple[str, ...]) -> list[Decimal]:
    return [price for name in names if (price := rates.find(name)) is not None]


def _of(tokens: int, price: Decimal) -> Decimal:
    return rounded(EXACT.multiply(price, tokens))
