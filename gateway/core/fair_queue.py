"""Fair queues for shared resources: tenants take turns, so that none waits for all the work of another (§12)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")


class ByTurns(Generic[T]):
    """A queue of items, each tenant's in order. The same item of a tenant waits once."""

    def __init__(self) -> None:
        self._of: dict[str, dict[T, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def add(self, tenant: str, item: T) -> None:
        """Appends an item to this tenant's queue."""
        self._of.setdefault(tenant, {})[item] = None

    @property
    def first(self) -> T:
        return next(iter(next(iter(self._of.values()))))

    def take(self) -> tuple[str, T]:
        """Removes the next item and returns its tenant and the item; the tenant goes to the end of the line."""
        tenant, own = next(iter(self._of.items()))
        item = next(iter(own))
        self.remove(tenant, item)
        if tenant in self._of:
            self._of[tenant] = self._of.pop(tenant)
        return tenant, item

    def remove(self, tenant: str, item: T) -> None:
        """Removes an item if it is waiting."""
        own = self._of.get(tenant, {})
        own.pop(item, None)
        if not own:
            self._of.pop(tenant, None)


class SharedRoom:
    """A semaphore with sizes: when capacity is short, tenants take turns.
    `room`: the capacity; a larger request gets it alone."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._used = 0
        self._waiting = ByTurns[tuple[int, asyncio.Future[None]]]()

    async def acquire(self, tenant: str, size: int = 1, patience: float | None = None) -> None:
        """Waits for capacity of `size` and takes it. Raises TimeoutError: none is free after `patience` seconds."""
        if not self._waiting and self._has_room(size):
            self._used += size
            return
        waits = (size, asyncio.get_running_loop().create_future())
        self._waiting.add(tenant, waits)
        try:
            async with asyncio.timeout(patience):
                await waits[1]
        except BaseException:
            if waits[1].done() and not waits[1].cancelled():  # admitted just as the wait ended
                self.release(size)
            else:
                self._waiting.remove(tenant, waits)
                self._admit()
            raise

    @contextlib.asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Holds capacity of 1 for the length of the block."""
        await self.acquire(tenant)
        try:
            yield
        finally:
            self.release()

    def release(self, size: int = 1) -> None:
        self._used -= size
        self._admit()

    def _has_room(self, size: int) -> bool:
        return not self._used or self._used + size <= self._room

    def _admit(self) -> None:
        while self._waiting and self._has_room(self._waiting.first[0]):
            _, (size, waits) = self._waiting.take()
            if not waits.done():
                self._used += size
                waits.set_result(None)
