"""Counts of one process, in its memory: where there is one process, and neither Valkey nor PostgreSQL.

The library's own storage in memory looks through all of its keys at each count, and each step of it is a task: with
limits on, a chat was dearer by a fifth. What is counted here is what the library's sliding window counter counts.
"""

import time
from collections.abc import Sequence

from gateway.core import ports
from gateway.core.types.keys import RateWindow
from gateway.storage.database.sqlite import DatabaseTransactions

WINDOW_SECONDS = 60
MAX_KEYS = 100_000
"""Of which counts are kept; what is beyond that is looked through for what is over."""


class LocalCounts:
    """Windows of whole minutes, and who is under way. Nothing here waits."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int, int]] = {}
        self._running: dict[str, set[str]] = {}

    def take(self, key: str, limit: int, amount: int, now: float) -> tuple[bool, RateWindow]:
        """Counts `amount` if no more than `limit` are counted then, and tells what is counted. `now`: Unix seconds."""
        number = int(now // WINDOW_SECONDS)
        left = WINDOW_SECONDS - now % WINDOW_SECONDS
        known = self._counts.get(key)
        at, previous, current = known or (number, 0, 0)
        if at != number:
            previous, current = (current, 0) if at == number - 1 else (0, 0)
        fits = int(previous * left / WINDOW_SECONDS) + current + amount <= limit
        if fits:
            current += amount
            if known is None:
                self._note(key, (number, previous, current))
            else:
                self._counts[key] = number, previous, current
        return fits, RateWindow(previous, left, current, left + WINDOW_SECONDS)

    def correct(self, key: str, amount: int, since: float) -> None:
        """Counts so many more or fewer (`ports.RateStore`)."""
        number = int(time.time() // WINDOW_SECONDS)
        at, previous, current = self._counts.get(key, (number, 0, 0))
        if at != number:
            previous, current = (current, 0) if at == number - 1 else (0, 0)
        if amount > 0 or (since >= number * WINDOW_SECONDS and current + amount >= 0):
            self._note(key, (number, previous, current + amount))

    def enter(self, key: str, request_id: str, limit: int) -> bool:
        """Whether the request is one of at most `limit`. It need not be renewed: it ends with this process."""
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = set()
        if len(running) >= limit and request_id not in running:
            return False
        running.add(request_id)
        return True

    def leave(self, key: str, request_id: str) -> None:
        running = self._running.get(key)
        if running is not None:
            running.discard(request_id)
            if not running:
                del self._running[key]

    @property
    def running(self) -> int:
        """Requests that are under way, each as often as it counts."""
        return sum(map(len, self._running.values()))

    def _note(self, key: str, counts: tuple[int, int, int]) -> None:
        if len(self._counts) >= MAX_KEYS and key not in self._counts:
            self._counts = {each: found for each, found in self._counts.items() if found[0] >= counts[0] - 1}
        self._counts[key] = counts


class LocalRates:
    """The same for whoever waits (adapter of `ports.RateStore`)."""

    def __init__(self) -> None:
        self.local = LocalCounts()

    async def take(self, key: str, limit: int, amount: int) -> tuple[bool, RateWindow]:
        return self.local.take(key, limit, amount, time.time())

    async def correct(self, key: str, amount: int, since: float) -> None:
        self.local.correct(key, amount, since)

    async def enter(self, key: str, request_id: str, limit: int) -> bool:
        return self.local.enter(key, request_id, limit)

    async def renew(self, running: Sequence[tuple[str, str]]) -> None:
        """Nothing to do."""

    async def leave(self, key: str, request_id: str) -> None:
        self.local.leave(key, request_id)

    async def sweep(self) -> None:
        """Nothing to do: what is over is forgotten."""

    async def close(self) -> None:
        """Nothing to do."""


def open_rates(url: str | None, seconds: float, transactions: DatabaseTransactions) -> ports.RateStore:
    """In Valkey where there is one, else in PostgreSQL, else in memory: on SQLite there is one process.
    `seconds`: for which Valkey's answers are waited for."""
    if url is not None or transactions.remote:
        from gateway.storage.quota.library_rates import TableRates, ValkeyRates

        return ValkeyRates(url, seconds) if url is not None else TableRates(transactions)
    return LocalRates()
