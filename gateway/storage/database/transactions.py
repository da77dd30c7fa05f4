"""What both databases share: a transaction as its caller sees it, and a fast insert."""

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial, wraps
from operator import itemgetter
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from gateway.core import errors
from gateway.core.instrumentation import logs
from gateway.storage.encryption.columns import KeyVault, SealedText, for_row, vault_of, with_id

log = logs.get_logger("gateway.storage")
P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[[sa.Connection], T]
"""One transaction. It may be run again after a rollback, so it changes nothing but the database."""


DRIVER = "driver"
"""The option of a connection that says what it drives."""


def driver_of(connection: sa.Connection) -> Any:
    """The driver's own connection of an SQLite database."""
    return connection.get_execution_options().get(DRIVER) or connection.connection.driver_connection


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


@dataclass(frozen=True, slots=True)
class _InsertStatement:
    """An insert as the driver takes it. `pick` gives a row's values in its order, `converts` are the columns, by their
    position, whose values the driver does not take as they are. `sealed`: those whose values are sealed, each with the
    column that tells the row."""

    text: str
    pick: Callable[[dict[str, Any]], tuple[Any, ...]]
    converts: tuple[tuple[int, Callable[[Any], Any]], ...]
    sealed: tuple[tuple[int, int, Callable[[str, str], str]], ...] = ()

    def values(self, rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
        """The rows for the driver. By columns, and each value once: most rows of a request have the same in them."""
        if not self.converts and not self.sealed:
            return list(map(self.pick, rows))
        if len(rows) == 1:
            single = list(self.pick(rows[0]))
            for position, row, seal in self.sealed:
                single[position] = seal(single[position], single[row]) if single[position] else single[position]
            for position, convert in self.converts:
                single[position] = convert(single[position])
            return [tuple(single)]
        columns: list[Sequence[Any]] = list(zip(*map(self.pick, rows), strict=True))
        for position, row, seal in self.sealed:
            pairs = zip(columns[position], columns[row], strict=True)
            columns[position] = [seal(value, of_row) if value else value for value, of_row in pairs]
        for position, convert in self.converts:
            made = {value: convert(value) for value in set(columns[position])}
            columns[position] = [made[value] for value in columns[position]]
        return list(zip(*columns, strict=True))


class RowInsert:
    """`INSERT` of whole rows into one table, without SQLAlchemy's cost per statement: compiled once a dialect,
    with rows that go to the driver as tuples, converted as the columns' types say.

    `conflict` is the clause that says what happens to a row that is there already; both databases word it the same.
    """

    def __init__(self, table: sa.Table, conflict: str = "") -> None:
        self._table = table
        self._conflict = conflict
        self._compiled: dict[tuple[str, KeyVault | None], _InsertStatement] = {}

    def __call__(self, connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> None:
        """Inserts the rows; each names every column of the table.
        Raises IntegrityError: as SQLAlchemy raises it, with either database."""
        if not rows:
            return
        dialect = connection.dialect
        statement = self._for(dialect)
        values = statement.values(rows)
        if dialect.name == "sqlite":  # what SQLAlchemy does around a statement takes longer than SQLite needs for a row
            try:
                driver_of(connection).executemany(statement.text, values).close()
            except sqlite3.IntegrityError as error:
                raise IntegrityError(statement.text, None, error) from error
        else:
            connection.exec_driver_sql(statement.text, values if len(values) > 1 else values[0])

    def one(self, connection: sa.Connection, row: dict[str, Any]) -> Any:
        """Inserts a row, and gives what the conflict clause returns: None where it let the row alone."""
        statement = self._for(connection.dialect)
        return connection.exec_driver_sql(statement.text, statement.values([row])[0]).first()

    def _for(self, dialect: sa.Dialect) -> _InsertStatement:
        key = (dialect.name, vault_of(dialect))
        found = self._compiled.get(key)
        if found is None:
            compiled = self._table.insert().compile(dialect=dialect)
            types = {column.name: column.type.dialect_impl(dialect) for column in self._table.columns}
            names = compiled.positiontup or []
            each = ((number, _converter(types[name], dialect)) for number, name in enumerate(names))
            converts = tuple((number, convert) for number, convert in each if convert is not None)
            sealed = _sealed(self._table, names, key[1])
            mine = {position for position, _, _ in sealed}
            converts = tuple((number, convert) for number, convert in converts if number not in mine)
            text = f"{compiled} {self._conflict}".rstrip()
            found = self._compiled[key] = _InsertStatement(text, itemgetter(*names), converts, sealed)
        return found


class RowUpdate:
    """`UPDATE` of one row by its `id`, as cheap as `RowInsert`."""

    def __init__(self, table: sa.Table) -> None:
        self._table = table
        self._compiled: dict[Any, tuple[str, list[Callable[[Any], Any] | None]]] = {}

    def __call__(self, connection: sa.Connection, key: str, values: dict[str, Any]) -> None:
        """Sets these columns."""
        vault = vault_of(connection.dialect)
        if vault is not None:
            values = for_row(self._table, values, key)
        if connection.dialect.name != "sqlite":
            connection.execute(self._table.update().where(self._table.c.id == key).values(**values))
            return
        names = tuple(values)
        known = self._compiled.get((names, vault))
        if known is None:
            known = self._compiled[names, vault] = self._for(connection.dialect, names)
        text, converts = known
        pairs = zip(values.values(), converts, strict=True)
        given = [value if convert is None else convert(value) for value, convert in pairs]
        driver = driver_of(connection)
        driver.execute(text, (*given, key)).close()

    def _for(self, dialect: sa.Dialect, names: tuple[str, ...]) -> tuple[str, list[Callable[[Any], Any] | None]]:
        sets = ", ".join(f"{name} = ?" for name in names)
        types = [self._table.c[name].type.dialect_impl(dialect) for name in names]
        text = f"UPDATE {self._table.name} SET {sets} WHERE id = ?"  # noqa: S608 - names of our own columns
        return text, [_converter(each, dialect) for each in types]


class RowRead:
    """Columns of one row by its `id`, as cheap as `RowInsert`. `lock`: it stays locked until the transaction ends."""

    def __init__(self, table: sa.Table, *names: str, lock: bool = False) -> None:
        columns = [table.c[name] for name in names]
        self._columns = columns
        query = sa.select(*columns).where(table.c.id == sa.bindparam("id"))
        self._query = query.with_for_update() if lock else query
        self._text = f"SELECT {', '.join(names)} FROM {table.name} WHERE id = ?"  # noqa: S608 - as above
        self._row = namedtuple("Row", names)  # type: ignore[misc]
        self._converts: dict[KeyVault | None, list[Callable[[Any], Any] | None]] = {}

    def __call__(self, connection: sa.Connection, key: str) -> Any:
        """The row with these columns as its attributes; None if there is none."""
        if connection.dialect.name != "sqlite":
            return connection.execute(self._query, {"id": key}).first()
        driver = driver_of(connection)
        cursor = driver.execute(self._text, (key,))
        found = cursor.fetchone()
        cursor.close()
        if found is None:
            return None
        vault = vault_of(connection.dialect)
        converts = self._converts.get(vault)
        if converts is None:
            types = [column.type.dialect_impl(connection.dialect) for column in self._columns]
            converts = self._converts[vault] = [each.result_processor(connection.dialect, None) for each in types]
        if vault is not None:
            found = [with_id(column, value, key) for column, value in zip(self._columns, found, strict=True)]
        pairs = zip(found, converts, strict=True)
        return self._row(*(value if convert is None else convert(value) for value, convert in pairs))


def _converter(kind: sa.types.TypeEngine[Any], dialect: sa.Dialect) -> Callable[[Any], Any] | None:
    """What makes a value of this type one that the driver takes; None where it takes it as it is. SQLite's takes bytes
    and truth values, for which SQLAlchemy has calls all the same."""
    if dialect.name == "sqlite" and isinstance(kind, sa.Boolean | sa.LargeBinary):
        return None
    if dialect.name == "sqlite" and isinstance(kind, sa.DateTime):
        return _time_text
    return kind.bind_processor(dialect)


def _time_text(value: datetime | None) -> str | None:
    """As SQLAlchemy words it."""
    if value is None:
        return None
    return _utc_text(value) if value.tzinfo is UTC else value.replace(tzinfo=None).isoformat(" ", "microseconds")


@lru_cache(16)
def _utc_text(value: datetime) -> str:
    """The rows of one turn have few times, and wording one takes as long as to store a row."""
    return value.replace(tzinfo=None).isoformat(" ", "microseconds")


def _sealed(
    table: sa.Table, names: Sequence[str], vault: KeyVault | None
) -> tuple[tuple[int, int, Callable[[str, str], str]], ...]:
    """The columns of content by their positions, each with that of the column that tells the row, and what seals."""
    if vault is None or vault.current is None:
        return ()
    kinds = ((number, table.c[name].type) for number, name in enumerate(names))
    return tuple(
        (number, names.index(kind.row), partial(_seal, vault, kind.column))
        for number, kind in kinds
        if isinstance(kind, SealedText)
    )


def _seal(vault: KeyVault, column: str, text: str, row: str) -> str:
    return vault.seal(text, column, row)
