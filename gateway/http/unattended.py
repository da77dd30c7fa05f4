"""Answers whose client has left, and may ask for them again: an SDK that lost patience sends its request once more."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from gateway.http.edge import ClientDisconnected, Receive
from gateway.http.receive import until_disconnect
from gateway.idempotency import Permit

T = TypeVar("T")
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.5, 8.0
"""How long an SDK waits before it tries again: twice as long each time, within these bounds."""
ON_ITS_WAY_SECONDS = 0.5


def patience(retries: int) -> float:
    """Seconds after which the next try of a client that has tried `retries` times again must have come."""
    return min(LAST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(retries, 10)) + ON_ITS_WAY_SECONDS


class Unattended:
    """Work that goes on without its client, so that what is asked again is charged and stored once."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def result(self, receive: Receive, permit: Permit, retries: int, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which goes on for a moment if the client leaves, and as long as one waits for it who
        asks again.

        Args:
            retries: how often the client has tried again before.

        Raises:
            ClientDisconnected: the client left first.
        """
        task = asyncio.ensure_future(_within(permit, work))
        try:
            return await until_disconnect(receive, _of(task))
        except ClientDisconnected:
            for kept in (task, asyncio.ensure_future(_watch(task, permit, patience(retries)))):
                self._tasks.add(kept)
                kept.add_done_callback(self._tasks.discard)
            raise
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def close(self) -> None:
        """Cuts what is still being worked on, at shutdown."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _within(permit: Permit, work: Coroutine[Any, Any, T]) -> T:
    with permit:
        return await work


async def _of(task: asyncio.Task[T]) -> T:
    return await asyncio.shield(task)


async def _watch(task: asyncio.Task[Any], permit: Permit, seconds: float) -> None:
    """Lets it go on while it is wanted. How it ends is in the ledger, and told to whoever waits."""
    try:
        while not (await asyncio.wait({task}, timeout=seconds))[0]:
            if not permit.wanted:
                return
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # nobody else looks at it
