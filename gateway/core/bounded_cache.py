"""The one bounded map of a process: by entries, by weight, by time; what was used least recently leaves first."""

import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Keeps values by key, none of which is None. What is put or got becomes the latest, what is peeked at does not.

    Where only `max_entries` is given it may be used from several threads, and costs what a dict costs; with weights,
    times or `on_evict` its owner holds a lock.
    `max_weight`: of all entries together, in the unit of `put`'s `weight`. What is heavier alone leaves, too. `now`:
    seconds that never go backwards (`Clock.monotonic`); without it nothing leaves by time. `ttl`: seconds that an entry
    is served after it was put, where `put` says nothing else. `on_evict`: called with each entry that leaves for want
    of room or time; not with those that its owner replaces, pops or clears."""

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
        """Of all entries, also of those whose time is over and that nobody has asked for since."""
        self.peek: Callable[[K], V | None] = self._entries.get if now is None else self._peek
        """Returns the value, None where there is none; the dict's own method where nothing leaves by time."""

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> list[V]:
        """Lists all values, the oldest first, also those whose time is over."""
        return list(self._entries.values())

    def get(self, key: K) -> V | None:
        """Returns the value and makes it the latest; None where there is none, or its time is over."""
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
        """Keeps a value in place of the one before, for `ttl` seconds; returns it, whether there is room for it or not.
        What is over the bounds leaves, the oldest first."""
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
        """Takes an entry out and returns its value, whatever its time; None where there is none."""
        self._unweigh(key)
        return self._entries.pop(key, None)

    def evict_oldest(self) -> None:
        """Takes the oldest entry out, as if there were no room for it."""
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
