"""Authenticates requests (guarantee §8). Keys made at runtime are looked up in the storage, and cached for moments; a
stream ends within seconds after its key was revoked, replaced or expired (guarantee §12.2)."""

import asyncio
import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from datetime import datetime
from functools import partial
from typing import Any

from gateway.api.server.asgi import Scope, came_by_messages
from gateway.api.server.middleware import is_foreign, is_local
from gateway.api.tokens import SignedTokens, is_signed
from gateway.core import errors, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.clock import SystemClock
from gateway.core.config import setting_sections
from gateway.core.frozen_records import record
from gateway.core.types import chat, keys
from gateway.core.types.chat import RequestCaller
from gateway.core.types.keys import KeyPolicy, StoredKey
from gateway.storage import ConversationStore, keyed_hashes, stored_keys

KNOWN_SECONDS, UNKNOWN_SECONDS = 3.0, 1.0
"""Seconds for which a result of the storage is cached: a valid key, and no valid key."""
MAX_KNOWN, MAX_UNKNOWN = 10_000, 1_000
UNKNOWN_KEY = "This API key is not known here. Send one as 'Authorization: Bearer KEY'."
"""Also for a revoked key: a finder must not learn that it was ever valid."""
EXPIRED = "This API key has expired."


@record
class _KeptKey:
    key: StoredKey | None
    until: float


class RuntimeKeys:
    """Looks keys up by a keyed digest. A result counts from when the storage was asked, not from when it answered, so
    that the sum of both cannot exceed `KNOWN_SECONDS`."""

    def __init__(self, store: stored_keys.KeyStore, clock: ports.Clock) -> None:
        self.store = store
        self._clock = clock
        self._known: dict[bytes, _KeptKey] = {}
        self._unknown: dict[bytes, _KeptKey] = {}
        self._asking: dict[bytes, asyncio.Task[StoredKey | None]] = {}
        self._changes = 0

    def now(self) -> datetime:
        """Returns the time by the clock by which keys expire."""
        return self._clock.now()

    async def policy(self, token: str, *, is_fresh: bool = False) -> KeyPolicy:
        """Returns the policy of a key; a replaced key expires with its grace. `is_fresh`: no cached result is enough.
        Raises Unauthorized: the token is no valid key; StorageUnavailable: the key cannot be looked up."""
        if not stored_keys.is_well_formed(token):
            raise errors.Unauthorized(UNKNOWN_KEY)
        digest = await self.store.digest(token)
        kept = self._known.get(digest) or self._unknown.get(digest)
        if is_fresh:
            found = await self._asked(digest)
        else:
            found = kept.key if kept is not None and self._clock.monotonic() < kept.until else await self._ask(digest)
        now = self._clock.now()
        if found is None or not found.counts(now):
            raise errors.Unauthorized(UNKNOWN_KEY)
        if found.policy.ended(now):
            raise errors.Unauthorized(EXPIRED)
        if found.replaced_until is None:
            return found.policy
        end = min(found.replaced_until, found.policy.expires_at or found.replaced_until)
        return replace(found.policy, expires_at=end)

    async def by_ids(self, key_ids: Sequence[str]) -> dict[str, KeyPolicy]:
        """Returns the policies of those keys that are valid now. Raises StorageUnavailable: they cannot be read."""
        found, now = await self.store.by_ids(key_ids), self._clock.now()
        return {key_id: key.policy for key_id, key in found.items() if key.counts(now) and not key.policy.ended(now)}

    def changed(self) -> None:
        """Drops all cached keys and look-ups in progress, since this process has changed a key."""
        self._changes += 1
        self._known.clear()
        self._unknown.clear()
        self._asking.clear()

    async def _ask(self, digest: bytes) -> StoredKey | None:
        """Looks a key up; concurrent requests with the same key share one look-up."""
        task = self._asking.get(digest)
        if task is None:
            task = self._asking[digest] = asyncio.create_task(self._asked(digest))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits for it
        return await asyncio.shield(task)

    async def _asked(self, digest: bytes) -> StoredKey | None:
        at, changes = self._clock.monotonic(), self._changes
        own = asyncio.current_task()
        try:
            found = await self.store.find(digest)
        finally:
            if self._asking.get(digest) is own:
                del self._asking[digest]
        if changes == self._changes:
            counts = found is not None and found.counts(self._clock.now())
            kept, most = (self._known, MAX_KNOWN) if counts else (self._unknown, MAX_UNKNOWN)
            self._known.pop(digest, None)
            self._unknown.pop(digest, None)
            if len(kept) >= most:
                del kept[next(iter(kept))]  # the oldest
            kept[digest] = _KeptKey(found, at + (KNOWN_SECONDS if counts else UNKNOWN_SECONDS))
        return found


ANONYMOUS = "anonymous"
"""Tenant of all requests without a token."""
UNKNOWN = "(unknown)"
"""Tenant of a request while the storage, and with it the secret of the hashes, cannot be reached. No tenant of a key or
a token can be named so."""
MAX_TENANTS = 10_000
"""Hashes in the cache; some 200 bytes each."""
FORWARDED_HEADERS = (b"openai-organization", b"openai-project", b"openai-beta")
BLANKS = " \t"
"""Blanks allowed around a header's value. `str.strip` would remove more of a padded key."""
READS = ("GET", "HEAD", "OPTIONS")
ASK_AGAIN = 5.0
"""Seconds after which the storage is asked again for the secret, if only the id of a configured key needs it."""


@record
class _ConfiguredKey:
    digest: bytes = field(repr=False)
    entry: setting_sections.ApiKey = field(repr=False)


class KeyAuthenticator:
    """Finds the tenant of a request. Configured keys are stored as digests and compared in constant time; those made at
    runtime are looked up by their digests. `watch` ends streams with their keys."""

    def __init__(
        self,
        settings: setting_sections.AuthSettings,
        store: ConversationStore,
        keys: RuntimeKeys | None = None,
        clock: ports.Clock | None = None,
        tokens: SignedTokens | None = None,
    ) -> None:
        self._keys = [_ConfiguredKey(_digest(entry.key.get_secret_value()), entry) for entry in settings.keys]
        self._wants_keys = settings.wants_keys
        self._store = store
        self._runtime = keys
        self._tokens = tokens
        self._clock = clock or SystemClock()
        self._ids: BoundedCache[bytes, str] = BoundedCache(MAX_TENANTS)
        self._policies: dict[bytes, KeyPolicy] = {}
        self._holders: dict[str, KeyPolicy] = {}
        self._ask_from = 0.0
        self.watch = KeyWatch(self)

    async def caller(self, scope: Scope) -> RequestCaller:
        """Returns the tenant of a request, its key and project. Without a key of the gateway, where none is required,
        the tenant is that of the bearer token, which may then be sent upstream.

        Raises:
            Unauthorized: a key is required and the request has no valid one, or its token is not ASCII.
            Forbidden: its key lacks the role 'user', and this request does not only read.
            InvalidRequest: a header that is sent upstream is not ASCII.
            StorageUnavailable: its key was made at runtime, and cannot be looked up.
            IdentityProviderUnavailable: its token is signed, and the signature cannot be checked.
        """
        found = await self._caller(scope)
        is_read = scope.get("method", "GET") in READS
        if found.key is not None and setting_sections.USER not in found.roles and not is_read:
            roles = ", ".join(sorted(found.roles))
            raise errors.Forbidden(f"This request takes a key with the role 'user'; this one has: {roles}.")
        return found

    async def admin(self, scope: Scope) -> RequestCaller:
        """Returns the caller of a request that only administrators may make; it needs no role 'user'.
        Raises Forbidden: the request has no key of role 'admin'; Unauthorized, InvalidRequest, StorageUnavailable: as
        `caller` does."""
        found = await self._caller(scope)
        if found.key is None or setting_sections.ADMIN not in found.roles:
            raise errors.Forbidden("This takes a key of the gateway's own with the role 'admin'.")
        return found

    async def _caller(self, scope: Scope) -> RequestCaller:
        token, anthropics = _bearer(scope), None
        if token is None and (self._wants_keys or came_by_messages(scope)):
            anthropics = token = _anthropics(scope)
        elif token is not None and token.startswith(chat.ANTHROPICS_KEY):
            anthropics = token
        headers = {k.decode(): _plain(k, v) for k, v in scope["headers"] if k in FORWARDED_HEADERS}
        if headers:
            headers = {name: value for name, value in headers.items() if not keys.is_ours(value)}
        if self._wants_keys or (token is not None and keys.is_ours(token)):
            policy = await self._policy(token)
            return RequestCaller(policy.tenant, None, headers, policy.key_id, policy.project, policy.roles, key=policy)
        if token is None:
            return RequestCaller(ANONYMOUS, None, headers)
        if not token.isascii():
            raise errors.Unauthorized("An API key holds ASCII characters only.")
        secret = await keyed_hashes.secret_or_none(self._store)
        key_id = None if secret is None else self._keyed(secret, _digest(token), token)
        own = token if anthropics is None else None
        return RequestCaller(key_id or UNKNOWN, own, headers, key_id, anthropic_key=anthropics)

    async def _policy(self, token: str | None, *, is_fresh: bool = False) -> KeyPolicy:
        """Returns the policy of the gateway's key that the token is, or of the user that a signed token names.
        `is_fresh`: a key made at runtime is looked up, even if a result is cached.
        Raises Unauthorized: it is not valid; StorageUnavailable: it was made at runtime, and cannot be looked up;
        Forbidden, IdentityProviderUnavailable: as `SignedTokens.policy` does."""
        key = self._configured(token)
        if key is None and token is not None and self._tokens is not None and is_signed(token):
            return await self._tokens.policy(token, await keyed_hashes.secret_or_none(self._store))
        if key is None and token is not None and keys.is_ours(token) and self._runtime is not None:
            return await self._runtime.policy(token, is_fresh=is_fresh)
        if key is None:
            text = "No API key was given." if token is None else "This API key is not known here."
            raise errors.Unauthorized(f"{text} Send one as 'Authorization: Bearer KEY'.")
        policy = self._policies.get(key.digest)
        if policy is None:
            policy = keys.policy_of(await self._id_of(key), key.entry)
            if policy.key_id is not None:
                self._policies[key.digest] = policy
        if policy.ended(self._clock.now()):
            raise errors.Unauthorized(EXPIRED)
        return policy

    async def holder(self, token: str) -> KeyPolicy:
        """Returns the policy of a key of the gateway, which has an id, as it is stored now.
        Raises Unauthorized: the key is not valid; StorageUnavailable: its id, or whether it is valid, cannot be
        read."""
        await self._store.secret()
        self._ask_from = 0.0
        return await self._policy(token, is_fresh=True)

    async def holder_of(self, key_id: str) -> KeyPolicy | None:
        """Returns the policy of the key with that id; None if it is not valid, or no longer.
        Raises StorageUnavailable: it cannot be looked up."""
        return (await self.holders_of([key_id])).get(key_id)

    async def holders_of(self, key_ids: Collection[str]) -> dict[str, KeyPolicy]:
        """Returns the policies of those of several keys that are valid, by their ids, in one look-up.
        Raises StorageUnavailable: they cannot be looked up."""
        configured, now = await self.configured(), self._clock.now()
        found = {each: configured[each] for each in key_ids if each in configured and not configured[each].ended(now)}
        others = [each for each in key_ids if each not in configured]
        if others and self._runtime is not None:
            found |= await self._runtime.by_ids(others)
        return found

    async def names(self, key_ids: Collection[str]) -> dict[str, str]:
        """Returns the names of keys that have one, by key id. Raises StorageUnavailable: they cannot be read."""
        if not key_ids:
            return {}
        configured = await self.configured()
        found = {key_id: configured[key_id].name for key_id in key_ids if key_id in configured}
        others = [key_id for key_id in key_ids if key_id not in configured]
        if others and self._runtime is not None:
            made = await self._runtime.store.by_ids(others)
            found |= {key_id: key.policy.name for key_id, key in made.items()}
        return {key_id: name for key_id, name in found.items() if name is not None}

    async def configured(self) -> dict[str, KeyPolicy]:
        """Returns all keys of `auth.keys`, by their ids. Raises StorageUnavailable: the ids' secret cannot be read."""
        if self._keys and not self._holders:
            secret = await self._store.secret()
            ids = (self._keyed(secret, key.digest, key.entry.key.get_secret_value()) for key in self._keys)
            pairs = zip(self._keys, ids, strict=True)
            self._holders = {key_id: keys.policy_of(key_id, key.entry) for key, key_id in pairs}
        return self._holders

    async def _id_of(self, key: _ConfiguredKey) -> str | None:
        """Returns the id of a configured key; None while the secret cannot be read, for which few requests wait."""
        known = self._ids.peek(key.digest)
        if known is not None or time.monotonic() < self._ask_from:
            return known
        try:
            secret = await self._store.secret()
        except errors.StorageUnavailable:
            self._ask_from = time.monotonic() + ASK_AGAIN
            return None
        return self._keyed(secret, key.digest, key.entry.key.get_secret_value())

    def _keyed(self, secret: bytes, digest: bytes, token: str) -> str:
        """Returns the id of a key: its keyed hash, cached. It is also the tenant of a client's own token."""
        known = self._ids.get(digest)
        return known or self._ids.put(digest, keyed_hashes.key_id(secret, token))

    def _configured(self, token: str | None) -> _ConfiguredKey | None:
        given = _digest(token or "")
        found = None
        for key in self._keys:  # no early end, whose time could be measured
            if hmac.compare_digest(key.digest, given):
                found = key
        return found


def check_known(tenant: str) -> None:
    """Raises StorageUnavailable: the storage was down a moment ago, so that the tenant of the request is unknown."""
    if tenant == UNKNOWN:
        raise errors.StorageUnavailable("The storage cannot be reached.")


def is_unnamed(caller: RequestCaller) -> bool:
    """Returns whether a caller has no key. All such callers are one tenant, which a key may have, too."""
    return caller.key is None and caller.tenant == ANONYMOUS


def check_apart(scope: Scope, caller: RequestCaller, what: str) -> None:
    """Raises Unauthorized: a list of `what` would show a caller without a key what others without one have. All are one
    tenant, and only unguessable ids keep them apart. On the gateway's own machine they are one person."""
    if is_unnamed(caller) and (not is_local(scope) or is_foreign(scope)):
        raise errors.Unauthorized(f"An API key is required to list {what} from another machine.")


def seen_tenant(who: RequestCaller | KeyPolicy) -> str | None:
    """Returns the only tenant whose data a holder of a viewer's role may see; None: all, for an admin."""
    return None if setting_sections.ADMIN in who.roles else who.tenant


def _plain(name: bytes, value: bytes) -> str:
    if not value.isascii():
        header_name = name.decode()
        raise errors.InvalidRequest(f"{header_name} must be ASCII.", param=header_name, code="invalid_value")
    return value.decode()


def _bearer(scope: Scope) -> str | None:
    value = _only(scope, b"authorization")
    if value is None:
        return None
    scheme, _, token = value.partition(" ")
    token = token.strip(BLANKS)
    return token if scheme.lower() == "bearer" and token else None


def _anthropics(scope: Scope) -> str | None:
    """Returns the key as clients of Anthropic's API send it. It is sent to no other upstream (guarantee §1)."""
    return (_only(scope, b"x-api-key") or "").strip(BLANKS) or None


def _only(scope: Scope, name: bytes) -> str | None:
    """Returns the only header of that name; None without one.
    Raises Unauthorized: there are two that differ, so that a proxy in front may have checked the other."""
    found: bytes | None = None
    for key, value in scope["headers"]:
        if key == name:
            if found is not None and value != found:
                raise errors.Unauthorized(f"The request has two different {name.decode()} headers.")
            found = value
    return None if found is None else found.decode("latin-1")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


CHECK_SECONDS = 1.0
"""Seconds between two checks. A result of the storage is cached for three more: less than five in all."""
CREDENTIALS = (b"authorization", b"x-api-key")
ENDED = "The key of this request does not count any more."
LookUp = Callable[[], Awaitable[object]]
"""Finds the policy of a key; returns None, or raises a refusal, when it is no longer valid."""


class KeyWatch:
    """Checks the keys of running streams periodically; a stream whose key cannot be looked up now continues."""

    def __init__(self, auth: KeyAuthenticator) -> None:
        self._auth = auth
        self._running: dict[Any, tuple[LookUp, set[asyncio.Task[Any]]]] = {}
        self._ended: set[asyncio.Task[Any]] = set()
        self._watching: asyncio.Task[None] | None = None

    @contextmanager
    def holding(self, scope: Scope | None, caller: RequestCaller) -> Iterator[None]:
        """Watches the caller's key while this task sends a stream in the block. Where the request has no key, since the
        web UI has a session instead, or there is no request, the id of the caller's key is looked up.
        Raises Unauthorized: the key ended meanwhile, and the block was cancelled."""
        task, watched = asyncio.current_task(), self._watched(scope, caller)
        if task is None or watched is None:
            yield
            return
        key, look = watched
        self._running.setdefault(key, (look, set()))[1].add(task)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        try:
            yield
        except asyncio.CancelledError:
            if task in self._ended and task.uncancel() == 0:
                raise errors.Unauthorized(ENDED) from None
            raise
        finally:
            self._ended.discard(task)
            tasks = self._running[key][1]
            tasks.discard(task)
            if not tasks:
                del self._running[key]

    def _watched(self, scope: Scope | None, caller: RequestCaller) -> tuple[Any, LookUp] | None:
        """Returns what is looked up, and the function that does so; None: nothing."""
        if caller.key is None or caller.key.is_signed:  # a token counts when its request comes
            return None
        if scope is not None and (brought := tuple(pair for pair in scope["headers"] if pair[0] in CREDENTIALS)):
            return brought, partial(self._auth.caller, scope)
        name = caller.key_id
        return (name, partial(self._auth.holder_of, name)) if name is not None else None

    async def _watch(self) -> None:
        while self._running:
            await asyncio.sleep(CHECK_SECONDS)
            await asyncio.gather(*map(self._look, list(self._running)), return_exceptions=True)

    async def _look(self, key: Any) -> None:
        look, tasks = self._running[key]
        try:
            counts = await look() is not None
        except (errors.Unauthorized, errors.Forbidden):
            counts = False
        if not counts:
            for task in tasks - self._ended:
                self._ended.add(task)
                task.cancel(errors.Unauthorized.code)

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
