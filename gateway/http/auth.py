"""Whose request it is (guarantee §8)."""

import hashlib
import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.config.auth_settings import USER, ApiKey, AuthSettings
from gateway.errors import Forbidden, InvalidRequest, StorageUnavailable, Unauthorized
from gateway.http.edge import App, Receive, Scope, Send, came_by_messages
from gateway.http.near import FORWARDED, check_near
from gateway.http.receive import header
from gateway.models.exchange import ANTHROPICS_KEY, Caller, Headers
from gateway.models.keys import KeyPolicy, policy_of
from gateway.storage.store import ConversationStore

ANONYMOUS = "anonymous"
"""Tenant of all requests without a token."""
UNKNOWN = "unknown"
"""Tenant of a request while the storage, and with it the secret of the hashes, cannot be reached."""
MAX_TENANTS = 10_000
"""Hashes in the cache; some 200 bytes each."""
FORWARDED_HEADERS = (b"openai-organization", b"openai-project", b"openai-beta")
READS = ("GET", "HEAD", "OPTIONS")
ANY_ORIGIN = "*"
STRICTER = ("/ui", "/mcp", "/health/")
"""Paths that look themselves where a request comes from, or spend nothing and tell nobody anything."""
MAX_HOSTS = 100
"""Values of `Host` that are remembered."""
ASK_AGAIN = 5.0
"""Seconds after which the storage is asked again for the secret, if all that needs it is the id of a configured key."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A configured key, as far as others may know of it."""

    key_id: str
    tenant: str
    name: str | None
    project: str | None
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Key:
    digest: bytes = field(repr=False)
    entry: ApiKey = field(repr=False)
    roles: frozenset[str]


class Authenticator:
    """Finds the tenant of a request. Configured keys are kept as digests and compared in constant time."""

    def __init__(self, settings: AuthSettings, store: ConversationStore) -> None:
        self._keys = [
            _Key(_digest(entry.key.get_secret_value()), entry, frozenset(entry.roles)) for entry in settings.keys
        ]
        self._store = store
        self._ids: dict[bytes, str] = {}
        self._policies: dict[bytes, KeyPolicy] = {}
        self._holders: dict[str, Holder] = {}
        self._ask_from = 0.0

    async def caller(self, scope: Scope) -> Caller:
        """The tenant of a request, its key and project. Without configured keys the tenant is that of the bearer token,
        which may then go upstream.

        Raises:
            Unauthorized: keys are configured and the request has none of them, or its token is not ASCII.
            Forbidden: its key may only look, and this is no request that looks.
            InvalidRequest: a header that goes upstream is not ASCII.
        """
        token, anthropics = _bearer(scope), None
        if token is None and (self._keys or came_by_messages(scope)):
            anthropics = token = _anthropics(scope)
        elif token is not None and token.startswith(ANTHROPICS_KEY):
            anthropics = token
        headers = {k.decode(): _plain(k, v) for k, v in scope["headers"] if k in FORWARDED_HEADERS}
        if self._keys:
            key = self._key_of(token)
            if USER not in key.roles and scope.get("method", "GET") not in READS:
                raise Forbidden("This key may look, and do nothing else: it has no role 'user'.")
            policy = self._policies.get(key.digest)
            if policy is None:
                policy = policy_of(await self._id_of(key), key.entry)
                if policy.key_id is not None:
                    self._policies[key.digest] = policy
            return Caller(policy.tenant, None, headers, policy.key_id, policy.project, policy.roles, key=policy)
        if token is None:
            return Caller(ANONYMOUS, None, headers)
        if not token.isascii():
            raise Unauthorized("An API key holds ASCII characters only.")
        try:
            secret = await self._store.secret()
        except StorageUnavailable:
            # A request that needs the storage fails later; the others must work without it (guarantee §3.6).
            secret = None
        key_id = None if secret is None else self._keyed(secret, _digest(token), token)
        own = token if anthropics is None else None
        return Caller(key_id or UNKNOWN, own, headers, key_id, anthropic_key=anthropics)

    async def holder(self, token: str) -> Holder:
        """Whose a configured key is.

        Raises:
            Unauthorized: it is none.
            StorageUnavailable: the secret of its id cannot be read.
        """
        key = self._key_of(token)
        return _holder(key, self._keyed(await self._store.secret(), key.digest, key.entry.key.get_secret_value()))

    async def holders(self) -> dict[str, Holder]:
        """All configured keys, by their ids.

        Raises:
            StorageUnavailable: the secret of their ids cannot be read.
        """
        if not self._holders:
            secret = await self._store.secret()
            ids = (self._keyed(secret, key.digest, key.entry.key.get_secret_value()) for key in self._keys)
            self._holders = {key_id: _holder(key, key_id) for key, key_id in zip(self._keys, ids, strict=True)}
        return self._holders

    async def _id_of(self, key: _Key) -> str | None:
        """The id of a configured key; None while the secret cannot be read. Nobody waits for that alone, but once in a
        while."""
        known = self._ids.get(key.digest)
        if known is not None or time.monotonic() < self._ask_from:
            return known
        try:
            secret = await self._store.secret()
        except StorageUnavailable:
            self._ask_from = time.monotonic() + ASK_AGAIN
            return None
        return self._keyed(secret, key.digest, key.entry.key.get_secret_value())

    def _keyed(self, secret: bytes, digest: bytes, token: str) -> str:
        """The id of a key: its keyed hash, cached. It is the tenant of a client's own token, too."""
        known = self._ids.get(digest)
        if known is None:
            if len(self._ids) >= MAX_TENANTS:
                self._ids.clear()
            known = self._ids[digest] = f"key_{hmac.digest(secret, token.encode(), 'sha256').hex()[:40]}"
        return known

    def _key_of(self, token: str | None) -> _Key:
        given = _digest(token or "")
        found = None
        for key in self._keys:  # no early end, whose time could be measured
            if hmac.compare_digest(key.digest, given):
                found = key
        if found is None:
            text = "No API key was given." if token is None else "This API key is not known here."
            raise Unauthorized(f"{text} Send one as 'Authorization: Bearer KEY'.")
        return found


class OnlyNear:
    """Keeps other sites' pages out, as `check_near` says. Nearly all requests have no `Origin` and name
    a host that was looked at before."""

    def __init__(self, app: App, origins: Sequence[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._known: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and ANY_ORIGIN not in self._origins and not scope["path"].startswith(STRICTER):
            self._check(scope["headers"])
        await self._app(scope, receive, send)

    def _check(self, headers: Headers) -> None:
        host = None
        for name, value in headers:
            if name == b"origin":
                break
            if name == b"host":
                host = value
        else:
            if host in self._known:
                return
        check_near(headers, self._origins)
        is_plain = not any(name == b"origin" or name in FORWARDED for name, _ in headers)
        if host is not None and is_plain and len(self._known) < MAX_HOSTS:
            self._known.add(host)


def _holder(key: _Key, key_id: str) -> Holder:
    return Holder(key_id, key.entry.tenant, key.entry.name, key.entry.project, key.roles)


def _plain(name: bytes, value: bytes) -> str:
    if not value.isascii():
        header_name = name.decode()
        raise InvalidRequest(f"{header_name} must be ASCII.", param=header_name, code="invalid_value")
    return value.decode()


def _bearer(scope: Scope) -> str | None:
    value = header(scope, b"authorization")
    if value is None:
        return None
    scheme, _, token = value.partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and token else None


def _anthropics(scope: Scope) -> str | None:
    """The key as clients of Anthropic's API send it. It goes to no other upstream (guarantee §1)."""
    return (header(scope, b"x-api-key") or "").strip() or None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
