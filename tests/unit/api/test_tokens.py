"""What is kept of what an identity provider publishes, and for how long (guarantee §12.17)."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.api.tokens import ASK_AGAIN_SECONDS, FRESH_SECONDS, MAX_KEPT_SECONDS, Issuer, Published, claim_of
from gateway.core.config.setting_sections import JwtSettings
from gateway.core.errors import IdentityProviderUnavailable
from tests.support.hand_clock import DayClock


class Publishing:
    """What a provider publishes, by its number; `is_away`: it cannot be asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_away = False

    async def fetch(self) -> dict[str, Any]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise IdentityProviderUnavailable("it is away")
        return {"number": self.asked}


@pytest.fixture
def clock() -> DayClock:
    return DayClock(datetime(2026, 11, 26, tzinfo=UTC))


@pytest.fixture
def provider() -> Publishing:
    return Publishing()


@pytest.fixture
def published(provider: Publishing, clock: DayClock) -> Published:
    return Published(provider.fetch, clock)


def later(clock: DayClock, seconds: float) -> None:
    clock.at += timedelta(seconds=seconds)


async def test_who_waits_at_once_asks_once(published: Published, provider: Publishing) -> None:
    found = await asyncio.gather(*(published.get() for _ in range(5)))
    assert [each["number"] for each, _ in found] == [1] * 5
    assert provider.asked == 1


async def test_it_is_asked_anew_in_time_and_nobody_waits(
    published: Published, provider: Publishing, clock: DayClock
) -> None:
    await published.get()
    later(clock, FRESH_SECONDS)
    assert (await published.get())[0] == {"number": 1}
    await asyncio.sleep(0.01)
    assert (await published.get())[0] == {"number": 2}


async def test_what_is_not_known_is_asked_for_once_within_seconds(
    published: Published, provider: Publishing, clock: DayClock
) -> None:
    """The first time at once, however lately it was asked; then not again for a while."""
    _, since = await published.get()
    later(clock, 0.1)
    found, since = await published.get(newer_than=since)
    assert found == {"number": 2}
    for _ in range(3):
        assert (await published.get(newer_than=since))[0] == {"number": 2}
    assert provider.asked == 2
    later(clock, ASK_AGAIN_SECONDS)
    assert (await published.get(newer_than=since))[0] == {"number": 3}


async def test_away_what_is_known_holds_for_hours_and_then_no_more(
    published: Published, provider: Publishing, clock: DayClock
) -> None:
    await published.get()
    provider.is_away = True
    later(clock, MAX_KEPT_SECONDS - 1)
    assert (await published.get())[0] == {"number": 1}
    await asyncio.sleep(0.01)
    later(clock, 1)
    with pytest.raises(IdentityProviderUnavailable, match="away"):
        await published.get()
    asked = provider.asked
    with pytest.raises(IdentityProviderUnavailable):
        await published.get()
    assert provider.asked == asked, "not once for each request"
    provider.is_away = False
    later(clock, ASK_AGAIN_SECONDS)
    assert await published.get()


@pytest.mark.parametrize(
    ("name", "found"),
    [("a", 1), ("b.c", 2), ("https://acme.example/roles", 3), ("b.d", None), ("a.b", None), ("x", None), ("", None)],
)
def test_a_claim_is_found_by_its_name_else_by_its_path(name: str, found: Any) -> None:
    assert claim_of({"a": 1, "b": {"c": 2}, "https://acme.example/roles": 3}, name) == found


@pytest.mark.parametrize(
    "told",
    [
        "https://login.example/a\r\nSet-Cookie: gateway_ui=x",
        "https://login.example/a b",
        "https://login.example/\x00",
        "https://login.example/\u4e2d",
        "https://[::1",
        "http://login.example/a",
        "javascript:alert(1)",
        ["https://login.example/a"],
        None,
    ],
    ids=ascii,
)
def test_what_is_no_address_is_told_before_anybody_is_sent_there(clock: DayClock, told: Any) -> None:
    """One with the end of a line in it broke the answer that was to lead a browser there."""
    settings = JwtSettings(issuer="https://login.example", audience="gateway-api", tenant="acme")
    issuer = Issuer(settings, None, clock)  # type: ignore[arg-type]
    with pytest.raises(IdentityProviderUnavailable, match="authorization_endpoint"):
        issuer.address(told, "authorization_endpoint")
    assert issuer.address("https://login.example/a?b=%C3%A9", "authorization_endpoint").endswith("%C3%A9")
