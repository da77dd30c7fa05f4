"""Where deleted objects stood in their lists: a client that deletes what it lists reads on behind the end of a page."""

from datetime import datetime

from gateway.core import ids, ports

PLACE_SECONDS = 600.0
"""How long a place is known: pages are read one after another."""
KEY_CHARS = 32
ListPlace = tuple[datetime, str]
"""The values by which lists are sorted: a time and an id."""


class DeletedPlaces:
    """The places of recently deleted objects, held in a cache: an unknown one is as if it had never been there."""

    def __init__(self, cache: ports.CacheBackend | None) -> None:
        self._cache = cache

    async def add(self, tenant: str, name: str, place: ListPlace) -> None:
        """Stores where the tenant's object of that id stood."""
        if self._cache is not None:
            at, last = place
            await self._cache.set(_key(tenant, name), f"{at.isoformat()} {last}".encode(), PLACE_SECONDS)

    async def find(self, tenant: str, name: str | None) -> ListPlace | None:
        """Returns where the tenant's object of that id stood; None if it is unknown."""
        if self._cache is None or name is None:
            return None
        found = await self._cache.get(_key(tenant, name))
        if found is None:
            return None
        at, _, last = found.decode().partition(" ")
        return datetime.fromisoformat(at), last


def _key(tenant: str, name: str) -> str:
    digest = ids.content_digest(f"{tenant}\n{name}")
    return f"place:{digest[:KEY_CHARS]}"
