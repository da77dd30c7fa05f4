"""The one bounded map of a process: by entries, weight and time; the least recently used entry is evicted first."""

import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Stores values by key, none of them None. `put` and `get` make an entry the latest; `peek` does not.

    With `max_entries` alone it is thread-safe and costs what a dict costs; with weights, times or `on_evict` its owner
    holds a lock.
    `max_weight`: of all entries together, in the unit of `put`'s `weight`; an entry that exceeds it alone is evicted,
    too. `now`: monotonic seconds (`Clock.monotonic`); without it entries do not expire. `ttl`: seconds until an entry
    expires, unless `put` names others. `on_evict`: called with each entry that is evicted or expires, not with those
    that the owner replaces, pops or clears."""

    def __init__(
        self,
        max_entries: int = sys.maxsize,
        *,
        max_weight: int = sys.maxsize,
        now: Callable[[], float] | None = None,
        ttl: float = 0.0,
        on_evict: Callable[[K, V], None] | None = None,
    ) -> None:
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._weights: dict[K, int] = {}
        self._ends: dict[K, float] = {}
        self._max_entries, self._max_weight = max_entries, max_weight
        self._now, self._ttl, self._on_evict = now, ttl, on_evict
        self.weight = 0
        """Weight of all entries, including expired ones that have not been evicted yet."""
        self.peek: Callable[[K], V | None] = self._entries.get if now is None else self._peek
        """Returns the value, or None if there is none; the dict's own method if entries do not expire."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        """Whether there is an entry, even if it has expired."""
        return key in self._entries

    def values(self) -> list[V]:
        """Returns all values, the oldest first, including expired ones."""
        return list(self._entries.values())

    def get(self, key: K) -> V | None:
        """Returns the value and makes it the latest; None if there is none or it has expired."""
        value = self._entries.get(key)
        if value is None:
            return None
        if self._now is not None and self._ends[key] <= self._now():
            self._evict(key)
            return None
        try:
            self._entries.move_to_end(key)
        except KeyError:  # another thread has taken it out meanwhile
            pass
        return value

    def put(self, key: K, value: V, *, weight: int = 0, ttl: float | None = None) -> V:
        """Stores a value for `ttl` seconds, replacing any earlier one, and returns it, even if it does not fit.
        Entries beyond the bounds are evicted, the oldest first."""
        entries = self._entries
        if entries.pop(key, None) is not None:
            self._unweigh(key)
        entries[key] = value
        if weight:
            self._weights[key] = weight
            self.weight += weight
        if self._now is not None:
            self._ends[key] = self._now() + (self._ttl if ttl is None else ttl)
        while len(entries) > self._max_entries or (self.weight > self._max_weight and entries):
            self.evict_oldest()
        return value

    def pop(self, key: K) -> V | None:
        """Removes an entry and returns its value, even if it has expired; None if there is none."""
        self._unweigh(key)
        return self._entries.pop(key, None)

    def evict_oldest(self) -> None:
        """Evicts the oldest entry, as if the cache were full."""
        try:
            key, value = self._entries.popitem(last=False)
        except KeyError:  # another thread was faster
            return
        self._unweigh(key)
        if self._on_evict is not None:
            self._on_evict(key, value)

    def expire(self) -> None:
        now = self._now() if self._now is not None else 0.0
        for key in [key for key, end in self._ends.items() if end <= now]:
            self._evict(key)

    def clear(self) -> None:
        self._entries.clear()
        self._weights.clear()
        self._ends.clear()
        self.weight = 0

    def _peek(self, key: K) -> V | None:
        value = self._entries.get(key)
        return None if value is None or self._ends[key] <= self._now() else value  # type: ignore[misc]

    def _unweigh(self, key: K) -> None:
        if self._weights:
            self.weight -= self._weights.pop(key, 0)
        if self._ends:
            self._ends.pop(key, None)

    def _evict(self, key: K) -> None:
        value = self.pop(key)
        if self._on_evict is not None and value is not None:
            self._on_evict(key, value)
