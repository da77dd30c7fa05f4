"""What an embedding model adds to ranks by words: which vectors are wanted and found in time, how ranks are fused, and
what is kept afterwards."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core import errors
from gateway.core.types import relevance
from gateway.core.types.artifacts import cache_group
from gateway.core.types.bill import InternalCall
from gateway.core.types.chat import RequestCaller
from gateway.core.types.upstreams import CallScope
from gateway.retrieval.embeddings.search import (
    MAX_LATER,
    MAX_WANTED,
    BackgroundEmbedding,
    LoopBridge,
    PendingVectors,
    VectorSearch,
    WantedVector,
    digest,
    fused,
    is_prose,
    key_of,
    portions,
    queries,
    ranks,
    similarities,
    wanted,
)
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
        (errors.UpstreamTimeout("x"), [(1, True)]),
        (errors.UpstreamInvalidResponse("x"), [(1, True)]),
        (errors.UpstreamUnreachable("x"), [(0, False)]),
        (errors.ModelNotFound("x"), []),
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
    assert isinstance(fault, errors.GatewayError) or not billed


async def test_s12_3_a_call_that_no_budget_has_room_for_is_not_made() -> None:
    """What it may cost is reserved before it is made; what was made by then is used."""
    embedder = Scripted(HandClock(), paid=True)
    search = searching(embedder)
    reserved: list[int] = []

    async def reserve(call: InternalCall) -> None:
        reserved.append(call.usage["prompt_tokens"])
        if len(reserved) > 1:
            raise errors.BudgetExceeded("used up")

    search.scope = replace(search.scope, reserve=reserve)
    assert len(await search.find(texts("a", "a text longer than one call", "b"))) == 1
    assert (reserved, embedder.asked) == ([1, 1], [["a"]])
    assert search.warnings == ["embedder_failed"]


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


PROSE = "The keeper climbs the stairs of the lighthouse every evening and lights the lamp before the ships come in."


@pytest.mark.parametrize("text", [PROSE, "Anna: I said yes, didn't I?", "das war's", "¿Qué pasa?", "好的，明天见。"])
def test_talk_and_sentences_are_prose(text: str) -> None:
    assert is_prose(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"id": 17, "name": "Anna", "tags": ["a", "b"]}',
        "2026-11-22T07:43:03 ERROR [worker-3] job=81 failed: timeout=30s",
        "def add(self, x_1: int) -> int:\n    return self.values[x_1] + 1",
        "4711\t12.50\t3\n4712\t9.99\t1",
        "  \n",
    ],
)
def test_records_logs_code_and_figures_are_not(text: str) -> None:
    assert not is_prose(text)


def document(count: int, **scores: float) -> tuple[relevance.SearchedSource, list[relevance.RankedPassage]]:
    """Passages of prose, each one its own."""
    texts = [f"{PROSE} It was evening number {'x' * (n + 1)}." for n in range(count)]
    found, start = [], 0
    for n, text in enumerate(texts):
        found.append(relevance.RankedPassage(start, start + len(text), scores.get(f"p{n}", 0.0)))
        start += len(text) + 2
    return relevance.SearchedSource("\n\n".join(texts), "artifact"), found


def test_the_best_by_words_come_first_each_with_those_beside_it() -> None:
    source, found = document(9, p6=3.0, p2=5.0)
    made = wanted([source], [found])
    assert [each.number for each in made] == [2, 1, 3, 6, 5, 7, 0, 4, 8]
    assert {each.held_by for each in made} == {digest(source.content)}
    assert made[0].digest == digest(source.content[found[2].start : found[2].end])


def test_what_was_said_last_comes_before_what_was_said_long_ago_and_belongs_to_no_artifact() -> None:
    said = [
        relevance.SearchedSource(f"I like the {word} very much", "turn", number=n)
        for n, word in enumerate(("sea", "town", "sun"))
    ]
    found = [[relevance.RankedPassage(0, len(source.content), 0.0)] for source in said]
    assert [each.source for each in wanted(said, found)] == [2, 1, 0]
    found[0] = [relevance.RankedPassage(0, 5, 1.0)]
    made = wanted(said, found)
    assert [each.source for each in made] == [0, 1, 2], "and what was said beside it"
    assert {each.held_by for each in made} == {None}


def test_no_request_looks_for_more_than_so_many() -> None:
    source, found = document(MAX_WANTED + MAX_LATER + 50)
    assert len(wanted([source], [found])) == MAX_WANTED + MAX_LATER


def test_the_question_stands_before_further_searches() -> None:
    made = queries(relevance.RelevanceQuery("who?", searches=("the keeper", " ")))
    assert [each.text for each in made] == ["who?", "the keeper"]
    assert queries(relevance.RelevanceQuery("  ")) == []


def vector(*numbers: float) -> relevance.Vector:
    import numpy

    return relevance.packed(numpy.array([numbers]))[0]


def passages(*scores: float) -> list[list[relevance.RankedPassage]]:
    return [[relevance.RankedPassage(n * 10, n * 10 + 9, score) for n, score in enumerate(scores)]]


def places(*numbers: int) -> list[WantedVector]:
    return [WantedVector("", str(n), None, 0, n) for n in numbers]


def scores_of(found: list[list[relevance.RankedPassage]]) -> list[float]:
    return [p.score for each in found for p in each]


EAST, NORTH, WEST = vector(1, 0), vector(0, 1), vector(-1, 0)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([3, 1, 2], [1, 3, 2]), ([0, 5, 0, 0], [4, 1, 4, 4]), ([2, 2, 1], [2, 2, 3]), ([], []), ([7], [1])],
)
def test_equal_scores_share_the_last_of_their_ranks(scores: list[float], expected: list[int]) -> None:
    assert ranks(scores) == expected


def test_what_only_meaning_finds_comes_before_what_only_words_find_a_little() -> None:
    found = fused(passages(9, 1, 0, 0), places(0, 1, 2, 3), [NORTH, WEST, EAST, NORTH], [EAST])
    assert scores_of(found) == [9, 0, 1, 0]


def test_passages_without_a_vector_keep_their_scores_and_nothing_else_of_a_passage_changes() -> None:
    before = passages(5, 4, 3, 0)
    after = fused(before, places(1, 3), [WEST, EAST], [EAST])
    assert scores_of(after) == [5, 4, 3, 0], "a tie of first places goes to the words"
    assert scores_of(fused(before, places(2, 1), [EAST, NORTH], [EAST])) == [5, 4, 3, 0]
    assert [(p.start, p.end) for p in after[0]] == [(p.start, p.end) for p in before[0]]


def test_further_searches_together_weigh_no_more_than_the_question() -> None:
    """§5: the question itself always stays, at least with the weight of the others together."""
    of_question = fused(passages(1, 1, 1), places(0, 1, 2), [EAST, NORTH, WEST], [EAST, NORTH, NORTH])
    assert scores_of(of_question) == [1, 1, 1]
    mixed = fused(passages(3, 2, 0), places(0, 1, 2), [WEST, EAST, NORTH], [EAST, NORTH, NORTH, NORTH])
    assert scores_of(mixed)[1] == 3


@given(
    scores=st.lists(st.floats(0, 9), min_size=1, max_size=12),
    with_vector=st.sets(st.integers(0, 11)),
    angles=st.lists(st.sampled_from([EAST, NORTH, WEST]), min_size=12, max_size=12),
)
def test_scores_are_only_exchanged_among_those_that_have_a_vector(
    scores: list[float], with_vector: set[int], angles: list[relevance.Vector]
) -> None:
    at = sorted(n for n in with_vector if n < len(scores))
    after = scores_of(fused(passages(*scores), places(*at), angles[: len(at)], [EAST]))
    if any(scores[n] for n in at):  # else their meaning earns them what no word did
        assert sorted(after) == sorted(scores)
    assert all(after[n] == scores[n] for n in range(len(scores)) if n not in at)


def test_vectors_have_a_direction_and_fit_those_of_their_space() -> None:
    assert similarities(EAST, [EAST, NORTH, vector(1, 0, 0), WEST]) == pytest.approx([1, 0, -1, -1])
    assert similarities(EAST, []) == []
    assert vector(3e38, 0) == EAST
    for bad in ((0.0, 0.0), (float("nan"), 1.0), (float("inf"), 1.0)):
        with pytest.raises(relevance.EmbeddingFault):
            vector(*bad)


THREADS = ThreadPoolExecutor(2)


async def doubled(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def test_the_thread_gets_its_answers_and_the_task_what_the_work_gives() -> None:
    bridge: LoopBridge[int, int] = LoopBridge(THREADS, doubled, 0)
    assert await bridge.run(lambda start: bridge.ask(bridge.ask(start)), 3) == 12
    silent: LoopBridge[int, int] = LoopBridge(THREADS, doubled, 0)
    assert await silent.run(lambda: "nothing was asked") == "nothing was asked"


async def test_a_fault_of_the_work_is_the_tasks() -> None:
    bridge: LoopBridge[int, int] = LoopBridge(THREADS, doubled, 0)
    with pytest.raises(ZeroDivisionError):
        await bridge.run(lambda: bridge.ask(1) / 0)


async def test_who_leaves_ends_the_answer_and_lets_the_thread_go_on_with_nothing() -> None:
    begun, told = asyncio.Event(), threading.Event()
    cancelled: list[bool] = []
    answers: list[int] = []

    async def never(_: int) -> int:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return 1

    def work() -> None:
        answers.append(bridge.ask(1))
        answers.append(bridge.ask(2))
        told.set()

    bridge: LoopBridge[int, int] = LoopBridge(THREADS, never, -1)
    task = asyncio.ensure_future(bridge.run(work))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled == [True]
    assert await asyncio.to_thread(told.wait, 5)
    assert answers == [-1, -1]


CALLER = RequestCaller("t")


STILL, GONE = "conv_still", "conv_gone"


async def holds(tenant: str, conversation_id: str) -> bool:
    return (tenant, conversation_id) == ("t", STILL)


class Kept:
    """An `BackgroundEmbedding`, with its cache and its embedder."""

    def __init__(self) -> None:
        self.embedder = Scripted(HandClock())
        self.cache = MemoryCache(10_000, self.embedder.clock)
        self.work = BackgroundEmbedding(self.embedder, self.cache, 60, holds)

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
    kept.work.add(remains, STILL)
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
    kept.work.add(PendingVectors(CALLER, "c", ((made, b"12"),), ()), GONE)
    kept.work.add(PendingVectors(CALLER, "c", (), tuple(missing)), GONE)
    await settled()
    assert [await kept.of(text) for text in ("made", "first of all", "second of all")] == [None] * 3
    assert len(kept.embedder.asked) == 1, "it is not gone on with"


class DeletedWhileWritten(MemoryCache):
    """Behind the first value that is written, its conversation is deleted."""

    deleted = False

    async def set(self, key: str, value: bytes, ttl: float, *, group: str | None = None) -> None:
        await super().set(key, value, ttl, group=group)
        if group is not None and not self.deleted:
            self.deleted = True
            await self.evict(group)

    async def holds(self, tenant: str, conversation_id: str) -> bool:
        return not self.deleted


async def test_nothing_is_kept_of_a_conversation_that_is_deleted_meanwhile() -> None:
    kept = Kept()
    kept.cache = cache = DeletedWhileWritten(10_000, kept.embedder.clock)
    kept.work = BackgroundEmbedding(kept.embedder, cache, 60, cache.holds)
    first, second = texts("first of all", "second of all")
    kept.work.add(PendingVectors(CALLER, "c", ((first, b"12"), (second, b"34")), ()), STILL)
    await settled()
    assert cache.deleted
    assert [await kept.of(text) for text in ("first of all", "second of all")] == [None] * 2


async def test_requests_go_first_and_a_fault_keeps_back_nobody() -> None:
    kept = Kept()
    kept.embedder.fault = ValueError("broken")
    kept.work.add(PendingVectors(CALLER, "c", (), tuple(texts("a"))), STILL)
    await settled()
    kept.embedder.fault = None
    with kept.work.priority():
        kept.work.add(PendingVectors(CALLER, "c", (), tuple(texts("b"))), STILL)
        await settled()
        assert kept.embedder.asked == [["a"]]
    await settled()
    assert kept.embedder.asked == [["a"], ["b"]]


async def test_the_end_does_not_wait_for_it() -> None:
    kept = Kept()
    kept.embedder.hangs = True
    for _ in range(3):
        kept.work.add(PendingVectors(CALLER, "c", (), tuple(texts("a"))), STILL)
    await settled()
    await asyncio.wait_for(kept.work.close(), 5)
    assert len(kept.embedder.asked) == 1
    await Kept().work.close()
