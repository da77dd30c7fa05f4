"""Which request an `Idempotency-Key` names."""

from typing import Any

import pytest

from gateway.api.auth import UNKNOWN
from gateway.api.completion_handler import identify, keyed
from gateway.api.server.asgi import LARGE_BODY
from gateway.core.errors import StorageUnavailable
from gateway.core.types.turn import RequestIdentity


class Secret:
    """A store that knows its secret, or cannot be reached."""

    def __init__(self, value: bytes | None = b"secret") -> None:
        self._value = value

    async def secret(self) -> bytes:
        if self._value is None:
            raise StorageUnavailable("down")
        return self._value


def scope(**headers: str) -> dict[str, Any]:
    return {"headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]}


async def identity(*bodies: bytes, **headers: str) -> RequestIdentity:
    return await identity_at(Secret(), "t", *bodies, **headers)


async def identity_at(secret: Secret, tenant: str, *bodies: bytes, **headers: str) -> RequestIdentity:
    key = keyed(scope(**headers))
    assert key is not None
    return await identify(key, tenant, b"".join(bodies), secret.secret)


def test_s3_most_requests_have_no_key() -> None:
    """An SDK's count of its tries is none."""
    assert keyed(scope(x_stainless_retry_count="1")) is None


async def test_s3_a_key_counts_whoever_sends_it() -> None:
    """The key is looked up alone; body and headers that change what is asked tell whether the request is the same."""
    first = await identity(idempotency_key="ö" * 255, user_agent="one", x_stainless_retry_count="0")
    again = await identity(idempotency_key="ö" * 255, user_agent="two", x_stainless_retry_count="1")
    other = await identity(b"[]", idempotency_key="ö" * 255)
    assert first == again
    assert (other.key, other.body != first.body) == (first.key, True)
    for name in ("x_context_session", "openai_project"):
        changed = await identity(**{"idempotency_key": "ö" * 255, name: "p"})
        assert (changed.key, changed.body != first.body) == (first.key, True)


async def test_s8_nothing_can_be_told_without_the_secret() -> None:
    """Neither keys nor bodies are kept, and no two storages know the same digests."""
    large = b"x" * LARGE_BODY
    one, two = (
        await identity(large, idempotency_key="k"),
        await identity_at(Secret(b"other"), "t", large, idempotency_key="k"),
    )
    assert one.key != two.key
    assert one.body != two.body
    assert one == await identity(large, idempotency_key="k")


@pytest.mark.parametrize(("secret", "tenant"), [(None, "t"), (b"secret", UNKNOWN)])
async def test_s3_without_storage(secret: bytes | None, tenant: str) -> None:
    """Whether the key was used cannot be known then."""
    with pytest.raises(StorageUnavailable):
        await identity_at(Secret(secret), tenant, idempotency_key="k")
