"""Whether another try is worthwhile (guarantee §12.6)."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core import errors
from gateway.core.config.setting_sections import RoutingSettings
from gateway.upstream.routing.health import FailedTry, RetryBudget, decide, helps

NOW = datetime(2026, 11, 24, tzinfo=UTC)
SETTINGS = RoutingSettings()
TWICE = RoutingSettings(retries=2)
DOWN = errors.UpstreamUnreachable("down")


def refused(status: int, code: str | None = None, **headers: str) -> errors.UpstreamRefused:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return errors.UpstreamRefused(status, {"error": {"message": "no", "code": code}}, named)


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (DOWN, "anywhere"),
        (errors.UpstreamTimeout("late"), "anywhere"),
        (errors.UpstreamInvalidResponse("broken"), "anywhere"),
        (errors.UpstreamInterrupted("cut"), "anywhere"),
        (refused(500), "anywhere"),
        (refused(529), "anywhere"),
        (refused(524), "anywhere"),  # Cloudflare, before the upstream
        (refused(402), "elsewhere"),
        (refused(429), "anywhere"),
        (refused(429, "insufficient_quota"), "elsewhere"),
        (errors.UpstreamAuth("key"), "elsewhere"),
        (refused(400), "nowhere"),
        (refused(401), "nowhere"),  # the client's own key
        (refused(404), "nowhere"),
        (refused(413), "nowhere"),
        (refused(422), "nowhere"),
        (refused(501), "nowhere"),
        (errors.UpstreamOverflow({}, {}), "nowhere"),
        (errors.ContextLengthExceeded("long"), "nowhere"),
        (errors.InvalidRequest("bad"), "nowhere"),
        (errors.StorageUnavailable("gone"), "nowhere"),
    ],
)
def test_where_another_try_may_end_otherwise(error: errors.GatewayError, where: str) -> None:
    assert helps(error, SETTINGS.retry_statuses) == where


ELSEWHERE = FailedTry(DOWN, tries=1, here=0)
AGAIN = FailedTry(DOWN, tries=1, here=1)


@pytest.mark.parametrize(
    ("failed", "settings", "again", "wait", "reason"),
    [
        # by default: each other deployment once, and at once
        (ELSEWHERE, SETTINGS, True, 0.0, "elsewhere"),
        (AGAIN, SETTINGS, False, 0.0, "tries"),
        (replace(ELSEWHERE, tries=7), SETTINGS, True, 0.0, "elsewhere"),
        # so many times, wherever
        (AGAIN, TWICE, True, 0.25, "again"),
        (replace(AGAIN, tries=2, here=2), TWICE, True, 0.5, "again"),
        (replace(AGAIN, tries=3, here=3), TWICE, False, 0.0, "tries"),
        (replace(ELSEWHERE, tries=3), TWICE, False, 0.0, "tries"),
        (ELSEWHERE, RoutingSettings(retries=0), False, 0.0, "tries"),
        # never once the answer has begun, nor for what the request is to blame for
        (replace(ELSEWHERE, begun=True), SETTINGS, False, 0.0, "begun"),
        (replace(ELSEWHERE, error=refused(400)), TWICE, False, 0.0, "final"),
        # a key that was refused is refused again
        (replace(AGAIN, error=errors.UpstreamAuth("key")), TWICE, False, 0.0, "tries"),
        (replace(ELSEWHERE, error=errors.UpstreamAuth("key")), TWICE, True, 0.0, "elsewhere"),
        # `Retry-After`, as far as the longest wait goes, and only where it was said
        (replace(AGAIN, error=refused(429, retry_after="3")), TWICE, True, 3.0, "again"),
        (replace(AGAIN, error=refused(429, retry_after_ms="100")), TWICE, True, 0.25, "again"),
        (replace(AGAIN, error=refused(503, retry_after="Tue, 24 Nov 2026 00:00:05 GMT")), TWICE, True, 5.0, "again"),
        (replace(AGAIN, error=refused(429, retry_after="9")), TWICE, False, 0.0, "retry_after"),
        (replace(ELSEWHERE, error=refused(429, retry_after="9")), TWICE, True, 0.0, "elsewhere"),
        # as long as its client waits
        (replace(AGAIN, left=0.2), TWICE, False, 0.0, "deadline"),
        (replace(AGAIN, left=0.3), TWICE, True, 0.25, "again"),
        (replace(ELSEWHERE, left=-1.0), SETTINGS, False, 0.0, "deadline"),
        # within the budget, where somebody is asked that has failed
        (replace(AGAIN, has_room=False), TWICE, False, 0.0, "budget"),
        (replace(ELSEWHERE, has_room=False, rests=True), SETTINGS, False, 0.0, "budget"),
        (replace(ELSEWHERE, has_room=False), SETTINGS, True, 0.0, "elsewhere"),
    ],
)
def test_s12_6_the_next_try(
    failed: FailedTry, settings: RoutingSettings, again: bool, wait: float, reason: str
) -> None:
    found = decide(failed, settings, lambda: 0.5, NOW)
    assert (found.again, found.wait, found.reason) == (again, wait, reason)


@given(
    retries=st.integers(0, 10),
    random=st.floats(0, 1),
    asked=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    begins_at=st.integers(1, 30),
)
def test_s12_6_never_more_tries_than_allowed_and_none_behind_a_byte(
    retries: int, random: float, asked: list[int], begins_at: int
) -> None:
    settings = RoutingSettings(retries=retries)
    made, seen = 1, [asked[0]]
    for place in asked[1:]:
        begun = made >= begins_at
        failed = FailedTry(DOWN, made, seen.count(place), begun=begun)
        found = decide(failed, settings, lambda: random, NOW)
        if not found.again:
            assert begun or made == retries + 1
            break
        assert not begun
        assert 0 <= found.wait <= settings.backoff_max
        made, seen = made + 1, [*seen, place]
    assert made <= retries + 1


def test_s12_6_waits_double_up_to_the_longest_and_have_full_jitter() -> None:
    settings = RoutingSettings(retries=10, backoff=1.0, backoff_max=4.0)
    waits = [decide(FailedTry(DOWN, n, n), settings, lambda: 1.0, NOW).wait for n in range(1, 6)]
    assert waits == [1.0, 2.0, 4.0, 4.0, 4.0]
    assert decide(FailedTry(DOWN, 3, 3), settings, lambda: 0.0, NOW).wait == 0.0


@pytest.mark.parametrize(("under_way", "most"), [(0, 3), (10, 3), (20, 4), (100, 20)])
def test_s12_6_the_budget_is_a_share_of_the_requests_under_way(under_way: int, most: int) -> None:
    budget = RetryBudget(0.2, 3)
    held: list[Any] = []
    while budget.has_room(under_way):
        held.append(budget.trying())
        held[-1].__enter__()
    assert len(held) == most
    held.pop().__exit__(None, None, None)
    assert budget.has_room(under_way)
