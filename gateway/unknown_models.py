"""Internal models that their upstream says it does not know: for a while nobody asks it for them (contract §5)."""

import re

from gateway.errors import UpstreamRefused
from gateway.logs import get_logger
from gateway.models.exchange import Deployment
from gateway.ports import Clock
from gateway.upstream.overflow import error_object

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
