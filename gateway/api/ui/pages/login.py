"""Login at the web UI: cookies, tokens of forms, and the limit to guessing (guarantee §13.2).

A cookie's name shows whether it came by TLS: browsers accept `__Secure-` cookies over TLS alone, and a plain page of
the same host cannot set them. (`__Host-` would have the path `/`, so every other application of the host would get the
cookie.)

Login at the web UI by an identity provider: OpenID Connect's authorization code flow with PKCE (guarantee §12.18).

Nothing of a login in progress is stored: the browser holds a random text in a cookie, and state, nonce and code
verifier are keyed digests of it and of a number of this login. So any replica can end what another began, the verifier
never leaves the gateway but for the provider, and a state is valid only in the browser for which it was made.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import secrets
from collections import deque
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from gateway.api.auth import seen_tenant
from gateway.api.server.asgi import Scope, header
from gateway.api.tokens import Expected, Issuer, policy_of_claims, subject_id
from gateway.api.ui.dependencies import PATH, PageParts
from gateway.api.ui.page import PageAnswer, PageRequest, PageRoute, PageViewer, redirect
from gateway.core import errors, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.config import setting_sections
from gateway.core.frozen_records import record
from gateway.core.jsons import picked
from gateway.core.types import audit_log
from gateway.core.types.keys import KeyPolicy
from gateway.storage import ConversationStore, UiSessions
from gateway.upstream import HttpIdentityDocuments

LASTS_SECONDS = 600
"""Seconds that a login may take."""
MAX_CARRIED_CHARS = 3000
"""Characters of a cookie; browsers accept some 4096 bytes."""
ERROR_CODE = re.compile(r"[a-z_]{1,64}")
OK, REFUSED = 200, 400
MAX_EXCHANGES = 16
"""Codes that one process exchanges at the same time: whoever has begun a login may send any number of them."""
NOT_BEGUN = "This login was not begun in this browser, or too long ago. Begin it again."


@record
class Begun:
    """A login in progress: where the browser is sent, and what it stores."""

    url: str
    browser: str


@record
class Ended:
    """A valid login: who it is, as the session's cookie carries it, and the requested page."""

    holder: KeyPolicy
    carried: str
    next: str


class SignIn:
    """Begins and ends logins."""

    def __init__(
        self,
        settings: setting_sections.OidcSettings,
        documents: HttpIdentityDocuments,
        store: ConversationStore,
        clock: ports.Clock,
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
        """The page's name for the provider."""
        return self._settings.label

    async def begin(self, browser: str | None, to: str) -> Begun:
        """Begins a login.
        `browser`: what the browser stores of another that it began; `to`: the page that it leads to.
        Raises IdentityProviderUnavailable: its login address cannot be fetched."""
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
        Raises Forbidden: this browser did not begin it, the provider refuses it, or its claims name nobody known here;
        Unauthorized: the id token is not valid; IdentityProviderUnavailable: the provider cannot be reached."""
        payload, _, digest = query.get("state", "").partition(".")
        secret = await self._store.secret()
        expected = _derived(secret, "state", browser or "", payload)
        if not browser or not hmac.compare_digest(digest.encode("utf-8", "replace"), expected.encode()):
            raise errors.Forbidden(NOT_BEGUN)
        begun = _decoded(payload)
        age = self._clock.now().timestamp() - begun["t"]
        if not -self._settings.leeway <= age <= LASTS_SECONDS:
            raise errors.Forbidden(NOT_BEGUN)
        metadata = await self._issuer.metadata()
        self._check_issuer(metadata, query)
        if "error" in query or not query.get("code"):
            raise errors.Forbidden(f"The identity provider refused this login{_why(query.get('error'))}.")
        answer = await self._exchange(metadata, query["code"], _derived(secret, "verifier", browser, payload))
        nonce = _derived(secret, "nonce", browser, payload)
        claims = await self._issuer.claims(answer["id_token"], Expected((self._settings.client_id,), nonce))
        try:
            if self._settings.userinfo:
                claims = {**await self._told(metadata, answer.get("access_token"), claims["sub"]), **claims}
            holder = policy_of_claims(self._settings, claims, secret)
        except errors.Forbidden as fault:
            fault.subject = subject_id(secret, self._settings.issuer, str(claims["sub"]))
            raise
        carried = _encoded(
            {
                "mark": self._mark,
                **picked(holder, "tenant", "name", "project"),
                "roles": sorted(holder.roles),
                **picked(holder, "models", "user"),
            }
        )
        if len(carried) > MAX_CARRIED_CHARS:
            raise errors.Forbidden("The identity provider says too much of you: fewer models, or a shorter name.")
        return Ended(holder, carried, begun["to"])

    def holder(self, key_id: str, carried: str) -> KeyPolicy | None:
        """Returns the policy of a session from what it carries; None if it was begun under other settings, whose change
        may have been meant to end it. The session's digest authenticates what it carries."""
        said = _decoded(carried)
        if said.pop("mark", None) != self._mark:
            return None
        said |= {"roles": frozenset(said["roles"]), "models": tuple(said["models"])}
        return KeyPolicy(key_id=key_id, is_signed=True, **said)

    def _check_issuer(self, metadata: Mapping[str, Any], query: Mapping[str, str]) -> None:
        """Raises Forbidden: the answer is another provider's, which must not pass for one of this provider (RFC
        9207)."""
        told, must_tell = query.get("iss"), metadata.get("authorization_response_iss_parameter_supported") is True
        if (told is None and must_tell) or told not in (None, self._settings.issuer):
            raise errors.Forbidden("This answer comes from another identity provider than the login went to.")

    async def _told(self, metadata: Mapping[str, Any], token: Any, subject: str) -> dict[str, Any]:
        """Returns the claims of the userinfo endpoint about that subject. Raises Forbidden: they are about another."""
        url = self._issuer.address(metadata.get("userinfo_endpoint"), "userinfo_endpoint")
        if not isinstance(token, str):
            raise errors.IdentityProviderUnavailable("The identity provider answers without an access token.")
        found = await self._documents.get(url, token)
        if found.get("sub") != subject:  # OpenID Connect Core 5.3.2
            raise errors.Forbidden("The identity provider tells of somebody else than who logged in.")
        return found

    async def _exchange(self, metadata: Mapping[str, Any], code: str, verifier: str) -> dict[str, Any]:
        """Exchanges a code, which is valid only once, for an answer that has an id token."""
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
            known = metadata.get("token_endpoint_auth_methods_supported")
            if not known or not isinstance(known, list) or "client_secret_basic" in known:
                basic = (settings.client_id, settings.client_secret.get_secret_value())
            else:
                form["client_secret"] = settings.client_secret.get_secret_value()
        url = self._issuer.address(metadata.get("token_endpoint"), "token_endpoint")
        async with self._exchanges:
            status, answer = await self._documents.post(url, form, basic)
        if status >= REFUSED:
            raise errors.Forbidden(f"The identity provider refused this login{_why(answer.get('error'))}.")
        if status != OK or not isinstance(answer.get("id_token"), str):
            raise errors.IdentityProviderUnavailable("The identity provider answers without an id token.")
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
    """Decodes what `_encoded` made, which a digest has authenticated."""
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return found


SESSION, LOGIN, SIGN_IN = "gateway_ui", "gateway_ui_login", "gateway_ui_sign_in"
LOGIN_PATH = f"{PATH}/login"
LOGIN_SECONDS, SIGN_IN_SECONDS = 3600, 600
CARRIED = "."
"""Separates the token of a session from what it carries of a user that an identity provider has authenticated."""
MAX_FAILURES, WITHIN = 10, 60.0
"""Logins with unknown keys from one address, and seconds in which they count."""
MAX_IN_ALL = 200
"""Logins with unknown keys from all addresses together."""
MAX_ADDRESSES = 10_000
NEXT = re.compile(r"/ui(?:/[\w~:-][\w.~:-]*)*(?:\?[\w.~:%=&+-]*)?", re.ASCII)
"""Where a login may lead to; no part of the path may be read as the one above."""
IN_A_URL = ("key", "api_key", "token", "password")
WITHOUT_KEYS = b"without keys"


class TooManyTries(errors.GatewayError):
    """Too many login attempts with unknown keys."""

    status = 429
    type = "rate_limit_error"
    code = "too_many_tries"
    advice = "Wait a minute."

    def __init__(self, seconds: float) -> None:
        super().__init__("Too many login attempts with unknown keys here. Wait a minute.")
        self.headers = {"retry-after": str(max(1, round(seconds)))}


class UiLogins:
    """Begins, finds and ends sessions."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._sessions = UiSessions(parts.transactions, parts.clock, parts.store)
        self._guesses, self._failed_sign_ins = LoginGuesses(), LoginGuesses()
        self._has_keys = parts.settings.auth.wants_keys
        oidc = parts.settings.auth.oidc
        self._sign_in = None if oidc is None else SignIn(oidc, parts.identity, parts.store, parts.clock)

    async def viewer(self, scope: Scope) -> PageViewer | None:
        """Returns the viewer; None without a valid login. Uses the key's present state: it may be gone, or changed."""
        if not self._has_keys:
            return PageViewer(None)
        token = cookie(scope, SESSION)
        key_id = await self._sessions.key_of(token) if token else None
        if not token or key_id is None:
            return None
        if CARRIED in token:
            holder = None if self._sign_in is None else self._sign_in.holder(key_id, token.partition(CARRIED)[2])
        else:
            holder = await self._parts.auth.holder_of(key_id)
        return _viewer(holder) if holder is not None else None

    async def token(self, scope: Scope) -> str:
        """Returns the token for the forms of this session; without one, for the login's form, whose cookie no other
        page gets."""
        bound = WITHOUT_KEYS
        if self._has_keys:
            bound = (cookie(scope, SESSION) or cookie(scope, LOGIN) or "").encode("utf-8", "replace")
        return hmac.digest(await self._parts.store.secret(), b"ui-form\0" + bound, "sha256").hex()

    async def show(self, page: PageRequest) -> PageAnswer:
        """Shows the login (`GET /ui/login`). Raises InvalidRequest: the address contains a key."""
        if any(name in page.query for name in IN_A_URL):
            raise errors.InvalidRequest(
                "A key does not belong in an address, which is kept and logged. Change this key."
            )
        if not self._has_keys:
            return redirect(PATH)
        cookies: tuple[str, ...] = ()
        if cookie(page.scope, LOGIN) is None:
            made = secrets.token_urlsafe(16)
            cookies = (set_cookie(page.scope, LOGIN, made, LOGIN_PATH, LOGIN_SECONDS),)
            page.scope["headers"] = [*page.scope["headers"], (b"cookie", f"{_name(page.scope, LOGIN)}={made}".encode())]
            page.csrf = await self.token(page.scope)
        shown = await self._form(page, _next(page.query.get("next")))
        return PageAnswer(shown.body, shown.status, shown.headers, cookies)

    async def log_in(self, page: PageRequest) -> PageAnswer:
        """Logs in with a key (`POST /ui/login`)."""
        if not self._has_keys:
            return redirect(PATH)
        address, now = _address(page), self._parts.clock.monotonic()
        self._guesses.admit(address, now)
        to = _next(page.form.get("next"))
        try:
            holder = await self._parts.auth.holder(page.form.get("key", "").strip())
        except errors.Unauthorized:
            self._guesses.failed(address, now)
            await self._refused(audit_log.AuditActor(audit_log.UNKNOWN_ACTOR), address, "unknown key")
            return await self._form(page, to, failed=True)
        actor = audit_log.actor_of_key(holder)
        if holder.is_signed:
            await self._refused(actor, address, "a token is no key")
            return await self._form(page, to, failed=True)
        if not holder.roles & setting_sections.LOOKS:
            await self._refused(actor, address, "no role")
            raise errors.Forbidden("This key may use models but not view pages: it has no role 'viewer' or 'admin'.")
        return redirect(to, (await self._begin(page, holder), _forget(page.scope, LOGIN, LOGIN_PATH)))

    async def _form(self, page: PageRequest, to: str, *, failed: bool = False) -> PageAnswer:
        label = None if self._sign_in is None else self._sign_in.label
        return await page.render("login.html", 401 if failed else 200, next=to, failed=failed, sign_in=label)

    async def _begin(self, page: PageRequest, holder: KeyPolicy, carried: str = "") -> str:
        """Begins a session, always a new one; returns its cookie. It ends with the secret that was entered: a rotated
        one expires with its grace."""
        hours = self._parts.settings.server.ui_session_hours
        if not holder.is_signed and holder.expires_at is not None:  # a token's time is that of the login alone
            hours = min(hours, (holder.expires_at - self._parts.clock.now()).total_seconds() / 3600)
        actor = audit_log.actor_of_key(holder)
        token = await self._sessions.begin(str(holder.key_id), hours, actor, carried=carried, address=_address(page))
        return set_cookie(page.scope, SESSION, token, PATH, int(hours * 3600))

    def sign_in_routes(self) -> tuple[PageRoute, ...]:
        """Lists the pages of the login by an identity provider; empty without one."""
        if self._sign_in is None:
            return ()
        return (
            PageRoute("GET", "/login/begin", self.begin_sign_in, is_open=True),
            PageRoute("GET", "/login/callback", self.end_sign_in, is_open=True),
        )

    async def begin_sign_in(self, page: PageRequest) -> PageAnswer:
        """Redirects to the identity provider (`GET /ui/login/begin`). A link: the UI's policy keeps forms to itself."""
        assert self._sign_in is not None
        begun = await self._sign_in.begin(cookie(page.scope, SIGN_IN), _next(page.query.get("next")))
        # Lax: the browser comes back by a link of another site, with which it sends no strict cookie.
        kept = set_cookie(page.scope, SIGN_IN, begun.browser, LOGIN_PATH, SIGN_IN_SECONDS, same_site="Lax")
        return PageAnswer(b"", 303, {"location": begun.url, "content-length": "0"}, (kept,))

    async def end_sign_in(self, page: PageRequest) -> PageAnswer:
        """Logs in when the browser comes back from the identity provider (`GET /ui/login/callback`)."""
        assert self._sign_in is not None
        address = _address(page)
        try:
            ended = await self._sign_in.end(cookie(page.scope, SIGN_IN), page.query)
        except (errors.Forbidden, errors.Unauthorized) as fault:
            if self._failed_sign_ins.notes(address, self._parts.clock.monotonic()):
                subject = fault.subject if isinstance(fault, errors.Forbidden) else None
                await self._refused(audit_log.AuditActor(subject or audit_log.UNKNOWN_ACTOR), address, fault.message)
            raise errors.Forbidden(fault.message) from None
        holder = ended.holder
        if not holder.roles & setting_sections.LOOKS:
            await self._refused(audit_log.actor_of_key(holder), address, "no role")
            raise errors.Forbidden("You may use models but not view pages: you have no role 'viewer' or 'admin' here.")
        kept = await self._begin(page, holder, CARRIED + ended.carried)
        forgotten = set_cookie(page.scope, SIGN_IN, "", LOGIN_PATH, 0, same_site="Lax")
        return redirect(_next(ended.next), (kept, forgotten, _forget(page.scope, LOGIN, LOGIN_PATH)))

    async def _refused(self, actor: audit_log.AuditActor, address: str, reason: str) -> None:
        details = {"address": address, "reason": reason}
        await self._parts.trail.saw(audit_log.NewEvent(actor, "ui.login", details=details, ok=False))

    async def log_out(self, page: PageRequest) -> PageAnswer:
        """Ends the session (`POST /ui/logout`); with `everywhere` in the form, all sessions of the key."""
        token = cookie(page.scope, SESSION)
        if token is None or page.viewer is None or page.viewer.key_id is None:
            return redirect(PATH)
        if page.form.get("everywhere"):
            await self._sessions.revoke_all(page.viewer.key_id, page.viewer.actor)
        else:
            await self._sessions.revoke(token, page.viewer.actor)
        return redirect(LOGIN_PATH, (_forget(page.scope, SESSION, PATH),))


class LoginGuesses:
    """Failed logins of the last minute, in this process."""

    def __init__(self) -> None:
        self._failed: BoundedCache[str, deque[float]] = BoundedCache(MAX_ADDRESSES)
        self._all: deque[float] = deque(maxlen=MAX_IN_ALL)

    def admit(self, address: str, now: float) -> None:
        """Raises TooManyTries: too many logins have failed from this address, or in all."""
        own = self._failed.get(address) or deque()
        for failures, most in ((own, MAX_FAILURES), (self._all, MAX_IN_ALL)):
            while failures and failures[0] <= now - WITHIN:
                failures.popleft()
            if len(failures) >= most:
                raise TooManyTries(failures[0] + WITHIN - now)

    def notes(self, address: str, now: float) -> bool:
        """Records a failure that was no guess of a key; returns whether it is one of the first, and worth a note."""
        try:
            self.admit(address, now)
        except TooManyTries:
            return False
        self.failed(address, now)
        return True

    def failed(self, address: str, now: float) -> None:
        own = self._failed.get(address)
        if own is None:
            own = self._failed.put(address, deque(maxlen=MAX_FAILURES))
        own.append(now)
        self._all.append(now)


def cookie(scope: Scope, name: str) -> str | None:
    """Returns a cookie of the gateway, by its name for this connection; None without one."""
    wanted = _name(scope, name)
    for key, value in scope["headers"]:
        if key == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                given, _, found = pair.strip().partition("=")
                if given == wanted and found:
                    return str(found)
    return None


def set_cookie(scope: Scope, name: str, value: str, path: str, seconds: int, same_site: str = "Strict") -> str:
    """Returns the value of `Set-Cookie`."""
    secure = "; Secure" if _is_tls(scope) else ""
    return f"{_name(scope, name)}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite={same_site}{secure}"


def _address(page: PageRequest) -> str:
    return str((page.scope.get("client") or ("",))[0])


def _forget(scope: Scope, name: str, path: str) -> str:
    return set_cookie(scope, name, "", path, 0)


def _name(scope: Scope, name: str) -> str:
    return f"__Secure-{name}" if _is_tls(scope) else name


def _is_tls(scope: Scope) -> bool:
    """Returns whether the browser's connection is encrypted, as the proxy before the gateway reports. A false report
    yields a cookie that no browser stores."""
    said = (header(scope, b"x-forwarded-proto") or "").rpartition(",")[2].strip().lower()
    forwarded = (header(scope, b"forwarded") or "").lower()
    return scope.get("scheme") == "https" or said == "https" or "proto=https" in forwarded


def _next(given: str | None) -> str:
    return given if given and NEXT.fullmatch(given) and not given.startswith(LOGIN_PATH) else PATH


def _viewer(holder: KeyPolicy) -> PageViewer | None:
    if not holder.roles & setting_sections.LOOKS:
        return None
    return PageViewer(
        seen_tenant(holder), holder.roles, holder.key_id, holder.name, holder.tenant, holder.project, holder
    )
