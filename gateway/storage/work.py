"""What a transaction is to its caller, whichever database runs it."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import sqlalchemy as sa

from gateway.errors import StorageUnavailable

T = TypeVar("T")
Work = Callable[[sa.Connection], T]
"""One transaction. It may be run again after a rollback, so it changes nothing but the database."""


class CommitUnknown(StorageUnavailable):
    """The connection was lost at the COMMIT: nobody can say yet whether the database has it."""


class Transactions(Protocol):
    """One database. `run` is one transaction: committed if `work` returns, rolled back if it raises.

    Raises:
        CommitUnknown: it may have been committed, or may yet be.
        StorageUnavailable: it certainly has not been.
    """

    remote: bool

    async def run(self, work: Work[T], *, write: bool = False) -> T: ...

    async def wipe(self) -> bool:
        """Takes what deleted rows said out of the files that lie beside the tables, too. False: not possible now, as
        somebody else is reading; it is owed from then on."""
        ...

    async def wipe_owed(self) -> None:
        """Wipes if it was not possible when it was asked for."""
        ...

    async def close(self) -> None: ...
