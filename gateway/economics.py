"""Whether what a plan saves is worth what it cost (contract §5: re-planning pays or is left alone)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gateway.accounting.cost import price_internal
from gateway.models.selection import Fitted
from gateway.models.spending import InternalCall
from gateway.planning.models import INPUT_PRICE

PLANNING = ("planner", "summarizer")


@dataclass(frozen=True, slots=True)
class Saving:
    """What a plan keeps out of a window that holds everything, beside what the plan took: in tokens and in USD (None:
    a price is not known). Nothing that was forwarded before is touched, so that no prompt cache is lost by it."""

    tokens: int
    spent_tokens: int
    worth: Decimal | None
    cost: Decimal | None

    @property
    def pays(self) -> bool:
        """Whether this one request already saves more than planning cost it; without prices, by tokens."""
        if self.worth is not None and self.cost is not None:
            return self.worth > self.cost
        return self.tokens > self.spent_tokens

    def told(self, *, applied: bool) -> dict[str, Any]:
        """As the bill tells it."""
        return {"tokens": self.tokens, "worth": self.worth, "cost": self.cost, "applied": applied}


def saving_of(whole: Fitted, planned: Fitted, prices: Mapping[str, Decimal], calls: Sequence[InternalCall]) -> Saving:
    """Compares a context without a plan with one that follows it.

    Args:
        prices: the primary model's, by LiteLLM's names.
        calls: those of internal models that this request has made.
    """
    made = [call for call in calls if call.purpose in PLANNING]
    tokens = whole.tokens - planned.tokens
    price = prices.get(INPUT_PRICE)
    costs = [price_internal(call).total for call in made]
    known = [cost for cost in costs if cost is not None]
    return Saving(
        tokens=tokens,
        spent_tokens=sum(int(call.usage.get("total_tokens") or _both(call)) for call in made),
        worth=price * tokens if price is not None else None,
        cost=sum(known, Decimal(0)) if len(known) == len(costs) else None,
    )


def _both(call: InternalCall) -> int:
    return int(call.usage.get("prompt_tokens") or 0) + int(call.usage.get("completion_tokens") or 0)
