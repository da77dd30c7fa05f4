"""Time, passed in wherever it is needed so that tests own it."""

import time
from datetime import UTC, datetime


class SystemClock:
    """The machine's clock (adapter of `ports.Clock`)."""

    def now(self) -> datetime:
        """Wall-clock time, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go backwards, for durations."""
        return time.monotonic()
