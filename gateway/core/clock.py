"""Time, passed in wherever it is needed so that tests own it."""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

MISREAD = timedelta(seconds=0.5)
"""How far a time that was read over a network may be off."""
AGO = re.compile(r"(\d{1,9})([smhdw])")
DAYS_AGO = {"today": 0, "yesterday": 1}
AGO_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class SystemClock:
    """The machine's clock (adapter of `ports.Clock`)."""

    now = staticmethod(partial(datetime.now, UTC))
    """Wall-clock time, in UTC."""
    monotonic = staticmethod(time.monotonic)
    """Monotonic seconds, for durations. Both are the plain functions, since a request calls them ten times."""


class AgreedClock:
    """A clock on which processes agree that share a database: leases and heartbeats of one are judged by the others,
    and the clocks of their machines may differ, or jump (adapter of `ports.Clock`)."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.now: Callable[[], datetime] = SystemClock.now
        """This machine's time until another is agreed on; from then on a jump of this machine's changes nothing."""
        self._began: datetime | None = None

    def agree(self, now: datetime, at: float) -> None:
        """Goes on from the time that it was at the monotonic time `at`. A difference that reading it explains changes
        nothing, so that time does not go back each time."""
        began = now - timedelta(seconds=at)
        if self._began is None or abs(began - self._began) > MISREAD:
            self._began = began
            self.now = partial(_since, began)


def _since(began: datetime) -> datetime:
    return began + timedelta(seconds=time.monotonic())


def parse_when(option: str, text: str | None, now: datetime) -> datetime | None:
    """Parses a point in time, in UTC: `2026-01-31`, `2026-01-31T12:00+01:00`, a span before `now`: `24h`, or the
    beginning of a day: `today`, `yesterday`. None for None.
    Raises ValueError: the text is no time; the message names the option."""
    if text is None:
        return None
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    days_ago = DAYS_AGO.get(text.strip().lower())
    if days_ago is not None:
        return midnight - timedelta(days=days_ago)
    try:
        ago = AGO.fullmatch(text.strip())
        if ago:
            return now - timedelta(**{AGO_UNITS[ago.group(2)]: int(ago.group(1))})
        when = datetime.fromisoformat(text.strip())
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        example = "2026-01-31, 2026-01-31T12:00Z, yesterday, 24h or 7d"
        raise ValueError(f"{option}: {text!r} is no time; say {example}") from None


def parse_period(since: str | None, until: str | None, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Parses the options `--since` and `--until` of a command, each by `parse_when`.
    Raises ValueError: one of them is no time, or `--since` is not before `--until`."""
    begins, ends = parse_when("--since", since, now), parse_when("--until", until, now)
    if begins is not None and ends is not None and begins >= ends:
        raise ValueError("--since must be before --until")
    return begins, ends


def fewest_days(*days: float | None) -> float | None:
    """Returns the smallest number of days given; None if none is."""
    return min((each for each in days if each is not None), default=None)


def days_before(now: datetime, days: float) -> datetime:
    """Returns the time `days` before `now`; `datetime.min` (UTC) if that would be earlier."""
    try:
        return now - timedelta(days=days)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
