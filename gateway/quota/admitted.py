"""One request that was let in, and what it holds until its bill is written (implements `models.allowed.Admission`)."""

from decimal import Decimal
from typing import TYPE_CHECKING

from gateway.errors import GatewayError
from gateway.models.allowed import Window
from gateway.quota.budgets import NotLeft, Spending
from gateway.quota.plans import Plan
from gateway.quota.wording import What, rate_headers

if TYPE_CHECKING:
    from gateway.quota.gate import Quota

WARNING = "x-gateway-budget-warning"
"""The header of an answer beyond a soft budget."""


class Admitted:
    """What a request holds: places among those at once, sums of budgets, and what was counted for it."""

    __slots__ = (
        *("_beyond", "_counted", "_holds", "_is_settled", "_plan", "_quota"),
        *("hard", "request_id", "slots", "soft", "warnings", "windows"),
    )

    def __init__(self, quota: "Quota", request_id: str, plan: Plan) -> None:
        self.request_id = request_id
        self.warnings: list[str] = []
        self.windows: list[tuple[What, int, Window]] = []
        self.slots: list[tuple[str, str]] = []
        self.hard: list[Spending] = []
        self.soft: list[Spending] = []
        self._beyond: list[str] = []
        self._holds: list[tuple[Spending, int]] = []
        self._counted: list[tuple[What, str, int, float]] = []
        self._quota = quota
        self._plan = plan
        self._is_settled = False

    @property
    def headers(self) -> dict[str, str]:
        """What its answer says of its limits and budgets."""
        found: dict[str, str] = {}
        for what, limit, window in self.windows:
            found |= rate_headers(what, limit, window)
        if self._beyond:
            found[WARNING] = ", ".join(self._beyond)
        return found

    async def reserve(self, cost: int | None, tokens: int) -> None:
        """Before a model is asked (`models.allowed.Admission`)."""
        if cost is None and (self.hard or self.soft):
            self.warn("budget_not_counted")
        try:
            if cost:
                for spending in self.hard:
                    await self._hold(spending, cost)
            for each in self._plan.tokens:
                await self._quota.take(self, each, "tokens", tokens)
        except BaseException:
            self._release(0)
            raise

    async def _hold(self, spending: Spending, cost: int) -> None:
        budgets = self._quota.budgets
        if not budgets.try_hold(spending, cost):
            try:
                if await self._quota.asked(self, self._held(spending, cost)) is None:
                    return
            except NotLeft:
                if cost > spending.left and not spending.is_spent:
                    raise self._quota.too_dear(spending, cost) from None
                raise (self._quota.spent if spending.is_spent else self._quota.held)(spending) from None
        self._holds.append((spending, cost))

    async def _held(self, spending: Spending, cost: int) -> bool:
        await self._quota.budgets.hold(spending, cost)
        return True

    def billed(self, cost: int, tokens: int | None) -> None:
        """Its bill is in the storage (`models.allowed.Admission`)."""
        if not self._is_settled:
            self._is_settled = True
            self._release(cost)
            if tokens is not None:
                self._correct(tokens)

    def owed(self, cost: int) -> None:
        """Its bill waits in memory: what it cost is held until `billed`."""
        held = {id(spending): amount for spending, amount in self._holds}
        for spending in self.hard:
            self._quota.budgets.release(spending, held.get(id(spending), 0) - cost, 0)
        self._holds = [(spending, cost) for spending in self.hard]

    def closed(self) -> None:
        """There will be no bill (`models.allowed.Admission`)."""
        self.billed(0, 0)

    def _release(self, cost: int) -> None:
        """Gives back all that is held of budgets; `cost` was billed."""
        release = self._quota.budgets.release
        holds, self._holds = self._holds, []
        for spending, amount in holds:
            release(spending, amount, cost)
        if cost and (self.soft or len(holds) < len(self.hard)):
            held = {id(spending) for spending, _ in holds}
            for spending in (*self.hard, *self.soft):
                if id(spending) not in held:
                    release(spending, 0, cost)

    def failed(self, error: BaseException) -> None:
        """The request is over; its client is told with the error what is left."""
        if isinstance(error, GatewayError):
            error.headers = {**error.headers, **self.headers}
        self.leave()

    def leave(self) -> None:
        """The request is over, for its client: it is no longer one of those at once."""
        if not self.slots:
            return
        slots, self.slots = self.slots, []
        quota, local = self._quota, self._quota.local
        for slot in slots:
            if local is not None:
                local.leave(*slot)
            else:
                quota.running.discard(slot)
                quota.behind(quota.rates.leave(*slot))

    def note(self, what: What, key: str, amount: int, at: float) -> None:
        """So much was counted, by the time `at`."""
        self._counted.append((what, key, amount, at))

    def give_back(self, what: What) -> None:
        """Takes back what was counted of requests or tokens."""
        for each in [each for each in self._counted if each[0] == what]:
            self._counted.remove(each)
            self._change(each[1], -each[2], each[3])

    def _correct(self, tokens: int) -> None:
        """Counts the tokens that were used in place of those that were expected."""
        for what, key, amount, at in self._counted:
            if what == "tokens" and amount != tokens:
                self._change(key, tokens - amount, at)
        self._counted = []

    def _change(self, key: str, amount: int, at: float) -> None:
        quota = self._quota
        if quota.local is not None:
            quota.local.correct(key, amount, at)
        else:
            quota.behind(quota.rates.correct(key, amount, at))

    def warn(self, warning: str) -> None:
        """Puts a warning on the bill, once."""
        if warning not in self.warnings:
            self.warnings.append(warning)

    def warn_of(self, spending: Spending) -> None:
        """Says that a soft budget is used up."""
        account = spending.account
        self.warn("budget_exceeded_soft")
        spent, budget = map(_usd, (spending.spent + spending.used, spending.budget))
        reset = f"; resets {account.resets_at:%Y-%m-%dT%H:%M:%SZ}" if account.resets_at is not None else ""
        self._beyond.append(f"{account.holder.kind}: {spent} of {budget} USD per {account.period}{reset}")


def _usd(picodollars: int) -> str:
    return f"{Decimal(picodollars).scaleb(-12).normalize():f}"
