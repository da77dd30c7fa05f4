"""Tokens that an issuer signs, and what their claims say of the bearer (guarantee §12.17).

joserfc, which checks signatures and claims, is loaded after startup where `auth.jwt` is set, else at the first login.
"""

import asyncio
import binascii
import hmac
import json
import math
import re
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gateway.core import errors, ports
from gateway.core.config import setting_sections
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.types.keys import KeyPolicy
from gateway.upstream import HttpIdentityDocuments

log = logs.get_logger("gateway.identity")
FRESH_SECONDS, MAX_KEPT_SECONDS = 600.0, 6 * 3600.0
"""Seconds after which a provider's document is fetched again, and for which it is valid while the provider cannot be
reached. A key that the provider has withdrawn is valid no longer here."""
ASK_AGAIN_SECONDS = 10.0
"""Least seconds between two requests to the provider, however many tokens name unknown keys."""
MAX_TOKEN_CHARS = 16 * 1024
MAX_USER = 512
OUR_ROLES: tuple[setting_sections.Role, ...] = ("user", "viewer", "admin")
KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The type of key that a signature is made with, by the prefix of its algorithm's name."""
PLAIN_ADDRESS = re.compile(r"[!-~]+")
"""An address as a header can have it: without spaces, ends of lines and letters of other scripts."""
NOT_ACCEPTED = "This token is not accepted here: "


def is_signed(token: str) -> bool:
    """Returns whether the token may be a signed one: three parts with dots between."""
    return token.count(".") == 2


class Published:
    """A cached document that a provider publishes. Concurrent callers share one request for it."""

    def __init__(self, fetch: Callable[[], Awaitable[dict[str, Any]]], clock: ports.Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._found: dict[str, Any] | None = None
        self._since = 0.0
        self._not_before = -math.inf
        self._asking: asyncio.Task[None] | None = None
        self._fault = "The identity provider cannot be asked. Keys still work."

    async def get(self, *, newer_than: float | None = None) -> tuple[dict[str, Any], float]:
        """Returns the document, and the monotonic time from which it is known.
        `newer_than`: a document known since then is not enough; the provider is asked again if that is allowed.
        Raises IdentityProviderUnavailable: no document is known, and the provider cannot be reached."""
        age = self._clock.monotonic() - self._since
        if self._found is None or age >= MAX_KEPT_SECONDS or (newer_than is not None and self._since <= newer_than):
            if (asking := self._ask(is_extra=newer_than is not None)) is not None:
                await asyncio.shield(asking)
        elif age >= FRESH_SECONDS:
            self._ask()
        if self._found is None or self._clock.monotonic() - self._since >= MAX_KEPT_SECONDS:
            raise errors.IdentityProviderUnavailable(self._fault)
        return self._found, self._since

    def _ask(self, *, is_extra: bool = False) -> asyncio.Task[None] | None:
        """Returns the request in progress; None if none may be sent now."""
        now = self._clock.monotonic()
        if self._asking is None and now >= self._not_before:
            if is_extra:
                self._not_before = now + ASK_AGAIN_SECONDS
            self._asking = asyncio.create_task(self._asked(now))
        return self._asking

    async def _asked(self, now: float) -> None:
        try:
            self._found, self._since = await self._fetch(), now
        except errors.IdentityProviderUnavailable as fault:
            self._not_before, self._fault = now + ASK_AGAIN_SECONDS, fault.message
            log.warning("identity_provider_unavailable", reason=fault.message)
        finally:
            self._asking = None


@record
class Expected:
    """The claims that a token must have in addition to its issuer. `nonce`: of an id token alone."""

    audiences: tuple[str, ...]
    nonce: str | None = None


class Issuer:
    """Checks tokens that an issuer signed."""

    def __init__(
        self,
        settings: setting_sections.IssuerSettings,
        documents: HttpIdentityDocuments,
        clock: ports.Clock,
        *,
        jwks_url: str | None = None,
        jwks_file: str | None = None,
    ) -> None:
        self.settings = settings
        self._documents = documents
        self._clock = clock
        self._jwks_url, self._jwks_file = jwks_url, jwks_file
        self._metadata = Published(self._discover, clock)
        self._jwks = Published(self._fetch_keys, clock)
        self._keys: tuple[float, list[Any]] = (-1.0, [])

    async def metadata(self) -> dict[str, Any]:
        """Returns the issuer's metadata (OpenID Connect Discovery).
        Raises IdentityProviderUnavailable: it cannot be reached, or its metadata names another issuer."""
        return (await self._metadata.get())[0]

    async def reach(self) -> int:
        """Returns the number of published keys that can check signatures.
        Raises IdentityProviderUnavailable: the issuer cannot be reached."""
        return len((await load_jose()).public_keys((await self._jwks.get())[0]))

    async def claims(self, token: str, expected: Expected) -> dict[str, Any]:
        """Verifies a token's signature, issuer, audience and times; returns its claims.
        Raises Unauthorized: one of them is not valid; IdentityProviderUnavailable: the issuer's keys are not known, and
        cannot be fetched."""
        header = _header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self.settings.algorithms or not isinstance(algorithm, str):
            raise errors.Unauthorized(f"{NOT_ACCEPTED}its alg is none of {', '.join(self.settings.algorithms)}.")
        if kid is not None and not isinstance(kid, str):
            raise errors.Unauthorized(f"{NOT_ACCEPTED}its kid is no text.")
        jose = await load_jose()
        key = await self._key(jose, algorithm, kid)
        try:
            claims = jose.claims(token, key, algorithm)
            self._check(jose, claims, expected)
        except jose.ExpiredTokenError:
            raise errors.Unauthorized("This token has expired.") from None
        except (jose.JoseError, ValueError, TypeError, KeyError, OverflowError) as fault:
            raise errors.Unauthorized(f"{NOT_ACCEPTED}{_reason(fault)}.") from None
        return claims

    def _check(self, jose: "Jose", claims: dict[str, Any], expected: Expected) -> None:
        now = int(self._clock.now().timestamp())
        wanted: dict[str, Any] = {
            "iss": {"essential": True, "value": self.settings.issuer},
            "aud": {"essential": True, "values": list(expected.audiences)},
            "exp": {"essential": True},
            "sub": {"essential": True},
        }
        if expected.nonce is not None:
            wanted |= {"nonce": {"essential": True, "value": expected.nonce}, "iat": {"essential": True}}
            if isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1:
                wanted["azp"] = {"essential": True}
            if "azp" in claims:  # for whom it was made, where several may read it
                wanted["azp"] = {"essential": True, "values": list(expected.audiences)}
        jose.Claims(now=now, leeway=int(self.settings.leeway), **wanted).validate(claims)

    async def _key(self, jose: "Jose", algorithm: str, kid: str | None) -> Any:
        """Returns the public key that a token names.
        Raises Unauthorized: the issuer has no such key, even when asked again; IdentityProviderUnavailable: it cannot
        be reached."""
        since: float | None = None
        for _ in range(2):
            jwks, known_since = await self._jwks.get(newer_than=since)
            if self._keys[0] != known_since:
                self._keys = (known_since, jose.public_keys(jwks))
            keys = [each for each in self._keys[1] if _signs(each, algorithm) and kid in (None, each.kid_given)]
            if keys and (kid is not None or len(keys) == 1):
                return keys[0].key
            if known_since == since:
                break
            since = known_since
        raise errors.Unauthorized(f"{NOT_ACCEPTED}its issuer publishes no key that it could be signed with.")

    async def _fetch_keys(self) -> dict[str, Any]:
        if self._jwks_file is not None:
            try:
                found = json.loads(await asyncio.to_thread(Path(self._jwks_file).read_bytes))
            except (OSError, ValueError) as fault:
                raise errors.IdentityProviderUnavailable(
                    f"auth.jwt.jwks_file cannot be read: {type(fault).__name__}"
                ) from None
            return found if isinstance(found, dict) else {}
        told = self._jwks_url or self.address((await self.metadata()).get("jwks_uri"), "jwks_uri")
        return await self._documents.get(told)

    async def _discover(self) -> dict[str, Any]:
        issuer = self.settings.issuer
        found = await self._documents.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise errors.IdentityProviderUnavailable(
                "The identity provider says that it is another issuer than configured."
            )
        return found

    def address(self, url: Any, name: str) -> str:
        """Validates an address from the issuer's metadata, which must be as safe as the issuer's own.
        Raises IdentityProviderUnavailable: it may not be used; the message calls it `name`."""
        wanted = ("https://",) if self.settings.issuer.startswith("https://") else ("https://", "http://")
        if not isinstance(url, str) or not url.startswith(wanted) or not PLAIN_ADDRESS.fullmatch(url):
            raise errors.IdentityProviderUnavailable(f"The identity provider tells no {name} that could be used.")
        try:
            urlsplit(url)
        except ValueError:
            raise errors.IdentityProviderUnavailable(
                f"The identity provider tells no {name} that is an address."
            ) from None
        return url


class SignedTokens:
    """Bearer tokens in place of keys, by the settings `auth.jwt`."""

    def __init__(
        self, settings: setting_sections.JwtSettings, documents: HttpIdentityDocuments, clock: ports.Clock
    ) -> None:
        self._settings = settings
        self._issuer = Issuer(settings, documents, clock, jwks_url=settings.jwks_url, jwks_file=settings.jwks_file)

    async def policy(self, token: str, secret: bytes | None) -> KeyPolicy:
        """Returns the policy of the bearer of a token.
        `secret`: the key of keyed hashes, None while it cannot be read: then the `key_id` is unknown.
        Raises Unauthorized: the token is not valid; Forbidden: its claims are too few, or have no meaning here;
        IdentityProviderUnavailable: it cannot be checked."""
        claims = await self._issuer.claims(token, Expected(self._settings.audience))
        return policy_of_claims(self._settings, claims, secret)


def policy_of_claims(
    settings: setting_sections.IssuerSettings, claims: Mapping[str, Any], secret: bytes | None
) -> KeyPolicy:
    """Converts checked claims to a policy. A missing claim never means "everything".
    Raises Forbidden: they name no tenant, no role, or no models where they must."""
    names = settings.claims
    tenant = _name(claims, names.tenant, "tenant") or settings.tenant
    if tenant is None:
        raise errors.Forbidden(f"This login names no tenant: it has no claim {names.tenant}.")
    user = claim_of(claims, names.user)
    if not isinstance(user, str) or not 0 < len(user) <= MAX_USER:
        raise errors.Forbidden(f"This login names no user: it has no claim {names.user}.")
    if names.user == "email" and claims.get("email_verified") in (False, "false"):
        raise errors.Forbidden("This login's address is not verified.")
    name = claim_of(claims, names.name)
    models: tuple[str, ...] = ()
    if names.models is not None:
        models = _texts(claim_of(claims, names.models))
        if not models:
            raise errors.Forbidden(f"This login may ask no model: its claim {names.models} names none.")
    project = _name(claims, names.project, "project")
    if names.project is not None and project is None:
        raise errors.Forbidden(f"This login names no project: it has no claim {names.project}.")
    return KeyPolicy(
        key_id=None if secret is None else subject_id(secret, settings.issuer, str(claims["sub"])),
        tenant=tenant,
        name=name
        if isinstance(name, str)
        and len(name) <= setting_sections.MAX_SETTING_NAME_CHARS
        and re.fullmatch(setting_sections.LABEL, name)
        else None,
        project=project,
        roles=_roles(settings, claims),
        models=models,
        expires_at=_time(claims["exp"], settings.leeway),
        is_signed=True,
        user=user,
    )


def subject_id(secret: bytes, issuer: str, subject: str) -> str:
    """Returns the id of an issuer's subject, like that of a key; the subject cannot be read from it."""
    named = "\0".join(("subject", issuer, subject)).encode("utf-8", "surrogatepass")
    return f"sub_{hmac.digest(secret, named, 'sha256').hex()[:40]}"


def claim_of(claims: Mapping[str, Any], name: str) -> Any:
    """Returns the claim of that name, else the one at that path; None if there is none."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for step in name.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _roles(settings: setting_sections.IssuerSettings, claims: Mapping[str, Any]) -> frozenset[str]:
    """Returns the roles of the bearer. Raises Forbidden: there are none."""
    name, given = settings.claims.roles, settings.default_roles
    said = _texts(claim_of(claims, name)) if name is not None else ()
    if settings.roles:
        found = {role for each in said for role in settings.roles.get(each, ())}
    else:
        found = {role for role in OUR_ROLES if role in said}
    if found:
        return frozenset(found)
    if given is None and name is None:
        return frozenset({setting_sections.USER})
    if not given:
        raise errors.Forbidden("This login has no role here: ask whoever runs the gateway for one.")
    return frozenset(given)


def _texts(value: Any) -> tuple[str, ...]:
    """Returns the texts of a list, or the words of a text."""
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(each for each in value if isinstance(each, str) and each) if isinstance(value, list) else ()


def _name(claims: Mapping[str, Any], claim: str | None, what: str) -> str | None:
    """Returns the name in a claim; None without one. Raises Forbidden: it cannot be a name here."""
    found = claim_of(claims, claim) if claim is not None else None
    if found is None:
        return None
    if (
        not isinstance(found, str)
        or len(found) > setting_sections.MAX_SETTING_NAME_CHARS
        or not re.fullmatch(setting_sections.NAME_PATTERN, found)
    ):
        raise errors.Forbidden(f"This login names no {what}: its claim {claim} is none that can be a name here.")
    return found


def _time(seconds: float, leeway: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds + leeway, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC)


def _header(token: str) -> dict[str, Any]:
    """Returns the header of a token. Raises Unauthorized: it has none, or is too long."""
    if len(token) > MAX_TOKEN_CHARS:  # of a person in hundreds of groups
        raise errors.Unauthorized(f"{NOT_ACCEPTED}it is longer than {MAX_TOKEN_CHARS} characters.")
    encoded = token.partition(".")[0]
    try:
        found = json.loads(urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise errors.Unauthorized(f"{NOT_ACCEPTED}it has no header that can be read.")
    return found


def _signs(key: "PublicKey", algorithm: str) -> bool:
    return key.type == KEY_TYPES[algorithm[:2]] and key.algorithm in (None, algorithm)


def _reason(fault: Exception) -> str:
    """Returns why a token is refused, without anything of its content but the name of a claim."""
    if (claim := getattr(fault, "claim", None)) is not None:
        return f"its claim {claim} is not as it must be"
    kind = type(fault).__name__
    return "its signature does not hold" if kind == "BadSignatureError" else "it is malformed, or lacks claims"


@record
class PublicKey:
    """A key that an issuer publishes for signatures."""

    key: Any
    type: str
    kid_given: str | None
    algorithm: str | None


class Jose:
    """The parts of joserfc that are used."""

    def __init__(self) -> None:
        from joserfc import errors as jose_errors
        from joserfc import jwk, jws, jwt

        class Registry(jws.JWSRegistry):
            """Accepts headers that issuers add, except critical ones, and warns of no algorithm: settings name them."""

            max_header_length = MAX_TOKEN_CHARS

            def get_alg(self, name: str) -> Any:
                return self.algorithms[name] if name in (self.allowed or ()) else super().get_alg(name)

        self._decode, self._registry = jwt.decode, Registry
        self.Claims = jwt.JWTClaimsRegistry
        self.JoseError, self.ExpiredTokenError = jose_errors.JoseError, jose_errors.ExpiredTokenError
        self._import_key = jwk.import_key

    def claims(self, token: str, key: Any, algorithm: str) -> dict[str, Any]:
        """Returns the claims of a token that this key has signed. Raises JoseError, ValueError: it has not."""
        registry = self._registry(algorithms=[algorithm], strict_check_header=False)
        return dict(self._decode(token, key, registry=registry).claims)

    def public_keys(self, jwks: Mapping[str, Any]) -> list[PublicKey]:
        """Lists the keys of a set that can check signatures: no shared secrets, none for another use; unreadable ones
        are skipped (RFC 7517 §5)."""
        found = []
        listed = jwks.get("keys")
        for each in listed if isinstance(listed, list) else []:
            if not isinstance(each, dict) or each.get("use", "sig") != "sig":
                continue
            kind, kid, algorithm = each.get("kty"), each.get("kid"), each.get("alg")
            if not isinstance(kind, str) or kind not in KEY_TYPES.values():
                continue
            try:
                key = self._import_key(each)
            except (self.JoseError, ValueError, TypeError, KeyError):
                continue
            found.append(PublicKey(key, kind, kid, algorithm))
        return found


_jose: list[Jose] = []


async def load_jose() -> Jose:
    """Returns joserfc, loaded in a thread the first time, so that streams continue."""
    if not _jose:
        _jose.append(await asyncio.to_thread(Jose))
    return _jose[0]
