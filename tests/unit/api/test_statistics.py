"""Who may see what a process keeps (guarantee §11.9)."""

from typing import Any

import pytest

from gateway.api.auth import KeyAuthenticator
from gateway.api.statistics import StatisticsEndpoint
from gateway.core.config.settings import Settings
from gateway.core.errors import StorageUnavailable, Unauthorized

KEYS = {"keys": [{"key": "sk-gateway-key", "tenant": "a"}]}


class Unreachable:
    """A storage that cannot be reached: who a key belongs to is known all the same."""

    async def secret(self) -> bytes:
        raise StorageUnavailable("not now")


def statistics(host: str, **auth: Any) -> StatisticsEndpoint:
    settings = Settings.model_validate({"server": {"host": host}, "auth": auth})
    nothing: Any = None
    store: Any = Unreachable()
    return StatisticsEndpoint(nothing, KeyAuthenticator(settings.auth, store), settings)


def request(key: str | None = None, *more: tuple[bytes, bytes]) -> dict[str, Any]:
    """From this machine."""
    own = [(b"authorization", f"Bearer {key}".encode())] if key else []
    return {"client": ("127.0.0.1", 1), "headers": [(b"host", b"localhost"), *own, *more]}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
async def test_beyond_loopback_nobody_without_keys(host: str) -> None:
    with pytest.raises(Unauthorized):
        await statistics(host, mode="open").admit(request())
    await statistics(host, **KEYS).admit(request("sk-gateway-key"))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_on_loopback_everybody_on_this_machine_without_keys(host: str) -> None:
    await statistics(host).admit(request())
    with pytest.raises(Unauthorized):
        await statistics(host).admit(request(None, (b"x-forwarded-for", b"192.0.2.9")))
    for key in (None, "sk-other"):
        with pytest.raises(Unauthorized):
            await statistics(host, **KEYS).admit(request(key))
