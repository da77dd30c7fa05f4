"""Where deleted objects stood in their lists: a client that deletes what it lists reads on behind the end of a page."""

from datetime import datetime

from gateway.core import ids, ports

PLACE_SECONDS = 600.0
"""How long a place is known: pages are read one after another."""
KEY_CHARS = 32
ListPlace = tuple[datetime, str]
"""The values by which lists are sorted: a time and an id."""
ItemPlace = tuple[int, int]
"""The number of a message on its path, -1 for the system messages before it; and of the item among those of the
message."""


class DeletedPlaces:
    """The places of recently deleted objects, held in a cache: an unknown one is as if it had never been there."""

    def __init__(self, cache: ports.CacheBackend | None) -> None:
        self._cache = cache

    async def add(self, tenant: str, name: str, place: ListPlace) -> None:
        """Stores where the tenant's object of that id stood."""
        await self._set(tenant, name, f"{place[0].isoformat()} {place[1]}")

    async def find(self, tenant: str, name: str | None) -> ListPlace | None:
        """Returns where the tenant's object of that id stood; None if it is unknown."""
        found = await self._get(tenant, name)
        return None if found is None else (datetime.fromisoformat(found[0]), found[1])

    async def add_item(self, tenant: str, conversation_id: str, name: str, place: ItemPlace) -> None:
        """Stores where an item of the tenant's conversation stood."""
        await self._set(tenant, f"{conversation_id}/{name}", f"{place[0]} {place[1]}")

    async def find_item(self, tenant: str, conversation_id: str, name: str | None) -> ItemPlace | None:
        """Returns where an item of the tenant's conversation stood; None if it is unknown."""
        found = await self._get(tenant, None if name is None else f"{conversation_id}/{name}")
        return None if found is None else (int(found[0]), int(found[1]))

    async def _set(self, tenant: str, name: str, place: str) -> None:
        if self._cache is not None:
            await self._cache.set(_key(tenant, name), place.encode(), PLACE_SECONDS)

    async def _get(self, tenant: str, name: str | None) -> tuple[str, str] | None:
        if self._cache is None or name is None:
            return None
        found = await self._cache.get(_key(tenant, name))
        if found is None:
            return None
        first, _, second = found.decode().partition(" ")
        return first, second


def _key(tenant: str, name: str) -> str:
    digest = ids.content_digest(f"{tenant}\n{name}")
    return f"place:{digest[:KEY_CHARS]}"
