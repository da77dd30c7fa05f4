"""How the deployments of `model_list` are, as far as this process has seen (guarantee §12.8).

A breaker for each: failures make it rest, ever longer while it goes on failing; when a rest is over one request tries
it, and the others go elsewhere until that one has an answer. Replicas learn by themselves: what one cannot reach may
well be there for the others. It is asked and told on the event loop alone.
"""

import math
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from gateway.core.config.routing_settings import RoutingSettings
from gateway.core.errors import UpstreamRefused
from gateway.core.instrumentation import logs
from gateway.core.ports import Clock
from gateway.core.types.chat import ModelDeployment
from gateway.core.types.routing import RoutingAttempt
from gateway.upstream.routing.choice import DeploymentRank
from gateway.upstream.routing.deployment_faults import DeploymentFault, fault_of
from gateway.upstream.routing.groups import GroupMember

# How much there was of something within the last minute, in three numbers.

MINUTE = 60.0
"""Seconds."""


class SlidingMinute:
    """A sliding window of a minute, near enough: what came in the minute of the clock before counts by the part of it
    that is still within. Nothing is kept of single events, however many there are."""

    __slots__ = ("_before", "_now", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._now = 0.0
        self._before = 0.0

    def add(self, amount: float, at: float) -> None:
        """So much, now. Times never go backwards."""
        if at - self._since >= MINUTE:  # looked at here, too: a call for each request is dearer
            self._go_on(at)
        self._now += amount

    def within(self, at: float) -> float:
        """How much there was within the minute before."""
        self._go_on(at)
        return self._now + self._before * (1 - (at - self._since) / MINUTE)

    def _go_on(self, at: float) -> None:
        passed = at - self._since
        if passed < MINUTE:
            return
        self._before = self._now if passed < 2 * MINUTE else 0.0
        self._now = 0.0
        self._since = at - passed % MINUTE


log = logs.get_logger("gateway.routing")
MIN_SHARE = 0.1
"""Of a minute's tries: fewer failures than that are no reason to rest."""
NEWEST = 0.3
"""Weight of the latest answer in the latency, beside all before."""
LATENCY_SECONDS = 300.0
"""After which a latency tells nothing any more."""


@dataclass(slots=True, eq=False)
class DeploymentWatch:
    """What was seen of a deployment. `until` is when its rest ends, `rests` how many it has had without an answer in
    between, `trial` who tries whether it is well again."""

    deployment: ModelDeployment
    in_flight: int = 0
    requests: SlidingMinute = field(default_factory=SlidingMinute)
    tokens: SlidingMinute = field(default_factory=SlidingMinute)
    failed: deque[float] = field(default_factory=deque)
    failures: Counter[str] = field(default_factory=Counter)
    last: tuple[str, datetime] | None = None
    until: float = -math.inf
    rested_at: float = -math.inf
    rests: int = 0
    resting_since: datetime | None = None
    trial: "WatchedAttempt | None" = None
    latency: float = 0.0
    measured_at: float = -math.inf

    @property
    def name(self) -> str:
        """The deployment's id."""
        return self.deployment.id

    @property
    def is_doubtful(self) -> bool:
        """Whether it has not answered since it was sent to rest."""
        return self.resting_since is not None


class HealthWatch:
    """Watches over all deployments that have an id."""

    def __init__(self, settings: RoutingSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._watches: dict[str, DeploymentWatch] = {}

    def began(self, deployment: ModelDeployment, tokens: int = 0) -> RoutingAttempt:
        """A try begins; of a deployment that has no id, nobody keeps anything."""
        if not deployment.id:
            return UNWATCHED
        watch = self._watches.get(deployment.id)
        if watch is None:
            # A client's own key is not kept, and not used for probes.
            kept = deployment if deployment.operator_key else replace(deployment, api_key=None)
            watch = self._watches[deployment.id] = DeploymentWatch(kept)
        now = self._clock.monotonic()
        watch.in_flight += 1
        watch.requests.add(1, now)
        if tokens:
            watch.tokens.add(tokens, now)
        begun = WatchedAttempt(self, watch, deployment, now)
        if watch.is_doubtful and watch.trial is None and now >= watch.until:
            watch.trial = begun
        return begun

    def state(self, member: GroupMember) -> DeploymentRank:
        """How a member of a group stands, for the choice."""
        params, watch = member.entry.litellm_params, self._watches.get(member.id)
        order = math.inf if params.order is None else params.order
        weights = params.weight or 0.0, params.rpm or 0.0, params.tpm or 0.0
        if watch is None:
            full = 0 in (params.rpm, params.tpm, params.max_parallel_requests)
            return DeploymentRank(member.id, order, *weights, full=full)
        now = self._clock.monotonic()
        full = (
            _reached(params.max_parallel_requests, watch.in_flight)
            or (params.rpm is not None and _reached(params.rpm, watch.requests.within(now)))
            or (params.tpm is not None and _reached(params.tpm, watch.tokens.within(now)))
        )
        known = now - watch.measured_at < LATENCY_SECONDS
        latency = watch.latency if known else None
        return DeploymentRank(member.id, order, *weights, _rest(watch, now), full, watch.in_flight, latency)

    def rests(self, name: str) -> bool:
        """Whether a deployment of that id is not to be asked now."""
        watch = self._watches.get(name)
        return watch is not None and _rest(watch, self._clock.monotonic()) > 0

    def watched(self) -> Iterator[tuple[DeploymentWatch, bool]]:
        """All that were asked so far, and whether they rest."""
        now = self._clock.monotonic()
        return ((watch, _rest(watch, now) > 0) for watch in self._watches.values())

    def probed(self, name: str, *, reached: bool, wait: float) -> None:
        """Something else than a request has asked it: the rest is over if it was reached, else it lasts `wait` seconds
        from now at least. Either way only an answer makes it well."""
        watch, now = self._watches[name], self._clock.monotonic()
        if watch.is_doubtful:
            watch.until = min(watch.until, now) if reached else max(watch.until, now + wait)

    def answered(self, begun: "WatchedAttempt") -> None:
        """The first byte of an answer has come."""
        watch, now = begun.watch, self._clock.monotonic()
        seconds, is_old = now - begun.at, now - watch.measured_at >= LATENCY_SECONDS
        watch.latency = seconds if is_old else watch.latency + NEWEST * (seconds - watch.latency)
        watch.measured_at = now
        _well(begun)

    def ended(self, begun: "WatchedAttempt", error: BaseException | None, tokens: int) -> None:
        """A try is over."""
        watch = begun.watch
        watch.in_flight -= 1
        if tokens:
            watch.tokens.add(tokens, self._clock.monotonic())
        fault = None if error is None else fault_of(error, begun.deployment, self._clock.now())
        if fault is not None:
            self._failed(begun, fault)
        elif isinstance(error, UpstreamRefused):  # it is there, and found something wrong with what it was asked
            _well(begun)
        if watch.trial is begun:  # nothing was learned: somebody else may try
            watch.trial = None

    def _failed(self, begun: "WatchedAttempt", fault: DeploymentFault) -> None:
        watch, now = begun.watch, self._clock.monotonic()
        watch.failures[fault.code] += 1
        watch.last = fault.code, self._clock.now()
        wait = min(fault.wait, self._settings.cooldown_max) if fault.wait else None
        if now < watch.until:
            watch.until = max(watch.until, now + (wait or 0.0))
        elif fault.at_once or begun is watch.trial:
            self._rest_now(watch, now, fault.code, wait)
        elif wait is not None:
            self._rest_now(watch, now, fault.code, wait)
            watch.rests -= 1  # it said how long: nothing to double
        elif self._is_enough(watch, now):
            self._rest_now(watch, now, fault.code)

    def _is_enough(self, watch: DeploymentWatch, now: float) -> bool:
        """Counts a failure."""
        failed = watch.failed
        failed.append(now)
        while failed[0] <= now - MINUTE:
            failed.popleft()
        return len(failed) >= max(self._settings.allowed_fails, MIN_SHARE * watch.requests.within(now))

    def _rest_now(self, watch: DeploymentWatch, now: float, code: str, wait: float | None = None) -> None:
        settings = self._settings
        doubled = min(settings.cooldown * 2.0 ** min(watch.rests, 30), settings.cooldown_max)
        seconds = doubled if wait is None else wait
        log.warning("deployment_rests", deployment=watch.name, error_code=code, seconds=seconds)
        watch.until = now + seconds
        watch.rested_at = now
        watch.rests += 1
        watch.trial = None
        watch.resting_since = watch.resting_since or self._clock.now()
        watch.failed.clear()


class WatchedAttempt:
    """A try at a watched deployment (an `RoutingAttempt`); `at` is when it began."""

    __slots__ = ("_health", "_is_answered", "_is_open", "at", "deployment", "watch")

    def __init__(self, health: HealthWatch, watch: DeploymentWatch, deployment: ModelDeployment, at: float) -> None:
        self.watch = watch
        self.deployment = deployment
        self.at = at
        self._health = health
        self._is_open = True
        self._is_answered = False

    def answered(self) -> None:
        """The first byte of an answer that is no error has come."""
        if self._is_open and not self._is_answered:
            self._is_answered = True
            self._health.answered(self)

    def ended(self, error: BaseException | None = None, tokens: int = 0) -> None:
        """It is over; only the first call counts."""
        if not self._is_open:
            return
        if error is None and not self._is_answered:
            self.answered()
        self._is_open = False
        self._health.ended(self, error, tokens)


class UnwatchedAttempt:
    """A try of which nothing is kept (an `RoutingAttempt`)."""

    __slots__ = ()

    def answered(self) -> None:
        """Nothing."""

    def ended(self, error: BaseException | None = None, tokens: int = 0) -> None:
        """Nothing."""


UNWATCHED = UnwatchedAttempt()


def _well(begun: WatchedAttempt) -> None:
    watch = begun.watch
    if watch.is_doubtful and begun.at >= watch.rested_at:  # one from before tells nothing new
        log.info("deployment_answers_again", deployment=watch.name)
        watch.until, watch.rests, watch.resting_since, watch.trial = -math.inf, 0, None, None
        watch.failed.clear()


def _rest(watch: DeploymentWatch, now: float) -> float:
    """Seconds that it still rests; while somebody tries it, it rests for all others."""
    if now < watch.until:
        return watch.until - now
    return math.inf if watch.trial is not None else 0.0


def _reached(limit: float | None, used: float) -> bool:
    return limit is not None and used >= limit
