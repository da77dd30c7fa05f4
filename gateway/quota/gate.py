"""What a request may do: admitted when it comes, reserved before a model is asked, settled by its bill."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from gateway.base.tasks import BackgroundTasks
from gateway.config.allowances import LimitSettings
from gateway.errors import GatewayError, LimitsUnavailable, StorageUnavailable
from gateway.models.allowed import Allowed, Ask, picousd
from gateway.models.keys import KeyPolicy
from gateway.ports import BudgetStore, Clock, RateStore
from gateway.quota.admitted import Admitted, Hold
from gateway.quota.budgets import Budgets, Spending
from gateway.quota.holders import account_of, applying
from gateway.quota.holders import may_apply as may_apply
from gateway.quota.wording import (
    budget_exceeded,
    rate_exceeded,
    rate_headers,
    too_many_at_once,
    unavailable,
)
from gateway.telemetry.hooks import Hooks
from gateway.telemetry.logs import get_logger
from gateway.telemetry.metrics import Metrics

log = get_logger("gateway.quota")
EVERY_SECONDS = 5.0
RENEW_EVERY = 4
SWEEP_EVERY = 60
"""Of `EVERY_SECONDS`."""
LOG_SECONDS = 60.0
"""Between two lines of the log that say that limits cannot be checked."""
DOWN = (LimitsUnavailable, StorageUnavailable)


class Quota:
    """Budgets and limits of this process."""

    def __init__(
        self,
        settings: LimitSettings,
        budgets: BudgetStore,
        open_rates: Callable[[], RateStore],
        clock: Clock,
        metrics: Metrics,
        hooks: Hooks,
    ) -> None:
        """`open_rates` is called once a request comes that has a limit: what it needs is loaded then."""
        self.settings = settings
        self.clock = clock
        self._store = budgets
        self.budgets = Budgets(budgets, clock)
        self._open_rates = open_rates
        self._rates: RateStore | None = None
        self.metrics = metrics
        self._hooks = hooks
        self.tasks = BackgroundTasks()
        self._keeping: asyncio.Task[None] | None = None
        self.running: dict[tuple[str, str], None] = {}
        self._logged = -LOG_SECONDS

    @property
    def rates(self) -> RateStore:
        """Where rates are counted."""
        if self._rates is None:
            self._rates = self._open_rates()
        return self._rates

    async def admit(self, ask: Ask, key: KeyPolicy | None) -> Admitted | None:
        """Lets a request in, or not; None where nothing limits it. What is given is to be left by `aclose`.

        Raises:
            RateLimitExceeded: too many requests, within a minute or at once.
            BudgetExceeded: a hard budget that it counts for is used up.
            LimitsUnavailable: nobody can tell, and `limits.when_down` is `closed`.
        """
        allowed = applying(self.settings, ask, key)
        if not allowed and (key is None or ask.key_id is not None or not may_apply(self.settings, key)):
            return None
        if self._keeping is None:
            self._keeping = asyncio.ensure_future(self._keep())
        admitted = Admitted(self, ask, allowed)
        try:
            if key is not None and ask.key_id is None:
                self.down(admitted)  # whose it is cannot be told, as the storage is away
            for each in allowed:
                await self._enter(admitted, each)
            for each in allowed:
                await self._count_request(admitted, each)
            self._open_accounts(admitted)
            await self._check(admitted)
        except BaseException as error:
            if isinstance(error, GatewayError):
                error.headers = {**admitted.headers, **error.headers}
            admitted.leave()
            raise
        return admitted

    async def _enter(self, admitted: Admitted, allowed: Allowed) -> None:
        limit = allowed.limits.concurrent
        if limit is None:
            return
        slot = (allowed.holder.digest("concurrent").hex(), admitted.ask.request_id)
        admitted.slots.append(slot)  # also where nobody knows whether it got it
        entered = await self.asked(admitted, self.rates.enter(*slot, limit))
        self.running[slot] = None
        if entered is False:
            self.metrics.limited(allowed.holder.kind, "concurrent")
            raise too_many_at_once(allowed, limit)

    async def _count_request(self, admitted: Admitted, allowed: Allowed) -> None:
        if (limit := allowed.limits.rpm) is not None:
            await self.take(admitted, allowed, "requests", limit, 1)

    async def take(self, admitted: Admitted, allowed: Allowed, what: Any, limit: int, amount: int) -> None:
        """Counts for a limit within a minute; what was counted is given back if another limit refuses the request.

        Raises:
            RateLimitExceeded: it does not fit.
        """
        key = allowed.holder.digest(what).hex()
        found = await self.asked(admitted, self.rates.take(key, limit, amount))
        if found is None:
            return
        fits, window = found
        if allowed.holder.kind == "key":
            admitted.headers |= rate_headers(what, limit, window)
        if not fits:
            self.metrics.limited(allowed.holder.kind, what)
            admitted.give_back(what)
            raise rate_exceeded(allowed, what, limit, amount, window)
        admitted.counted.append((what, key, amount, time.time()))

    def _open_accounts(self, admitted: Admitted) -> None:
        at = admitted.ask.at
        for allowed in admitted.allowed:
            for budget in allowed.budgets:
                account = account_of(allowed.holder, budget.period, at, hard=budget.hard)
                sum_ = picousd(budget.usd)
                spendings = admitted.hard if budget.hard else admitted.soft
                known = spendings.get(account.digest)
                if known is None or sum_ < known.budget:
                    spendings[account.digest] = self.budgets.spending(account, sum_)

    async def _check(self, admitted: Admitted) -> None:
        for spending in admitted.hard.values():
            if await self.asked(admitted, self.budgets.check(spending)) is False:
                raise self.spent(spending)
        for spending in admitted.soft.values():
            if await self.asked(admitted, self.budgets.look(spending)) is False:
                self._tell(spending, hard=False)
                admitted.warn_of(spending)

    def spent(self, spending: Spending) -> Exception:
        """The error of a budget that is used up."""
        self._tell(spending, hard=True)
        return budget_exceeded(spending.account, spending.budget, self.clock.now(), spent=True)

    def held(self, spending: Spending) -> Exception:
        """The error of a budget of which running requests hold the rest."""
        self.metrics.limited(spending.account.holder.kind, "budget")
        return budget_exceeded(spending.account, spending.budget, self.clock.now(), spent=False)

    def _tell(self, spending: Spending, *, hard: bool) -> None:
        """Counts it, and tells hooks once of each budget and period."""
        self.metrics.limited(spending.account.holder.kind, "budget" if hard else "budget_soft")
        if not spending.told:
            spending.told = True
            spent = spending.spent + spending.used
            self._hooks.budget_exceeded(spending.account, spending.budget, spent, hard=hard)

    async def asked(self, admitted: Admitted, work: Awaitable[Any]) -> Any:
        """What the limiter says; None where it cannot be asked and requests pass.

        Raises:
            LimitsUnavailable: it cannot be asked, and they do not.
        """
        try:
            return await work
        except DOWN:
            self.down(admitted)
            return None

    def down(self, admitted: Admitted) -> None:
        """Something cannot be checked.

        Raises:
            LimitsUnavailable: requests do not pass then.
        """
        self.metrics.limits_down()
        now = self.clock.monotonic()
        if now - self._logged >= LOG_SECONDS:
            self._logged = now
            log.warning("limits_unavailable", requests="pass" if self.settings.when_down == "open" else "refused")
        if self.settings.when_down == "closed":
            raise unavailable()
        admitted.warn("limits_unavailable")

    async def quietly(self, work: Awaitable[Any]) -> None:
        """Does something behind an answer, which nobody waits for."""
        try:
            await work
        except DOWN:
            self.metrics.limits_down()

    async def _keep(self) -> None:
        rounds = 0
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            rounds += 1
            try:
                await self.budgets.keep()
                if self._rates is not None and rounds % RENEW_EVERY == 0 and self.running:
                    await self._rates.renew(list(self.running))
                if rounds % SWEEP_EVERY == 0:
                    await self._store.sweep()
                    if self._rates is not None:
                        await self._rates.sweep()
            except DOWN:
                pass
            except Exception as fault:  # noqa: BLE001 - whatever it is, leases are still to be renewed
                log.fault("limits_not_kept", fault)

    async def close(self) -> None:
        """Gives back what this process holds."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        await self.tasks.finish()
        await self.budgets.close()
        if self._rates is not None:
            await self._rates.close()


__all__ = ["Hold", "Quota", "may_apply"]
