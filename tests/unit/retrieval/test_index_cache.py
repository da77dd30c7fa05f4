"""Indexes are kept for those who may, as long as they may, and forgotten with what they are of."""

import pytest

from gateway.core.types.artifacts import cache_group
from gateway.core.types.conversation import CarriedCache
from gateway.core.types.relevance import RelevanceQuery, SearchedSource
from gateway.retrieval import corpus
from gateway.retrieval.corpus import ContentIndex
from gateway.retrieval.index_cache import ContentIndexes, PassageFinder
from gateway.storage.cache.memory_cache import MemoryCache
from tests.support.hand_clock import HandClock

LONG = "\n\n".join(f"Part {n}: the keeper of lamp {n} is Name{n}, " + "as is well known. " * 20 for n in range(20))
SOURCES = [
    SearchedSource(LONG, "artifact", "lamps", True, 1),
    SearchedSource("Who keeps them?", "turn", "user", True, 2),
]
QUERY = RelevanceQuery("Who keeps lamp 7?")


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were indexed, in order."""
    done: list[str] = []
    real = corpus.chunks_of

    def noted(text: str) -> object:
        done.append(text)
        return real(text)

    monkeypatch.setattr(corpus, "chunks_of", noted)
    return done


def indexes(max_bytes: int = 2**20, clock: HandClock | None = None) -> ContentIndexes:
    return ContentIndexes(max_bytes, 60.0, clock or HandClock())  # of a clock only this is used


def asked(kept: ContentIndexes | None, tenant: str = "t") -> PassageFinder:
    finder = PassageFinder(kept, tenant)
    assert finder(QUERY, SOURCES) == PassageFinder(None, tenant)(QUERY, SOURCES)
    return finder


def times(indexed: list[str]) -> int:
    """How often the long text was indexed, but for the answers it was compared with."""
    count = indexed.count(LONG)
    indexed.clear()
    return count - 1


def test_a_second_request_finds_the_index_of_the_first(indexed: list[str]) -> None:
    kept = indexes()
    finder = asked(kept)
    finder.keep()
    assert (times(indexed), len(finder.digests)) == (1, 1)
    assert asked(kept).digests == finder.digests
    assert times(indexed) == 0


def test_within_a_request_nothing_is_indexed_twice(indexed: list[str]) -> None:
    finder = PassageFinder(None, "t")
    assert finder(QUERY, SOURCES) == finder(QUERY, SOURCES)
    assert sorted(indexed) == sorted({source.content for source in SOURCES})
    assert finder.digests == ()


def test_what_is_not_kept_is_indexed_anew(indexed: list[str]) -> None:
    kept = indexes()
    asked(kept)
    assert times(indexed) == 1
    asked(kept).keep()
    assert times(indexed) == 1
    asked(kept, "other")
    assert times(indexed) == 1, "another tenant's is as none"


async def test_forgotten_with_the_content(indexed: list[str]) -> None:
    kept = indexes()
    finder = asked(kept)
    finder.keep()
    group = cache_group("t", finder.digests[0])
    late = asked(kept)
    cache = MemoryCache(2**20, HandClock(), kept.evict)
    await cache.set("a", b"1", 9.0, group=group)
    await cache.evict(group)
    assert await cache.get_many(["a"]) == [None]
    times(indexed)
    asked(kept)
    assert times(indexed) == 1
    late.keep()
    asked(kept)
    assert times(indexed) == 1


def test_a_request_that_runs_while_a_content_is_forgotten_does_not_bring_it_back(indexed: list[str]) -> None:
    kept = indexes()
    running = asked(kept)
    kept.evict(cache_group("t", running.digests[0]))
    running.keep()
    times(indexed)
    asked(kept)
    assert times(indexed) == 1
    asked(kept).keep()
    times(indexed)
    asked(kept)
    assert times(indexed) == 0, "what is sent again later is kept again"


def test_no_more_bytes_and_no_longer_than_allowed(indexed: list[str]) -> None:
    clock = HandClock()
    small, kept = indexes(100), indexes(clock=clock)
    asked(small).keep()
    asked(kept).keep()
    clock.seconds = 61.0
    times(indexed)
    asked(small)
    asked(kept)
    assert indexed.count(LONG) == 4


def test_short_texts_that_can_be_recalled_are_indexed_once(indexed: list[str]) -> None:
    """From request to request, with the same passages; what a request has no use for is not kept for the next."""
    said = [SearchedSource(f"The lamp {n} is lit by Name{n}.", "turn", "user", True, n) for n in range(20)]
    notes: CarriedCache[str, ContentIndex] = CarriedCache()
    for first in range(3):
        sources = said[first : first + 15]
        found = PassageFinder(None, "t", notes)(QUERY, sources)
        done, indexed[:] = list(indexed), []
        assert done == [each.content for each in (sources if first == 0 else sources[-1:])]
        assert found == PassageFinder(None, "t")(QUERY, sources)
        indexed.clear()
        notes = notes.following()
    assert notes.get(said[0].content) is None
    assert notes.get(said[5].content) is not None
