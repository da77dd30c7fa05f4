"""Values that may be lost at any time (adapters of `ports.CacheBackend`): in process memory, or in Redis."""

from collections.abc import Callable, Sequence

from gateway.core import ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.config.settings import CacheSettings
from gateway.storage.encryption.columns import KeyVault

OnEvict = Callable[..., None]
"""Called with the groups before their values are deleted."""


def open_cache(
    settings: CacheSettings, clock: ports.Clock, vault: KeyVault | None = None, on_evict: OnEvict | None = None
) -> ports.ClaimingCache:
    """Opens Redis if `cache.url` is set, else a cache in memory; connects to nothing yet. Values that leave the process
    are sealed with the key of `vault`."""
    if settings.url:
        from gateway.storage.cache.redis import RedisCache

        return RedisCache(settings.url, settings.timeout, clock, vault, on_evict)
    return MemoryCache(settings.max_bytes, clock, on_evict)


class MemoryCache:
    """A cache in memory; the least recently used values are evicted when `max_bytes` are exceeded."""

    def __init__(self, max_bytes: int, clock: ports.Clock, on_evict: OnEvict | None = None) -> None:
        self._on_evict = on_evict
        self._values: BoundedCache[str, tuple[bytes, str | None]] = BoundedCache(
            max_weight=max_bytes, now=clock.monotonic, on_evict=self._leave_group
        )
        self._groups: dict[str, set[str]] = {}

    @property
    def size(self) -> int:
        return self._values.weight

    async def get(self, key: str) -> bytes | None:
        """Returns a value; None if it is unknown or has expired."""
        found = self._values.get(key)
        return found[0] if found is not None else None

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """Returns the value of each key, or None."""
        return [await self.get(key) for key in keys]

    async def set(self, key: str, value: bytes, ttl: float, *, group: str | None = None) -> None:
        """Stores a value for `ttl` seconds at most."""
        self._drop(key)
        if group is not None:
            self._groups.setdefault(group, set()).add(key)
        self._values.put(key, (value, group), weight=len(key) + len(value), ttl=ttl)

    async def evict(self, *groups: str) -> None:
        if self._on_evict is not None:
            self._on_evict(*groups)
        for group in groups:
            for key in list(self._groups.get(group, ())):
                self._drop(key)

    async def claim(self, key: str, owner: str, ttl: float) -> bool:
        if await self.get(key) not in (None, owner.encode()):
            return False
        await self.set(key, owner.encode(), ttl)
        return True

    async def get_or_claim(self, key: str, claim: str, owner: str, ttl: float) -> tuple[bytes | None, bool]:
        value = await self.get(key)
        return value, value is None and await self.claim(claim, owner, ttl)

    async def release(self, key: str, owner: str) -> None:
        if await self.get(key) == owner.encode():
            self._drop(key)

    async def close(self) -> None:
        self._values.clear()
        self._groups.clear()

    def _drop(self, key: str) -> None:
        found = self._values.pop(key)
        if found is not None:
            self._leave_group(key, found)

    def _leave_group(self, key: str, value: tuple[bytes, str | None]) -> None:
        _, group = value
        if group is not None:
            others = self._groups[group]
            others.discard(key)
            if not others:
                del self._groups[group]
