"""A circuit breaker for internal models that their upstream does not know (guarantee §5)."""

import re

from gateway.errors import UpstreamRefused
from gateway.models.exchange import Deployment
from gateway.ports import Clock
from gateway.telemetry.logs import get_logger
from gateway.upstream.openai.error_bodies import error_object

OPEN_SECONDS = 60.0
"""How long an unknown model is not asked for. A minute later it may be known: it was being loaded, or renamed."""
MAX_REMEMBERED = 1000
"""Models; names may come from clients."""
UNKNOWN_CODES = ("model_not_found", "DeploymentNotFound")
log = get_logger("gateway.planning")


class UnknownModelBreaker:
    """Models that an upstream said it does not know, for one process. The log names each once, until it has answered
    again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def is_open(self, deployment: Deployment) -> bool:
        """Whether the model is not to be asked now."""
        return self._until.get(_key(deployment), 0.0) > self._clock.monotonic()

    def refused(self, deployment: Deployment, refusal: UpstreamRefused) -> None:
        """Opens the breaker if the refusal says that there is no such model."""
        if not is_unknown(deployment, refusal):
            return
        key = _key(deployment)
        if key not in self._until:
            if len(self._until) >= MAX_REMEMBERED:
                self._until.clear()
            log.warning("internal_model_unknown", model=deployment.route, seconds=OPEN_SECONDS)
        self._until[key] = self._clock.monotonic() + OPEN_SECONDS

    def answered(self, deployment: Deployment) -> None:
        """Closes the breaker."""
        self._until.pop(_key(deployment), None)


def model_at(deployment: Deployment) -> str:
    """Names a model and its address: what it can do is the same for everybody."""
    return f"{deployment.api_base} {deployment.provider_model}"


def _key(deployment: Deployment) -> str:
    """Model, address and account: a client's own account may lack a model that others have."""
    model = model_at(deployment)
    if deployment.operator_key:
        return model
    return f"{model} {hash((deployment.api_key, *sorted(deployment.headers.items())))}"


def is_unknown(deployment: Deployment, refusal: UpstreamRefused) -> bool:
    """Whether a refusal says that there is no such model: by its code, or by a 404 whose own words name the model. Any
    other 404, such as the page of a proxy that is being restarted, is a call that failed."""
    if not isinstance(refusal.original, dict | list):
        return False
    if str(error_object(refusal.original).get("code")) in UNKNOWN_CODES:
        return True
    named = rf"(?<![\w.-]){re.escape(deployment.provider_model)}(?![\w-])"
    return refusal.status == 404 and re.search(named, refusal.message, re.IGNORECASE) is not None
