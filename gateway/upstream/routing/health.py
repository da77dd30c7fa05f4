"""The health of the deployments of `model_list`, as far as this process has seen (guarantee §12.8), what an error means
for its deployment, whether another try is worthwhile (§12.6), and which other model answers where one cannot (§12.7).

Each has a circuit breaker: failures make it rest, ever longer while it goes on failing; when a rest is over one request
tries it, and the others go elsewhere until that one has an answer. Replicas learn by themselves: what one cannot reach
the others may well reach. Only the event loop reads and changes this state.
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
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.tasks import Cooldown
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.http.mending import waited_for
from gateway.upstream.routing.deployments import DeploymentRank, GroupMember

UNPAID = 402
NO_CREDIT = (401, UNPAID, 403)
"""Statuses of an account that may not call, or no longer."""
SPENT = "insufficient_quota"
"""OpenAI's code for a 429 that lasts until somebody pays."""
FAILING = (408, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529)
"""Statuses of a failing upstream, or of Cloudflare before it; others from 500 on are about the request (501: no such
endpoint)."""
RATE_LIMITED = 429


@record
class DeploymentFault:
    """A fault that counts against a deployment. `at_once`: one is enough, no other request will fare better. `wait`:
    seconds that the deployment asks to wait, if it names any."""

    code: str
    at_once: bool = False
    wait: float | None = None


def fault_of(error: BaseException, deployment: ModelDeployment, now: datetime) -> DeploymentFault | None:
    """Returns the fault that counts against the deployment; None for errors of the request, of the client's own key, or
    of nothing at all (a client that left)."""
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
    """An approximate sliding window of a minute: the previous minute of the clock counts by the part of it that is
    still within. Nothing is stored per event, however many there are."""

    __slots__ = ("_before", "_now", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._now = 0.0
        self._before = 0.0

    def add(self, amount: float, at: float) -> None:
        """Adds an amount at the time `at`. Times never go backwards."""
        if at - self._since >= MINUTE:  # checked here, too: a function call for each request costs more
            self._go_on(at)
        self._now += amount

    def within(self, at: float) -> float:
        """Returns how much was added within the minute before `at`."""
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
"""Share of a minute's tries: fewer failures are no reason to rest."""
NEWEST = 0.3
"""Weight of the latest answer in the latency, against all before."""
LATENCY_SECONDS = 300.0
"""Time after which a latency is stale."""


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
    """When the first rest since its last answer began."""
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

    def began(self, deployment: ModelDeployment, tokens: int = 0) -> "WatchedAttempt":
        """Begins a try; nothing is stored of a deployment that has no id."""
        if not deployment.id:
            return self._unwatched
        watch = self._watches.get(deployment.id)
        if watch is None:
            # A client's own key is not stored, and not used for probes.
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
        """Returns the state of a member of a group, for the ranking."""
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
        """Returns whether the deployment of that id is resting."""
        return self.cools_for(name) > 0

    def cools_for(self, name: str) -> float:
        """Returns the seconds for which the deployment of that id still rests."""
        watch = self._watches.get(name)
        return 0.0 if watch is None else watch.cooldown.remaining(self._clock.monotonic())

    def watched(self) -> Iterator[tuple[DeploymentWatch, bool]]:
        """Yields all deployments that were called so far, and whether they rest."""
        now = self._clock.monotonic()
        return ((watch, watch.cooldown.remaining(now) > 0) for watch in self._watches.values())

    def probed(self, name: str, *, reached: bool, wait: float) -> None:
        """Applies the result of a probe: the rest ends if the deployment was reached, else it lasts at least `wait`
        seconds from now. Either way only an answer makes the deployment healthy."""
        cooldown, now = self._watches[name].cooldown, self._clock.monotonic()
        if cooldown.started is not None:
            cooldown.until = min(cooldown.until, now) if reached else max(cooldown.until, now + wait)


@dataclass(slots=True, eq=False)
class WatchedAttempt:
    """One attempt to call a deployment; `at` is when it began. One that is not open stores nothing: it has ended, or
    its deployment is not watched (the default upstream, a client's own key)."""

    clock: ports.Clock
    watch: DeploymentWatch
    deployment: ModelDeployment
    at: float
    is_open: bool = True
    is_answered: bool = False

    def answered(self) -> None:
        """Records that the first byte of an answer that is no error has arrived, with its latency: the deployment is
        healthy."""
        if not self.is_open or self.is_answered:
            return
        self.is_answered = True
        watch, now = self.watch, self.clock.monotonic()
        seconds, is_old = now - self.at, now - watch.measured_at >= LATENCY_SECONDS
        watch.latency = seconds if is_old else watch.latency + NEWEST * (seconds - watch.latency)
        watch.measured_at = now
        self._is_well()

    def ended(self, error: BaseException | None = None, tokens: int = 0) -> None:
        """Ends the attempt: with an error, or at the end of the answer. Only the first call counts. A client that left
        (`CancelledError`) proves nothing about the deployment, and faults of a request do not count against it.
        `tokens`: those of the answer, without the prompt."""
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
        elif isinstance(error, errors.UpstreamRefused):  # the deployment works, and found the request at fault
            self._is_well()
        if cooldown.trial is self:  # nothing was learned: another request may try
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
            cooldown.repeats -= 1  # the upstream named the time: nothing to double
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


@record
class FailedTry:
    """A try that failed, and what is known of the next.

    Attributes:
        tries: made so far, this one included.
        here: of these, those at the deployment that would be called next.
        begun: part of the answer has been returned to the client.
        rests: the next deployment failed too often of late.
        has_room: the retry budget allows one more.
        left: seconds that the client still waits; None if it names none.
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
        """Whether the next try draws on the retry budget: its deployment has failed already. The first try at another,
        healthy deployment overloads nobody."""
        return self.here > 0 or self.rests


@record
class RetryDecision:
    """Whether to try again, after how many seconds, and why or why not."""

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
    if where == "nowhere" and not (failed.rests and kind_of(failed.error, settings)):
        return _no("final")  # but what refuses another model's window or policy may suit the one that rests
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
    """Returns where another try may succeed: at no deployment, if the request itself is at fault; at another, if it is
    this deployment's key or quota; else anywhere."""
    if not isinstance(error, errors.UpstreamError) or isinstance(error, errors.UpstreamOverflow):
        return "nowhere"
    if isinstance(error, errors.UpstreamAuth):
        return "elsewhere"
    if not isinstance(error, errors.UpstreamRefused):
        return "anywhere"
    if error.status == UNPAID:
        return "elsewhere"
    if error.status not in statuses:
        return "nowhere"
    return "elsewhere" if error.code == SPENT else "anywhere"


def _wait(
    failed: FailedTry, settings: setting_sections.RoutingSettings, random: Callable[[], float], now: datetime
) -> float | None:
    """Returns the seconds before the next try; None if the upstream wants more than the longest wait."""
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
    """The limit of concurrent tries at deployments that have failed already: a share of the requests in progress, and a
    minimum in any case, as Envoy's retry budget. So requests that wait for an upstream that is down do not overload it.

    Each process has its own."""

    def __init__(self, share: float, minimum: int) -> None:
        self._share = share
        self._minimum = minimum
        self.retrying = 0

    def has_room(self, under_way: int) -> bool:
        """Returns whether one more try may begin, while so many requests are in progress."""
        return self.retrying < max(self._minimum, int(self._share * under_way))

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Counts a retry while it waits and runs."""
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
"""Messages by which LiteLLM recognises that a provider refuses the content."""


def kind_of(error: errors.GatewayError, settings: setting_sections.RoutingSettings) -> Kind | None:
    """Returns which fallbacks an error calls for; None if the request itself is at fault."""
    if isinstance(error, errors.ContextLengthExceeded | errors.UpstreamOverflow):
        return "context_window"
    if isinstance(error, errors.UpstreamRefused) and refuses_content(error):
        return "content_policy"
    return "general" if helps(error, settings.retry_statuses) != "nowhere" else None


def refuses_content(refusal: errors.UpstreamRefused) -> bool:
    """Returns whether a provider refuses to answer because of the content."""
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
    """Returns the models that may answer instead, in order: the fallbacks of the requested model, then those of the one
    that failed last. None that was tried, and no more than `max_fallbacks` in all.
    `tried`: the models that were called, the requested one included."""
    left = settings.max_fallbacks - (len(tried) - 1)
    names = (*_listed(asked, kind, settings), *_listed(failed, kind, settings))
    found = [name for name in dict.fromkeys(names) if name not in tried]
    return tuple(found[: max(left, 0)])


def has_fallbacks(settings: setting_sections.RoutingSettings) -> bool:
    """Returns whether any model may answer for another."""
    named = (settings.fallbacks, settings.context_window_fallbacks, settings.content_policy_fallbacks)
    return any(named) or bool(settings.default_fallbacks)


def _listed(model: str, kind: Kind, settings: setting_sections.RoutingSettings) -> tuple[str, ...]:
    if kind == "context_window":
        return settings.context_window_fallbacks.get(model, ())
    if kind == "content_policy":
        return settings.content_policy_fallbacks.get(model, ())
    return settings.fallbacks.get(model, settings.default_fallbacks)
