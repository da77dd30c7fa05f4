"""What a key, a user, a model or a project may spend and ask (guarantee §12)."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gateway.core.config.settings_fields import Price, RecallMode, SettingsSection

Period = Literal["day", "week", "month", "total"]
"""Days are those of UTC; a week begins on Monday, a month on its first day; `total` never ends."""


MOST = 10**12
"""More than anybody asks for, and what every place that counts can hold."""


class SpendBudget(SettingsSection):
    """A sum that may be spent in a period."""

    usd: Annotated[Price, Field(le=9_000_000)] = Field(description="USD that may be spent in the period.")
    period: Period = Field("month", description="How long it lasts, in days of UTC.")
    hard: bool = Field(True, description="Whether requests beyond it are refused; else they carry a warning.")


class RateLimits(SettingsSection):
    """How much may be asked; what is not set is not limited."""

    rpm: int | None = Field(None, gt=0, le=MOST, description="Requests within any minute.")
    tpm: int | None = Field(None, gt=0, le=MOST, description="Tokens, of prompts and answers, within any minute.")
    concurrent: int | None = Field(None, gt=0, le=MOST, description="Requests at once.")

    @property
    def is_set(self) -> bool:
        """Whether anything is limited."""
        return bool(self.rpm or self.tpm or self.concurrent)


NO_LIMITS = RateLimits()


class HolderAllowance(SettingsSection):
    """Budgets and limits of one holder."""

    budgets: tuple[SpendBudget, ...] = Field((), description="Sums that may be spent.")
    limits: RateLimits = Field(NO_LIMITS, description="How much may be asked.")

    @property
    def is_set(self) -> bool:
        """Whether it allows anything less than all."""
        return bool(self.budgets) or self.limits.is_set


NO_ALLOWANCE = HolderAllowance()


class LimitSettings(SettingsSection):
    """Budgets and limits beside those of keys (guarantee §12.3)."""

    all: HolderAllowance = Field(NO_ALLOWANCE, description="Of everything that is asked here, together.")
    keys: HolderAllowance = Field(NO_ALLOWANCE, description="Of each key that has none of its own.")
    each_user: HolderAllowance = Field(
        NO_ALLOWANCE, description="Of each `user` of a tenant that `users` does not name."
    )
    users: dict[str, HolderAllowance] = Field({}, description="Of some users, by the `user` field of requests.")
    models: dict[str, HolderAllowance] = Field({}, description="Of some models, by the names that clients ask for.")
    projects: dict[str, HolderAllowance] = Field({}, description="Of some projects of keys.")
    when_down: Literal["open", "closed"] = Field(
        "open",
        description="While nobody can tell what is left: requests are answered (`open`) or get a 503 (`closed`).",
    )

    @property
    def is_set(self) -> bool:
        """Whether anything here limits anything."""
        named = (*self.users.values(), *self.models.values(), *self.projects.values())
        return any(each.is_set for each in (self.all, self.keys, self.each_user, *named))


def _with_zone(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("must be a time before the year 10000") from None


Expiry = Annotated[datetime, AfterValidator(_with_zone)]
"""When something ends; without a zone it is UTC."""


class ContextDefaults(SettingsSection):
    """What holds for requests with a key that do not say otherwise (guarantee §2)."""

    mode: Literal["auto", "simple", "off"] | None = None
    planning: Literal["auto", "always", "never"] | None = None
    max_input_tokens: int | None = Field(None, gt=0)
    memory: Literal["extracts", "summary", "both"] | None = None
    recall: RecallMode | None = None
    economy: Literal["auto", "observe", "off"] | None = None
    cite: bool | None = None


NO_DEFAULTS = ContextDefaults()
