"""What the internal models of one request may use at most: tokens, money, time (guarantee §5)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from gateway.accounting.cost import price_internal
from gateway.config.settings import ContextSettings
from gateway.errors import UpstreamRefused
from gateway.models.bill import InternalCall
from gateway.models.exchange import Deployment
from gateway.models.internal import OverCeiling
from gateway.ports import Clock
from gateway.telemetry.logs import get_logger
from gateway.upstream.openai.error_bodies import error_object

# Internal models that their upstream says it does not know: for a while nobody asks it for them (guarantee §5).


FORGOTTEN_SECONDS = 60.0
"""What an upstream does not know it may know a minute later: a model that is being loaded, a name that was mended."""
MOST_KEPT = 1000
CODES = ("model_not_found", "DeploymentNotFound")
log = get_logger("gateway.planning")


class UnknownModels:
    """What one process was told by upstreams. The log tells each once, until the model has answered again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def has(self, deployment: Deployment) -> bool:
        """Whether it need not be asked now."""
        return self._until.get(_account_at(deployment), 0.0) > self._clock.monotonic()

    def refused(self, deployment: Deployment, refusal: UpstreamRefused) -> None:
        """Takes in what an upstream said; anything but that it does not know the model changes nothing."""
        if not is_unknown(deployment, refusal):
            return
        place = _account_at(deployment)
        if place not in self._until:
            if len(self._until) >= MOST_KEPT:
                self._until.clear()
            log.warning("internal_model_unknown", model=deployment.route, seconds=FORGOTTEN_SECONDS)
        self._until[place] = self._clock.monotonic() + FORGOTTEN_SECONDS

    def answered(self, deployment: Deployment) -> None:
        """It is there."""
        self._until.pop(_account_at(deployment), None)


def place_of(deployment: Deployment) -> str:
    """Which model where: what it can do is the same for whoever asks."""
    return f"{deployment.api_base} {deployment.provider_model}"


def _account_at(deployment: Deployment) -> str:
    """Which model where and with whose account: a client's own may lack what all others have."""
    place = place_of(deployment)
    if deployment.operator_key:
        return place
    return f"{place} {hash((deployment.api_key, *sorted(deployment.headers.items())))}"


def is_unknown(deployment: Deployment, refusal: UpstreamRefused) -> bool:
    """Whether a refusal says that there is no such model: by its code, or by a 404 whose own words name the model. Any
    other 404, such as the page of a proxy that is being restarted, is a call that failed."""
    if not isinstance(refusal.original, dict | list):
        return False
    if str(error_object(refusal.original).get("code")) in CODES:
        return True
    named = rf"(?<![\w.-]){re.escape(deployment.provider_model)}(?![\w-])"
    return refusal.status == 404 and re.search(named, refusal.message, re.IGNORECASE) is not None


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
