"""What the internal models of one request may use at most: tokens, money, time (contract §5)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from gateway.accounting.cost import price_internal
from gateway.models.internal import OverCeiling
from gateway.models.spending import InternalCall
from gateway.ports import Clock
from gateway.settings import ContextSettings


@dataclass(slots=True)
class Ceilings:
    """Nothing is begun that could exceed what is left: each call is taken for the worst that it can be (its whole
    prompt, and the longest answer that it may give) until it is known what it was.

    A model of unknown price is not called where money is limited: nobody could say that it keeps the limit.
    """

    tokens: int | None
    cost: Decimal | None
    most_seconds: float
    clock: Clock
    _until: float = 0.0
    _used_tokens: int = 0
    _used_cost: Decimal = field(default=Decimal(0))

    @classmethod
    def of(cls, settings: ContextSettings, clock: Clock) -> "Ceilings":
        """As configured."""
        return cls(settings.planning_max_tokens, settings.planning_max_cost, settings.planning_max_seconds, clock)

    def begin(self) -> None:
        """From now on the time counts."""
        self._until = self.clock.monotonic() + self.most_seconds

    @property
    def seconds(self) -> float:
        """What is left of the time; not below 0."""
        return max(0.0, self._until - self.clock.monotonic())

    def take(self, worst: InternalCall) -> None:
        """Sets aside what a call can cost at most.

        Raises:
            OverCeiling: that is more than is left; the message is the `fallback_reason`.
        """
        self.allow([worst])
        self._used_tokens += _tokens(worst)
        self._used_cost += price_internal(worst).total or 0

    def allow(self, calls: Sequence[InternalCall]) -> None:
        """Whether all of these may be made; sets nothing aside.

        Raises:
            OverCeiling: as above.
        """
        tokens, costs = sum(map(_tokens, calls)), [price_internal(call).total for call in calls]
        purpose = calls[0].purpose
        if not self.seconds:
            raise OverCeiling(f"{purpose}_over_time_ceiling")
        if self.tokens is not None and self._used_tokens + tokens > self.tokens:
            raise OverCeiling(f"{purpose}_over_token_ceiling")
        if self.cost is None:
            return
        if None in costs:
            raise OverCeiling(f"{purpose}_price_unknown")
        if self._used_cost + sum(cost or 0 for cost in costs) > self.cost:
            raise OverCeiling(f"{purpose}_over_cost_ceiling")

    def settle(self, worst: InternalCall, call: InternalCall) -> None:
        """Puts what a call did cost in the place of what was set aside for it."""
        self._used_tokens += _tokens(call) - _tokens(worst)
        self._used_cost += (price_internal(call).total or 0) - (price_internal(worst).total or 0)


def _tokens(call: InternalCall) -> int:
    return int(call.usage.get("prompt_tokens", 0)) + int(call.usage.get("completion_tokens", 0))
