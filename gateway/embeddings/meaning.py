"""Relevance by words and by meaning: what the lexical ranks are fused with where an embedder is configured."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from gateway.embeddings.background import Afterwards, Holds, PendingVectors
from gateway.embeddings.search import FAULT, Known, Search, Wanted, digest, fused, queries, wanted
from gateway.models.bill import InternalCall
from gateway.models.exchange import Caller
from gateway.models.relevance import Passage, Query, Relevance, Source
from gateway.ports import CacheBackend, Clock, Embedder

# Lets work in a thread ask for what only the event loop can do, in its request's own task.


T = TypeVar("T")
Asked = TypeVar("Asked")
Told = TypeVar("Told")


class Bridge(Generic[Asked, Told]):
    """The thread calls `ask` and waits; the task that runs `run` answers. Whoever cancels that task ends what it waits
    for, and the thread is told `nothing`."""

    def __init__(self, threads: Executor, answer: Callable[[Asked], Awaitable[Told]], nothing: Told) -> None:
        self._threads = threads
        self._answer = answer
        self._nothing = nothing
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[tuple[Asked, Future[Told]]] = asyncio.Queue()
        self._closed = False

    def ask(self, asked: Asked) -> Told:
        """To be called in the thread."""
        told: Future[Told] = Future()
        self._loop.call_soon_threadsafe(self._put, asked, told)
        return told.result()

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """What `work` returns, which runs in a thread."""
        self._closed = False
        working = self._loop.run_in_executor(self._threads, work, *arguments)
        told: Future[Told] | None = None
        try:
            while True:
                question = asyncio.ensure_future(self._waiting.get())
                either: set[asyncio.Future[Any]] = {working, question}
                try:
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    question.cancel()
                if not question.done() or question.cancelled():
                    return await working
                asked, told = question.result()
                told.set_result(await self._answer(asked))
                told = None
        finally:
            self._closed = True
            working.add_done_callback(lambda done: done.cancelled() or done.exception())
            if told is not None and not told.done():
                told.set_result(self._nothing)
            while not self._waiting.empty():
                self._waiting.get_nowait()[1].set_result(self._nothing)

    def _put(self, asked: Asked, told: "Future[Told]") -> None:
        if self._closed:
            told.set_result(self._nothing)
        else:
            self._waiting.put_nowait((asked, told))


THREADS = 32
"""Contexts that are made at once. Each thread may be waiting for vectors, which takes no processor."""


class Meaning:
    """An embedder with its cache and its deadline; holds nothing of a request but what is done after it."""

    def __init__(self, embedder: Embedder, cache: CacheBackend, clock: Clock, timeout: float, ttl: float) -> None:
        self._embedder = embedder
        self._cache = cache
        self._clock = clock
        self._timeout = timeout
        self._afterwards = Afterwards(embedder, cache, ttl)
        self._threads = ThreadPoolExecutor(THREADS, "context")

    @property
    def is_billed(self) -> bool:
        """Whether somebody bills the embedder's calls."""
        return self._embedder.tariff() is not None

    def of(self, caller: Caller, spent: list[InternalCall]) -> "RequestMeaning":
        """For one request; its calls of the model are added to `spent`."""
        search = Search(self._embedder, self._cache, self._clock, self._timeout, caller, spent)
        return RequestMeaning(search, self._threads, self._afterwards)

    def later(self, remains: PendingVectors, holds: Holds) -> None:
        """See `Afterwards.add`."""
        self._afterwards.add(remains, holds)

    async def close(self) -> None:
        """Ends what is done for later questions."""
        await self._afterwards.close()
        self._embedder.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class RequestMeaning:
    """One request's: a context is made in a thread, which asks for vectors when something has to leave."""

    def __init__(self, search: Search, threads: ThreadPoolExecutor, afterwards: Afterwards) -> None:
        self._search = search
        self._afterwards = afterwards
        self._bridge: Bridge[list[Wanted], Known] = Bridge(threads, self._find, {})
        self._missing: dict[str, Wanted] = {}

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """What `work` returns, which may rank by `relevance` and runs in a thread."""
        return await self._bridge.run(work, *arguments)

    def relevance(self, lexical: Relevance) -> Relevance:
        """The lexical ranks fused with those by meaning; to be called in the thread."""

        def ranked(query: Query, sources: Sequence[Source]) -> list[list[Passage]]:
            found = lexical(query, sources)
            sought, places = queries(query), wanted(sources, found)
            if not sought or len(places) < 2:
                return found
            known = self._bridge.ask([*sought, *places])
            self._missing |= {each.digest: each for each in (*sought, *places) if each.digest not in known}
            if sought[0].digest not in known:
                return found
            placed = [each for each in places if each.digest in known]
            wanted_vectors = [known[each.digest] for each in sought if each.digest in known]
            return fused(found, placed, [known[each.digest] for each in placed], wanted_vectors)

        return ranked

    @property
    def warnings(self) -> list[str]:
        """What went wrong with the model, for the bill."""
        return list(dict.fromkeys(self._search.warnings))

    def remains(self, conversation_id: str) -> PendingVectors | None:
        """What a stored request leaves to be kept; None if nothing."""
        search = self._search
        missing: tuple[Wanted, ...] = ()
        # What is paid for has to be on a bill, and this one is written.
        if search.embedder.tariff() is None and FAULT not in search.warnings:
            missing = tuple(self._missing.values())
        made = tuple((each, search.known[text]) for text, each in search.made.items())
        if not made and not missing:
            return None
        return PendingVectors(search.caller, digest(f"conversation {conversation_id}"), made, missing)

    async def _find(self, texts: list[Wanted]) -> Known:
        with self._afterwards.priority():
            return await self._search.find(texts)
