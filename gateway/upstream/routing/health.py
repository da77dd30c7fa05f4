"""How the deployments of `model_list` are, as far as this process has seen (guarantee §12.8), what an error says of the
one that gave it, whether another try is worthwhile (§12.6), and which other model answers where one cannot (§12.7).

A breaker for each: failures make it rest, ever longer while it goes on failing; when a rest is over one request tries
it, and the others go elsewhere until that one has an answer. Replicas learn by themselves: what one cannot reach may
well be there for the others. It is asked and told on the event loop alone.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from gateway.core import errors, jsons, ports
from gateway.core.config import setting_sections
from gateway.core.instrumentation import logs
from gateway.core.tasks import Cooldown
from gateway.core.types import upstreams
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.openai.mending import waited_for
from gateway.upstream.routing.deployments import DeploymentRank, GroupMember

NO_CREDIT = (401, 402, 403)
"""Statuses by which an account may not ask, or not any more."""
SPENT = "insufficient_quota"
"""OpenAI's code for a 429 that stays one until somebody pays."""
FAILING = (408, 500, 502, 503, 504, 529)
"""Other statuses from 500 on are about what was asked (501: no such endpoint)."""
RATE_LIMITED = 429


@dataclass(frozen=True, slots=True)
class DeploymentFault:
    """Counts against a deployment. `at_once`: one is enough, no other request will fare better. `wait`: for how many
    seconds it wants to be left alone, if it says so."""

    code: str
    at_once: bool = False
    wait: float | None = None


def fault_of(error: BaseException, deployment: ModelDeployment, now: datetime) -> DeploymentFault | None:
    """What counts against the deployment; None for what is wrong with the request, with the client's own key, or with
    nothing at all (a client that left)."""
    if not isinstance(error, errors.UpstreamError):
        return None
    if isinstance(error, errors.UpstreamAuth):
        return DeploymentFault("upstream_auth", at_once=True)
    if not isinstance(error, errors.UpstreamRefused):
        return DeploymentFault(type(error).code or "upstream_error")
    code, wait = f"upstream_{error.status}", waited_for(error.headers, now)
    if error.status in FAILING:
        return DeploymentFault(code, wait=wait)
    if not deployment.operator_key:  # the account is the client's
        return None
    if error.status in NO_CREDIT or (error.status == RATE_LIMITED and error.code == SPENT):
        return DeploymentFault(code, at_once=True)
    return DeploymentFault(code, wait=wait) if error.status == RATE_LIMITED else None


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
    """What was seen of a deployment. `failed` are the times of failures within the last minute."""

    deployment: ModelDeployment
    cooldown: Cooldown
    in_flight: int = 0
    requests: SlidingMinute = field(default_factory=SlidingMinute)
    tokens: SlidingMinute = field(default_factory=SlidingMinute)
    failed: deque[float] = field(default_factory=deque)
    failures: Counter[str] = field(default_factory=Counter)
    last: tuple[str, datetime] | None = None
    resting_since: datetime | None = None
    """When the first rest began since it answered last."""
    latency: float = 0.0
    measured_at: float = -math.inf


class HealthWatch:
    """Watches over all deployments that have an id."""

    def __init__(self, settings: setting_sections.RoutingSettings, clock: ports.Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._watches: dict[str, DeploymentWatch] = {}
        nobody = ModelDeployment("", "", "", "", None, operator_key=False)
        self._unwatched = WatchedAttempt(clock, DeploymentWatch(nobody, Cooldown(1, 0.0)), nobody, 0.0, is_open=False)

    def began(self, deployment: ModelDeployment, tokens: int = 0) -> upstreams.RoutingAttempt:
        """A try begins; of a deployment that has no id, nobody keeps anything."""
        if not deployment.id:
            return self._unwatched
        watch = self._watches.get(deployment.id)
        if watch is None:
            # A client's own key is not kept, and not used for probes.
            kept = deployment if deployment.operator_key else replace(deployment, api_key=None)
            settings = self._settings
            cooldown = Cooldown(settings.allowed_fails, settings.cooldown, settings.cooldown_max)
            watch = self._watches[deployment.id] = DeploymentWatch(kept, cooldown)
        now = self._clock.monotonic()
        watch.in_flight += 1
        watch.requests.add(1, now)
        if tokens:
            watch.tokens.add(tokens, now)
        begun = WatchedAttempt(self._clock, watch, deployment, now)
        watch.cooldown.began(begun, now)
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
            (params.max_parallel_requests is not None and watch.in_flight >= params.max_parallel_requests)
            or (params.rpm is not None and watch.requests.within(now) >= params.rpm)
            or (params.tpm is not None and watch.tokens.within(now) >= params.tpm)
        )
        latency = watch.latency if now - watch.measured_at < LATENCY_SECONDS else None
        return DeploymentRank(member.id, order, *weights, watch.cooldown.remaining(now), full, watch.in_flight, latency)

    def rests(self, name: str) -> bool:
        """Whether a deployment of that id is not to be asked now."""
        return self.cools_for(name) > 0

    def cools_for(self, name: str) -> float:
        """Seconds for which a deployment of that id is not asked yet."""
        watch = self._watches.get(name)
        return 0.0 if watch is None else watch.cooldown.remaining(self._clock.monotonic())

    def watched(self) -> Iterator[tuple[DeploymentWatch, bool]]:
        """All that were asked so far, and whether they rest."""
        now = self._clock.monotonic()
        return ((watch, watch.cooldown.remaining(now) > 0) for watch in self._watches.values())

    def probed(self, name: str, *, reached: bool, wait: float) -> None:
        """Something else than a request has asked it: the rest is over if it was reached, else it lasts `wait` seconds
        from now at least. Either way only an answer makes it well."""
        cooldown, now = self._watches[name].cooldown, self._clock.monotonic()
        if cooldown.started is not None:
            cooldown.until = min(cooldown.until, now) if reached else max(cooldown.until, now + wait)


@dataclass(slots=True, eq=False)
class WatchedAttempt:
    """A try at a deployment (a `RoutingAttempt`); `at` is when it began. One that is not open keeps nothing."""

    clock: ports.Clock
    watch: DeploymentWatch
    deployment: ModelDeployment
    at: float
    is_open: bool = True
    is_answered: bool = False

    def answered(self) -> None:
        """The first byte of an answer that is no error has come."""
        if not self.is_open or self.is_answered:
            return
        self.is_answered = True
        watch, now = self.watch, self.clock.monotonic()
        seconds, is_old = now - self.at, now - watch.measured_at >= LATENCY_SECONDS
        watch.latency = seconds if is_old else watch.latency + NEWEST * (seconds - watch.latency)
        watch.measured_at = now
        self._is_well()

    def ended(self, error: BaseException | None = None, tokens: int = 0) -> None:
        """It is over; only the first call counts."""
        if not self.is_open:
            return
        if error is None:
            self.answered()
        self.is_open = False
        watch, cooldown = self.watch, self.watch.cooldown
        watch.in_flight -= 1
        if tokens:
            watch.tokens.add(tokens, self.clock.monotonic())
        fault = None if error is None else fault_of(error, self.deployment, self.clock.now())
        if fault is not None:
            self._failed(fault)
        elif isinstance(error, errors.UpstreamRefused):  # it is there, and found something wrong with what it was asked
            self._is_well()
        if cooldown.trial is self:  # nothing was learned: somebody else may try
            cooldown.trial = None

    def _failed(self, fault: DeploymentFault) -> None:
        watch, cooldown, now = self.watch, self.watch.cooldown, self.clock.monotonic()
        watch.failures[fault.code] += 1
        watch.last = fault.code, self.clock.now()
        wait = min(fault.wait, cooldown.max_seconds or math.inf) if fault.wait else None
        if now < cooldown.until:
            cooldown.until = max(cooldown.until, now + (wait or 0.0))
            return
        at_once = fault.at_once or self is cooldown.trial
        if not at_once and wait is None:
            watch.failed.append(now)
            while watch.failed[0] <= now - MINUTE:
                watch.failed.popleft()
            if len(watch.failed) < max(cooldown.threshold, MIN_SHARE * watch.requests.within(now)):
                return
        seconds = cooldown.start(now, wait)
        if not at_once and wait is not None:
            cooldown.repeats -= 1  # it said how long: nothing to double
        log.warning("deployment_rests", deployment=watch.deployment.id, error_code=fault.code, seconds=seconds)
        watch.resting_since = watch.resting_since or self.clock.now()
        watch.failed.clear()

    def _is_well(self) -> None:
        if self.watch.cooldown.answered(self.at):
            log.info("deployment_answers_again", deployment=self.deployment.id)
            self.watch.resting_since = None
            self.watch.failed.clear()


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

    error: errors.GatewayError
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


def decide(
    failed: FailedTry, settings: setting_sections.RoutingSettings, random: Callable[[], float], now: datetime
) -> RetryDecision:
    """Decides on the next try. `random`: between 0 and 1; the wait has full jitter."""
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


def helps(error: errors.GatewayError, statuses: tuple[int, ...]) -> Where:
    """Where another try may end otherwise: at no deployment, if the request itself is at fault; at another, if it is
    this deployment's key or quota; else anywhere."""
    if not isinstance(error, errors.UpstreamError) or isinstance(error, errors.UpstreamOverflow):
        return "nowhere"
    if isinstance(error, errors.UpstreamAuth):
        return "elsewhere"
    if not isinstance(error, errors.UpstreamRefused):
        return "anywhere"
    if error.status not in statuses:
        return "nowhere"
    return "elsewhere" if error.code == SPENT else "anywhere"


def _wait(
    failed: FailedTry, settings: setting_sections.RoutingSettings, random: Callable[[], float], now: datetime
) -> float | None:
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


Kind = Literal["general", "context_window", "content_policy"]
POLICY_CODES = {
    "content_filter",  # OpenAI, Azure
    "content_policy_violation",
    "responsibleaipolicyviolation",  # Azure, in its inner error
}
POLICY_WORDS = (
    "content_policy_violation",
    "responsibleaipolicyviolation",
    "the response was filtered due to the prompt triggering azure openai's content management",
    "your task failed as a result of our safety system",
    "the model produced invalid content",
    "content_filter_policy",
    "rejected as a result of our safety system",
    "rejected as a result of the safety system",
    "the response was blocked.",  # Gemini
    "output blocked by content filtering policy",  # Anthropic
)
"""By which LiteLLM knows that a provider refuses the content."""


def kind_of(error: errors.GatewayError, settings: setting_sections.RoutingSettings) -> Kind | None:
    """Which fallbacks an error calls for; None if it is the request's own fault."""
    if isinstance(error, errors.ContextLengthExceeded | errors.UpstreamOverflow):
        return "context_window"
    if isinstance(error, errors.UpstreamRefused) and refuses_content(error):
        return "content_policy"
    return "general" if helps(error, settings.retry_statuses) != "nowhere" else None


def refuses_content(refusal: errors.UpstreamRefused) -> bool:
    """Whether a provider will not answer because of what is said."""
    error = errors.error_object(refusal.original)
    inner = error.get("innererror")
    named = (error.get("code"), error.get("type"), inner.get("code") if isinstance(inner, dict) else None)
    if any(isinstance(name, str) and name.lower() in POLICY_CODES for name in named):
        return True
    text = error.get("message")
    said = (text if isinstance(text, str) else jsons.dumps_text(error)[:4000]).lower()
    return any(words in said for words in POLICY_WORDS)


def instead_of(
    asked: str, failed: str, kind: Kind, settings: setting_sections.RoutingSettings, tried: Collection[str]
) -> tuple[str, ...]:
    """The models that may answer instead, in their order: those of the model that was asked for, then those of the one
    that failed last. None of those that were tried, and no more than `max_fallbacks` in all.
    `tried`: the models that were asked, that which was asked for included."""
    left = settings.max_fallbacks - (len(tried) - 1)
    names = (*_listed(asked, kind, settings), *_listed(failed, kind, settings))
    found = [name for name in dict.fromkeys(names) if name not in tried]
    return tuple(found[: max(left, 0)])


def has_fallbacks(settings: setting_sections.RoutingSettings) -> bool:
    """Whether any model may answer for another."""
    named = (settings.fallbacks, settings.context_window_fallbacks, settings.content_policy_fallbacks)
    return any(named) or bool(settings.default_fallbacks)


def _listed(model: str, kind: Kind, settings: setting_sections.RoutingSettings) -> tuple[str, ...]:
    if kind == "context_window":
        return settings.context_window_fallbacks.get(model, ())
    if kind == "content_policy":
        return settings.content_policy_fallbacks.get(model, ())
    return settings.fallbacks.get(model, settings.default_fallbacks)
