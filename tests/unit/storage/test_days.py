"""Periods of reports, as whole days and what is beside them (guarantee §13.1)."""

from datetime import UTC, date, datetime, timedelta

from gateway.storage.reports.costs import days_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)


def test_s13_1_a_period_is_whole_days_and_what_is_beside_them() -> None:
    midnight = datetime(2026, 3, 2, tzinfo=UTC)
    assert days_of(NOON, None) == (date(2026, 3, 2), None, [(NOON, midnight)])
    assert days_of(midnight, midnight + timedelta(days=2)) == (date(2026, 3, 2), date(2026, 3, 4), [])


def test_s13_1_a_period_may_begin_in_the_last_day_of_the_calendar() -> None:
    """`gateway costs --since 9999-12-31T23:59Z` finds nothing, and ended with a traceback."""
    assert days_of(LAST, None) == (date.max, None, [(LAST, datetime(9999, 12, 31, tzinfo=UTC))])
