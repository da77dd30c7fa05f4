"""What is done for the next question: only for conversations that are still there, and never in a request's way."""

import asyncio

from gateway.core.types.artifacts import cache_group
from gateway.core.types.chat import RequestCaller
from gateway.retrieval.embeddings.search import BackgroundEmbedding, PendingVectors, key_of
from gateway.storage.cache.memory_cache import MemoryCache
from tests.support.hand_clock import HandClock
from tests.unit.retrieval.embeddings.fakes import Scripted, texts

CALLER = RequestCaller("t")


async def still() -> bool:
    return True


async def gone() -> bool:
    return False


class Kept:
    """An `BackgroundEmbedding`, with its cache and its embedder."""

    def __init__(self) -> None:
        self.embedder = Scripted(HandClock())
        self.cache = MemoryCache(10_000, self.embedder.clock)
        self.work = BackgroundEmbedding(self.embedder, self.cache, 60)

    async def of(self, text: str) -> bytes | None:
        return await self.cache.get(key_of("t", "scripted", texts(text)[0].digest))


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_vectors_are_kept_and_those_missing_made_by_the_group_of_what_holds_them() -> None:
    kept = Kept()
    (made,), (missing, known) = texts("made", held_by="document"), texts("missing", "known")
    await kept.cache.set(key_of("t", "scripted", known.digest), b"as it was", 60)
    remains = PendingVectors(CALLER, "conversation", ((made, b"12"),), (missing, known))
    assert remains.digests == ("document", "conversation")
    kept.work.add(remains, still)
    await settled()
    assert await kept.of("made") == b"12"
    assert await kept.of("missing")
    assert kept.embedder.asked == [["missing"]]
    await kept.cache.evict(cache_group("t", "document"))
    assert (await kept.of("made"), bool(await kept.of("missing"))) == (None, True)
    await kept.cache.evict(cache_group("t", "conversation"))
    assert await kept.of("missing") is None


async def test_nothing_is_kept_of_a_conversation_that_is_gone() -> None:
    kept = Kept()
    (made,), missing = texts("made"), texts("first of all", "second of all")
    kept.work.add(PendingVectors(CALLER, "c", ((made, b"12"),), ()), gone)
    kept.work.add(PendingVectors(CALLER, "c", (), tuple(missing)), gone)
    await settled()
    assert [await kept.of(text) for text in ("made", "first of all", "second of all")] == [None] * 3
    assert len(kept.embedder.asked) == 1, "it is not gone on with"


async def test_requests_go_first_and_a_fault_keeps_back_nobody() -> None:
    kept = Kept()
    kept.embedder.fault = ValueError("broken")
    kept.work.add(PendingVectors(CALLER, "c", (), tuple(texts("a"))), still)
    await settled()
    kept.embedder.fault = None
    with kept.work.priority():
        kept.work.add(PendingVectors(CALLER, "c", (), tuple(texts("b"))), still)
        await settled()
        assert kept.embedder.asked == [["a"]]
    await settled()
    assert kept.embedder.asked == [["a"], ["b"]]


async def test_the_end_does_not_wait_for_it() -> None:
    kept = Kept()
    kept.embedder.hangs = True
    for _ in range(3):
        kept.work.add(PendingVectors(CALLER, "c", (), tuple(texts("a"))), still)
    await settled()
    await asyncio.wait_for(kept.work.close(), 5)
    assert len(kept.embedder.asked) == 1
    await Kept().work.close()
