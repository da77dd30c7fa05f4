"""One request that was let in, and what it holds until its bill is written (implements `models.allowed.Admission`)."""

from decimal import Decimal
from typing import TYPE_CHECKING

from gateway.models.allowed import Allowed, Ask
from gateway.quota.budgets import NotLeft, Spending

if TYPE_CHECKING:
    from gateway.quota.gate import Quota

Hold = tuple[Spending, int]
WARNING = "x-gateway-budget-warning"
"""The header of an answer beyond a soft budget."""


class Admitted:
    """What a request holds. `headers` go with its answer."""

    def __init__(self, quota: "Quota", ask: Ask, allowed: list[Allowed]) -> None:
        self.ask = ask
        self.allowed = allowed
        self.headers: dict[str, str] = {}
        self.warnings: list[str] = []
        self.slots: list[tuple[str, str]] = []
        self.hard: dict[bytes, Spending] = {}
        self.soft: dict[bytes, Spending] = {}
        self.holds: list[Hold] = []
        self.counted: list[tuple[str, str, int, float]] = []
        self._quota = quota
        self._is_settled = False

    async def reserve(self, cost: int | None, tokens: int) -> None:
        """Before a model is asked (`models.allowed.Admission`)."""
        quota = self._quota
        if cost is None and (self.hard or self.soft):
            self.warn("budget_not_counted")
        try:
            if cost:
                for spending in self.hard.values():
                    await self._hold(spending, cost)
            for each in self.allowed:
                if (limit := each.limits.tpm) is not None:
                    await quota.take(self, each, "tokens", limit, tokens)
        except BaseException:
            self.release(0)
            raise

    async def _hold(self, spending: Spending, cost: int) -> None:
        try:
            held = await self._quota.asked(self, _held(self._quota.budgets.hold(spending, cost)))
        except NotLeft:
            quota = self._quota
            raise (quota.spent(spending) if spending.is_spent else quota.held(spending)) from None
        if held is not None:
            self.holds.append((spending, cost))

    def billed(self, cost: int, tokens: int | None) -> None:
        """Its bill is in the storage (`models.allowed.Admission`)."""
        if not self._is_settled:
            self._is_settled = True
            self.release(cost)
            if tokens is not None:
                self._correct(tokens)

    def owed(self, cost: int) -> None:
        """Its bill waits in memory: what it cost is held until `billed`."""
        for number, (spending, amount) in enumerate(self.holds):
            self._quota.budgets.release(spending, amount - cost, 0)
            self.holds[number] = (spending, cost)
        held = {id(spending) for spending, _ in self.holds}
        for spending in self.hard.values():
            if id(spending) not in held:
                self._quota.budgets.release(spending, -cost, 0)
                self.holds.append((spending, cost))

    def closed(self) -> None:
        """There will be no bill (`models.allowed.Admission`)."""
        self.billed(0, 0)

    def release(self, cost: int) -> None:
        """Gives back all that is held of budgets; `cost` was billed."""
        budgets = self._quota.budgets
        holds, self.holds = self.holds, []
        held = {id(spending): amount for spending, amount in holds}
        for spending in (*self.hard.values(), *self.soft.values()):
            budgets.release(spending, held.get(id(spending), 0), cost)

    def leave(self) -> None:
        """The request is over, for its client: it is no longer one of those at once."""
        slots, self.slots = self.slots, []
        for slot in slots:
            self._quota.running.pop(slot, None)
            self._quota.tasks.start(self._quota.quietly(self._quota.rates.leave(*slot)))

    def give_back(self, what: str) -> None:
        """Takes back what was counted of requests or tokens."""
        rates, quota = self._quota.rates, self._quota
        taken = [each for each in self.counted if each[0] == what]
        self.counted = [each for each in self.counted if each[0] != what]
        for _, key, amount, at in taken:
            quota.tasks.start(quota.quietly(rates.correct(key, -amount, at)))

    def _correct(self, tokens: int) -> None:
        """Counts the tokens that were used in place of those that were expected."""
        quota = self._quota
        for what, key, amount, at in self.counted:
            if what == "tokens" and amount != tokens:
                quota.tasks.start(quota.quietly(quota.rates.correct(key, tokens - amount, at)))
        self.counted = []

    def warn(self, warning: str) -> None:
        """Puts a warning on the bill, once."""
        if warning not in self.warnings:
            self.warnings.append(warning)

    def warn_of(self, spending: Spending) -> None:
        """Says that a soft budget is used up."""
        account = spending.account
        self.warn("budget_exceeded_soft")
        sums = (
            f"{Decimal(each).scaleb(-12).normalize():f}" for each in (spending.spent + spending.used, spending.budget)
        )
        spent, budget = sums
        reset = f"; resets {account.resets_at:%Y-%m-%dT%H:%M:%SZ}" if account.resets_at is not None else ""
        said = f"{account.holder.kind}: {spent} of {budget} USD per {account.period}{reset}"
        self.headers[WARNING] = ", ".join(filter(None, (self.headers.get(WARNING), said)))


async def _held(work: object) -> bool:
    await work  # type: ignore[misc]
    return True
