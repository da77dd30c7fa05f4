"""Frames of requests that are not stored: in the process, and in the cache that replicas share (ADR 12)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from gateway.core import ports
from gateway.core.bounded_cache import BoundedCache

MAX_BYTES = 256 * 1024
"""Bytes of one frame. A larger one is not cached: its conversation is fitted again."""
MAX_FRAMES = 20_000
"""Frames in the process."""
FRAME_PREFIX = "frame:"


class FrameCache:
    """Frames by key, each for `ttl` seconds after it was written, or as given to `keep`. If they exceed `max_bytes` in
    the process, the oldest frame of the largest tenant is evicted, so that no tenant takes another's space."""

    def __init__(self, shared: ports.CacheBackend | None, clock: ports.Clock, ttl: float, max_bytes: int) -> None:
        """`shared`: the cache that replicas share; None: frames stay in this process alone."""
        self._shared, self._clock, self._max_bytes = shared, clock, max_bytes
        self.ttl = ttl
        self._kept: dict[str, BoundedCache[str, bytes]] = {}
        self.size = self._count = 0
        """Bytes of all keys and values in the process."""

    async def first(self, tenant: str, keys: Iterable[str]) -> tuple[int, bytes] | None:
        """Returns the index of the first key that is cached, and its frame; None if no key is. The shared cache goes
        before the process: of a request that two replicas answered, each would go on from its own frame else."""
        asked: list[str] = []
        own = None
        for key in keys:
            asked.append(key)
            if (value := self._own(tenant, key)) is not None:
                own = len(asked) - 1, value
                break
        if self._shared is None:
            return own
        found = await self._shared.get_many([FRAME_PREFIX + key for key in asked])
        return next(((n, value) for n, value in enumerate(found) if value and len(value) <= MAX_BYTES), own)

    async def copies(self, tenant: str, key: str) -> list[bytes]:
        """Returns what this process and the shared cache hold under a key that replicas write again: either may be the
        later one, as the shared cache may have failed meanwhile."""
        shared = await self._shared.get_many([FRAME_PREFIX + key]) if self._shared is not None else ()
        return [value for value in (self._own(tenant, key), *shared) if value and len(value) <= MAX_BYTES]

    async def keep(self, tenant: str, key: str, value: bytes, ttl: float | None = None) -> None:
        """Caches a frame, unless it exceeds `MAX_BYTES`. `ttl`: seconds; None: the cache's own `ttl`."""
        if len(value) > MAX_BYTES:
            return
        ttl = self.ttl if ttl is None else ttl
        if tenant not in self._kept:
            self._kept[tenant] = BoundedCache(now=self._clock.monotonic, ttl=self.ttl)
        with self._counted(tenant) as own:
            own.put(key, value, weight=len(key) + len(value), ttl=ttl)
        while self._kept and (self.size > self._max_bytes or self._count > MAX_FRAMES):
            with self._counted(max(self._kept, key=lambda each: self._kept[each].weight)) as largest:
                largest.evict_oldest()
        if self._shared is not None:
            await self._shared.set(FRAME_PREFIX + key, value, ttl)

    def _own(self, tenant: str, key: str) -> bytes | None:
        own = self._kept.get(tenant)
        found = own.peek(key) if own is not None else None
        if found is None and own is not None and key in own:  # its time is over
            with self._counted(tenant):
                own.pop(key)
        return found

    @contextmanager
    def _counted(self, tenant: str) -> Iterator[BoundedCache[str, bytes]]:
        """Updates size and count by what changes in a tenant's frames."""
        own = self._kept[tenant]
        size, count = own.weight, len(own)
        yield own
        self.size += own.weight - size
        self._count += len(own) - count
        if not len(own):
            del self._kept[tenant]
