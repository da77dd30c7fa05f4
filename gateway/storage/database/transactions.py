"""What both databases share: a transaction as its caller sees it."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import sqlalchemy as sa

from gateway.core import errors
from gateway.core.instrumentation import logs

log = logs.get_logger("gateway.storage")
P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[[sa.Connection], T]
"""One transaction. It may be run again after a rollback, so it changes nothing but the database."""


class CommitUnknown(errors.StorageUnavailable):
    """The connection was lost at the COMMIT: it is not yet known whether the database has committed."""


class WriteState:
    """Whether a database takes writes, as far as this process knows: no from its first refusal until a probe was
    written."""

    def __init__(self) -> None:
        self.are_refused = False

    def refused(self, error: errors.StorageReadOnly) -> None:
        """Marks writes as refused, and logs the cause once."""
        if not self.are_refused:
            log.warning("storage_cannot_be_written", reason=errors.cause_of(error) or error.message)
        self.are_refused = True

    def taken(self) -> None:
        """Marks writes as taken again, after a probe was written."""
        if self.are_refused:
            log.info("storage_can_be_written_again")
        self.are_refused = False


class DatabaseTransactions(Protocol):
    """One database. `run` is one transaction: committed if `work` returns, rolled back if it raises.
    Raises CommitUnknown: it may have been committed, or may yet be; StorageReadOnly: it certainly was not, as the
    database is read-only; StorageUnavailable: it certainly was not."""

    remote: bool
    writes: WriteState

    async def run(self, work: Work[T], *, write: bool = False, synced: bool = True) -> T:
        """Runs `work` as one transaction. `synced` False: it survives the end of this process; a crash of the machine
        may undo it until the next synced transaction."""

    def at_once(self, work: Work[None]) -> bool:
        """Runs one small transaction before this returns, not synced, if that takes no waiting. False: nothing was
        written; use `run`."""

    def seems_read_only(self, connection: sa.Connection) -> bool:
        """Returns whether nothing seems writable; called within a transaction, writes nothing."""

    async def wipe(self) -> bool:
        """Erases deleted rows from the files beside the tables, too. Returns False if another reader prevents it now;
        the wipe is pending from then on."""

    async def wipe_owed(self) -> None:
        """Runs a wipe that is still pending."""

    async def close(self) -> None: ...


class DatabaseClient:
    """Base of classes whose methods are short transactions of one database.
    Raises StorageUnavailable: from any method: the storage cannot be reached, or not within its timeout."""

    def __init__(self, transactions: DatabaseTransactions) -> None:
        self._transactions = transactions


def reads(
    work: Callable[Concatenate[sa.Connection, P], T], *, write: bool = False
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Makes a method from the function of one transaction; the method's class has the database in `_transactions`."""

    @wraps(work)
    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = await self._transactions.run(lambda connection: work(connection, *args, **kwargs), write=write)
        return found

    return method


def writes(work: Callable[Concatenate[sa.Connection, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Makes a method from the function of one transaction that writes, as `reads` does."""
    return reads(work, write=True)
