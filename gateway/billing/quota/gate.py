"""What a request may spend and ask: admitted when it comes, reserved before a model call, settled by its bill."""

import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Literal, NamedTuple, TypeVar

from gateway.billing.quota.budgets import AccountSpending, BudgetAccounts, NotLeft
from gateway.core import errors, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.config import setting_sections
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.instrumentation.metrics import GatewayMetrics
from gateway.core.instrumentation.telemetry_hooks import TelemetryHooks
from gateway.core.scheduler import Scheduler
from gateway.core.tasks import BackgroundTasks
from gateway.core.types import keys
from gateway.core.types.keys import KeyPolicy, LimitHolder, RateWindow, SpendingAccount

# The errors of refused requests, and the headers that report what is left of a key's limits (guarantee §12.3, §12.4).

What = Literal["requests", "tokens"]
RATE_HEADERS: dict[What, tuple[str, ...]] = {
    "requests": ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    "tokens": ("x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
}
MINUTE = 60.0
HELD_SECONDS = 5
"""`retry-after` where running requests hold what is left."""
SLOT_RETRY_SECONDS = 1
NEVER_SECONDS = 86400
"""`retry-after` where a budget never resets: somebody may have raised it."""
NO_RETRY = {"x-should-retry": "false"}
"""Tells the official clients not to retry by themselves."""


@record
class HolderLimits:
    """A holder, with its budgets and limits."""

    holder: LimitHolder
    budgets: tuple[setting_sections.SpendBudget, ...] = ()
    limits: setting_sections.RateLimits = setting_sections.NO_LIMITS


class AdmissionRequest(NamedTuple):
    """What budgets and limits depend on: who asks for which model, and when."""

    request_id: str
    tenant: str
    key_id: str | None
    project: str | None
    user: str | None
    model: str
    at: datetime


def budget_exceeded(account: SpendingAccount, budget: int, now: datetime, *, spent: bool) -> errors.BudgetExceeded:
    """Builds the 429 of a budget that is used up (`spent`), or that running requests hold."""
    of, resets = _named(account, budget), account.resets_at
    if not spent:
        text = f"{of} has no room for this request while others are running; {_holds(resets)}."
        return errors.BudgetExceeded(text, headers={"retry-after": str(HELD_SECONDS)})
    until = f"until {_utc(resets)}" if resets is not None else "and does not reset"
    return errors.BudgetExceeded(f"{of} is used up {until}.", headers=_until_then(account, now))


def too_dear(account: SpendingAccount, budget: int, left: int, cost: int, now: datetime) -> errors.BudgetExceeded:
    """Builds the 429 of a request that alone may cost more than is left."""
    of, most, rest = _named(account, budget), _usd(cost), _usd(left)
    said = f"{of} has {rest} USD left, and this request alone may cost {most} USD; {_holds(account.resets_at)}."
    return errors.BudgetExceeded(said, headers=_until_then(account, now))


def _named(account: SpendingAccount, budget: int) -> str:
    whose, sum_ = account.holder.title, f"{_usd(budget)} USD"
    if account.resets_at is None:
        return f"The total budget of {whose} of {sum_}"
    return f"The budget of {whose} of {sum_} per {account.period}"


def _holds(resets_at: datetime | None) -> str:
    return f"it holds until {_utc(resets_at)}" if resets_at is not None else "it does not reset"


def _utc(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"


def _until_then(account: SpendingAccount, now: datetime) -> dict[str, str]:
    seconds = NEVER_SECONDS if account.resets_at is None else (account.resets_at - now).total_seconds()
    return {"retry-after": str(max(1, math.ceil(seconds))), **NO_RETRY}


def _usd(picodollars: int) -> str:
    return f"{Decimal(picodollars).scaleb(-12).normalize():f}"


def rate_exceeded(
    allowed: HolderLimits, what: What, limit: int, asked: int, window: RateWindow
) -> errors.RateLimitExceeded:
    """Builds the 429 of a limit within a minute."""
    short = "RPM" if what == "requests" else "TPM"
    said = f"Rate limit reached for {allowed.holder.title} on {what} per minute ({short}): Limit {limit}"
    if asked > limit:
        text = f"{said}, Requested {asked}. A request of that size is never within the limit."
        headers = {"retry-after": str(int(MINUTE)), **NO_RETRY}
    else:
        seconds = room_in(window, limit, asked)
        text = f"{said}, Used {used(window)}, Requested {asked}. Try again in {seconds} seconds."
        headers = {"retry-after": str(seconds)}
    error = errors.RateLimitExceeded(text, headers=headers)
    error.type = what
    return error


def too_many_at_once(allowed: HolderLimits, limit: int) -> errors.RateLimitExceeded:
    """Builds the 429 of a limit of concurrent requests."""
    text = f"Too many requests of {allowed.holder.title} are running at once: Limit {limit}."
    return errors.RateLimitExceeded(text, headers={"retry-after": str(SLOT_RETRY_SECONDS)})


def unavailable() -> errors.LimitsUnavailable:
    """Builds the 503 for when nobody can tell what is left."""
    text = "Budgets and limits cannot be checked now; try again."
    return errors.LimitsUnavailable(text, headers={"retry-after": str(HELD_SECONDS)})


def used(window: RateWindow) -> int:
    """Counts what is used now: this minute, and the share of the minute before that is less than a minute ago."""
    return int(window.previous * window.previous_seconds / MINUTE) + window.current


def room_in(window: RateWindow, limit: int, asked: int) -> int:
    """Returns the seconds until so much more can be counted, if nothing else is; at least one."""
    room = limit - asked - window.current
    if room >= 0:
        lasts = MINUTE * (room + 1) / window.previous if window.previous > 0 else MINUTE
        return max(1, math.floor(window.previous_seconds - lasts) + 1)
    left = max(0.0, window.current_seconds - MINUTE)
    lasts = MINUTE * (limit - asked + 1) / window.current
    return max(1, math.floor(left + MINUTE - min(MINUTE, lasts)) + 1)


def rate_headers(what: What, limit: int, window: RateWindow) -> dict[str, str]:
    """Returns OpenAI's headers for one limit. Reset is when all of it is available again, if nothing more is asked."""
    seconds = window.current_seconds if window.current > 0 else window.previous_seconds if window.previous > 0 else 0.0
    names = RATE_HEADERS[what]
    return {names[0]: str(limit), names[1]: str(max(0, limit - used(window))), names[2]: _duration(seconds)}


def _duration(seconds: float) -> str:
    """Renders seconds as OpenAI does: `1m30s`, `12s`, `850ms`."""
    if seconds < 1:
        return f"{math.ceil(1000 * seconds)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


# Which budgets and limits apply to a request, and for which days (guarantee §12.3). Pure.


def applying(
    settings: setting_sections.LimitSettings, ask: AdmissionRequest, key: KeyPolicy | None
) -> list[HolderLimits]:
    """Returns all holders that the request counts for and that have a budget or a limit, in the order in which they are
    checked: everybody's is last, so that a holder whose own share is used up takes nothing of it."""
    return [each for each in _holders(settings, ask, key) if each.budgets or each.limits.is_set]


def _holders(
    settings: setting_sections.LimitSettings, ask: AdmissionRequest, key: KeyPolicy | None
) -> Iterator[HolderLimits]:
    if ask.key_id is not None:
        own = LimitHolder("key", ask.key_id)
        budgets, limits = (key.budgets, key.limits) if key is not None else ((), settings.keys.limits)
        yield HolderLimits(own, budgets or settings.keys.budgets, limits if limits.is_set else settings.keys.limits)
    if ask.user is not None:
        named = settings.users.get(ask.user, settings.each_user)
        yield _allowed(LimitHolder("user", ask.user, ask.tenant), named)
    if ask.project is not None and ask.project in settings.projects:
        yield _allowed(LimitHolder("project", ask.project), settings.projects[ask.project])
    if ask.model in settings.models:
        yield _allowed(LimitHolder("model", ask.model), settings.models[ask.model])
    yield _allowed(LimitHolder("all"), settings.all)


def _allowed(holder: LimitHolder, allowance: setting_sections.HolderAllowance) -> HolderLimits:
    return HolderLimits(holder, allowance.budgets, allowance.limits)


def account_of(holder: LimitHolder, period: setting_sections.Period, at: datetime, *, hard: bool) -> SpendingAccount:
    """Returns the account of what a holder spends in the period that contains a moment."""
    start, resets_at = keys.period_of(period, at)
    return SpendingAccount(holder, period, start, resets_at, holder.digest(period, "hard" if hard else "soft"))


# What applies to requests of one kind, computed once: most requests are of a kind that came before.

MAX_KEPT_PLANS = 4096
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@record
class Counted:
    """One limit: its holder, the key under which it is counted, and the amount that it allows."""

    allowed: HolderLimits
    key: str
    limit: int


@record
class Plan:
    """What a request counts for, valid from `since` until `until`, when the first of its periods ends. Of several
    budgets of one account the smallest counts; sums are picodollars."""

    of: KeyPolicy | None
    since: datetime
    until: datetime
    requests: tuple[Counted, ...]
    tokens: tuple[Counted, ...]
    at_once: tuple[Counted, ...]
    hard: tuple[tuple[SpendingAccount, int], ...]
    soft: tuple[tuple[SpendingAccount, int], ...]

    @property
    def is_empty(self) -> bool:
        return not (self.requests or self.tokens or self.at_once or self.hard or self.soft)


class Plans:
    """The plans of the latest requests."""

    def __init__(self, settings: setting_sections.LimitSettings) -> None:
        self._settings = settings
        self._kept: BoundedCache[tuple[str | None, ...], Plan] = BoundedCache(MAX_KEPT_PLANS)

    def of(self, ask: AdmissionRequest, key: KeyPolicy | None) -> Plan:
        """Returns what a request counts for; cached until a period ends or the key has another policy."""
        kind = (ask.key_id, ask.tenant, ask.user, ask.project, ask.model)
        kept = self._kept.peek(kind)
        if kept is not None and kept.of is key and kept.since <= ask.at < kept.until:
            return kept
        return self._kept.put(kind, _plan(applying(self._settings, ask, key), ask.at, key))


def _plan(allowed: list[HolderLimits], at: datetime, key: KeyPolicy | None) -> Plan:
    hard: dict[bytes, tuple[SpendingAccount, int]] = {}
    soft: dict[bytes, tuple[SpendingAccount, int]] = {}
    for each in allowed:
        for budget in each.budgets:
            account, sum_ = account_of(each.holder, budget.period, at, hard=budget.hard), keys.picousd(budget.usd)
            found = hard if budget.hard else soft
            known = found.get(account.digest)
            if known is None or sum_ < known[1]:
                found[account.digest] = (account, sum_)
    ends = [each.resets_at for each, _ in (*hard.values(), *soft.values()) if each.resets_at is not None]
    limits = [(each, each.limits) for each in allowed]
    return Plan(
        key,
        at if ends else FIRST,
        min(ends, default=LAST),
        tuple(_counted(each, "requests", limit.rpm) for each, limit in limits if limit.rpm is not None),
        tuple(_counted(each, "tokens", limit.tpm) for each, limit in limits if limit.tpm is not None),
        tuple(_counted(each, "at once", limit.concurrent) for each, limit in limits if limit.concurrent is not None),
        tuple(hard.values()),
        tuple(soft.values()),
    )


def _counted(allowed: HolderLimits, what: str, limit: int) -> Counted:
    return Counted(allowed, allowed.holder.digest(what).hex(), limit)


log = logs.get_logger("gateway.billing.quota")
T = TypeVar("T")
EVERY_SECONDS = 5.0
RENEW_EVERY = 4
SWEEP_EVERY = 60
"""In rounds of `EVERY_SECONDS`."""
MAX_TOLD = 10_000
LOG_SECONDS = 60.0
"""Least time between two log lines that limits cannot be checked."""
DOWN = (errors.LimitsUnavailable, errors.StorageUnavailable)
WARNING = "x-gateway-budget-warning"
"""The header of an answer beyond a soft budget."""


class Quota:
    """Budgets and limits of this process. Work that needs no request to a storage takes no step of the event loop: most
    requests are far from their limits."""

    def __init__(
        self,
        settings: setting_sections.LimitSettings,
        budgets: ports.BudgetStore,
        open_rates: Callable[[], ports.RateStore],
        clock: ports.Clock,
        metrics: GatewayMetrics,
        hooks: TelemetryHooks,
    ) -> None:
        """`open_rates` is called when the first request with a limit comes: its dependencies are loaded then."""
        self._settings = settings
        self._plans = Plans(settings)
        self._told: BoundedCache[tuple[bytes, date, int], int] = BoundedCache(MAX_TOLD)
        """The exceeded budgets that hooks know of, which is remembered longer than what is left of them."""
        self.limits_all = settings.is_set
        self._clock = clock
        self._store = budgets
        self.budgets = BudgetAccounts(budgets, clock)
        self._open_rates = open_rates
        self._rates: ports.RateStore | None = None
        self._metrics = metrics
        self._hooks = hooks
        self.tasks = BackgroundTasks()
        self._upkeep: Scheduler | None = None
        self._rounds = 0
        self.running: set[tuple[str, str]] = set()
        self._logged = -LOG_SECONDS

    @property
    def rates(self) -> ports.RateStore:
        if self._rates is None:
            self._rates = self._open_rates()
        return self._rates

    async def admit(self, ask: AdmissionRequest, key: KeyPolicy | None) -> "AdmittedRequest | None":
        """Admits a request; returns None where nothing limits it. `leave` is to be called when the request is over.
        Raises RateLimitExceeded: too many requests, within a minute or at once; BudgetExceeded: a hard budget that it
        counts for is used up; LimitsUnavailable: nobody can tell, and `limits.when_down` is `closed`."""
        plan = self._plans.of(ask, key)
        nobodys = key is not None and ask.key_id is None and (self.limits_all or key.is_limited)
        if plan.is_empty and not nobodys:
            return None
        if self._upkeep is None:
            self._upkeep = Scheduler()
            self._upkeep.every(EVERY_SECONDS, self._keep, name="limits", failed="limits_not_kept")
        admitted = AdmittedRequest(self, ask.request_id, plan)
        try:
            if nobodys:
                self.down(admitted)  # the storage is down, so nobody knows whose request it is
            for each in plan.at_once:
                await self._enter(admitted, each)
            if plan.hard or plan.soft:
                await self._check(admitted, plan)
            for each in plan.requests:
                await self.take(admitted, each, "requests", 1)
        except BaseException as error:
            admitted.failed(error)
            raise
        return admitted

    async def _enter(self, admitted: "AdmittedRequest", counted: Counted) -> None:
        slot = (counted.key, admitted.request_id)
        admitted.slots.append(slot)  # also where nobody knows whether the request got it
        entered = await self.asked(admitted, self.rates.enter(*slot, counted.limit))
        self.running.add(slot)
        if entered is False:
            self._metrics.limited(counted.allowed.holder.kind, "concurrent")
            raise too_many_at_once(counted.allowed, counted.limit)

    async def take(self, admitted: "AdmittedRequest", counted: Counted, what: What, amount: int) -> None:
        """Counts for a limit within a minute; gives back what was counted if another limit refuses the request.
        Raises RateLimitExceeded: the amount does not fit."""
        at = time.time()
        found = await self.asked(admitted, self.rates.take(counted.key, counted.limit, amount))
        if found is not None and not found[0]:  # an excess charge may still have to be given back
            await self.tasks.drain_current()
            found = await self.asked(admitted, self.rates.take(counted.key, counted.limit, amount))
        if found is None:
            return
        fits, window = found
        if counted.allowed.holder.kind == "key":
            admitted.windows.append((what, counted.limit, window))
        if not fits:
            self._metrics.limited(counted.allowed.holder.kind, what)
            admitted.give_back(what)
            raise rate_exceeded(counted.allowed, what, counted.limit, amount, window)
        admitted.note(what, counted.key, amount, at)

    async def _check(self, admitted: "AdmittedRequest", plan: Plan) -> None:
        budgets, now = self.budgets, self._clock.monotonic()
        for account, sum_ in plan.hard:
            spending = budgets.spending(account, sum_, now)
            admitted.hard.append(spending)
            if spending.free(now) <= 0:
                left = await self.asked(admitted, budgets.check(spending))
                if left is False:
                    raise self.spent(spending)
        for account, sum_ in plan.soft:
            spending = budgets.spending(account, sum_, now)
            admitted.soft.append(spending)
            if not spending.is_fresh(now):
                await self.asked(admitted, budgets.look(spending))
            if spending.is_spent:
                self._tell(spending, hard=False)
                admitted.warn_of(spending)

    def spent(self, spending: AccountSpending) -> errors.BudgetExceeded:
        """Builds the error of a budget that is used up, and reports it."""
        self._tell(spending, hard=True)
        return budget_exceeded(spending.account, spending.budget, self._clock.now(), spent=True)

    def held(self, spending: AccountSpending) -> errors.BudgetExceeded:
        """Builds the error of a budget whose rest running requests hold, and counts it."""
        self._metrics.limited(spending.account.holder.kind, "budget")
        return budget_exceeded(spending.account, spending.budget, self._clock.now(), spent=False)

    def too_dear(self, spending: AccountSpending, cost: int) -> errors.BudgetExceeded:
        """Builds the error of a request that may cost more than is left, whoever else runs, and counts it."""
        self._metrics.limited(spending.account.holder.kind, "budget")
        return too_dear(spending.account, spending.budget, spending.left, cost, self._clock.now())

    def _tell(self, spending: AccountSpending, *, hard: bool) -> None:
        """Counts an exceeded budget, and notifies hooks once per budget and period."""
        account = spending.account
        self._metrics.limited(account.holder.kind, "budget" if hard else "budget_soft")
        told = (account.digest, account.start, spending.budget)
        if self._told.get(told) is None:
            self._told.put(told, spending.budget)
            self._hooks.budget_exceeded(account, spending.budget, spending.spent + spending.used, hard=hard)

    async def asked(self, admitted: "AdmittedRequest", work: Awaitable[T]) -> T | None:
        """Awaits the limiter's answer; None where it cannot be asked and requests pass.
        Raises LimitsUnavailable: the limiter cannot be asked, and requests do not pass."""
        try:
            return await work
        except DOWN:
            self.down(admitted)
            return None

    def down(self, admitted: "AdmittedRequest") -> None:
        """Reports that something cannot be checked. Raises LimitsUnavailable: requests do not pass then."""
        self._metrics.limits_down()
        now = self._clock.monotonic()
        if now - self._logged >= LOG_SECONDS:
            self._logged = now
            log.warning("limits_unavailable", requests="pass" if self._settings.when_down == "open" else "refused")
        if self._settings.when_down == "closed":
            raise unavailable()
        admitted.warn("limits_unavailable")

    def behind(self, work: Awaitable[None] | None) -> None:
        """Starts work that no answer waits for; None: it is done."""
        if work is not None:
            self.tasks.start(self._quietly(work))

    async def _quietly(self, work: Awaitable[None]) -> None:
        try:
            await work
        except DOWN:
            self._metrics.limits_down()

    async def _keep(self) -> None:
        self._rounds += 1
        with contextlib.suppress(*DOWN):
            await self.budgets.keep()
            if self._rates is not None and self._rounds % RENEW_EVERY == 0 and self.running:
                await self._rates.renew(list(self.running))
            if self._rounds % SWEEP_EVERY == 0:
                await self._store.sweep()
                if self._rates is not None:
                    await self._rates.sweep()

    async def close(self) -> None:
        """Gives back what this process holds."""
        if self._upkeep is not None:
            await self._upkeep.close()
        await self.tasks.finish()
        await self.budgets.close()
        if self._rates is not None:
            await self._rates.close()


class AdmittedRequest:
    """One admitted request (a `HeldAdmission`), and what it holds until its bill is written: concurrency slots, sums of
    budgets, and what was counted for it."""

    __slots__ = (
        *("_before", "_beyond", "_counted", "_dearest", "_holds", "_is_settled", "_plan", "_quota"),
        *("hard", "request_id", "slots", "soft", "warnings", "windows"),
    )

    def __init__(self, quota: "Quota", request_id: str, plan: Plan) -> None:
        self.request_id = request_id
        self.warnings: list[str] = []
        self.windows: list[tuple[What, int, RateWindow]] = []
        self.slots: list[tuple[str, str]] = []
        self.hard: list[AccountSpending] = []
        self.soft: list[AccountSpending] = []
        self._beyond: list[str] = []
        self._holds: dict[AccountSpending, int] = {}
        self._dearest = 0
        """The most that was reserved for a call of the primary model, with what the request had cost until then."""
        self._counted: dict[tuple[What, str], tuple[int, float]] = {}
        """Amount, and since when; `_before`: the state before the current reservation."""
        self._before: dict[tuple[What, str], tuple[int, float]] = {}
        self._quota = quota
        self._plan = plan
        self._is_settled = False

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer that report its limits and budgets."""
        found: dict[str, str] = {}
        for what, limit, window in self.windows:
            found |= rate_headers(what, limit, window)
        if self._beyond:
            found[WARNING] = ", ".join(self._beyond)
        return found

    async def reserve(self, cost: int | None, tokens: int | None) -> None:
        """Reserves cost and tokens before a model call (`HeldAdmission`); of a further one, the excess. What internal
        models needed is released with the call that follows them. A request that is refused at its first call does not
        count for any limit: some are shared with others."""
        if cost is None and (self.hard or self.soft):
            self.warn("budget_not_counted")
        held, self._before = dict(self._holds), dict(self._counted)
        dearest, is_internal = max(cost or 0, self._dearest), tokens is None
        try:
            if cost or (held and cost is not None):
                for spending in self.hard:
                    await self._hold(spending, max(cost, held.get(spending, 0)) if is_internal else dearest)
            for each in self._plan.tokens:
                more = (tokens or 0) - self._before.get(("tokens", each.key), (0, 0.0))[0]
                if more > 0:
                    await self._quota.take(self, each, "tokens", more)
        except BaseException:
            for spending, amount in self._holds.items():
                self._quota.budgets.release(spending, amount - held.get(spending, 0), 0)
            self._holds = held
            if not (is_internal or held) and all(what != "tokens" for what, _ in self._before):  # no model was called
                self._before = {}
                self.give_back("requests")
            raise
        if not is_internal:
            self._dearest = dearest

    async def _hold(self, spending: AccountSpending, cost: int) -> None:
        budgets, held = self._quota.budgets, self._holds.get(spending, 0)
        if cost <= held:
            budgets.release(spending, held - cost, 0)
        elif not budgets.try_hold(spending, cost - held):
            try:
                if await self._quota.asked(self, self._held(spending, cost - held)) is None:
                    return
            except NotLeft:
                if cost > spending.left and not spending.is_spent:
                    raise self._quota.too_dear(spending, cost) from None
                raise (self._quota.spent if spending.is_spent else self._quota.held)(spending) from None
        self._holds[spending] = cost

    async def _held(self, spending: AccountSpending, cost: int) -> bool:
        await self._quota.budgets.hold(spending, cost)
        return True

    def billed(self, cost: int, tokens: int | None) -> None:
        """Settles what is held: the bill is in the storage (`HeldAdmission`). Repeated calls have no effect."""
        if not self._is_settled:
            self._is_settled = True
            self._release(cost)
            if tokens is not None:
                self._correct(tokens)

    def owed(self, cost: int) -> None:
        """Holds only the cost of the bill, which waits in memory, until `billed`."""
        for spending in self.hard:
            self._quota.budgets.release(spending, self._holds.get(spending, 0) - cost, 0)
        self._holds = dict.fromkeys(self.hard, cost)

    def closed(self) -> None:
        """Releases what is held where there will be no bill (`HeldAdmission`)."""
        self.billed(0, 0)

    def further(self) -> "AdmittedRequest":
        """Returns an admission to the same budgets for a call after the bill (`HeldAdmission`)."""
        more = AdmittedRequest(self._quota, self.request_id, self._plan)
        more.hard, more.soft = self.hard, self.soft
        return more

    def _release(self, cost: int) -> None:
        """Releases all that is held of budgets; `cost` was billed."""
        release = self._quota.budgets.release
        holds, self._holds = self._holds, {}
        for spending, amount in holds.items():
            release(spending, amount, cost)
        for spending in (*self.hard, *self.soft) if cost else ():
            if spending not in holds:
                release(spending, 0, cost)

    def failed(self, error: BaseException) -> None:
        """Ends the request; adds the limit headers to its error."""
        if isinstance(error, errors.GatewayError):
            error.headers = {**error.headers, **self.headers}
        self.leave()

    def leave(self) -> None:
        """Releases the concurrency slots when the request is over for its client."""
        if not self.slots:
            return
        slots, self.slots = self.slots, []
        for slot in slots:
            self._quota.running.discard(slot)
            self._quota.behind(self._quota.rates.leave(*slot))

    def note(self, what: What, key: str, amount: int, at: float) -> None:
        """Notes that so much was counted, by the time `at`."""
        counted, since = self._counted.get((what, key), (0, at))
        self._counted[what, key] = counted + amount, since

    def give_back(self, what: What) -> None:
        """Takes back what is being counted of requests or tokens."""
        for name, (amount, since) in self._counted.items():
            more = amount - self._before.get(name, (0, since))[0]
            if name[0] == what and more:
                self._change(name[1], -more, since)
        self._counted = {name: each for name, each in self._counted.items() if name[0] != what} | self._before

    def _correct(self, tokens: int) -> None:
        """Counts the tokens that were used in place of those that were expected."""
        for (what, key), (amount, since) in self._counted.items():
            if what == "tokens" and amount != tokens:
                self._change(key, tokens - amount, since)
        self._counted = {}

    def _change(self, key: str, amount: int, at: float) -> None:
        self._quota.behind(self._quota.rates.correct(key, amount, at))

    def warn(self, warning: str) -> None:
        """Puts a warning on the bill, once."""
        if warning not in self.warnings:
            self.warnings.append(warning)

    def warn_of(self, spending: AccountSpending) -> None:
        """Warns, on the bill and in the answer's header, that a soft budget is used up."""
        account = spending.account
        self.warn("budget_exceeded_soft")
        spent, budget = map(_usd, (spending.spent + spending.used, spending.budget))
        reset = f"; resets {_utc(account.resets_at)}" if account.resets_at is not None else ""
        self._beyond.append(f"{account.holder.kind}: {spent} of {budget} USD per {account.period}{reset}")
