"""Who may spend and ask how much: holders of budgets and limits, and what a request holds of them (guarantee §12.3)."""

import hashlib
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Literal, NamedTuple, Protocol

from gateway.core.config.allowances import NO_LIMITS, Period, RateLimits, SpendBudget

LEASE_SECONDS = 120.0
"""After which what a process holds of a budget is free again, unless it says so again."""
Kind = Literal["all", "key", "user", "model", "project"]


@dataclass(frozen=True, slots=True)
class LimitHolder:
    """Whose a budget or limit is. `all` has no name; a `user` is one of a tenant."""

    kind: Kind
    name: str = ""
    tenant: str = ""

    @property
    def title(self) -> str:
        """What an error calls it. No name stands there but those that the request's own client gave."""
        return {
            "all": "this gateway",
            "key": "this key",
            "user": "this user",
            "model": f"the model {self.name!r}",
            "project": "this project",
        }[self.kind]

    def digest(self, *more: object) -> bytes:
        """16 bytes that name it, with whatever else tells its sums apart."""
        text = "\0".join((self.kind, self.tenant, self.name, *map(str, more)))
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class HolderLimits:
    """A holder, and what it may spend and ask."""

    holder: LimitHolder
    budgets: tuple[SpendBudget, ...] = ()
    limits: RateLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class SpendingAccount:
    """What a holder spends in one period, from the day `start` (UTC). `resets_at` is None for one that never ends."""

    holder: LimitHolder
    period: Period
    start: date
    resets_at: datetime | None
    digest: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class AccountLease:
    """What the storage says of an account: picodollars spent, held by other processes, and held by this one from now
    on. `fits`: what was asked for is among the last."""

    spent: int
    others: int
    granted: int
    fits: bool


class RateWindow(NamedTuple):
    """What is counted of two minutes in a row: how much in the one before and in the one that runs, and for how many
    seconds each still counts: at most 60 and 120."""

    previous: int
    previous_seconds: float
    current: int
    current_seconds: float


class AdmissionRequest(NamedTuple):
    """Who asks for what, as far as budgets and limits go by it."""

    request_id: str
    tenant: str
    key_id: str | None
    project: str | None
    user: str | None
    model: str
    at: datetime


class HeldAdmission(Protocol):
    """What one request holds of budgets and limits. Each method may be called again, and then does nothing."""

    warnings: list[str]
    """For its `response_metadata`."""

    async def reserve(self, cost: int | None, tokens: int) -> None:
        """Before a model is asked, for at most so many picodollars (None: no price is known) and tokens.

        Raises:
            BudgetExceeded, RateLimitExceeded: there is not so much left.
            LimitsUnavailable: nobody can tell, and `limits.when_down` is `closed`.
        """
        ...

    def billed(self, cost: int, tokens: int | None) -> None:
        """Its bill is in the storage: picodollars and tokens (None: not known)."""
        ...

    def owed(self, cost: int) -> None:
        """Its bill waits in memory, as the storage is away."""
        ...

    def closed(self) -> None:
        """There will be no bill."""
        ...


def picousd(usd: Decimal) -> int:
    """Whole picodollars of a sum in USD."""
    return int(usd.scaleb(12))
