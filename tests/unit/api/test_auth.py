"""Whose a request is: tenant, key and project (guarantee §8, §13.2)."""

import hmac
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.api.auth import KeyAuthenticator, check_known
from gateway.core.config.settings import Settings
from gateway.core.errors import Forbidden, StorageUnavailable, Unauthorized

KEYS = [
    {"key": "gw-first-key", "tenant": "a", "name": "First", "project": "search", "roles": ["user", "admin"]},
    {"key": "gw-second-key", "tenant": "a", "roles": ["viewer"]},
]


class Secret:
    """A storage that counts how often it is asked for the secret, and may be away."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_away = False

    async def secret(self) -> bytes:
        self.asked += 1
        if self.is_away:
            raise StorageUnavailable("away")
        return b"secret"


def request(key: str | None, method: str = "POST") -> dict[str, Any]:
    return {"method": method, "headers": [(b"authorization", f"Bearer {key}".encode())] if key else []}


def authenticator(store: Any, *keys: Any) -> KeyAuthenticator:
    return KeyAuthenticator(Settings.model_validate({"auth": {"keys": list(keys)}}).auth, store)


async def test_a_key_has_an_id_whoever_configured_it() -> None:
    """The keyed hash that names the tenant of the same token where no keys are configured; read once, then kept."""
    store = Secret()
    configured, plain = authenticator(store, *KEYS), authenticator(Secret())
    for _ in range(3):
        caller = await configured.caller(request("gw-first-key"))
    own = await plain.caller(request("gw-first-key"))
    assert caller.key_id == own.key_id == own.tenant
    assert (caller.tenant, caller.project, set(caller.roles)) == ("a", "search", {"user", "admin"})
    assert caller.client_key is None
    assert store.asked == 1
    assert (await plain.caller(request(None))).key_id is None


async def test_nobody_waits_for_an_id_while_the_storage_is_away() -> None:
    store = Secret()
    store.is_away = True
    keyed = authenticator(store, *KEYS)
    callers = [await keyed.caller(request("gw-first-key")) for _ in range(5)]
    assert {(caller.tenant, caller.key_id) for caller in callers} == {("a", None)}
    assert store.asked == 1, "asked once in a while"
    with pytest.raises(StorageUnavailable):
        await keyed.holder("gw-first-key")


async def test_s8_a_tenant_may_have_any_name_that_a_key_can_give_it() -> None:
    """Only a request that nobody could be found for, while the storage is away, has no tenant."""
    store = Secret()
    keyed = authenticator(store, {"key": "gw-first-key", "tenant": "unknown"})
    check_known((await keyed.caller(request("gw-first-key"))).tenant)
    store.is_away = True
    nobody = (await authenticator(store).caller(request("sk-of-the-client"))).tenant
    with pytest.raises(StorageUnavailable):
        check_known(nobody)
    with pytest.raises(ValidationError):
        authenticator(store, {"key": "gw-first-key", "tenant": nobody})


async def test_without_the_role_user_a_key_only_reads() -> None:
    keyed = authenticator(Secret(), *KEYS)
    assert (await keyed.caller(request("gw-second-key", "GET"))).roles == {"viewer"}
    for method in ("POST", "DELETE", "PUT", "PATCH"):
        with pytest.raises(Forbidden):
            await keyed.caller(request("gw-second-key", method))


async def test_whose_a_key_is() -> None:
    keyed = authenticator(Secret(), *KEYS)
    holder = await keyed.holder("gw-first-key")
    assert (holder.name, holder.tenant, holder.project) == ("First", "a", "search")
    assert await keyed.holder_of(str(holder.key_id)) == holder
    assert len(await keyed.configured()) == 2
    for unknown in ("", "gw-first-key ", "gw-third-key"):
        with pytest.raises(Unauthorized):
            await keyed.holder(unknown)


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": "b"},
        {"project": "other"},
        {"roles": ["user"]},
        {"roles": []},
        {"roles": ["root"]},
        {"name": ""},
        {"name": "a\nb"},
        {"project": "a b"},
    ],
)
def test_what_a_key_says_of_itself_is_plain(other: dict[str, Any]) -> None:
    """Twice the same key with something else, or what it cannot be."""
    with pytest.raises(ValueError, match="keys"):
        authenticator(Secret(), KEYS[0], {**KEYS[0], **other})
    authenticator(Secret(), KEYS[0], {**KEYS[0], "roles": ["admin", "user", "user"]})


@pytest.mark.parametrize("token", ["gw-first-key", "gw-second-key", "gw-first-keX", "nothing like one", ""])
async def test_s8_2_every_configured_key_is_compared_whichever_it_is(
    monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    """Timing of look-ups: no early end, and digests of one length alone are compared, in constant time."""
    compared: list[tuple[int, int]] = []
    honest = hmac.compare_digest

    def counted(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return honest(one, other)

    auth = authenticator(Secret(), *KEYS)
    monkeypatch.setattr(hmac, "compare_digest", counted)
    try:
        await auth.caller(request(token, "GET"))
    except Unauthorized:
        assert token not in ("gw-first-key", "gw-second-key")
    assert compared == [(32, 32)] * len(KEYS)


@pytest.mark.parametrize("name", [b"authorization", b"x-api-key"])
async def test_s8_2_of_two_keys_none_counts(name: bytes) -> None:
    """Which of them something in front had looked at, nobody can tell."""
    auth = authenticator(Secret(), *KEYS)
    values = [b"Bearer gw-first-key", b"Bearer gw-second-key"] if name == b"authorization" else [b"gw-first-key", b"x"]
    same = {"method": "GET", "headers": [(name, values[0]), (b"accept", b"*/*"), (name, values[0])]}
    assert (await auth.caller(same)).tenant == "a"
    for pair in (values, values[::-1]):
        with pytest.raises(Unauthorized, match="two different"):
            await auth.caller({"method": "GET", "headers": [(name, each) for each in pair]})


@pytest.mark.parametrize("blank", ["\xa0", "\x85", "\x1c", "\x0c"])
async def test_s12_1_a_padded_key_is_none(blank: str) -> None:
    """Blanks of HTTP may stand around a key, nothing else that somewhere counts as white space."""
    auth = authenticator(Secret(), *KEYS)
    for token in (f"gw-first-key{blank}", f"{blank}gw-first-key"):
        scope = {"method": "GET", "headers": [(b"authorization", f"Bearer {token}".encode("latin-1"))]}
        with pytest.raises(Unauthorized):
            await auth.caller(scope)
    spaced = {"method": "GET", "headers": [(b"authorization", b"Bearer  gw-first-key\t ")]}
    assert (await auth.caller(spaced)).tenant == "a"
