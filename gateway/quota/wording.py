"""What a request is told that may not go on, and what is left of its key's limits (guarantee §12.3, §12.4)."""

import math
from datetime import datetime
from decimal import Decimal
from typing import Literal

from gateway.errors import BudgetExceeded, LimitsUnavailable, RateLimitExceeded
from gateway.models.allowed import Account, Allowed, Window

What = Literal["requests", "tokens"]
NAMES: dict[What, tuple[str, ...]] = {
    "requests": ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    "tokens": ("x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
}
MINUTE = 60.0
HELD_SECONDS = 5
"""When to try again where running requests hold what is left."""
SLOT_SECONDS = 1
NEVER_SECONDS = 86400
"""When to try again where a budget never begins anew: somebody may have raised it."""
NO_RETRY = {"x-should-retry": "false"}
"""The official clients' word for an error that they need not try again by themselves."""


def budget_exceeded(account: Account, budget: int, now: datetime, *, spent: bool) -> BudgetExceeded:
    """The 429 of a budget: used up (`spent`), or held by requests that run."""
    of, until = _named(account, budget), _until(account)
    if not spent:
        error = BudgetExceeded(f"{of} has no room for this request while others are running; it holds {until}.")
        error.headers = {"retry-after": str(HELD_SECONDS)}
        return error
    return _until_then(BudgetExceeded(f"{of} is used up {until}."), account, now)


def too_dear(account: Account, budget: int, left: int, cost: int, now: datetime) -> BudgetExceeded:
    """The 429 of a request that alone may cost more than is left."""
    of, most, rest = _named(account, budget), _usd(cost), _usd(left)
    said = f"{of} has {rest} USD left, and this request alone may cost {most} USD; it holds {_until(account)}."
    return _until_then(BudgetExceeded(said), account, now)


def _named(account: Account, budget: int) -> str:
    whose, sum_ = account.holder.title, f"{_usd(budget)} USD"
    if account.resets_at is None:
        return f"The total budget of {whose} of {sum_}"
    return f"The budget of {whose} of {sum_} per {account.period}"


def _until(account: Account) -> str:
    return f"until {account.resets_at:%Y-%m-%dT%H:%M:%SZ}" if account.resets_at is not None else "and does not reset"


def _until_then(error: BudgetExceeded, account: Account, now: datetime) -> BudgetExceeded:
    seconds = NEVER_SECONDS if account.resets_at is None else (account.resets_at - now).total_seconds()
    error.headers = {"retry-after": str(max(1, math.ceil(seconds))), **NO_RETRY}
    return error


def _usd(picodollars: int) -> str:
    return f"{Decimal(picodollars).scaleb(-12).normalize():f}"


def rate_exceeded(allowed: Allowed, what: What, limit: int, asked: int, window: Window) -> RateLimitExceeded:
    """The 429 of a limit within a minute."""
    short = "RPM" if what == "requests" else "TPM"
    said = f"Rate limit reached for {allowed.holder.title} on {what} per minute ({short}): Limit {limit}"
    if asked > limit:
        error = RateLimitExceeded(f"{said}, Requested {asked}. A request of that size is never within the limit.")
        error.headers = {"retry-after": str(int(MINUTE)), **NO_RETRY}
    else:
        seconds = room_in(window, limit, asked)
        error = RateLimitExceeded(f"{said}, Used {used(window)}, Requested {asked}. Try again in {seconds} seconds.")
        error.headers = {"retry-after": str(seconds)}
    error.type = what
    return error


def too_many_at_once(allowed: Allowed, limit: int) -> RateLimitExceeded:
    """The 429 of a limit of requests at once."""
    error = RateLimitExceeded(f"Too many requests of {allowed.holder.title} are running at once: Limit {limit}.")
    error.headers = {"retry-after": str(SLOT_SECONDS)}
    return error


def unavailable() -> LimitsUnavailable:
    """The 503 where nobody can tell what is left."""
    error = LimitsUnavailable("Budgets and limits cannot be checked now; try again.")
    error.headers = {"retry-after": str(HELD_SECONDS)}
    return error


def used(window: Window) -> int:
    """What is counted now: of the minute before the share that is not a minute ago."""
    return int(window.previous * window.previous_seconds / MINUTE) + window.current


def room_in(window: Window, limit: int, asked: int) -> int:
    """Seconds until so much more can be counted, if nothing else is; at least one."""
    room = limit - asked - window.current
    if room >= 0:
        lasts = MINUTE * (room + 1) / window.previous if window.previous > 0 else MINUTE
        return max(1, math.floor(window.previous_seconds - lasts) + 1)
    left = max(0.0, window.current_seconds - MINUTE)
    lasts = MINUTE * (limit - asked + 1) / window.current
    return max(1, math.floor(left + MINUTE - min(MINUTE, lasts)) + 1)


def rate_headers(what: What, limit: int, window: Window) -> dict[str, str]:
    """OpenAI's headers for one limit. Reset is when all of it is there again, if nothing more is asked."""
    seconds = window.current_seconds if window.current > 0 else window.previous_seconds if window.previous > 0 else 0.0
    names = NAMES[what]
    return {names[0]: str(limit), names[1]: str(max(0, limit - used(window))), names[2]: _duration(seconds)}


def _duration(seconds: float) -> str:
    """As OpenAI writes it: `1m30s`, `12s`, `850ms`."""
    if seconds < 1:
        return f"{math.ceil(1000 * seconds)}ms"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
