"""What a request says of being a repeat."""

from typing import Any, cast

import pytest

from gateway.errors import InvalidRequest, StorageUnavailable
from gateway.http.auth import UNKNOWN
from gateway.http.chat.repeats import LARGE_BODY, identify, repeatable
from gateway.models.turn import RequestIdentity
from gateway.storage.store import ConversationStore


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


async def identity(*bodies: bytes, **headers: str) -> RequestIdentity | None:
    return await identity_at(Secret(), "t", *bodies, **headers)


async def identity_at(secret: Secret, tenant: str, *bodies: bytes, **headers: str) -> RequestIdentity | None:
    said = repeatable(scope(**headers))
    body = b"".join(bodies)
    return None if said is None else await identify(said, tenant, body, cast(ConversationStore, secret))


@pytest.mark.parametrize("headers", [{}, {"user_agent": "x"}, {"x_stainless_retry_count": "many"}])
def test_s3_most_requests_say_nothing(headers: dict[str, str]) -> None:
    """Then there is nothing to be done."""
    assert repeatable(scope(**headers)) is None


@pytest.mark.parametrize("key", ["", "x" * 256, "\x00", "a\x7f"])
def test_s7_a_key_that_is_none(key: str) -> None:
    """A 400 that names it."""
    with pytest.raises(InvalidRequest) as refused:
        repeatable(scope(idempotency_key=key))
    assert refused.value.param == "Idempotency-Key"


async def test_s3_a_key_counts_whoever_sends_it() -> None:
    """The key is found by itself; what is asked decides whether it is the same."""
    first = await identity(idempotency_key="ö" * 255, user_agent="one", x_stainless_retry_count="0")
    again = await identity(idempotency_key="ö" * 255, user_agent="two", x_stainless_retry_count="1")
    other = await identity(b"[]", idempotency_key="ö" * 255)
    assert first == again
    assert first is not None
    assert other is not None
    assert first.named
    assert (other.key, other.body != first.body) == (first.key, True)


async def test_s3_a_retry_is_its_clients() -> None:
    """The count alone may differ, and the proxies on the way."""
    sent = {"user_agent": "sdk", "x_stainless_lang": "python", "x_forwarded_for": "192.0.2.1, 10.0.0.1"}
    first = await identity(**sent, x_stainless_retry_count="0")
    retry = await identity(**{**sent, "x_forwarded_for": "192.0.2.1, 10.0.0.2"}, x_stainless_retry_count="1")
    assert first is not None
    assert retry is not None
    assert (first.repeated, retry.repeated) == (False, True)
    assert retry.place == first.place
    for name, value in {**dict.fromkeys(sent, "other"), "x_context_session": "s", "openai_project": "p"}.items():
        other = await identity(**{**sent, name: value}, x_stainless_retry_count="1")
        assert other is not None
        assert other.key != first.key, name
    assert (await identity(b"[]", **sent, x_stainless_retry_count="1")) != retry


async def test_s8_nothing_can_be_told_without_the_secret() -> None:
    """Neither keys nor bodies are kept, and no two storages know the same digests."""
    large = b"x" * LARGE_BODY
    one, two = (
        await identity(large, idempotency_key="k"),
        await identity_at(Secret(b"other"), "t", large, idempotency_key="k"),
    )
    assert one is not None
    assert two is not None
    assert one.key != two.key
    assert one.body != two.body
    assert one == await identity(large, idempotency_key="k")


@pytest.mark.parametrize(("secret", "tenant"), [(None, "t"), (b"secret", UNKNOWN)])
async def test_s3_without_storage(secret: bytes | None, tenant: str) -> None:
    """A key is a promise that cannot be kept then; a retry simply runs."""
    with pytest.raises(StorageUnavailable):
        await identity_at(Secret(secret), tenant, idempotency_key="k")
    assert await identity_at(Secret(secret), tenant, x_stainless_retry_count="1") is None
