"""Whether another try of a failed call is worthwhile (guarantee §12.6). Pure, but for the budget, which counts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gateway.core.config.routing_settings import RoutingSettings
from gateway.core.errors import GatewayError, UpstreamAuth, UpstreamError, UpstreamOverflow, UpstreamRefused
from gateway.upstream.openai.provider_faults import waited_for
from gateway.upstream.routing.deployment_faults import SPENT

Where = Literal["anywhere", "elsewhere", "nowhere"]
MAX_DOUBLINGS = 20


@dataclass(frozen=True, slots=True)
class FailedTry:
    """A try that failed, and what is known of the next.

    Attributes:
        tries: made so far, this one included.
        here: of these, those at the deployment that would be asked next.
        begun: something of the answer has gone to the client.
        rests: the next deployment failed too often of late.
        has_room: the budget of retries has room for one more.
        left: seconds that the client still waits; None if it does not say.
    """

    error: GatewayError
    tries: int
    here: int
    begun: bool = False
    rests: bool = False
    has_room: bool = True
    left: float | None = None

    @property
    def is_drawn(self) -> bool:
        """Whether the next try draws on the budget: it asks who has failed already. The first at another deployment
        that is well hammers nobody."""
        return self.here > 0 or self.rests


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Whether to try again, after so many seconds, and why or why not."""

    again: bool
    wait: float
    reason: str


def decide(failed: FailedTry, settings: RoutingSettings, random: Callable[[], float], now: datetime) -> RetryDecision:
    """Decides on the next try.

    Args:
        random: between 0 and 1; the wait has full jitter.
    """
    where = helps(failed.error, settings.retry_statuses)
    if failed.begun:
        return _no("begun")
    if where == "nowhere":
        return _no("final")
    most = settings.retries
    if (failed.here and (most is None or where == "elsewhere")) or (most is not None and failed.tries > most):
        return _no("tries")
    if failed.is_drawn and not failed.has_room:
        return _no("budget")
    wait = _wait(failed, settings, random, now)
    if wait is None:
        return _no("retry_after")
    if failed.left is not None and wait >= failed.left:
        return _no("deadline")
    return RetryDecision(True, wait, "elsewhere" if not failed.here else "again")


def helps(error: GatewayError, statuses: tuple[int, ...]) -> Where:
    """Where another try may end otherwise: at no deployment, if the request itself is at fault; at another, if it is
    this deployment's key or quota; else anywhere."""
    if not isinstance(error, UpstreamError) or isinstance(error, UpstreamOverflow):
        return "nowhere"
    if isinstance(error, UpstreamAuth):
        return "elsewhere"
    if not isinstance(error, UpstreamRefused):
        return "anywhere"
    if error.status not in statuses:
        return "nowhere"
    return "elsewhere" if error.code == SPENT else "anywhere"


def _wait(failed: FailedTry, settings: RoutingSettings, random: Callable[[], float], now: datetime) -> float | None:
    """Seconds before the next try; None if the upstream wants more than the longest wait."""
    if not failed.here:
        return 0.0
    ceiling = min(settings.backoff_max, settings.backoff * 2.0 ** min(failed.here - 1, MAX_DOUBLINGS))
    wait = random() * ceiling
    named = waited_for(failed.error.headers, now)
    if named is None:
        return wait
    return None if named > settings.backoff_max else max(named, wait)


def _no(reason: str) -> RetryDecision:
    return RetryDecision(False, 0.0, reason)


class RetryBudget:
    """How many tries may be under way at once that ask who has failed already: a share of the requests under way, and
    some in any case, as Envoy's budget has it. An upstream that is down is not hammered by those who wait for it.

    It is a process's own."""

    def __init__(self, share: float, minimum: int) -> None:
        self._share = share
        self._minimum = minimum
        self.retrying = 0

    def has_room(self, under_way: int) -> bool:
        """Whether one more try may begin, while so many requests are under way."""
        return self.retrying < max(self._minimum, int(self._share * under_way))

    @contextmanager
    def trying(self) -> Iterator[None]:
        """While such a try waits, and while it runs."""
        self.retrying += 1
        try:
            yield
        finally:
            self.retrying -= 1
