"""The bounded map of a process, against a plain list of its entries."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.bounded_cache import BoundedCache

KEYS = st.integers(0, 6)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(0, 5), st.sampled_from([None, 1.0, 7.0])),
        st.tuples(st.sampled_from(["get", "peek", "pop"]), KEYS, st.just(0), st.none()),
        st.tuples(st.sampled_from(["evict_oldest", "expire", "clear", "wait"]), st.just(0), st.just(0), st.none()),
    ),
    max_size=60,
)


@dataclass
class Entry:
    """One entry of the model."""

    key: int
    value: int
    weight: int
    end: float


class PlainModel:
    """The rules of the cache, spelled out over a list, the oldest first."""

    def __init__(self, max_entries: int, max_weight: int, ttl: float, now: Callable[[], float]) -> None:
        self.max_entries, self.max_weight, self.ttl, self.now = max_entries, max_weight, ttl, now
        self.entries: list[Entry] = []
        self.evicted: list[tuple[int, int]] = []

    def find(self, key: int) -> Entry | None:
        """The entry of a key, whatever its time."""
        return next((each for each in self.entries if each.key == key), None)

    def put(self, key: int, value: int, weight: int, ttl: float | None) -> None:
        """One more; the oldest leave while there is too much."""
        self.pop(key)
        self.entries.append(Entry(key, value, weight, self.now() + (self.ttl if ttl is None else ttl)))
        while len(self.entries) > self.max_entries or sum(each.weight for each in self.entries) > self.max_weight:
            self.evict(self.entries[0])

    def get(self, key: int) -> int | None:
        """The value, which is the latest from now on."""
        found = self.find(key)
        if found is None:
            return None
        if found.end <= self.now():
            self.evict(found)
            return None
        self.entries.remove(found)
        self.entries.append(found)
        return found.value

    def peek(self, key: int) -> int | None:
        """The value, where it was."""
        found = self.find(key)
        return found.value if found is not None and found.end > self.now() else None

    def pop(self, key: int) -> int | None:
        """The value, which is gone."""
        found = self.find(key)
        if found is not None:
            self.entries.remove(found)
        return found.value if found is not None else None

    def evict(self, entry: Entry) -> None:
        """It leaves, and its owner is told."""
        self.entries.remove(entry)
        self.evicted.append((entry.key, entry.value))


@given(actions=ACTIONS, max_entries=st.integers(1, 5), max_weight=st.integers(1, 9), timed=st.booleans())
def test_a_cache_does_what_its_rules_say(
    actions: list[tuple[str, int, int, float | None]], max_entries: int, max_weight: int, timed: bool
) -> None:
    time = [100.0]
    evicted: list[tuple[int, int]] = []
    cache: BoundedCache[int, int] = BoundedCache(
        max_entries,
        max_weight=max_weight,
        now=(lambda: time[0]) if timed else None,
        ttl=3.0,
        on_evict=lambda key, value: evicted.append((key, value)),
    )
    model = PlainModel(max_entries, max_weight, 3.0, lambda: time[0] if timed else 0.0)
    for number, (action, key, weight, ttl) in enumerate(actions):
        if action == "put":
            assert cache.put(key, number, weight=weight, ttl=ttl) == number
            model.put(key, number, weight, ttl)
        elif action == "wait":
            time[0] += 1.0
        elif action == "evict_oldest":
            cache.evict_oldest()
            if model.entries:
                model.evict(model.entries[0])
        elif action == "expire":
            cache.expire()
            if timed:  # those of one moment leave in any order
                at = len(model.evicted)
                for each in [each for each in model.entries if each.end <= time[0]]:
                    model.evict(each)
                assert sorted(evicted[at:]) == sorted(model.evicted[at:])
                model.evicted[at:] = evicted[at:]
        elif action == "clear":
            cache.clear()
            model.entries.clear()
        else:
            assert getattr(cache, action)(key) == getattr(model, action)(key)
        assert cache.values() == [each.value for each in model.entries]
        assert cache.weight == sum(each.weight for each in model.entries)
        assert len(cache) == len(model.entries) <= max_entries
        assert cache.weight <= max_weight
        assert evicted == model.evicted


def test_what_is_served_is_never_older_than_its_time() -> None:
    time = [0.0]
    cache: BoundedCache[str, str] = BoundedCache(now=lambda: time[0], ttl=10.0)
    cache.put("a", "first")
    time[0] = 9.0
    assert cache.get("a") == "first", "which is no more time for it"
    time[0] = 10.0
    assert (cache.peek("a"), len(cache)) == (None, 1)
    assert (cache.get("a"), len(cache)) == (None, 0)


@pytest.mark.parametrize("touch", ["get", "peek"])
def test_what_was_got_stays_and_what_was_peeked_at_leaves(touch: str) -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert getattr(cache, touch)("a") == 1
    cache.put("c", 3)
    assert cache.values() == ([1, 3] if touch == "get" else [2, 3])


def test_threads_may_share_one_that_is_bounded_by_entries() -> None:
    cache: BoundedCache[int, int] = BoundedCache(8)

    def use(first: int) -> None:
        for number in range(20_000):
            key = (first + number) % 24
            found = cache.get(key)
            assert found is None or found == key
            assert cache.put(key, key) == key

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(use, 5 * first) for first in range(4)]:
            done.result()
    assert len(cache) <= 8
