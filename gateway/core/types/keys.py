"""A gateway key as the steps know it (guarantee §12.1), holders of budgets, and requests' shares of these (§12.3)."""

import hashlib
from dataclasses import field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, Protocol

from gateway.core.config import setting_sections
from gateway.core.frozen_records import record

KEY_PREFIX = "sk-gw-"
"""Prefix of keys made at runtime. None of them is ever sent to an upstream."""


def is_ours(text: str) -> bool:
    """Returns whether a token, a header or a parameter may contain a key made at runtime, even cut, padded or in
    another case; then it must not be sent upstream."""
    return KEY_PREFIX in text.lower()


@record
class KeyPolicy:
    """What is known of a key except the key itself. `key_id` is None while it cannot be determined. `models` are
    patterns; none means any model. `is_signed`: it is a token signed by an issuer, whose revocation cannot be known;
    `user`: the user that it names for each of its requests."""

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
        """Returns whether the key has expired."""
        return self.expires_at is not None and self.expires_at <= now

    def may_ask(self, model: str) -> bool:
        """Returns whether requests with the key may name that model."""
        return not self.models or any(names_model(pattern, model) for pattern in self.models)


def names_model(pattern: str, model: str) -> bool:
    """Returns whether a pattern of a key's `models` names a model: `*` stands for any characters, nothing else does."""
    return fnmatchcase(model, pattern.replace("[", "[[]").replace("?", "[?]"))


@record
class StoredKey:
    """A key made at runtime. `hint`: its last characters. `created_by`: the id of the key that made it; None: a command
    did. `replaced_until`: until when the key is valid, if it was found by its value before its rotation."""

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
        """Its id, which a rotation does not change."""
        return str(self.policy.key_id)

    def counts(self, now: datetime) -> bool:
        """Returns whether the key is neither revoked nor replaced; it may have expired."""
        return self.revoked_at is None and (self.replaced_until is None or now < self.replaced_until)


def policy_of(key_id: str | None, fields: setting_sections.KeyFields) -> KeyPolicy:
    """Makes the policy of a key from its configured or stored fields."""
    said: dict[str, Any] = {name: getattr(fields, name) for name in setting_sections.KeyFields.model_fields}
    return KeyPolicy(key_id, **{**said, "roles": frozenset(fields.roles)})


LEASE_SECONDS = 120.0
"""Seconds after which a process's lease of a budget expires unless renewed."""
Kind = Literal["all", "key", "user", "model", "project"]


@record
class LimitHolder:
    """The holder of a budget or limit. `all` has no name; a `user` belongs to a tenant."""

    kind: Kind
    name: str = ""
    tenant: str = ""

    @property
    def title(self) -> str:
        """Its name in errors, which contain no names but those that the request's own client gave."""
        return {
            "all": "this gateway",
            "key": "this key",
            "user": "this user",
            "model": f"the model {self.name!r}",
            "project": "this project",
        }[self.kind]

    def digest(self, *more: object) -> bytes:
        """Returns 16 bytes that identify the holder and `more`, which separates its sums, such as a period."""
        text = "\0".join((self.kind, self.tenant, self.name, *map(str, more)))
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@record
class SpendingAccount:
    """A holder's spending in one period, from the day `start` (UTC). `resets_at` None: the period never ends."""

    holder: LimitHolder
    period: setting_sections.Period
    start: date
    resets_at: datetime | None
    digest: bytes = field(repr=False)


@record
class AccountLease:
    """The storage's state of an account: picodollars spent, held by other processes, and held by this one from now on.
    `fits`: `granted` includes what was asked for."""

    spent: int
    others: int
    granted: int
    fits: bool


class RateWindow(NamedTuple):
    """Counts of two consecutive minutes, the previous and the current one, and the seconds for which each still counts:
    at most 60 and 120."""

    previous: int
    previous_seconds: float
    current: int
    current_seconds: float


class HeldAdmission(Protocol):
    """One request's reservations in budgets and limits. A method that is called again does nothing."""

    warnings: list[str]
    """Warnings for its `response_metadata`."""

    async def reserve(self, cost: int | None, tokens: int | None) -> None:
        """Reserves, before a model is called, the most that the request may take, with what it has taken so far:
        picodollars (None: no known price) and tokens. None: it is an internal model, without which the request goes on.
        Raises BudgetExceeded, RateLimitExceeded: less is left; LimitsUnavailable: that cannot be determined, and
        `limits.when_down` is `closed`."""

    def billed(self, cost: int, tokens: int | None) -> None:
        """Settles the reservation after the bill is stored: picodollars and tokens (None: not known)."""

    def owed(self, cost: int) -> None:
        """Reduces the reservation to the picodollars of a bill that waits in memory, as the storage is unavailable."""

    def closed(self) -> None:
        """Releases the reservation of a request without a bill."""

    def further(self) -> "HeldAdmission":
        """Returns an admission to the same budgets for a call that is made after the bill, and added to it."""


def picousd(usd: Decimal) -> int:
    """Converts USD to whole picodollars, truncating the rest."""
    return int(usd.scaleb(12))


FIRST_DAY = date(1970, 1, 1)


def period_of(period: setting_sections.Period, at: datetime) -> tuple[date, datetime | None]:
    """Returns the first day (UTC) of the period that contains `at`, and the time when it ends; None: never."""
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
