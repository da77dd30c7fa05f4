"""A provider's own account: what it answered, and what that costs by its price list.

Written apart from the gateway's arithmetic on purpose: fractions instead of decimals, one price list instead of
LiteLLM's names, so that an error of the one is not also the other's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

PICO = 10**12


@dataclass(frozen=True, kw_only=True)
class Rates:
    """USD for one token of each kind; None where the kind has no price of its own."""

    prompt: str
    answer: str
    cached: str | None = None
    written: str | None = None
    written_for_an_hour: str | None = None
    thought: str | None = None


@dataclass(frozen=True)
class PriceList:
    """A model's rates, those above a length of prompt (in thousands of tokens), and those of its service tiers."""

    usual: Rates
    above: Mapping[int, Rates] = field(default_factory=dict)
    tiers: Mapping[str, Rates] = field(default_factory=dict)

    def configured(self) -> dict[str, str]:
        """The same as LiteLLM writes it in `model_info`."""
        found: dict[str, str | None] = {}
        for suffix, rates in [
            ("", self.usual),
            *((f"_above_{thousands}k_tokens", rates) for thousands, rates in self.above.items()),
            *((f"_{tier}", rates) for tier, rates in self.tiers.items()),
        ]:
            found |= {
                f"input_cost_per_token{suffix}": rates.prompt,
                f"output_cost_per_token{suffix}": rates.answer,
                f"cache_read_input_token_cost{suffix}": rates.cached,
                f"cache_creation_input_token_cost{suffix}": rates.written,
                f"cache_creation_input_token_cost_above_1hr{suffix}": rates.written_for_an_hour,
                f"output_cost_per_reasoning_token{suffix}": rates.thought,
            }
        return {name: price for name, price in found.items() if price is not None}

    def rates(self, prompt_tokens: int, tier: str | None) -> Rates:
        """What one call goes by."""
        if tier and tier in self.tiers:
            return self.tiers[tier]
        passed = [thousands for thousands in self.above if prompt_tokens > thousands * 1000]
        return self.above[max(passed)] if passed else self.usual


def picodollars(prices: PriceList, usage: Mapping[str, Any], tier: str | None = None) -> tuple[int, int]:
    """What prompt and answer cost, each rounded half-even to a picodollar (guarantee §6)."""
    prompt, answer = usage["prompt_tokens"], usage["completion_tokens"]
    rates = prices.rates(prompt, tier)
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens", 0) if rates.cached else 0
    hour = (usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens", 0) if rates.written_for_an_hour else 0
    written = usage.get("cache_creation_input_tokens", 0) - hour if rates.written else 0
    thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens", 0) if rates.thought else 0
    prompt_cost = (
        Fraction(rates.prompt) * (prompt - cached - written - hour)
        + Fraction(rates.cached or 0) * cached
        + Fraction(rates.written or 0) * written
        + Fraction(rates.written_for_an_hour or 0) * hour
    )
    answer_cost = Fraction(rates.answer) * (answer - thought) + Fraction(rates.thought or 0) * thought
    return round(prompt_cost * PICO), round(answer_cost * PICO)


PRICES = {
    "plain": PriceList(Rates(prompt="0.0000025", answer="0.00001")),
    "cached": PriceList(
        Rates(
            prompt="0.000003", answer="0.000015", cached="0.0000003", written="0.00000375",
            written_for_an_hour="0.000006", thought="0.00002",
        )
    ),
    "tiered": PriceList(
        Rates(prompt="0.00000125", answer="0.00001", cached="0.000000125"),
        above={200: Rates(prompt="0.0000025", answer="0.000015", cached="0.00000025")},
    ),
    "served": PriceList(
        Rates(prompt="0.000002", answer="0.000008", cached="0.0000005"),
        tiers={
            "priority": Rates(prompt="0.0000035", answer="0.000014", cached="0.000000875"),
            "flex": Rates(prompt="0.000001", answer="0.000004", cached="0.00000025"),
        },
    ),
    "uneven": PriceList(Rates(prompt="0.00000012345678915", answer="0.0000006543210985")),
    "free": PriceList(Rates(prompt="0", answer="0")),
}  # fmt: skip
"""Models of all kinds of prices; `unpriced` has none."""
UNPRICED = "unpriced"


@dataclass(frozen=True)
class Charged:
    """One call that was answered in full, with its usage."""

    model: str
    usage: Mapping[str, Any]
    tier: str | None = None

    @property
    def costs(self) -> tuple[int, int] | None:
        """Prompt and answer in picodollars; None for a model without prices."""
        return None if self.model == UNPRICED else picodollars(PRICES[self.model], self.usage, self.tier)


@dataclass
class Account:
    """The provider's books: calls answered in full, by the number of the request that they belong to."""

    charged: dict[int, Charged] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    """Calls that arrived for each request, answered or not."""

    def arrived(self, number: int) -> int:
        """Notes a call; which one for its request it is, from 1."""
        self.calls[number] = self.calls.get(number, 0) + 1
        return self.calls[number]

    @property
    def total(self) -> int:
        """All that was charged, in picodollars."""
        return sum(sum(each.costs) for each in self.charged.values() if each.costs)
