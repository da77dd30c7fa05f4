"""Who vouches for people and programs besides keys: issuers of signed tokens, and what their claims mean here
(guarantee §12.17, §12.18)."""

from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from gateway.core.config.settings_fields import SettingsSection

Role = Literal["user", "viewer", "admin"]
LABEL = r"^[^\x00-\x1f\x7f]+$"
NAME = r"^[\w.:@-]+$"
MAX_NAME = 128
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
"""Signatures by a private key alone: with `none`, or a shared secret (HS256), whoever has the public key could sign."""
CALLBACK_PATH = "/ui/login/callback"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _secure(text: str) -> str:
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        host = None
    if not host or parts.fragment or parts.username is not None or not text.isascii():
        raise ValueError("must be an address, https://HOST with a path where it has one")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK):
        raise ValueError("must begin with https://; http:// is for this machine alone")
    return text


def _callback(text: str) -> str:
    if urlsplit(_secure(text)).path != CALLBACK_PATH or "?" in text:
        raise ValueError(f"must be the page's own address with the path {CALLBACK_PATH}")
    return text


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


SecureUrl = Annotated[str, AfterValidator(_secure)]
Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_listed)]
Roles = Annotated[tuple[Role, ...], BeforeValidator(_listed)]
ClaimName = Annotated[str, Field(min_length=1, max_length=256)]


class ClaimNames(SettingsSection):
    """Which claim of a token says what. A name is looked up as it stands, else as a path (`realm_access.roles`)."""

    tenant: ClaimName | None = Field(None, description="Whose data it is.")
    project: ClaimName | None = Field(None, description="What it is for; costs are told by it.")
    roles: ClaimName | None = Field(None, description="Roles or groups: a list, or words with blanks between.")
    user: ClaimName = Field("sub", description="Who is named as the `user` of requests.")
    name: ClaimName = Field("name", description="What people call them.")
    models: ClaimName | None = Field(None, description="Models that may be asked; a token without them may ask none.")


class IssuerSettings(SettingsSection):
    """An issuer of signed tokens, and what they are worth here."""

    issuer: SecureUrl = Field(description="Who issues the tokens, exactly as their claim `iss` names it.")
    algorithms: tuple[Algorithm, ...] = Field(("RS256", "ES256"), min_length=1, description="Signatures accepted.")
    leeway: float = Field(30.0, ge=0, le=300, description="Seconds that the clocks may differ.")
    claims: ClaimNames = Field(ClaimNames(), description="Which claim says what.")
    tenant: str | None = Field(
        None, min_length=1, max_length=MAX_NAME, pattern=NAME, description="Tenant where no claim names one."
    )
    roles: dict[str, Roles] = Field(
        {}, description="Our roles by the values of the roles' claim; without any, the values are our roles themselves."
    )
    default_roles: Roles | None = Field(None, description="Roles where the claim gives none.")

    @model_validator(mode="after")
    def _has_a_tenant(self) -> Self:
        if self.tenant is None and self.claims.tenant is None:
            raise ValueError("must name a tenant, or claims.tenant")
        if self.roles and self.claims.roles is None:
            raise ValueError("roles: needs claims.roles, the claim that they are values of")
        return self


class JwtSettings(IssuerSettings):
    """Bearer tokens that somebody else signs, in the place of keys (guarantee §12.17)."""

    audience: Texts = Field(min_length=1, description="Whom a token must be meant for: one of these in its `aud`.")
    jwks_url: SecureUrl | None = Field(None, description="Where the issuer's public keys are; else it is asked.")
    jwks_file: str | None = Field(None, min_length=1, description="A file that holds them, in the place of an address.")

    @model_validator(mode="after")
    def _keys_in_one_place(self) -> Self:
        if self.jwks_url is not None and self.jwks_file is not None:
            raise ValueError("jwks_url and jwks_file cannot both be set")
        return self


class OidcSettings(IssuerSettings):
    """The login at the page by an identity provider (guarantee §12.18)."""

    client_id: str = Field(min_length=1, description="What the provider knows the gateway as.")
    client_secret: SecretStr | None = Field(None, description="Its secret there; a public client has none.")
    redirect_url: Annotated[str, AfterValidator(_callback)] = Field(
        description=f"The page's address for browsers with the path `{CALLBACK_PATH}`, as the provider knows it."
    )
    scopes: Texts = Field(("openid", "profile", "email"), description="What is asked of the provider.")
    userinfo: bool = Field(False, description="Ask its userinfo endpoint for claims that the id token lacks.")
    label: str = Field(
        "single sign-on", min_length=1, max_length=64, pattern=LABEL, description="What the page calls it."
    )

    @model_validator(mode="after")
    def _somebody_may_look(self) -> Self:
        if "openid" not in self.scopes:
            raise ValueError("scopes: must contain openid")
        if self.claims.roles is None and not self.default_roles:
            raise ValueError("must name claims.roles, or default_roles: else nobody could look")
        return self
