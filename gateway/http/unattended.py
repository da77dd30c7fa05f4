"""Answers whose client has left, and may ask for them again: an SDK that lost patience sends its request once more."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from gateway.http.edge import ClientDisconnected, Receive
from gateway.http.receive import until_disconnect
from gateway.idempotency import Permit

T = TypeVar("T")
PATIENCE_SECONDS = 30.0
"""So long an answer is worked on that nobody waits for. SDKs try again within eight seconds."""


class Unattended:
    """Work that goes on without its client, so that what is asked again is charged and stored once."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def result(self, receive: Receive, permit: Permit, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which goes on if the client leaves; whoever asks again waits for it.

        Raises:
            ClientDisconnected: the client left first.
        """
        task = asyncio.ensure_future(_within(permit, work))
        try:
            return await until_disconnect(receive, _of(task))
        except ClientDisconnected:
            for kept in (task, asyncio.ensure_future(_watch(task, permit))):
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


async def _watch(task: asyncio.Task[Any], permit: Permit) -> None:
    """Lets it go on while it is wanted. How it ends is in the ledger, and told to whoever waits."""
    try:
        while not (await asyncio.wait({task}, timeout=PATIENCE_SECONDS))[0]:
            if not permit.wanted:
                return
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # nobody else looks at it
