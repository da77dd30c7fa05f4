"""What a process keeps of keys made at runtime, and for how long (guarantee §12.2)."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.api.auth import KNOWN_SECONDS, MAX_UNKNOWN, UNKNOWN_SECONDS, KeyAuthenticator, RuntimeKeys
from gateway.core.config.setting_sections import KeyFields
from gateway.core.config.settings import Settings
from gateway.core.errors import Forbidden, ModelNotAllowed, StorageUnavailable, Unauthorized
from gateway.core.types.keys import StoredKey, policy_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)
KEY = "sk-gw-" + "a" * 43
OTHER = "sk-gw-" + "b" * 43


class Hands:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class Store:
    """A storage of one key, which counts how often it is asked."""

    def __init__(self, **said: Any) -> None:
        fields = KeyFields.model_validate({"tenant": "acme", **said})
        self.key: StoredKey | None = StoredKey(policy_of("key_1", fields), "aaaa", NOW, NOW)
        self.asked = 0
        self.is_away = False
        self.gate: asyncio.Event | None = None

    async def secret(self) -> bytes:
        return b"secret"

    async def digest(self, key: str) -> bytes:
        return hashlib.sha256(key.encode()).digest()

    async def find(self, digest: bytes) -> StoredKey | None:
        self.asked += 1
        found = self.key
        if self.gate is not None:
            await self.gate.wait()
        if self.is_away:
            raise StorageUnavailable("away")
        return found if digest == hashlib.sha256(KEY.encode()).digest() else None

    async def get(self, _: str) -> StoredKey | None:
        return self.key

    async def by_ids(self, key_ids: Sequence[str]) -> dict[str, StoredKey]:
        self.asked += 1
        return {"key_1": self.key} if self.key is not None and "key_1" in key_ids else {}


def known(store: Any) -> tuple[RuntimeKeys, Hands]:
    clock = Hands()
    return RuntimeKeys(store, clock), clock


async def under_way(keys: RuntimeKeys) -> "asyncio.Future[Any]":
    """A request's look at its key, which waits for the storage by now."""
    asking = asyncio.ensure_future(keys.policy(KEY))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return asking


def revoked(store: Store) -> None:
    assert store.key is not None
    store.key = replace(store.key, revoked_at=NOW)


def request(token: str, path: str = "/v1/chat/completions", name: bytes = b"authorization") -> dict[str, Any]:
    value = f"Bearer {token}" if name == b"authorization" else token
    return {"method": "POST", "path": path, "headers": [(name, value.encode("latin-1"))]}


def authenticator(store: Any, **auth: Any) -> KeyAuthenticator:
    clock = Hands()
    return KeyAuthenticator(Settings.model_validate({"auth": auth}).auth, store, RuntimeKeys(store, clock), clock)


async def test_s12_2_a_revoked_key_counts_for_three_seconds_at_most() -> None:
    store = Store()
    keys, clock = known(store)
    for _ in range(5):
        assert (await keys.policy(KEY)).tenant == "acme"
    assert store.asked == 1
    revoked(store)
    clock.seconds = KNOWN_SECONDS - 0.01
    assert (await keys.policy(KEY)).tenant == "acme"
    clock.seconds = KNOWN_SECONDS
    with pytest.raises(Unauthorized, match="not known"):
        await keys.policy(KEY)


@pytest.mark.parametrize("here", [False, True], ids=["elsewhere", "in this process"])
async def test_s12_2_what_was_asked_before_a_change_holds_from_when_it_was_asked(*, here: bool) -> None:
    """A storage that takes long to answer makes no answer newer; a change in this process counts at once."""
    store = Store()
    keys, clock = known(store)
    store.gate = asyncio.Event()
    asking = await under_way(keys)
    revoked(store)
    if here:
        keys.changed()
    else:
        clock.seconds = KNOWN_SECONDS + 1
    store.gate.set()
    await asking
    with pytest.raises(Unauthorized):
        await keys.policy(KEY)


async def test_s12_2_nobody_vouches_for_a_key_while_the_storage_is_away() -> None:
    """What is known holds for its seconds; after that it is a 503, and never somebody else."""
    store = Store()
    keys, clock = known(store)
    await keys.policy(KEY)
    store.is_away = True
    clock.seconds = KNOWN_SECONDS - 0.01
    await keys.policy(KEY)
    clock.seconds = KNOWN_SECONDS
    for token in (KEY, OTHER):
        with pytest.raises(StorageUnavailable):
            await authenticator(store).caller(request(token))
        with pytest.raises(StorageUnavailable):
            await keys.policy(token)


async def test_s12_2_a_login_is_with_a_key_as_it_is_stored_now() -> None:
    """What is cached does not begin a session, which would outlast it; a replaced secret says when its grace ends."""
    store = Store()
    auth = authenticator(store)
    assert (await auth.holder(KEY)).expires_at is None
    assert store.key is not None
    ends = NOW + timedelta(hours=1)
    store.key = replace(store.key, replaced_until=ends)
    assert (await auth.holder(KEY)).expires_at == ends
    sooner = NOW + timedelta(minutes=1)
    store.key = replace(store.key, policy=replace(store.key.policy, expires_at=sooner))
    assert (await auth.holder(KEY)).expires_at == sooner
    revoked(store)
    with pytest.raises(Unauthorized):
        await auth.holder(KEY)


async def test_requests_at_once_ask_once() -> None:
    store = Store()
    keys, _ = known(store)
    await asyncio.gather(*(keys.policy(KEY) for _ in range(20)))
    assert store.asked == 1


async def test_what_is_unknown_is_kept_shortly_and_not_without_end() -> None:
    store = Store()
    keys, clock = known(store)
    for _ in range(3):
        with pytest.raises(Unauthorized):
            await keys.policy(OTHER)
    assert store.asked == 1
    clock.seconds = UNKNOWN_SECONDS
    with pytest.raises(Unauthorized):
        await keys.policy(OTHER)
    assert store.asked == 2
    await keys.policy(KEY)
    for number in range(MAX_UNKNOWN + 100):
        with pytest.raises(Unauthorized):
            await keys.policy(f"sk-gw-{number:043}")
    assert len(keys._unknown) == MAX_UNKNOWN
    asked = store.asked
    await keys.policy(KEY)
    assert store.asked == asked, "guesses push out no key that counts"


@pytest.mark.parametrize(
    "token",
    [KEY[:-1], KEY + "a", KEY.upper(), "SK-GW-" + KEY[6:], KEY + "=", f'"{KEY}"', f"x{KEY}", KEY + "é", "sk-gw-"],
)
@pytest.mark.parametrize("auth", [{}, {"mode": "keys"}, {"mode": "open"}])
async def test_s12_1_what_is_like_a_key_is_refused_and_never_a_clients_own(token: str, auth: dict[str, Any]) -> None:
    """Truncated, in other letters, padded or quoted: nobody is asked, and nothing goes up."""
    store = Store()
    with pytest.raises(Unauthorized):
        await authenticator(store, **auth).caller(request(token))
    assert store.asked == 0


@pytest.mark.parametrize("auth", [{}, {"mode": "keys"}, {"mode": "open"}])
async def test_s12_1_a_key_is_no_clients_own_key(auth: dict[str, Any]) -> None:
    """Whatever `auth.mode` says, and by whichever header it came."""
    authenticated = authenticator(Store(project="p"), **auth)
    for scope in (request(KEY), request(KEY, "/v1/messages", b"x-api-key"), request(KEY, "/v1/messages")):
        caller = await authenticated.caller(scope)
        assert (caller.tenant, caller.key_id, caller.project) == ("acme", "key_1", "p")
        assert (caller.client_key, caller.anthropic_key) == (None, None)
    organization = (b"openai-organization", KEY.encode())
    scope = request("sk-own")
    scope["headers"].append(organization)
    if auth.get("mode") != "keys":
        assert (await authenticated.caller(scope)).headers == {}


async def test_mode_keys_refuses_all_others() -> None:
    for token in ("sk-own", "x"):
        with pytest.raises(Unauthorized):
            await authenticator(Store(), mode="keys").caller(request(token))
    with pytest.raises(Unauthorized):
        await authenticator(Store(), mode="keys").caller({"method": "POST", "headers": []})


async def test_s12_2_an_expired_key_is_refused() -> None:
    ends = (NOW + timedelta(seconds=2)).isoformat()
    made, configured = Store(expires_at=ends), {"key": "gw-configured", "tenant": "a", "expires_at": ends}
    clock = Hands()
    settings = Settings.model_validate({"auth": {"keys": [configured]}}).auth
    auth = KeyAuthenticator(settings, made, RuntimeKeys(made, clock), clock)  # type: ignore[arg-type]
    for token in (KEY, "gw-configured"):
        await auth.caller(request(token))
    clock.seconds = 2
    for token in (KEY, "gw-configured"):
        with pytest.raises(Unauthorized, match="expired"):
            await auth.caller(request(token))
    assert await auth.holder_of("key_1") is None
    assert await auth.holders_of(["key_1", *(await auth.configured())]) == {}


async def test_several_keys_are_looked_up_at_once() -> None:
    """Those of the configuration are asked of nobody, and what is no key is none."""
    store = Store(name="made here")
    auth = authenticator(store, keys=[{"key": "gw-configured", "tenant": "a", "name": "configured"}])
    (configured,) = await auth.configured()
    found = await auth.holders_of(["key_1", "key_none", configured])
    assert {key_id: policy.name for key_id, policy in found.items()} == {"key_1": "made here", configured: "configured"}
    assert store.asked == 1
    assert await auth.holders_of([configured])
    assert store.asked == 1


async def test_only_an_admins_key_administers() -> None:
    """It needs no role 'user' for that; a client's own token never does."""
    admin = authenticator(Store(roles=["admin"]))
    assert (await admin.admin(request(KEY))).key_id == "key_1"
    with pytest.raises(Forbidden):
        await admin.caller(request(KEY))
    for auth, token in ((authenticator(Store()), KEY), (admin, "sk-own")):
        with pytest.raises(Forbidden):
            await auth.admin(request(token))


async def test_s12_1_a_model_that_is_not_named_is_refused() -> None:
    caller = await authenticator(Store(models=["gpt-*"])).caller(request(KEY))
    caller.check_model("gpt-4o")
    with pytest.raises(ModelNotAllowed) as refused:
        caller.check_model("claude")
    assert (refused.value.status, refused.value.code, refused.value.param) == (403, "model_not_allowed", "model")
