"""Counts in the memory of one process, where there is only one and neither Valkey nor PostgreSQL.

The library's own storage in memory scans all of its keys at each count, and each of its steps is a task: with limits
on, a chat cost a fifth more. The counts here are those of the library's sliding window counter.
"""

import time
from collections.abc import Sequence

from gateway.core import ports
from gateway.core.types.keys import RateWindow
from gateway.storage.database.sqlite import DatabaseTransactions

WINDOW_SECONDS = 60
MAX_KEYS = 100_000
"""Keys whose counts are stored; beyond that, expired ones are removed."""


class LocalRates:
    """Windows of whole minutes, and requests under way (`ports.RateStore`). Nothing here waits."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int, int]] = {}
        self._running: dict[str, set[str]] = {}

    async def take(self, key: str, limit: int, amount: int) -> tuple[bool, RateWindow]:
        """Counts `amount` if that stays within `limit`. Returns whether it did, and the counts."""
        now = time.time()
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
        """Adds `amount` to the count; below 0 it subtracts (`ports.RateStore`)."""
        number = int(time.time() // WINDOW_SECONDS)
        at, previous, current = self._counts.get(key, (number, 0, 0))
        if at != number:
            previous, current = (current, 0) if at == number - 1 else (0, 0)
        if amount > 0 or (since >= number * WINDOW_SECONDS and current + amount >= 0):
            self._note(key, (number, previous, current + amount))

    async def enter(self, key: str, request_id: str, limit: int) -> bool:
        """Admits a request if fewer than `limit` others run; returns whether."""
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
        """Requests under way, each as often as it counts."""
        return sum(map(len, self._running.values()))

    def _note(self, key: str, counts: tuple[int, int, int]) -> None:
        if len(self._counts) >= MAX_KEYS and key not in self._counts:
            self._counts = {each: found for each, found in self._counts.items() if found[0] >= counts[0] - 1}
        self._counts[key] = counts

    async def renew(self, running: Sequence[tuple[str, str]]) -> None:
        """Does nothing: requests end with the process."""

    async def sweep(self) -> None:
        """Does nothing: what is over is removed already."""

    async def close(self) -> None:
        """Does nothing: there is nothing to close."""


def open_rates(
    url: str | None, seconds: float, transactions: DatabaseTransactions, clock: ports.Clock
) -> ports.RateStore:
    """Opens counts in Valkey if `url` is set, else in PostgreSQL, else in memory: on SQLite there is one process.
    `seconds`: how long Valkey's answers are awaited."""
    if url is not None or transactions.remote:
        from gateway.storage.quota.library_rates import TableRates, ValkeyRates

        return ValkeyRates(url, seconds) if url is not None else TableRates(transactions, clock)
    return LocalRates()
