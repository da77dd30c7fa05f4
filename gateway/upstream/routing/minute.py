"""How much there was of something within the last minute, in three numbers."""

MINUTE = 60.0
"""Seconds."""


class Minute:
    """A sliding window of a minute, near enough: what came in the minute of the clock before counts by the part of it
    that is still within. Nothing is kept of single events, however many there are."""

    __slots__ = ("_before", "_now", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._now = 0.0
        self._before = 0.0

    def add(self, amount: float, at: float) -> None:
        """So much, now. Times never go backwards."""
        if at - self._since >= MINUTE:  # looked at here, too: a call for each request is dearer
            self._go_on(at)
        self._now += amount

    def within(self, at: float) -> float:
        """How much there was within the minute before."""
        self._go_on(at)
        return self._now + self._before * (1 - (at - self._since) / MINUTE)

    def _go_on(self, at: float) -> None:
        passed = at - self._since
        if passed < MINUTE:
            return
        self._before = self._now if passed < 2 * MINUTE else 0.0
        self._now = 0.0
        self._since = at - passed % MINUTE
