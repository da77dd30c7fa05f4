"""Keys that clients may use, whose they are, and what they may look at (guarantee §8, §13.2)."""

from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from gateway.config.fields import Section

Role = Literal["user", "viewer", "admin"]
USER: Literal["user"] = "user"
VIEWER: Literal["viewer"] = "viewer"
ADMIN: Literal["admin"] = "admin"
"""Roles of a key: it may ask models and change what is stored; it may look at its tenant on the page `/ui`; it may look
at all tenants there and in `/v1/organization/`."""
LOOKS = frozenset((VIEWER, ADMIN))
"""Either of these roles opens the page."""
LABEL = r"^[^\x00-\x1f\x7f]+$"
NAME = r"^[\w.:@-]+$"


class ApiKey(Section):
    """A key that clients may use and whose it is."""

    key: SecretStr = Field(min_length=8)
    tenant: str = Field(min_length=1, max_length=128, pattern=NAME)
    name: str | None = Field(None, min_length=1, max_length=128, pattern=LABEL, description="What people call it.")
    project: str | None = Field(
        None, min_length=1, max_length=128, pattern=NAME, description="What it is for; costs are told by it."
    )
    roles: tuple[Role, ...] = Field((USER,), description="What it may do.")

    @field_validator("roles")
    @classmethod
    def _each_once(cls, roles: tuple[Role, ...]) -> tuple[Role, ...]:
        if not roles:
            raise ValueError("must name at least one of user, viewer, admin")  # a key without any could do nothing
        return tuple(dict.fromkeys(roles))


class AuthSettings(Section):
    """Who may ask (guarantee §8)."""

    mode: Literal["auto", "open"] = Field(
        "auto",
        description="`open` lets a server with an operator's key listen beyond loopback without `auth.keys`.",
    )
    keys: tuple[ApiKey, ...] = Field((), description="Keys accepted; without any, the client's own goes upstream.")

    @model_validator(mode="after")
    def _whose_is_plain(self) -> Self:
        """A key that stands twice says the same of itself each time."""
        said = {entry.key.get_secret_value(): entry for entry in self.keys}
        for entry in self.keys:
            other = said[entry.key.get_secret_value()]
            # Its name is shown alone; what decides must be plain.
            if other.tenant != entry.tenant:
                raise ValueError("keys: one key stands with two tenants")
            if (other.project, set(other.roles)) != (entry.project, set(entry.roles)):
                raise ValueError("keys: one key stands with two projects, or with other roles")
        return self
