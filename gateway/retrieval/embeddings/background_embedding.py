"""Background work for the next question: keeps new vectors, and makes those that are still missing."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from gateway.core.instrumentation.logs import get_logger
from gateway.core.ports import CacheBackend, Embedder
from gateway.core.types.artifacts import cache_group
from gateway.core.types.chat import RequestCaller
from gateway.core.types.relevance import Vector
from gateway.core.types.upstream import CallScope
from gateway.retrieval.embeddings.search import WantedVector, key_of, portions

log = get_logger("gateway.retrieval.embeddings")
MAX_WAITING = 64
"""Requests whose texts may wait; beyond that the oldest are dropped: later questions make their vectors."""
Holds = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class PendingVectors:
    """Work that a stored request leaves: new vectors to keep, and texts without one. `conversation` is the digest under
    which texts are grouped that belong to no artifact."""

    caller: RequestCaller
    conversation: str
    made: tuple[tuple[WantedVector, Vector], ...] = field(repr=False)
    missing: tuple[WantedVector, ...] = field(repr=False)

    @property
    def digests(self) -> tuple[str, ...]:
        """Digests of the contents of which something will be kept."""
        held = (each.held_by or self.conversation for each in (*(each for each, _ in self.made), *self.missing))
        return tuple(dict.fromkeys(held))


class BackgroundEmbedding:
    """Does the work of one request at a time, and pauses while a request waits for the model."""

    def __init__(self, embedder: Embedder, cache: CacheBackend, ttl: float) -> None:
        self._embedder = embedder
        self._cache = cache
        self._ttl = ttl
        self._waiting: deque[tuple[PendingVectors, Holds]] = deque(maxlen=MAX_WAITING)
        self._task: asyncio.Task[None] | None = None
        self._asked = 0
        self._free = asyncio.Event()
        self._free.set()

    @contextlib.contextmanager
    def priority(self) -> Iterator[None]:
        """Pauses the work while a request waits for the model."""
        self._asked += 1
        self._free.clear()
        try:
            yield
        finally:
            self._asked -= 1
            if not self._asked:
                self._free.set()

    def add(self, pending: PendingVectors, holds: Holds) -> None:
        """Queues a request's work. `holds` says whether its conversation still exists; else nothing is kept."""
        self._waiting.append((pending, holds))
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._work())

    async def close(self) -> None:
        """Drops the work that is left."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while self._waiting:
            pending, holds = self._waiting.popleft()
            try:
                await self._keep(pending, list(pending.made), holds)
                for portion in portions(await self._unknown(pending), self._embedder.at_once):
                    await self._free.wait()
                    found = await self._embedder.embed([each.text for each in portion], CallScope(pending.caller))
                    if not await self._keep(pending, list(zip(portion, found.vectors, strict=True)), holds):
                        break
            except Exception as error:  # noqa: BLE001 - a vector that is not kept is made again; other requests must not wait
                log.warning("vectors_not_kept", reason=type(error).__name__, text=str(error)[:200])

    async def _unknown(self, pending: PendingVectors) -> list[WantedVector]:
        """The texts for which no other request has made a vector in the meantime."""
        tenant, name = pending.caller.tenant, self._embedder.name
        keys = [key_of(tenant, name, each.digest) for each in pending.missing]
        kept = await self._cache.get_many(keys)
        return [each for each, vector in zip(pending.missing, kept, strict=True) if vector is None]

    async def _keep(self, pending: PendingVectors, made: list[tuple[WantedVector, Vector]], holds: Holds) -> bool:
        """Keeps vectors; False if their conversation no longer exists."""
        if not made:
            return True
        if not await holds():
            return False
        tenant = pending.caller.tenant
        for each, vector in made:
            group = cache_group(tenant, each.held_by or pending.conversation)
            await self._cache.set(key_of(tenant, self._embedder.name, each.digest), vector, self._ttl, group=group)
        return True
