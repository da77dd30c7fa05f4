"""Time that a test moves (adapter of `ports.Clock`)."""

from datetime import UTC, datetime


class HandClock:
    """`seconds` is what `monotonic` says; the day stands still."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def now(self) -> datetime:
        """Some day."""
        return datetime(2026, 11, 21, tzinfo=UTC)

    def monotonic(self) -> float:
        """Whatever the test says."""
        return self.seconds


class DayClock:
    """`at` is what it says, as a time and as seconds."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        """Whatever the test says."""
        return self.at

    def monotonic(self) -> float:
        """The same in seconds."""
        return self.at.timestamp()
