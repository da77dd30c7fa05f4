"""What `gateway audit` takes as a point in time."""

from datetime import UTC, datetime, timedelta

import pytest

from gateway.core.clock import parse_when

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:30", datetime(2026, 1, 31, 12, 30, tzinfo=UTC)),
        ("2026-01-31 12:30:15.5", datetime(2026, 1, 31, 12, 30, 15, 500_000, tzinfo=UTC)),
        ("2026-01-31T12:30Z", datetime(2026, 1, 31, 12, 30, tzinfo=UTC)),
        ("2026-01-31T12:30+02:00", datetime(2026, 1, 31, 10, 30, tzinfo=UTC)),
        ("7d", NOW - timedelta(days=7)),
        ("24h", NOW - timedelta(hours=24)),
        ("90m", NOW - timedelta(minutes=90)),
        ("2w", NOW - timedelta(weeks=2)),
        ("0s", NOW),
        ("today", datetime(2026, 11, 22, tzinfo=UTC)),
        ("Yesterday", datetime(2026, 11, 21, tzinfo=UTC)),
    ],
)
def test_when(text: str, meant: datetime) -> None:
    """Where no zone is named it is UTC."""
    found = parse_when("--since", text, NOW)
    assert found == meant
    assert found is not None
    assert found.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "7", "-7d", "7y", "999999999d", "2026-13-01", "0001-01-01T00:00+10:00"]
)
def test_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"^--until: .* is no time"):
        parse_when("--until", text, NOW)
