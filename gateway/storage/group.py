"""Commits that arrive while others are being written go together into the next transaction."""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.errors import StorageUnavailable
from gateway.models.turn import TurnCommit

MOST = 200
Write = Callable[[list[TurnCommit]], Awaitable[None]]


class CommitGroup:
    """One transaction costs a thread's turn and a sync to disk, however much it writes: under load these are shared."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: list[tuple[TurnCommit, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def add(self, commit: TurnCommit) -> None:
        """Returns once it is on disk. It is written even if the caller is cancelled meanwhile.

        Raises:
            StorageUnavailable: the storage could not be written to.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((commit, done))
        if self._writer is None:
            self._writer = asyncio.ensure_future(self._drain())
        await asyncio.shield(done)

    async def _drain(self) -> None:
        try:
            await asyncio.sleep(0)  # whoever is about to commit in this very turn of the loop comes along
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                await self._write_together(batch)
        finally:
            self._writer = None

    async def _write_together(self, batch: list[tuple[TurnCommit, asyncio.Future[None]]]) -> None:
        try:
            await self._write([commit for commit, _ in batch])
        except StorageUnavailable as error:
            for _, done in batch:
                _fail(done, error)
        except Exception as error:  # noqa: BLE001 - one of them cannot be written: the others are not to suffer for it
            if len(batch) == 1:
                _fail(batch[0][1], error)
                return
            for each in batch:
                await self._write_together([each])
        else:
            for _, done in batch:
                if not done.done():
                    done.set_result(None)


def _fail(done: asyncio.Future[None], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
        done.exception()  # whether or not anyone still waits for it
