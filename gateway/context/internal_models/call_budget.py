"""What the internal models of one request may use at most: tokens, money, time (guarantee §5)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from gateway.billing.cost import price_internal
from gateway.core.config.settings import ContextSettings
from gateway.core.ports import Clock
from gateway.core.types.bill import InternalCall
from gateway.core.types.internal import OverBudget


@dataclass(slots=True)
class CallBudget:
    """A budget that is never exceeded: each call is reserved at its worst (its whole prompt, and the longest answer
    that it may give) until it is known what it used.

    A model of unknown price is not called where money is limited: nobody could say that it keeps the limit.
    """

    max_tokens: int | None
    max_cost: Decimal | None
    """In USD."""
    max_seconds: float
    clock: Clock
    _until: float = 0.0
    _used_tokens: int = 0
    _used_cost: Decimal = field(default=Decimal(0))

    @classmethod
    def of(cls, settings: ContextSettings, clock: Clock) -> "CallBudget":
        """As configured."""
        return cls(settings.planning_max_tokens, settings.planning_max_cost, settings.planning_max_seconds, clock)

    def begin(self) -> None:
        """Starts the time."""
        self._until = self.clock.monotonic() + self.max_seconds

    @property
    def seconds(self) -> float:
        """What is left of the time; not below 0."""
        return max(0.0, self._until - self.clock.monotonic())

    def check(self, calls: Sequence[InternalCall]) -> None:
        """Returns if all of these calls may be made; reserves nothing.

        Raises:
            OverBudget: they are more than is left; the message is the `fallback_reason`.
        """
        tokens, costs = sum(map(_tokens, calls)), [price_internal(call).total for call in calls]
        purpose = calls[0].purpose
        if not self.seconds:
            raise OverBudget(f"{purpose}_over_time_ceiling")
        if self.max_tokens is not None and self._used_tokens + tokens > self.max_tokens:
            raise OverBudget(f"{purpose}_over_token_ceiling")
        if self.max_cost is None:
            return
        if None in costs:
            raise OverBudget(f"{purpose}_price_unknown")
        if self._used_cost + sum(cost or 0 for cost in costs) > self.max_cost:
            raise OverBudget(f"{purpose}_over_cost_ceiling")

    def reserve(self, worst: InternalCall) -> None:
        """Sets aside what a call can use at most; raises as `check` does."""
        self.check([worst])
        self._used_tokens += _tokens(worst)
        self._used_cost += price_internal(worst).total or 0

    def settle(self, worst: InternalCall, call: InternalCall) -> None:
        """Replaces what was reserved by what the call used."""
        self._used_tokens += _tokens(call) - _tokens(worst)
        self._used_cost += (price_internal(call).total or 0) - (price_internal(worst).total or 0)


def _tokens(call: InternalCall) -> int:
    return int(call.usage.get("prompt_tokens", 0)) + int(call.usage.get("completion_tokens", 0))
