"""Relevance by words and by meaning, where an embedding model is configured."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from gateway.core.ports import CacheBackend, Clock, Embedder
from gateway.core.types.relevance import RankedPassage, Relevance, RelevanceQuery, SearchedSource
from gateway.core.types.upstream import CallScope
from gateway.retrieval.embeddings.background_embedding import BackgroundEmbedding, Holds, PendingVectors
from gateway.retrieval.embeddings.search import FAULT, Known, VectorSearch, WantedVector, digest, fused, queries, wanted

T = TypeVar("T")
Question = TypeVar("Question")
Answer = TypeVar("Answer")


class LoopBridge(Generic[Question, Answer]):
    """Lets work in a thread ask for something that only the event loop can do: the thread calls `ask` and waits; the
    task that awaits `run` answers. If that task is cancelled, the thread gets `nothing`."""

    def __init__(self, threads: Executor, answer: Callable[[Question], Awaitable[Answer]], nothing: Answer) -> None:
        self._threads = threads
        self._answer = answer
        self._nothing = nothing
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[tuple[Question, Future[Answer]]] = asyncio.Queue()
        self._closed = False

    def ask(self, question: Question) -> Answer:
        """The answer; to be called in the thread."""
        answer: Future[Answer] = Future()
        self._loop.call_soon_threadsafe(self._put, question, answer)
        return answer.result()

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs `work` in a thread and returns its result."""
        self._closed = False
        working = self._loop.run_in_executor(self._threads, work, *arguments)
        answer: Future[Answer] | None = None
        try:
            while True:
                asked = asyncio.ensure_future(self._waiting.get())
                either: set[asyncio.Future[Any]] = {working, asked}
                try:
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    asked.cancel()
                if not asked.done() or asked.cancelled():
                    return await working
                question, answer = asked.result()
                answer.set_result(await self._answer(question))
                answer = None
        finally:
            self._closed = True
            working.add_done_callback(lambda done: done.cancelled() or done.exception())
            if answer is not None and not answer.done():
                answer.set_result(self._nothing)
            while not self._waiting.empty():
                self._waiting.get_nowait()[1].set_result(self._nothing)

    def _put(self, question: Question, answer: "Future[Answer]") -> None:
        if self._closed:
            answer.set_result(self._nothing)
        else:
            self._waiting.put_nowait((question, answer))


THREADS = 32
"""Contexts that are made at once: many, since a thread that waits for vectors takes no processor."""


class EmbeddingModel:
    """An embedding model with its cache and deadline; keeps nothing of a request but its background work."""

    def __init__(self, embedder: Embedder, cache: CacheBackend, clock: Clock, timeout: float, ttl: float) -> None:
        self._embedder = embedder
        self._cache = cache
        self._clock = clock
        self._timeout = timeout
        self._afterwards = BackgroundEmbedding(embedder, cache, ttl)
        self._threads = ThreadPoolExecutor(THREADS, "context")

    @property
    def is_billed(self) -> bool:
        """Whether calls of the model cost money."""
        return self._embedder.tariff() is not None

    def of(self, scope: CallScope) -> "RequestMeaning":
        """Ranking for one request, whose calls of the model are added to those of `scope`."""
        search = VectorSearch(self._embedder, self._cache, self._clock, self._timeout, scope)
        return RequestMeaning(search, self._threads, self._afterwards)

    def later(self, remains: PendingVectors, holds: Holds) -> None:
        """Queues background work; `holds` says whether the conversation still exists."""
        self._afterwards.add(remains, holds)

    async def close(self) -> None:
        """Ends the background work and the threads."""
        await self._afterwards.close()
        self._embedder.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class RequestMeaning:
    """Ranking for one request: a context is made in a thread, which asks for vectors when not all fits."""

    def __init__(self, search: VectorSearch, threads: ThreadPoolExecutor, afterwards: BackgroundEmbedding) -> None:
        self._search = search
        self._afterwards = afterwards
        self._bridge: LoopBridge[list[WantedVector], Known] = LoopBridge(threads, self._find, {})
        self._missing: dict[str, WantedVector] = {}

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs `work`, which may rank by `relevance`, in a thread and returns its result."""
        return await self._bridge.run(work, *arguments)

    def relevance(self, lexical: Relevance) -> Relevance:
        """Lexical ranks fused with those by meaning; to be called in the thread."""

        def ranked(query: RelevanceQuery, sources: Sequence[SearchedSource]) -> list[list[RankedPassage]]:
            found = lexical(query, sources)
            asked, places = queries(query), wanted(sources, found)
            if not asked or len(places) < 2:
                return found
            known = self._bridge.ask([*asked, *places])
            self._missing |= {each.digest: each for each in (*asked, *places) if each.digest not in known}
            if asked[0].digest not in known:
                return found
            placed = [each for each in places if each.digest in known]
            vectors = [known[each.digest] for each in asked if each.digest in known]
            return fused(found, placed, [known[each.digest] for each in placed], vectors)

        return ranked

    @property
    def warnings(self) -> list[str]:
        """What went wrong with the model, for the response metadata."""
        return list(dict.fromkeys(self._search.warnings))

    def remains(self, conversation_id: str) -> PendingVectors | None:
        """Background work that a stored request leaves; None if there is none."""
        search = self._search
        missing: tuple[WantedVector, ...] = ()
        # A paid call needs a bill, and this request's is already written.
        if search.embedder.tariff() is None and FAULT not in search.warnings:
            missing = tuple(self._missing.values())
        made = tuple((each, search.known[text]) for text, each in search.made.items())
        if not made and not missing:
            return None
        return PendingVectors(search.scope.caller, digest(f"conversation {conversation_id}"), made, missing)

    async def _find(self, texts: list[WantedVector]) -> Known:
        with self._afterwards.priority():
            return await self._search.find(texts)
