"""Keys that clients may use, whose they are, and what they may look at (guarantee §8, §13.2)."""

from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from gateway.core.config.allowances import NO_DEFAULTS, NO_LIMITS, ContextDefaults, Expiry, RateLimits, SpendBudget
from gateway.core.config.identity_settings import LABEL, MAX_NAME, NAME, JwtSettings, OidcSettings, Role
from gateway.core.config.settings_fields import SettingsSection

USER: Literal["user"] = "user"
VIEWER: Literal["viewer"] = "viewer"
ADMIN: Literal["admin"] = "admin"
"""Roles of a key: it may ask models and change what is stored; it may look at its tenant on the page `/ui`; it may look
at all tenants there and in `/v1/organization/`."""
LOOKS = frozenset((VIEWER, ADMIN))
"""Either of these roles opens the page."""


ModelPattern = Annotated[str, Field(min_length=1, max_length=256, pattern=LABEL)]


class KeyFields(SettingsSection):
    """What may be said of a key, in the configuration and when one is made (guarantee §12.1)."""

    name: str | None = Field(None, min_length=1, max_length=MAX_NAME, pattern=LABEL, description="What people call it.")
    owner: str | None = Field(None, min_length=1, max_length=256, pattern=LABEL, description="Who answers for it.")
    tenant: str = Field(min_length=1, max_length=MAX_NAME, pattern=NAME)
    project: str | None = Field(
        None, min_length=1, max_length=MAX_NAME, pattern=NAME, description="What it is for; costs are told by it."
    )
    roles: tuple[Role, ...] = Field((USER,), description="What it may do.")
    models: tuple[ModelPattern, ...] = Field(
        (), description="Names of models that it may ask, `*` for any run of characters."
    )
    expires_at: Expiry | None = Field(None, description="From when on it is refused.")
    budgets: tuple[SpendBudget, ...] = Field((), description="What may be spent with it.")
    limits: RateLimits = Field(NO_LIMITS, description="How much may be asked with it.")
    context: ContextDefaults = Field(NO_DEFAULTS, description="Defaults of `context` for its requests.")
    retention_days: float | None = Field(
        None,
        gt=0,
        le=36_500,
        description="Conversations made with it that nothing was added to for so long are deleted.",
    )

    file_bytes: int | None = Field(None, gt=0, description="Bytes of files that may be kept with it.")

    @field_validator("roles")
    @classmethod
    def _each_once(cls, roles: tuple[Role, ...]) -> tuple[Role, ...]:
        if not roles:
            raise ValueError("must name at least one of user, viewer, admin")  # a key without any could do nothing
        return tuple(dict.fromkeys(roles))


class ApiKey(KeyFields):
    """A key that clients may use and whose it is."""

    key: SecretStr = Field(min_length=8)


class AuthSettings(SettingsSection):
    """Who may ask (guarantee §8)."""

    mode: Literal["auto", "keys", "open"] = Field(
        "auto",
        description="`keys`: only the gateway's keys are accepted, also without any in `auth.keys`; `open` lets a "
        "server with an operator's key listen beyond loopback without keys.",
    )
    keys: tuple[ApiKey, ...] = Field((), description="Keys accepted; without any, the client's own goes upstream.")
    jwt: JwtSettings | None = Field(None, description="Whose signed tokens are accepted beside keys.")
    oidc: OidcSettings | None = Field(None, description="Who vouches for people at the page `/ui` beside keys.")

    @model_validator(mode="after")
    def _whose_is_plain(self) -> Self:
        """A key that stands twice says the same of itself each time."""
        said = {entry.key.get_secret_value(): entry for entry in self.keys}
        for entry in self.keys:
            other = said[entry.key.get_secret_value()]
            # Its name is shown alone; what decides must be plain.
            if other.tenant != entry.tenant:
                raise ValueError("keys: one key stands with two tenants")
            if _what_counts(other) != _what_counts(entry):
                raise ValueError("keys: one key stands with two projects, or with other roles or limits")
        return self

    @property
    def wants_keys(self) -> bool:
        """Whether requests without a key of ours, or a token of `jwt`, are refused."""
        return bool(self.keys) or self.mode == "keys" or self.jwt is not None or self.oidc is not None


def _what_counts(entry: ApiKey) -> tuple[object, ...]:
    told = entry.model_dump(exclude={"key", "name", "owner", "roles"})
    return (told, set(entry.roles))
