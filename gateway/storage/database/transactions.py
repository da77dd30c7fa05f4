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
    """The connection was lost at the COMMIT: nobody can say yet whether the database has it."""


class WriteState:
    """Whether a database takes writes, as far as this process knows: not from the first that it refused until a probe
    was written."""

    def __init__(self) -> None:
        self.are_refused = False

    def refused(self, error: errors.StorageReadOnly) -> None:
        """A write was refused. The cause goes to the log once."""
        if not self.are_refused:
            log.warning("storage_cannot_be_written", reason=_cause(error))
        self.are_refused = True

    def taken(self) -> None:
        """A probe was written."""
        if self.are_refused:
            log.info("storage_can_be_written_again")
        self.are_refused = False


def _cause(error: errors.StorageReadOnly) -> str:
    """What the database said, on one line and without its statement."""
    cause = error.__cause__
    return str(getattr(cause, "orig", None) or cause or error.message).splitlines()[0]


class DatabaseTransactions(Protocol):
    """One database. `run` is one transaction: committed if `work` returns, rolled back if it raises.
    Raises CommitUnknown: it may have been committed, or may yet be; StorageReadOnly: it certainly has not been, as the
    database can be read alone; StorageUnavailable: it certainly has not been."""

    remote: bool
    writes: WriteState

    async def run(self, work: Work[T], *, write: bool = False, synced: bool = True) -> T:
        """`synced` False: it is written once it survives the end of this process; the end of the machine may undo it
        until the next that is synced."""
        ...

    def at_once(self, work: Work[None]) -> bool:
        """One small transaction before this returns, not synced, where that takes no waiting; False: nothing was
        written, and `run` is to do it."""
        ...

    def seems_read_only(self, connection: sa.Connection) -> bool:
        """Whether it looks as if nothing could be written; asked within a transaction, and written nowhere."""
        ...

    async def wipe(self) -> bool:
        """Takes what deleted rows said out of the files that lie beside the tables, too. False: not possible now, as
        somebody else is reading; it is owed from then on."""
        ...

    async def wipe_owed(self) -> None:
        """Wipes if it was not possible when it was asked for."""
        ...

    async def close(self) -> None: ...


class DatabaseClient:
    """Whose methods are short transactions of one database.
    Raises StorageUnavailable: from any method: the storage cannot be reached, or not within its timeout."""

    def __init__(self, transactions: DatabaseTransactions) -> None:
        self._transactions = transactions


def reads(
    work: Callable[Concatenate[sa.Connection, P], T], *, write: bool = False
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Makes a method out of what one transaction does: whoever has the method has the database in `_transactions`."""

    @wraps(work)
    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = await self._transactions.run(lambda connection: work(connection, *args, **kwargs), write=write)
        return found

    return method


def writes(work: Callable[Concatenate[sa.Connection, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The same of a transaction that writes."""
    return reads(work, write=True)
