"""Whose request it is (guarantee §8)."""

import hashlib
import hmac

from gateway.config.settings import AuthSettings
from gateway.errors import InvalidRequest, StorageUnavailable, Unauthorized
from gateway.http.edge import Scope, speaks_anthropics
from gateway.http.receive import header
from gateway.models.exchange import ANTHROPICS_KEY, Caller
from gateway.storage.store import ConversationStore

ANONYMOUS = "anonymous"
"""Tenant of all requests without a token."""
UNKNOWN = "unknown"
"""Tenant of a request while the storage, and with it the secret of the hashes, cannot be reached."""
MAX_TENANTS = 10_000
"""Hashes in the cache; some 200 bytes each."""
FORWARDED_HEADERS = (b"openai-organization", b"openai-project", b"openai-beta")


class Authenticator:
    """Finds the tenant of a request. Configured keys are kept as digests and compared in constant time."""

    def __init__(self, settings: AuthSettings, store: ConversationStore) -> None:
        self._keys = [(_digest(entry.key.get_secret_value()), entry.tenant) for entry in settings.keys]
        self._store = store
        self._tenants: dict[bytes, str] = {}

    async def caller(self, scope: Scope) -> Caller:
        """The tenant of a request. Without configured keys it is that of the bearer token, which may then go upstream.

        Raises:
            Unauthorized: keys are configured and the request has none of them, or its token is not ASCII.
            InvalidRequest: a header that goes upstream is not ASCII.
        """
        token, anthropics = _bearer(scope), None
        if speaks_anthropics(scope) and (token is None or token.startswith(ANTHROPICS_KEY)):
            anthropics = token = token or _anthropics(scope)
        headers = {k.decode(): _plain(k, v) for k, v in scope["headers"] if k in FORWARDED_HEADERS}
        if self._keys:
            return Caller(self._tenant_of(token), None, headers)
        if token is None:
            return Caller(ANONYMOUS, None, headers)
        if not token.isascii():
            raise Unauthorized("An API key holds ASCII characters only.")
        try:
            secret = await self._store.secret()
        except StorageUnavailable:
            # A request that needs the storage fails later; the others must work without it (guarantee §3.6).
            secret = None
        tenant = UNKNOWN if secret is None else self._keyed(secret, token)
        return Caller(tenant, token if anthropics is None else None, headers, anthropic_key=anthropics)

    def _keyed(self, secret: bytes, token: str) -> str:
        """The tenant of a client's own token: its keyed hash, cached."""
        known = self._tenants.get(digest := _digest(token))
        if known is None:
            if len(self._tenants) >= MAX_TENANTS:
                self._tenants.clear()
            known = self._tenants[digest] = f"key_{hmac.digest(secret, token.encode(), 'sha256').hex()[:40]}"
        return known

    def _tenant_of(self, token: str | None) -> str:
        given = _digest(token or "")
        found = None
        for digest, tenant in self._keys:  # no early end, whose time could be measured
            if hmac.compare_digest(digest, given):
                found = tenant
        if found is None:
            text = "No API key was given." if token is None else "This API key is not known here."
            raise Unauthorized(f"{text} Send one as 'Authorization: Bearer KEY'.")
        return found


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
