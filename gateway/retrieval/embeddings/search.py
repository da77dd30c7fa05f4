"""Finds vectors of one request's texts: in the cache, or from the model until the deadline; ranks passages by them
beside words; and stores and makes vectors for the next question in the background."""

import asyncio
import contextlib
import hashlib
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from gateway.core import errors, ports
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.types import artifacts, bill, upstreams
from gateway.core.types.chat import RequestCaller
from gateway.core.types.relevance import (
    EmbeddingFault,
    EmbeddingTariff,
    RankedPassage,
    Relevance,
    RelevanceQuery,
    SearchedSource,
    TextEmbeddings,
    Vector,
)

MAX_WANTED = 256
"""Vectors that one request gets from the model at most: each costs time or money."""
MAX_LATER = 2000
"""Further passages whose vectors are used if they are cached; missing ones may be made in the background."""
MAX_SEARCH_RESULTS = 64
"""Passages with the best lexical scores whose vectors are requested first, with their neighbours."""
PASSAGE_CHARS, QUERY_CHARS = 2000, 1000
"""Characters of a passage and of a query that are embedded; models read 256 to 8,192 tokens."""
SEARCH_MARKS = re.compile(r"[{}\[\]\"<>|=;:_/\\\d\t]")
MAX_MARKS = 0.12
"""Fraction of signs and digits beyond which a text counts as records or code, where embeddings do not help."""


def similarities(question: Vector, vectors: Sequence[Vector]) -> list[float]:
    """Returns the cosine of each vector with the question's; -1 for vectors of another length, from another model."""
    import numpy

    target = numpy.frombuffer(question, "<f2").astype(numpy.float32)
    found = [-1.0] * len(vectors)
    same = [at for at, vector in enumerate(vectors) if len(vector) == len(question)]
    if same:
        rows = numpy.frombuffer(b"".join(vectors[at] for at in same), "<f2").reshape(len(same), -1)
        for at, cosine in zip(same, rows.astype(numpy.float32) @ target, strict=True):
            found[at] = float(cosine)
    return found


@record
class WantedVector:
    """A text whose vector is needed: passage `number` of source `source`, or a query (-1). `held_by` is the digest of
    the artifact that holds it, for an excerpt that of the large document (None: it is part of the conversation)."""

    text: str
    digest: str
    held_by: str | None = None
    source: int = -1
    number: int = -1


def queries(query: RelevanceQuery) -> list[WantedVector]:
    """Returns the question, then the further searches."""
    texts = [query.question[-QUERY_CHARS:], *(search[:QUERY_CHARS] for search in query.searches)]
    return [WantedVector(text, digest(text)) for text in texts if text.strip()]


def wanted(sources: Sequence[SearchedSource], found: Sequence[Sequence[RankedPassage]]) -> list[WantedVector]:
    """Returns passages of prose and chat: the lexically best with their neighbours, then the others, latest first."""
    places = [
        (s, n)
        for s, (source, passages) in enumerate(zip(sources, found, strict=True))
        for n, passage in enumerate(passages)
        if is_prose(source.content[passage.start : passage.end][:PASSAGE_CHARS])
    ]
    at = {(s, n): i for i, (s, n) in enumerate(places)}
    best = sorted(range(len(places)), key=lambda i: (-found[places[i][0]][places[i][1]].score, i))[:MAX_SEARCH_RESULTS]
    order: dict[int, None] = {}
    for i in best:
        if found[places[i][0]][places[i][1]].score > 0:
            order[i] = None
            order |= dict.fromkeys(_beside(places, at, i))
    order |= dict.fromkeys(sorted(range(len(places)), key=lambda i: (-sources[places[i][0]].number, i)))
    held: dict[int, str] = {}
    made = []
    for i in list(order)[: MAX_WANTED + MAX_LATER]:
        s, n = places[i]
        source, passage = sources[s], found[s][n]
        if source.kind == "artifact" and s not in held:
            held[s] = source.excerpt_of or digest(source.content)
        text = source.content[passage.start : passage.end].strip()[:PASSAGE_CHARS]
        made.append(WantedVector(text, digest(text), held.get(s), s, n))
    return made


def digest(text: str) -> str:
    """Returns the SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def is_prose(text: str) -> bool:
    """Returns whether a text is prose or chat, not records, code or figures."""
    return bool(text.strip()) and len(SEARCH_MARKS.findall(text)) <= max(3.0, MAX_MARKS * len(text))


def _beside(places: list[tuple[int, int]], at: dict[tuple[int, int], int], i: int) -> list[int]:
    """Returns the neighbours of a passage in its source, or in the conversation if its source has only that passage."""
    s, n = places[i]
    near = [at[s, n + step] for step in (-1, 1) if (s, n + step) in at]
    return near or [i + step for step in (-1, 1) if 0 <= i + step < len(places)]


K = 60.0
"""Constant of reciprocal rank fusion, as in the original paper (Cormack, Clarke and Büttcher, 2009)."""
MAX_BY_MEANING = 16
"""Passages that are relevant to a question that shares no word with any of them."""
NEAR_COSINE = 0.5
"""Minimum cosine at which a question calls for a passage by its meaning; unrelated texts have some 0.1 with MiniLM.
Chosen by hand."""
Ranked = list[list[RankedPassage]]


def fused(found: Ranked, places: Sequence[WantedVector], vectors: Sequence[Vector], asked: Sequence[Vector]) -> Ranked:
    """Returns the passages with new scores for those that have a vector (guarantee §5).

    These exchange their lexical scores among themselves, in the order of the ranks fused by reciprocal rank: so scores
    stay comparable with those of passages without a vector.
    `places, vectors`: the passages that have a vector, and these; `asked`: the question's vector, then those of further
    searches, which together weigh no more than it."""
    if len(places) < 2 or not asked:
        return found
    scores = [found[place.source][place.number].score for place in places]
    total = [1.0 / (K + rank) for rank in ranks(scores)]
    share = 1.0 / max(1, len(asked) - 1)
    near: set[int] = set()
    for number, query in enumerate(asked):
        weight = 1.0 if number == 0 else share
        cosines = similarities(query, vectors)
        near.update(at for at, cosine in enumerate(cosines) if cosine >= NEAR_COSINE)
        for at, rank in enumerate(ranks(cosines)):
            total[at] += weight / (K + rank)
    order = sorted(range(len(places)), key=lambda at: (-total[at], -scores[at], at))
    result = [list(passages) for passages in found]
    for at, score in zip(order, _worths(scores), strict=True):
        place = places[at]
        before = found[place.source][place.number]
        result[place.source][place.number] = replace(before, score=score, called=before.called or at in near)
    return result


def _worths(scores: Sequence[float]) -> list[float]:
    """Returns the scores, best first; if all are 0, a small score for the first `MAX_BY_MEANING`."""
    if any(scores):
        return sorted(scores, reverse=True)
    return [1.0 / (K + place) if place < MAX_BY_MEANING else 0.0 for place in range(len(scores))]


def ranks(scores: Sequence[float]) -> list[int]:
    """Returns the rank of each score, 1 for the best. Equal scores share the last of their ranks: zeros are last."""
    ascending = sorted(scores)
    return [len(scores) - bisect_left(ascending, score) for score in scores]


log = logs.get_logger("gateway.retrieval.embeddings")
MAX_EMBEDDING_BATCH = 128
"""Texts in one call of the model."""
MAX_EMBEDDING_TOKENS = 10**9
"""Tokens above which a reported usage is taken for an error."""
FAULT = "embedder_failed"
LATE = "embedder_late"
Known = dict[str, Vector]
"""Vectors by the digests of their texts."""


def key_of(tenant: str, embedder: str, text_digest: str) -> str:
    """Returns the cache key of a vector."""
    return f"vector:{tenant}:{embedder}:{text_digest}"


def portions(texts: Sequence[WantedVector], chars: int) -> Iterator[list[WantedVector]]:
    """Yields texts in groups for one call each, of at most so many characters, but at least one text."""
    portion: list[WantedVector] = []
    size = 0
    for each in texts:
        if portion and (size + len(each.text) > chars or len(portion) >= MAX_EMBEDDING_BATCH):
            yield portion
            portion, size = [], 0
        portion.append(each)
        size += len(each.text)
    if portion:
        yield portion


@dataclass(slots=True)
class VectorSearch:
    """The vectors that one request knows so far. `until` is its deadline (of `Clock.monotonic`); `made` are the texts
    whose vectors are new, `warnings` name the failures."""

    embedder: ports.Embedder
    cache: ports.CacheBackend
    clock: ports.Clock
    seconds: float
    scope: upstreams.CallScope
    until: float | None = None
    known: Known = field(default_factory=dict)
    made: dict[str, WantedVector] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    async def find(self, texts: Sequence[WantedVector]) -> Known:
        """Returns the vectors of these texts: all that are cached, and of the others, in order, those that the model
        makes in time, `MAX_WANTED` at most. After a fault the rest gets none."""
        if self.until is None:
            self.until = self.clock.monotonic() + self.seconds
        await self._recall(texts)
        missing = list({each.digest: each for each in texts if each.digest not in self.known}.values())
        for portion in portions(missing[:MAX_WANTED], self.embedder.at_once):
            if self.warnings or not await self._embed(portion):
                break
        return self.known

    async def _recall(self, texts: Sequence[WantedVector]) -> None:
        unknown = list({each.digest for each in texts} - self.known.keys())
        keys = [key_of(self.scope.caller.tenant, self.embedder.name, digest) for digest in unknown]
        for digest, vector in zip(unknown, await self.cache.get_many(keys), strict=True):
            if vector is not None and vector and not len(vector) % 2:  # the cache is shared: check its entries
                self.known[digest] = vector

    async def _embed(self, portion: list[WantedVector]) -> bool:
        """Calls the model; returns whether it returned vectors in time."""
        left = (self.until or 0.0) - self.clock.monotonic()
        if left <= 0:
            self.warnings.append(LATE)
            return False
        texts = [each.text for each in portion]
        tariff = self.embedder.tariff()
        if tariff is not None and self.scope.reserve is not None:
            most = await asyncio.to_thread(tariff.count, texts)
            try:
                await self.scope.reserve(_call(tariff, {"prompt_tokens": most}, True))
            except errors.GatewayError as error:
                return self._failed(error)
        try:
            async with asyncio.timeout(left):
                found = await self.embedder.embed(texts, self.scope)
        except TimeoutError:
            await self._charge(tariff, texts)
            self.warnings.append(LATE)
            return False
        except asyncio.CancelledError:  # the client disconnected; the call is charged nevertheless
            if tariff is not None:
                roughly = sum(len(text.encode("utf-8", "replace")) for text in texts) // 4  # there is no time to count
                self.scope.calls.append(_call(tariff, {"prompt_tokens": roughly, "completion_tokens": 0}, True))
            raise
        except (errors.GatewayError, EmbeddingFault) as error:
            if isinstance(error, errors.UpstreamError):  # other errors are raised before a call
                await self._charge(tariff, texts if error.may_be_charged else [])
            return self._failed(error)
        except Exception as error:  # noqa: BLE001 - whatever a model's library raises costs quality, not the answer
            return self._failed(error)
        await self._charge(tariff, texts, found)
        for each, vector in zip(portion, found.vectors, strict=True):
            self.known[each.digest] = vector
            self.made[each.digest] = each
        return True

    def _failed(self, error: Exception) -> bool:
        log.warning("embedder_failed", reason=type(error).__name__, text=str(error)[:200])
        self.warnings.append(FAULT)
        return False

    async def _charge(
        self, tariff: EmbeddingTariff | None, texts: list[str], found: TextEmbeddings | None = None
    ) -> None:
        if tariff is None:
            return
        usage = found.usage if found else None
        prompt = usage.get("prompt_tokens") if usage else None
        if usage is not None and type(prompt) is int and 0 <= prompt <= MAX_EMBEDDING_TOKENS:
            self.scope.calls.append(_call(tariff, {**usage, "completion_tokens": 0}, False))
            return
        counted = await asyncio.to_thread(tariff.count, texts) if texts else 0
        call = _call(tariff, {"prompt_tokens": counted, "completion_tokens": 0}, bool(texts))
        self.scope.calls.append(call if texts else replace(call, prices={**bill.UNCHARGED, **tariff.prices}))


def _call(tariff: EmbeddingTariff, usage: dict[str, Any], estimated: bool) -> bill.InternalCall:
    total = usage.get("prompt_tokens", 0)
    return bill.InternalCall("embedder", tariff.route, {**usage, "total_tokens": total}, tariff.prices, estimated)


MAX_WAITING_REQUESTS = 64
"""Requests whose texts may wait; beyond that the oldest are dropped, and later questions make their vectors."""
Holds = Callable[[str, str], Awaitable[bool]]
"""Returns whether a tenant has a conversation with this id."""


@record
class PendingVectors:
    """Work that a stored request leaves: new vectors to store, and texts without one. `conversation` is the digest that
    groups texts which belong to no artifact."""

    caller: RequestCaller
    conversation: str
    made: tuple[tuple[WantedVector, Vector], ...] = field(repr=False)
    missing: tuple[WantedVector, ...] = field(repr=False)

    @property
    def digests(self) -> tuple[str, ...]:
        """Digests of the contents that will have entries in the cache."""
        held = (each.held_by or self.conversation for each in (*(each for each, _ in self.made), *self.missing))
        return tuple(dict.fromkeys(held))


class BackgroundEmbedding:
    """Processes one request's work at a time, and pauses while a request waits for the model."""

    def __init__(self, embedder: ports.Embedder, cache: ports.CacheBackend, ttl: float, holds: Holds) -> None:
        self._embedder, self._cache, self._ttl, self._holds = embedder, cache, ttl, holds
        self._waiting: deque[tuple[PendingVectors, str]] = deque(maxlen=MAX_WAITING_REQUESTS)
        self._task: asyncio.Task[None] | None = None
        self._asked = 0
        self._free = asyncio.Event()
        self._free.set()

    @contextlib.contextmanager
    def priority(self) -> Iterator[None]:
        """Pauses the background work while a request waits for the model."""
        self._asked += 1
        self._free.clear()
        try:
            yield
        finally:
            self._asked -= 1
            if not self._asked:
                self._free.set()

    def add(self, pending: PendingVectors, conversation_id: str) -> None:
        """Queues the work of a request that is stored in that conversation: nothing is stored if it was deleted."""
        self._waiting.append((pending, conversation_id))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Drops the remaining work."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while self._waiting:
            pending, conversation_id = self._waiting.popleft()
            try:
                await self._keep(pending, list(pending.made), conversation_id)
                for portion in portions(await self._unknown(pending), self._embedder.at_once):
                    await self._free.wait()
                    found = await self._embedder.embed(
                        [each.text for each in portion], upstreams.CallScope(pending.caller)
                    )
                    made = list(zip(portion, found.vectors, strict=True))
                    if not await self._keep(pending, made, conversation_id):
                        break
            except Exception as error:  # noqa: BLE001 - a lost vector is made again; other requests must not wait
                log.warning("vectors_not_kept", reason=type(error).__name__, text=str(error)[:200])

    async def _unknown(self, pending: PendingVectors) -> list[WantedVector]:
        """Returns the texts for which no other request has made a vector in the meantime."""
        keys = [key_of(pending.caller.tenant, self._embedder.name, each.digest) for each in pending.missing]
        kept = await self._cache.get_many(keys)
        return [each for each, vector in zip(pending.missing, kept, strict=True) if vector is None]

    async def _keep(
        self, pending: PendingVectors, made: list[tuple[WantedVector, Vector]], conversation_id: str
    ) -> bool:
        """Stores vectors; returns False if their conversation no longer exists. This is asked after writing: what a
        deletion in between does not find in the cache is evicted here."""
        tenant, groups = pending.caller.tenant, set[str]()
        for each, vector in made:
            groups.add(group := artifacts.cache_group(tenant, each.held_by or pending.conversation))
            await self._cache.set(key_of(tenant, self._embedder.name, each.digest), vector, self._ttl, group=group)
        if not groups or await self._holds(tenant, conversation_id):
            return True
        await self._cache.evict(*groups)
        return False


T = TypeVar("T")
Question = TypeVar("Question")
Answer = TypeVar("Answer")


class LoopBridge(Generic[Question, Answer]):
    """Lets work in a thread use what only the event loop can do: the thread calls `ask` and waits, while a task awaits
    `run`. If that task is cancelled, so is the answer, and the thread gets `nothing`."""

    def __init__(self, threads: Executor, answer: Callable[[Question], Awaitable[Answer]], nothing: Answer) -> None:
        self._threads, self._answer, self._nothing = threads, answer, nothing
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._answering: asyncio.Future[Answer] | None = None
        self._closed = False

    def ask(self, question: Question) -> Answer:
        """Waits for the answer to a question; to be called in the thread."""
        return asyncio.run_coroutine_threadsafe(self._answered(question), self._loop).result()

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs `work` in a thread and returns its result."""
        self._closed, self._context = False, copy_context()
        working = self._loop.run_in_executor(self._threads, work, *arguments)
        try:
            return await asyncio.shield(working)
        finally:
            self._closed = True
            working.add_done_callback(lambda done: done.cancelled() or done.exception())
            if self._answering is not None:  # its cost is known when it has ended
                self._answering.cancel()
                await asyncio.wait([self._answering])

    async def _answered(self, question: Question) -> Answer:
        """Returns the answer, made in the context of the task that awaits `run`, to which logs and traces belong."""
        if self._closed:
            return self._nothing
        answering = self._answering = self._context.run(asyncio.ensure_future, self._answer(question))
        await asyncio.wait([answering])
        self._answering = None
        return self._nothing if answering.cancelled() else answering.result()


THREADS = 32
"""Contexts made concurrently: many, since a thread that waits for vectors takes no CPU time."""


class EmbeddingModel:
    """An embedding model with its cache and deadline; keeps no state of a request but its background work.
    `holds`: called before anything of a conversation is stored."""

    def __init__(
        self,
        embedder: ports.Embedder,
        cache: ports.CacheBackend,
        clock: ports.Clock,
        timeout: float,
        ttl: float,
        holds: Holds,
    ) -> None:
        self._embedder, self._cache, self._clock, self._timeout = embedder, cache, clock, timeout
        self._afterwards = BackgroundEmbedding(embedder, cache, ttl, holds)
        self._threads = ThreadPoolExecutor(THREADS, "context")

    @property
    def is_billed(self) -> bool:
        """Whether calls of the model cost money."""
        return self._embedder.tariff() is not None

    def of(self, scope: upstreams.CallScope) -> "RequestMeaning":
        """Returns the ranking for one request, which adds calls of the model to those of `scope`."""
        search = VectorSearch(self._embedder, self._cache, self._clock, self._timeout, scope)
        return RequestMeaning(search, self._threads, self._afterwards)

    def later(self, remains: PendingVectors, conversation_id: str) -> None:
        """Queues background work of a request that is stored in that conversation."""
        self._afterwards.add(remains, conversation_id)

    async def close(self) -> None:
        """Ends the background work and the threads."""
        await self._afterwards.close()
        self._embedder.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class RequestMeaning:
    """Ranking for one request: a context is made in a thread, which requests vectors if not everything fits."""

    def __init__(self, search: VectorSearch, threads: ThreadPoolExecutor, afterwards: BackgroundEmbedding) -> None:
        self._search, self._afterwards = search, afterwards
        self._bridge: LoopBridge[list[WantedVector], Known] = LoopBridge(threads, self._find, {})
        self._missing: dict[str, WantedVector] = {}

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs `work`, which may rank by `relevance`, in a thread and returns its result."""
        return await self._bridge.run(work, *arguments)

    def relevance(self, lexical: Relevance) -> Relevance:
        """Returns a ranking that fuses lexical ranks with ranks by meaning; to be called in the thread."""

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
        """Failures of the model, for the response metadata."""
        return list(dict.fromkeys(self._search.warnings))

    def remains(self, conversation_id: str) -> PendingVectors | None:
        """Returns the background work that a stored request leaves; None if there is none."""
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
