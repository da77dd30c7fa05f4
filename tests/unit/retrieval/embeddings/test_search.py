"""Vectors within a deadline: what is asked for, what is kept, what it costs, and what faults do."""

import asyncio

import pytest

from gateway.core.errors import (
    GatewayError,
    ModelNotFound,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.core.types.chat import RequestCaller
from gateway.core.types.upstreams import CallScope
from gateway.retrieval.embeddings.search import MAX_WANTED, VectorSearch, WantedVector, key_of, portions
from gateway.storage.cache.memory_cache import MemoryCache
from tests.support.hand_clock import HandClock
from tests.unit.retrieval.embeddings.fakes import Scripted, texts


def searching(embedder: Scripted, seconds: float = 1.0) -> VectorSearch:
    cache = MemoryCache(10_000, embedder.clock)
    return VectorSearch(embedder, cache, embedder.clock, seconds, CallScope(RequestCaller("t")))


async def test_each_text_is_asked_for_once_in_portions_of_what_a_call_takes() -> None:
    embedder = Scripted(HandClock())
    search = searching(embedder)
    sought = texts("question", "one", "one", "a text longer than one call", "two")
    assert len(await search.find(sought)) == 4
    assert embedder.asked == [["question", "one"], ["a text longer than one call"], ["two"]]
    await search.find([*sought, *texts("three")])
    assert embedder.asked[3:] == [["three"]]
    assert [len(found) for found in portions(texts(*map(str, range(300))), 10_000)] == [128, 128, 44]


async def test_what_the_cache_keeps_is_not_asked_for_and_rubbish_in_it_is() -> None:
    embedder = Scripted(HandClock())
    search = searching(embedder)
    known, rubbish = texts("known", "rubbish")
    await search.cache.set(key_of("t", "scripted", known.digest), b"\x00\x3c\x00\x00", 60)
    await search.cache.set(key_of("t", "scripted", rubbish.digest), b"odd", 60)
    await search.cache.set(key_of("other", "scripted", rubbish.digest), b"\x00\x3c", 60)
    found = await search.find([known, rubbish])
    assert found[known.digest] == b"\x00\x3c\x00\x00"
    assert embedder.asked == [["rubbish"]]
    assert [each.text for each in search.made.values()] == ["rubbish"]


async def test_everything_that_is_kept_is_used_and_no_more_than_so_much_is_made() -> None:
    embedder = Scripted(HandClock())
    search = searching(embedder)
    search.cache = MemoryCache(10**6, embedder.clock)
    sought = texts(*(f"text number {n}" for n in range(2 * MAX_WANTED)))
    for each in sought[MAX_WANTED:]:
        await search.cache.set(key_of("t", "scripted", each.digest), b"\x00\x3c\x00\x00", 60)
    more = texts(*(f"one more: {n}" for n in range(10)))
    found = await search.find([*sought, *more])
    assert all(each.digest in found for each in sought)
    assert not any(each.digest in found for each in more)


async def test_the_deadline_is_one_for_all_that_a_request_asks_for() -> None:
    embedder = Scripted(HandClock(), takes=0.4)
    search = searching(embedder)
    sought = texts(*(f"number {n} of them" for n in range(9)))
    assert len(await search.find(sought)) == 3
    assert search.warnings == ["embedder_late"]
    assert len(await search.find(texts("one more"))) == 3
    assert len(embedder.asked) == 3


async def test_calls_are_billed_as_reported_or_else_by_count() -> None:
    embedder = Scripted(HandClock(), paid=True, takes=0.1)
    search = searching(embedder)
    await search.find(texts("a"))
    embedder.takes = 0.0
    await search.find(texts("b", "c"))
    reported, counted = search.scope.calls
    assert (reported.purpose, reported.route, reported.estimated) == ("embedder", "openai/e", False)
    assert dict(reported.usage) == {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 7}
    assert (counted.usage["prompt_tokens"], counted.estimated) == (2, True)
    free = searching(Scripted(HandClock()))
    await free.find(texts("a"))
    assert free.scope.calls == []


@pytest.mark.parametrize(
    ("fault", "billed"),
    [
        (UpstreamTimeout("x"), [(1, True)]),
        (UpstreamInvalidResponse("x"), [(1, True)]),
        (UpstreamUnreachable("x"), [(0, False)]),
        (ModelNotFound("x"), []),
        (ValueError("of a library"), []),
    ],
)
async def test_a_fault_leaves_the_rest_without_vectors(fault: Exception, billed: list[tuple[int, bool]]) -> None:
    embedder = Scripted(HandClock(), paid=True)
    search = searching(embedder)
    embedder.fault = fault
    assert await search.find(texts("a", "a text longer than one call")) == {}
    assert search.warnings == ["embedder_failed"]
    assert len(embedder.asked) == 1
    assert [(each.usage["prompt_tokens"], each.estimated) for each in search.scope.calls] == billed
    assert isinstance(fault, GatewayError) or not billed


@pytest.mark.parametrize("ends", ["the deadline", "its request"])
async def test_a_call_that_is_cut_off_is_billed_as_an_estimate(ends: str) -> None:
    embedder = Scripted(HandClock(), paid=True)
    embedder.hangs = True
    search = searching(embedder, 0.05 if ends == "the deadline" else 60)
    sought: list[WantedVector] = texts("four tokens of it")
    task = asyncio.ensure_future(search.find(sought))
    if ends == "its request":
        while not embedder.asked:  # noqa: ASYNC110 - the call is under way then
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        assert await task == {}
        assert search.warnings == ["embedder_late"]
    (call,) = search.scope.calls
    assert call.estimated
    assert call.usage["prompt_tokens"] == (1 if ends == "the deadline" else 4)
