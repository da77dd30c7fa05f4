"""A key of ours as the steps know it (guarantee §12.1), holders of budgets, and what requests hold of these (§12.3)."""

import hashlib
from dataclasses import field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, Protocol

from gateway.core.config import setting_sections
from gateway.core.frozen_records import record

KEY_PREFIX = "sk-gw-"
"""With which keys begin that are made at runtime. None of them ever goes to an upstream."""


def is_ours(text: str) -> bool:
    """Whether a token, a header or a parameter may hold such a key, be it cut, padded or in other letters: then it goes
    to no upstream."""
    return KEY_PREFIX in text.lower()


@record
class KeyPolicy:
    """What is known of a key but the key itself. `key_id` is None while it cannot be told. `models` are patterns; none
    means any model. `is_signed`: it is a token that somebody else signed, of which nobody can say that it was revoked;
    `user`: whom it names as the user of each of its requests."""

    key_id: str | None
    tenant: str
    name: str | None = None
    owner: str | None = None
    project: str | None = None
    roles: frozenset[str] = frozenset({"user"})
    models: tuple[str, ...] = ()
    expires_at: datetime | None = None
    budgets: tuple[setting_sections.SpendBudget, ...] = ()
    limits: setting_sections.RateLimits = setting_sections.NO_LIMITS
    context: setting_sections.ContextDefaults = field(default=setting_sections.NO_DEFAULTS)
    retention_days: float | None = None
    file_bytes: int | None = None
    is_signed: bool = False
    user: str | None = None

    @property
    def is_limited(self) -> bool:
        """Whether it has budgets or limits of its own."""
        return bool(self.budgets) or self.limits.is_set

    def ended(self, now: datetime) -> bool:
        """Whether it has expired."""
        return self.expires_at is not None and self.expires_at <= now

    def may_ask(self, model: str) -> bool:
        """Whether requests with it may name that model."""
        return not self.models or any(fnmatchcase(model, pattern) for pattern in self.models)


@record
class StoredKey:
    """A key made at runtime. `hint`: its last characters. `created_by`: the id of the key that made it; None: a command
    did. `replaced_until`, of a key that was found by what it was before its rotation: until when that counts."""

    policy: KeyPolicy
    hint: str
    created_at: datetime
    updated_at: datetime
    created_by: str | None = None
    rotated_at: datetime | None = None
    revoked_at: datetime | None = None
    replaced_until: datetime | None = None

    @property
    def key_id(self) -> str:
        """Its id, which a rotation leaves."""
        return str(self.policy.key_id)

    def counts(self, now: datetime) -> bool:
        """Whether it is neither revoked nor replaced; it may have expired."""
        return self.revoked_at is None and (self.replaced_until is None or now < self.replaced_until)


def policy_of(key_id: str | None, fields: setting_sections.KeyFields) -> KeyPolicy:
    """The policy of a key of which this was said."""
    said: dict[str, Any] = {name: getattr(fields, name) for name in setting_sections.KeyFields.model_fields}
    return KeyPolicy(key_id, **{**said, "roles": frozenset(fields.roles)})


LEASE_SECONDS = 120.0
"""After which what a process holds of a budget is free again, unless it says so again."""
Kind = Literal["all", "key", "user", "model", "project"]


@record
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


@record
class SpendingAccount:
    """What a holder spends in one period, from the day `start` (UTC). `resets_at` is None for one that never ends."""

    holder: LimitHolder
    period: setting_sections.Period
    start: date
    resets_at: datetime | None
    digest: bytes = field(repr=False)


@record
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


class HeldAdmission(Protocol):
    """What one request holds of budgets and limits. Each method may be called again, and then does nothing."""

    warnings: list[str]
    """For its `response_metadata`."""

    async def reserve(self, cost: int | None, tokens: int) -> None:
        """Before a model is asked, for at most so many picodollars (None: no price is known) and tokens.
        Raises BudgetExceeded, RateLimitExceeded: there is not so much left; LimitsUnavailable: nobody can tell, and
        `limits.when_down` is `closed`."""
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


FIRST_DAY = date(1970, 1, 1)


def period_of(period: setting_sections.Period, at: datetime) -> tuple[date, datetime | None]:
    """The first day (UTC) of the period that a moment lies in, and when it is over; None: never."""
    day = at.astimezone(UTC).date()
    if period == "total":
        return FIRST_DAY, None
    if period == "day":
        first, after = day, day + timedelta(days=1)
    elif period == "week":
        first = day - timedelta(days=day.weekday())
        after = first + timedelta(days=7)
    else:
        first = day.replace(day=1)
        after = (first + timedelta(days=31)).replace(day=1)
    return first, datetime(after.year, after.month, after.day, tzinfo=UTC)
