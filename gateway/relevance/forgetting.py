"""A cache whose groups are forgotten together with the indexes of their contents."""

from collections.abc import Sequence

from gateway.ports import ClaimingCache
from gateway.relevance.kept import ContentIndexes


class ForgettingCache:
    """`ClaimingCache`: whoever deletes a content from it deletes the index of that content, too (contract §5)."""

    def __init__(self, cache: ClaimingCache, indexes: ContentIndexes) -> None:
        self._cache, self._indexes = cache, indexes

    async def get(self, key: str) -> bytes | None:
        """See `CacheBackend`."""
        return await self._cache.get(key)

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """See `CacheBackend`."""
        return await self._cache.get_many(keys)

    async def set(self, key: str, value: bytes, ttl: float, *, group: str | None = None) -> None:
        """See `CacheBackend`."""
        await self._cache.set(key, value, ttl, group=group)

    async def forget(self, *groups: str) -> None:
        """Forgets values and indexes of these groups."""
        self._indexes.forget(*groups)
        await self._cache.forget(*groups)

    async def claim(self, key: str, owner: str, ttl: float) -> bool:
        """See `ClaimingCache`."""
        return await self._cache.claim(key, owner, ttl)

    async def get_or_claim(self, key: str, claim: str, owner: str, ttl: float) -> tuple[bytes | None, bool]:
        """See `ClaimingCache`."""
        return await self._cache.get_or_claim(key, claim, owner, ttl)

    async def release(self, key: str, owner: str) -> None:
        """See `ClaimingCache`."""
        await self._cache.release(key, owner)

    async def close(self) -> None:
        """See `CacheBackend`."""
        await self._cache.close()
