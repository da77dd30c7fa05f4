"""Frames of requests of which nothing is stored: in the process, and in the cache that replicas share (ADR 12)."""

from collections import OrderedDict, defaultdict
from collections.abc import Sequence

from gateway.core.ports import CacheBackend, Clock

MAX_BYTES = 256 * 1024
"""Bytes of one frame. A larger one is not kept: its conversation is fitted anew."""
MAX_FRAMES = 20_000
"""Frames in the process."""
PREFIX = "frame:"


class FrameCache:
    """Frames by key, each for `ttl` seconds after it was written. Where they take more than `max_bytes` in the process,
    the oldest of the tenant leaves that has most, so that no tenant takes the room of another."""

    def __init__(self, shared: CacheBackend | None, clock: Clock, ttl: float, max_bytes: int) -> None:
        """`shared`: the cache of all replicas; None: there is none but this process."""
        self._shared, self._clock, self._max_bytes = shared, clock, max_bytes
        self.ttl = ttl
        self._kept: defaultdict[str, OrderedDict[str, tuple[float, bytes]]] = defaultdict(OrderedDict)
        self._sizes: defaultdict[str, int] = defaultdict(int)
        self.size = self._count = 0
        """Bytes of all keys and values in the process."""

    async def first(self, tenant: str, keys: Sequence[str]) -> tuple[int, bytes] | None:
        """The number of the first of these keys that is known, and its frame."""
        own = next(((n, value) for n, key in enumerate(keys) if (value := self._own(tenant, key)) is not None), None)
        others = keys[: own[0]] if own is not None else keys
        if self._shared is None or not others:
            return own
        found = await self._shared.get_many([PREFIX + key for key in others])
        return next(((n, value) for n, value in enumerate(found) if value and len(value) <= MAX_BYTES), own)

    async def keep(self, tenant: str, key: str, value: bytes) -> None:
        """Keeps a frame."""
        if len(value) > MAX_BYTES:
            return
        self._drop(tenant, key)
        self._kept[tenant][key] = self._clock.monotonic() + self.ttl, value
        self._count_in(tenant, len(key) + len(value), 1)
        while self._sizes and (self.size > self._max_bytes or self._count > MAX_FRAMES):
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self._drop(largest, next(iter(self._kept[largest])))
        if self._shared is not None:
            await self._shared.set(PREFIX + key, value, self.ttl)

    def _own(self, tenant: str, key: str) -> bytes | None:
        found = self._kept[tenant].get(key) if tenant in self._kept else None
        if found is None or found[0] > self._clock.monotonic():
            return found[1] if found is not None else None
        self._drop(tenant, key)
        return None

    def _drop(self, tenant: str, key: str) -> None:
        found = self._kept[tenant].pop(key, None)
        if found is not None:
            self._count_in(tenant, -len(key) - len(found[1]), -1)
        if not self._kept[tenant]:
            del self._kept[tenant]
            self._sizes.pop(tenant, None)

    def _count_in(self, tenant: str, size: int, count: int) -> None:
        self._sizes[tenant] += size
        self.size += size
        self._count += count
