"""The login at the page by an identity provider: OpenID Connect's authorization code flow with PKCE (guarantee §12.18).

Nothing of a login under way is stored: the browser keeps a random text in a cookie, and state, nonce and code verifier
are keyed digests of it and of a number of this login. So any replica can end what another began, the verifier never
leaves the gateway but for the provider, and a state counts in the browser alone in which it was made.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from gateway.api.tokens import Expected, Issuer, policy_of_claims
from gateway.core.config.setting_sections import OidcSettings
from gateway.core.errors import Forbidden, IdentityProviderUnavailable
from gateway.core.ports import Clock, IdentityDocuments
from gateway.core.types.keys import KeyPolicy
from gateway.storage.store import ConversationStore

LASTS_SECONDS = 600
"""For which a login may be under way."""
MAX_CARRIED_CHARS = 3000
"""Of a cookie, of which browsers take some 4096 bytes."""
ERROR_CODE = re.compile(r"[a-z_]{1,64}")
OK, REFUSED = 200, 400
MAX_EXCHANGES = 16
"""Codes that one process shows the provider at once: who has begun a login may send any number of them."""
NOT_BEGUN = "This login was not begun in this browser, or too long ago. Begin it again."


@dataclass(frozen=True, slots=True)
class Begun:
    """A login under way: where the browser goes, and what it keeps."""

    url: str
    browser: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A login that holds: who it is, as the session's cookie carries it, and the page that was asked for."""

    holder: KeyPolicy
    carried: str
    next: str


class SignIn:
    """Begins and ends logins."""

    def __init__(
        self, settings: OidcSettings, documents: IdentityDocuments, store: ConversationStore, clock: Clock
    ) -> None:
        self._settings = settings
        self._issuer = Issuer(settings, documents, clock)
        self._documents = documents
        self._store = store
        self._clock = clock
        self._exchanges = asyncio.Semaphore(MAX_EXCHANGES)
        told = settings.model_dump_json(exclude={"client_secret", "label"})
        self._mark = hashlib.sha256(told.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """What the page calls the provider."""
        return self._settings.label

    async def begin(self, browser: str | None, to: str) -> Begun:
        """Begins a login.
        `browser`: what the browser keeps of another that it began; `to`: the page that it leads to.
        Raises IdentityProviderUnavailable: it cannot be asked where its login is."""
        metadata = await self._issuer.metadata()
        browser = browser or secrets.token_urlsafe(32)
        payload = _encoded({"t": int(self._clock.now().timestamp()), "n": secrets.token_urlsafe(16), "to": to})
        secret = await self._store.secret()
        challenge = hashlib.sha256(_derived(secret, "verifier", browser, payload).encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._settings.redirect_url,
            "scope": " ".join(self._settings.scopes),
            "state": f"{payload}.{_derived(secret, 'state', browser, payload)}",
            "nonce": _derived(secret, "nonce", browser, payload),
            "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        url = self._issuer.address(metadata.get("authorization_endpoint"), "authorization_endpoint")
        return Begun(f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(query)}", browser)

    async def end(self, browser: str | None, query: Mapping[str, str]) -> Ended:
        """Ends a login: exchanges the code, and checks who it is.
        Raises Forbidden: it is none of this browser, the provider refuses it, or nobody is known here by what it says;
        Unauthorized: the id token does not hold; IdentityProviderUnavailable: the provider cannot be asked."""
        payload, _, digest = query.get("state", "").partition(".")
        secret = await self._store.secret()
        expected = _derived(secret, "state", browser or "", payload)
        if not browser or not hmac.compare_digest(digest.encode("utf-8", "replace"), expected.encode()):
            raise Forbidden(NOT_BEGUN)
        begun = _decoded(payload)
        age = self._clock.now().timestamp() - begun["t"]
        if not -self._settings.leeway <= age <= LASTS_SECONDS:
            raise Forbidden(NOT_BEGUN)
        metadata = await self._issuer.metadata()
        self._check_issuer(metadata, query)
        if "error" in query or not query.get("code"):
            raise Forbidden(f"The identity provider refused this login{_why(query.get('error'))}.")
        answer = await self._exchange(metadata, query["code"], _derived(secret, "verifier", browser, payload))
        nonce = _derived(secret, "nonce", browser, payload)
        claims = await self._issuer.claims(answer["id_token"], Expected((self._settings.client_id,), nonce))
        if self._settings.userinfo:
            claims = {**await self._told(metadata, answer.get("access_token"), claims["sub"]), **claims}
        holder = policy_of_claims(self._settings, claims, secret)
        carried = _encoded(
            {
                "mark": self._mark,
                "tenant": holder.tenant,
                "name": holder.name,
                "project": holder.project,
                "roles": sorted(holder.roles),
                "models": holder.models,
                "user": holder.user,
            }
        )
        if len(carried) > MAX_CARRIED_CHARS:
            raise Forbidden("The identity provider says too much of you: fewer models, or a shorter name.")
        return Ended(holder, carried, begun["to"])

    def holder(self, key_id: str, carried: str) -> KeyPolicy | None:
        """Whose a session is that carries this; None if it was begun under other settings: those who changed them may
        have meant its end. The session's digest vouches for what it carries."""
        said = _decoded(carried)
        if said.pop("mark", None) != self._mark:
            return None
        said |= {"roles": frozenset(said["roles"]), "models": tuple(said["models"])}
        return KeyPolicy(key_id=key_id, is_signed=True, **said)

    def _check_issuer(self, metadata: Mapping[str, Any], query: Mapping[str, str]) -> None:
        """Another provider cannot have its answers taken for those of this one (RFC 9207).
        Raises Forbidden: the answer is somebody else's."""
        told, must_tell = query.get("iss"), metadata.get("authorization_response_iss_parameter_supported") is True
        if (told is None and must_tell) or told not in (None, self._settings.issuer):
            raise Forbidden("This answer comes from another identity provider than the login went to.")

    async def _told(self, metadata: Mapping[str, Any], token: Any, subject: str) -> dict[str, Any]:
        """What the userinfo endpoint says of that subject. Raises Forbidden: it says it of somebody else."""
        url = self._issuer.address(metadata.get("userinfo_endpoint"), "userinfo_endpoint")
        if not isinstance(token, str):
            raise IdentityProviderUnavailable("The identity provider answers without an access token.")
        found = await self._documents.get(url, token)
        if found.get("sub") != subject:  # OpenID Connect Core 5.3.2
            raise Forbidden("The identity provider tells of somebody else than who logged in.")
        return found

    async def _exchange(self, metadata: Mapping[str, Any], code: str, verifier: str) -> dict[str, Any]:
        """The answer for a code, which counts once; it has an id token."""
        settings = self._settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": settings.redirect_url,
            "client_id": settings.client_id,
            "code_verifier": verifier,
        }
        basic: tuple[str, str] | None = None
        if settings.client_secret is not None:
            known = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
            if "client_secret_basic" in known:
                basic = (settings.client_id, settings.client_secret.get_secret_value())
            else:
                form["client_secret"] = settings.client_secret.get_secret_value()
        url = self._issuer.address(metadata.get("token_endpoint"), "token_endpoint")
        async with self._exchanges:
            status, answer = await self._documents.post(url, form, basic)
        if status >= REFUSED:
            raise Forbidden(f"The identity provider refused this login{_why(answer.get('error'))}.")
        if status != OK or not isinstance(answer.get("id_token"), str):
            raise IdentityProviderUnavailable("The identity provider answers without an id token.")
        return answer


def _why(code: Any) -> str:
    return f" ({code})" if isinstance(code, str) and ERROR_CODE.fullmatch(code) else ""


def _derived(secret: bytes, what: str, browser: str, payload: str) -> str:
    named = "\0".join(("ui-sign-in", what, browser, payload)).encode("utf-8", "replace")
    return hmac.digest(secret, named, "sha256").hex()


def _encoded(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _decoded(text: str) -> dict[str, Any]:
    """What `_encoded` made; a digest has said that it did."""
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return found
