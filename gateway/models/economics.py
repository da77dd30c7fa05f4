"""What a plan saves beside what it costs."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any


@dataclass(frozen=True, slots=True)
class Comparison:
    """USD over the `expected_requests` that will forward what was decided; None where a price is unknown.

    `saved_tokens`: fewer than without the plan, in each of them. `invalidated_tokens`: of the frozen prefix, which a
    provider's prompt cache will have to take in anew; `invalidation_cost` is what they cost more for that.
    """

    saved_tokens: int
    expected_requests: int
    saving: Decimal | None
    planning_cost: Decimal | None
    invalidated_tokens: int = 0
    invalidation_cost: Decimal | None = None

    @property
    def pays(self) -> bool | None:
        """Whether the saving is larger than the cost; None if one of them is unknown."""
        if self.saving is None or self.planning_cost is None:
            return None
        return self.saving > self.planning_cost + (self.invalidation_cost or Decimal(0))

    def told(self, *, applied: bool) -> dict[str, Any]:
        """As the bill tells it; `applied`: the plan was followed."""
        return {
            "saved_tokens": self.saved_tokens,
            "expected_requests": self.expected_requests,
            "saving": self.saving,
            "planning_cost": self.planning_cost,
            "invalidated_tokens": self.invalidated_tokens,
            "invalidation_cost": self.invalidation_cost,
            "pays": self.pays,
            "applied": applied,
        }
