"""What is said of budgets and limits that are used up (guarantee §12.3, §12.4)."""

from datetime import UTC, datetime

import pytest

from gateway.billing.quota import gate
from gateway.core.config.setting_sections import RateLimits
from gateway.core.types.keys import LimitHolder, RateWindow

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
KEY = gate.HolderLimits(LimitHolder("key", "key_1"), limits=RateLimits(rpm=10))


def test_a_used_up_budget_names_itself_and_its_end() -> None:
    error = gate.budget_exceeded(gate.account_of(KEY.holder, "day", AT, hard=True), 2_500_000_000_000, AT, spent=True)
    assert "this key of 2.5 USD per day is used up until 2026-11-22T00:00:00Z" in error.message
    assert error.headers["retry-after"] == str(12 * 3600)
    assert error.headers["x-should-retry"] == "false"
    assert "key_1" not in error.message


def test_a_held_budget_is_to_be_tried_again_soon() -> None:
    error = gate.budget_exceeded(gate.account_of(KEY.holder, "month", AT, hard=True), 10**12, AT, spent=False)
    assert error.headers == {"retry-after": "5"}
    assert "1 USD per month has no room for this request while others are running" in error.message


def test_a_total_budget_has_no_end() -> None:
    account = gate.account_of(KEY.holder, "total", AT, hard=True)
    error = gate.budget_exceeded(account, 10**12, AT, spent=True)
    assert error.message == "The total budget of this key of 1 USD is used up and does not reset."
    for held in (gate.budget_exceeded(account, 10**12, AT, spent=False), gate.too_dear(account, 10**12, 1, 2, AT)):
        assert held.message.endswith("; it does not reset.")


@pytest.mark.parametrize(
    ("window", "limit", "asked", "seconds"),
    [
        (RateWindow(0, 0, 10, 90), 10, 1, 31),  # 30 s until it is the minute before
        (RateWindow(10, 30, 5, 90), 10, 1, 1),  # there is room
        (RateWindow(10, 60, 0, 120), 10, 1, 1),
        (RateWindow(20, 30, 5, 90), 10, 1, 15),  # 5 more of the 20 are to go
    ],
)
def test_it_says_when_there_is_room(window: RateWindow, limit: int, asked: int, seconds: int) -> None:
    assert abs(gate.room_in(window, limit, asked) - seconds) <= 1


def test_room_comes_when_it_is_said_to() -> None:
    """Against the window as it will be: not a second before, within rounding, and always then."""
    for previous in range(0, 30, 3):
        for current in range(11):
            for passed in range(0, 60, 7):
                window = RateWindow(previous, 60.0 - passed, current, 120.0 - passed)
                if gate.used(window) + 1 <= 10:
                    continue
                wait = gate.room_in(window, 10, 1)
                assert _later(window, wait) + 1 <= 10, (window, wait)
                assert wait <= 1 or _later(window, wait - 2) + 1 > 10 or wait <= 2, (window, wait)


def _later(window: RateWindow, seconds: float) -> int:
    left = window.previous_seconds - seconds
    if left > 0:
        return gate.used(RateWindow(window.previous, left, window.current, 0))
    return gate.used(RateWindow(window.current, max(0.0, left + 60), 0, 0))


def test_a_request_that_never_fits_need_not_be_tried_again() -> None:
    error = gate.rate_exceeded(KEY, "tokens", 1000, 1001, RateWindow(0, 0, 0, 0))
    assert (error.type, error.code, error.headers["x-should-retry"]) == ("tokens", "rate_limit_exceeded", "false")


def test_the_headers_are_openais() -> None:
    assert gate.rate_headers("requests", 10, RateWindow(4, 30, 3, 90)) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "5",
        "x-ratelimit-reset-requests": "1m30s",
    }
    assert gate.rate_headers("tokens", 10, RateWindow(0, 0, 0, 0))["x-ratelimit-reset-tokens"] == "0ms"
