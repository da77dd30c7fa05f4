"""What is done for the next question once this one has its answer: vectors are kept, and those still missing made."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from gateway.embeddings.search import Wanted, key_of, portions
from gateway.models.artifacts import cache_group
from gateway.models.exchange import Caller
from gateway.models.relevance import Vector
from gateway.ports import CacheBackend, Embedder
from gateway.telemetry.logs import get_logger

log = get_logger("gateway.embeddings")
MOST_WAITING = 64
"""Requests whose texts wait; of more the oldest are let go: their vectors are made when they are asked for again."""
Holds = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class PendingVectors:
    """What a stored request leaves: vectors to keep, and texts without one. `conversation` is the digest that stands
    for what no artifact holds."""

    caller: Caller
    conversation: str
    made: tuple[tuple[Wanted, Vector], ...] = field(repr=False)
    missing: tuple[Wanted, ...] = field(repr=False)

    @property
    def digests(self) -> tuple[str, ...]:
        """Of the contents of which something will be kept."""
        held = (each.held_by or self.conversation for each in (*(each for each, _ in self.made), *self.missing))
        return tuple(dict.fromkeys(held))


class Afterwards:
    """One request's remains at a time, and none while a request waits for the model."""

    def __init__(self, embedder: Embedder, cache: CacheBackend, ttl: float) -> None:
        self._embedder = embedder
        self._cache = cache
        self._ttl = ttl
        self._waiting: deque[tuple[PendingVectors, Holds]] = deque(maxlen=MOST_WAITING)
        self._task: asyncio.Task[None] | None = None
        self._asked = 0
        self._free = asyncio.Event()
        self._free.set()

    @contextlib.contextmanager
    def priority(self) -> Iterator[None]:
        """While a request waits for the model."""
        self._asked += 1
        self._free.clear()
        try:
            yield
        finally:
            self._asked -= 1
            if not self._asked:
                self._free.set()

    def add(self, remains: PendingVectors, holds: Holds) -> None:
        """`holds` says whether the conversation is still there: nothing is kept of one that was deleted meanwhile."""
        self._waiting.append((remains, holds))
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._work())

    async def close(self) -> None:
        """Leaves the rest undone."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while self._waiting:
            remains, holds = self._waiting.popleft()
            try:
                await self._keep(remains, list(remains.made), holds)
                for portion in portions(await self._unknown(remains), self._embedder.at_once):
                    await self._free.wait()
                    found = await self._embedder.embed([each.text for each in portion], remains.caller)
                    if not await self._keep(remains, list(zip(portion, found.vectors, strict=True)), holds):
                        break
            except Exception as error:  # noqa: BLE001 - what is not kept is made again; the others must not wait
                log.warning("vectors_not_kept", reason=type(error).__name__, text=str(error)[:200])

    async def _unknown(self, remains: PendingVectors) -> list[Wanted]:
        """What no other request has had a vector made of meanwhile."""
        tenant, name = remains.caller.tenant, self._embedder.name
        keys = [key_of(tenant, name, each.digest) for each in remains.missing]
        kept = await self._cache.get_many(keys)
        return [each for each, vector in zip(remains.missing, kept, strict=True) if vector is None]

    async def _keep(self, remains: PendingVectors, made: list[tuple[Wanted, Vector]], holds: Holds) -> bool:
        """Whether their conversation is still there."""
        if not made:
            return True
        if not await holds():
            return False
        tenant = remains.caller.tenant
        for each, vector in made:
            group = cache_group(tenant, each.held_by or remains.conversation)
            await self._cache.set(key_of(tenant, self._embedder.name, each.digest), vector, self._ttl, group=group)
        return True
