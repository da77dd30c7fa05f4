"""What a transaction is to its caller, whichever database runs it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gateway.errors import StorageUnavailable

# Inserts without SQLAlchemy's cost per statement: compiled once a dialect, rows go to the driver as tuples.


Column = tuple[str, Callable[[Any], Any] | None]


class RowInsert:
    """`INSERT` of whole rows into one table. Values are converted as the columns' types say.

    `conflict` is the clause that says what happens to a row that is there already; both databases word it the same.
    """

    def __init__(self, table: sa.Table, conflict: str = "") -> None:
        self._table = table
        self._conflict = conflict
        self._compiled: dict[str, tuple[str, list[Column]]] = {}

    def __call__(self, connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> None:
        """Inserts the rows; each names every column of the table."""
        if not rows:
            return
        text, columns = self._for(connection.dialect)
        values = [tuple([row[n] if convert is None else convert(row[n]) for n, convert in columns]) for row in rows]
        connection.exec_driver_sql(text, values if len(values) > 1 else values[0])

    def one(self, connection: sa.Connection, row: dict[str, Any]) -> Any:
        """Inserts a row, and gives what the conflict clause returns: None where it let the row alone."""
        text, columns = self._for(connection.dialect)
        values = tuple([row[n] if convert is None else convert(row[n]) for n, convert in columns])
        return connection.exec_driver_sql(text, values).first()

    def _for(self, dialect: sa.Dialect) -> tuple[str, list[Column]]:
        if dialect.name not in self._compiled:
            compiled = self._table.insert().compile(dialect=dialect)
            types = {column.name: column.type.dialect_impl(dialect) for column in self._table.columns}
            names = compiled.positiontup or []
            columns: list[Column] = [(name, types[name].bind_processor(dialect)) for name in names]
            self._compiled[dialect.name] = (f"{compiled} {self._conflict}".rstrip(), columns)
        return self._compiled[dialect.name]


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


# What an error of PostgreSQL means for the transaction in which it came: tried again, unavailable, or a fault.


ATTEMPTS = 4
ROLLED_BACK = ("40",)
"""Class 40: deadlock, serialization failure. The server rolled back, also if it says so at the COMMIT."""
STALE_PLAN = "0A000"
"""A prepared statement from before a migration; SQLAlchemy forgets them all when it sees this."""
OUTAGES = ("08", "25006", "28", "3D", "53", "55", "57", "42P01", "42703")
"""Connection; a standby that only reads; no access; no such database; resources; lock; shutdown or time over; and a
schema that this version's tables or columns are not in yet."""
LOST = ("08", "57P")
"""The connection is gone, and with it all that was not committed."""


@dataclass(slots=True)
class Phase:
    """How far a transaction has come."""

    connected: bool = False
    committing: bool = False


def judge(error: Exception, phase: Phase, *, write: bool) -> tuple[bool, Exception]:
    """Whether the transaction may be tried again, and what it raises if it is not.

    It may be if it was certainly rolled back. A write that loses its connection at the COMMIT may have been committed:
    it is not tried again here, and `CommitUnknown` says why.
    """
    state = sqlstate(error)
    lost = _is_lost(error, state)
    uncertain = write and phase.committing and not (state and not lost and not state.startswith("57"))
    if uncertain:
        return False, CommitUnknown("The storage was lost while a turn was being committed.")
    again = phase.connected and (lost or state.startswith(ROLLED_BACK) or state == STALE_PLAN)
    if isinstance(error, DBAPIError) and state and not lost and not state.startswith((*ROLLED_BACK, *OUTAGES)):
        return again, error
    if isinstance(error, PoolTimeout):
        return False, StorageUnavailable("The storage's connections are all in use.")
    if isinstance(error, DBAPIError | OSError) or (isinstance(error, TypeError) and not phase.connected):
        return again, StorageUnavailable("The storage cannot be reached.")
    return False, error  # TypeError before: asyncpg's word for a parameter of the URL that it does not know


def sqlstate(error: Exception) -> str:
    """PostgreSQL's five characters, "" if the error is the driver's or the network's."""
    orig = getattr(error, "orig", None)
    state = getattr(orig, "sqlstate", None) or getattr(getattr(orig, "__cause__", None), "sqlstate", None)
    return str(state or "")


def _is_lost(error: Exception, state: str) -> bool:
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or state.startswith(LOST)
    return isinstance(error, OSError) and not isinstance(error, TimeoutError)
