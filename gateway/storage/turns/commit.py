"""Writes turns and bills, each once, also when nobody can say whether a COMMIT got through."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from gateway.core.errors import StorageUnavailable
from gateway.core.instrumentation.logs import get_logger
from gateway.core.types.turn import OpenCallRow, TurnCommit
from gateway.storage.claims import write_open
from gateway.storage.database import schema
from gateway.storage.database.transactions import CommitUnknown, DatabaseTransactions
from gateway.storage.turns.write_turn import left_behind, write_turns

MAX_SHARED = 200
"""Commits that share one transaction."""
ATTEMPTS = 3
"""Transactions after a lost COMMIT that ask whether it went through, before the storage counts as unavailable."""
Item = TurnCommit | OpenCallRow
Write = Callable[[list[Item]], Awaitable[None]]
log = get_logger("gateway.storage")


async def record(
    transactions: DatabaseTransactions, commits: Sequence[TurnCommit], now: datetime, opened: Sequence[OpenCallRow] = ()
) -> list[str]:
    """Writes turns and bills in one transaction, and which requests are about to ask a model. The bill of a turn says
    whether both are stored: after a lost COMMIT, and for commits tried before, the ledger is read first.

    Returns the cache groups to evict (`write_turns`).
    Raises StorageUnavailable: nothing could be written, or nobody can say yet whether it was."""
    if not commits:
        await transactions.run(lambda connection: write_open(connection, opened), write=True, synced=False)
        return []
    if not any(commit.again for commit in commits):
        try:
            return await transactions.run(lambda c: _write(c, commits, now, opened), write=True)
        except CommitUnknown:
            log.warning("commit_unknown", requests=len(commits))
        except IntegrityError:
            if len(commits) > 1 or opened or not await transactions.run(lambda c: _known(c, commits)):
                raise
            text = "This request was billed by another process, which had not heard of this one for too long."
            raise StorageUnavailable(text) from None
    for _ in range(ATTEMPTS):
        try:
            return await transactions.run(lambda c: _write_rest(c, commits, now, opened), write=True)
        except (CommitUnknown, IntegrityError) as error:  # the earlier COMMIT went through while this one was tried
            last = error
    raise StorageUnavailable("The storage does not say what was committed.") from last


def _write(
    connection: sa.Connection, commits: Sequence[TurnCommit], now: datetime, opened: Sequence[OpenCallRow]
) -> list[str]:
    write_open(connection, opened)
    return write_turns(connection, commits, now)


def _known(connection: sa.Connection, commits: Sequence[TurnCommit]) -> set[str]:
    column = schema.ledger.c.request_id
    query = sa.select(column).where(column.in_([commit.ledger.request_id for commit in commits]))
    return set(connection.execute(query).scalars())


def _write_rest(
    connection: sa.Connection, commits: Sequence[TurnCommit], now: datetime, opened: Sequence[OpenCallRow]
) -> list[str]:
    write_open(connection, opened)
    known = _known(connection, commits)
    gone = write_turns(connection, [commit for commit in commits if commit.ledger.request_id not in known], now)
    for commit in commits:
        if commit.ledger.request_id in known and commit.turn is not None:
            gone += left_behind(connection, commit.turn, commit.ledger.tenant)
    return gone


class CommitGroup:
    """Commits that arrive while others are written share the next transaction: a switch of threads and a sync to disk
    cost the same however much is written."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: list[tuple[Item, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being written, nor waits."""
        return self._writer is None

    async def add(self, commit: Item) -> None:
        """Returns once it is on disk. It is written even if the caller is cancelled meanwhile.
        Raises StorageUnavailable: the storage could not be written to."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((commit, done))
        if self._writer is None:
            self._writer = asyncio.ensure_future(self._drain())
        await done

    async def _drain(self) -> None:
        try:
            await asyncio.sleep(0)  # whoever is about to commit in this very turn of the loop comes along
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_SHARED], self._waiting[MAX_SHARED:]
                await self._write_together(batch)
        finally:
            self._writer = None

    async def _write_together(self, batch: list[tuple[Item, asyncio.Future[None]]]) -> None:
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
