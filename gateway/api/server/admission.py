"""Large bodies share a budget of bytes: each takes several times its size while it is read, fitted or sent."""

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Self

from gateway.core.errors import Overloaded
from gateway.core.fair_queue import SharedRoom

LARGE_BYTES = 8 * 2**20
"""Bytes from which a body is large: smaller ones are never kept waiting."""


class LargeBodies(SharedRoom):
    """Admits large bodies in the order in which they come, those of tenants by turns.
    `max_bytes`: of all large bodies that are worked on at once. A larger one is worked on alone. `patience`: seconds
    after which a body that waits is refused."""

    def __init__(self, max_bytes: int, patience: float) -> None:
        super().__init__(max_bytes)
        self._patience = patience
        self._give_back = _giving_back()

    def place(self, tenant: str) -> "BodySlot":
        """A place for one body of a tenant's, which is given back at the end of a `with` block."""
        return BodySlot(self, tenant)

    def occupied(self, size: int) -> "BodySlot":
        """Counts a large answer while it is sent, to the end of a `with` block: requests wait for its room. It never
        waits itself, as it is paid."""
        held = size if size >= LARGE_BYTES else 0
        self._used += held
        return BodySlot(self, "", held)

    async def admitted(self, tenant: str, size: int) -> None:
        """Waits until there is room for `size` bytes. Raises Overloaded: there is none after `patience` seconds."""
        try:
            await self.acquire(tenant, size, self._patience)
        except TimeoutError:
            raise Overloaded from None

    def release(self, size: int = 1) -> None:
        """Gives the room back, and the memory to the system: it is that of many small objects, which Python's allocator
        would keep for the next request of this size."""
        super().release(size)
        if self._give_back is not None and not self._used:
            asyncio.get_running_loop().run_in_executor(None, self._give_back)


class BodySlot:
    """What one body holds of the budget: nothing as long as it is small."""

    def __init__(self, bodies: LargeBodies, tenant: str, size: int = 0) -> None:
        self._bodies = bodies
        self._tenant = tenant
        self._size = size

    async def grow(self, size: int, expected: int) -> None:
        """To be called as the body arrives.
        `size`: bytes that have arrived; `expected`: bytes that it may have in the end.
        Raises Overloaded: it is large, and there is no room for it."""
        if not self._size and size >= LARGE_BYTES:
            await self._bodies.admitted(self._tenant, expected)
            self._size = expected

    def release(self) -> None:
        """The body has been worked on. Harmless when repeated."""
        size, self._size = self._size, 0
        if size:
            self._bodies.release(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _giving_back() -> Callable[[], None] | None:
    """What gives freed memory back to the system; None where the C library has no such call."""
    if sys.platform != "linux":
        return None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return None

    def give_back() -> None:
        gc.collect()
        trim(0)

    return give_back
