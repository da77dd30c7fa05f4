"""Seals what people and models wrote: AES-256-GCM, with a key of its own for each column (ADR 30). A sealed text's
prefix names its key. Its column and row are authenticated with it, so that it opens nowhere else.

The one seam between rows and keys: SQLAlchemy's statements, and those that bypass it (`RowInsert`, `RowUpdate`,
`RowRead`), convert the values of such a column as its type requires. With keys, a statement that reads one also reads
its row's id, and one that writes it must name that id (`for_row`).
"""

import base64
import hashlib
import hmac
import os
import sqlite3
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from gateway.core import errors
from gateway.core.config import setting_sections
from gateway.core.frozen_records import record

PREFIX = "\x1aenc1:"
"""The start of sealed texts. JSON cannot start with it, and no text does by chance."""
ID_BYTES = 6
ID_CHARS = 2 * ID_BYTES
HEAD = len(PREFIX) + ID_CHARS
"""Characters that show that a text is sealed, and under which key."""
OF_ROW, OF_COLUMN = "r", "c"
"""What is authenticated with a text: column and row, or the column alone if its writer named no row."""
NONCE, TAG = 12, 16
SEALED_MORE = HEAD + NONCE + TAG
"""Bytes that sealing adds to a value of the cache."""
COLUMN_DIGEST_CHARS = 40
CACHE_PURPOSE = "cache"


class KeyVault:
    """The keys of one storage. Without a current key it reads sealed content, and leaves plain what is written."""

    def __init__(self, current: bytes | None, before: Sequence[bytes] = ()) -> None:
        keys = [*([current] if current is not None else []), *before]
        self._keys = {key_id(key): key for key in reversed(keys)}
        self.current = key_id(current) if current is not None else None
        self._ciphers: dict[tuple[str, str], Any] = {}

    @property
    def key_ids(self) -> tuple[str, ...]:
        first = (self.current,) if self.current is not None else ()
        return (*first, *(each for each in self._keys if each != self.current))

    @property
    def head(self) -> str:
        """The prefix of texts sealed under the current key; "" without one."""
        return f"{PREFIX}{self.current}" if self.current is not None else ""

    def seal(self, text: str, column: str, row: str | None) -> str:
        """Seals a text for the storage; returns it unchanged without a current key."""
        if self.current is None:
            return text
        bound = OF_COLUMN if row is None else OF_ROW
        nonce = os.urandom(NONCE)
        sealed = self._cipher(self.current, column).encrypt(nonce, text.encode("utf-8"), _bound_to(column, row))
        return f"{PREFIX}{self.current}{bound}{base64.b64encode(nonce + sealed).decode('ascii')}"

    def open(self, text: str, column: str, row: str | None) -> str:
        """Opens a sealed text; returns one that is not sealed unchanged.
        Raises ContentUnreadable: its key is not configured, it was changed, or is not of this column and row."""
        if not text.startswith(PREFIX):
            return text
        name, bound = text[len(PREFIX) : HEAD], text[HEAD : HEAD + 1]
        if name not in self._keys:
            raise errors.ContentUnreadable(f"Stored content is encrypted under a key that is not configured ({name}).")
        try:
            sealed = base64.b64decode(text[HEAD + 1 :], validate=True)
            known = _bound_to(column, row if bound == OF_ROW else None)
            opened: bytes = self._cipher(name, column).decrypt(sealed[:NONCE], sealed[NONCE:], known)
            return opened.decode("utf-8")
        except Exception as error:
            text = "Stored content cannot be decrypted: it was changed, or belongs elsewhere."
            raise errors.ContentUnreadable(text) from error

    def seal_bytes(self, value: bytes, name: str) -> bytes:
        """Seals a value for the cache under the cache key `name`; returns it unchanged without a current key."""
        if self.current is None:
            return value
        nonce = os.urandom(NONCE)
        sealed: bytes = self._cipher(self.current, CACHE_PURPOSE).encrypt(nonce, value, name.encode("utf-8"))
        return self.head.encode("ascii") + nonce + sealed

    def open_bytes(self, value: bytes, name: str) -> bytes | None:
        """Opens a value sealed under the cache key `name`; None for any other, which counts as a miss."""
        if self.current is None and not value.startswith(PREFIX.encode("ascii")):
            return value
        key = value[len(PREFIX) : HEAD].decode("ascii", "replace")
        if not value.startswith(PREFIX.encode("ascii")) or key not in self._keys:
            return None
        try:
            nonce, sealed = value[HEAD : HEAD + NONCE], value[HEAD + NONCE :]
            opened: bytes = self._cipher(key, CACHE_PURPOSE).decrypt(nonce, sealed, name.encode("utf-8"))
        except Exception:  # noqa: BLE001 - whatever is wrong with it, it is made again
            return None
        return opened

    def word(self, text: str, tenant: str) -> str:
        """Returns the keyed digest that stands for a tenant's lookup word of things, with as many blanks; the word
        itself without a current key."""
        return text if self.current is None else self._digest(self.current, text, tenant)

    def words(self, text: str, tenant: str) -> tuple[str, ...]:
        """Returns all values that may stand for a word: its digest under each key, and the plain word."""
        return (*(self._digest(each, text, tenant) for each in self.key_ids), text)

    def _digest(self, name: str, text: str, tenant: str) -> str:
        key = derived(self._keys[name], "words")
        found = hmac.digest(key, f"{tenant}\0{text}".encode("utf-8", "surrogatepass"), "sha256").hex()
        return f"{PREFIX}{name}{found[:COLUMN_DIGEST_CHARS]}{' ' * text.count(' ')}"

    def _cipher(self, name: str, column: str) -> Any:
        cipher = self._ciphers.get((name, column))
        if cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            cipher = self._ciphers[name, column] = AESGCM(derived(self._keys[name], f"column {column}"))
        return cipher


def derived(key: bytes, purpose: str) -> bytes:
    """Derives a key for one purpose: HKDF-SHA256 without a salt, one block (RFC 5869)."""
    extracted = hmac.digest(b"\0" * hashlib.sha256().digest_size, key, "sha256")
    return hmac.digest(extracted, f"context-gateway storage {purpose}".encode() + b"\x01", "sha256")


def key_id(key: bytes) -> str:
    """Derives a key's id: hex digits that reveal nothing of the key."""
    return derived(key, "id")[:ID_BYTES].hex()


def open_vault(settings: setting_sections.StorageSettings) -> KeyVault | None:
    """Opens the keys that the settings name; None if they name none."""
    key, before = settings.encryption_key, settings.encryption_keys_before
    if key is None and not before:
        return None
    return KeyVault(
        setting_sections.key_bytes(key) if key is not None else None,
        [setting_sections.key_bytes(each) for each in before],
    )


def _bound_to(column: str, row: str | None) -> bytes:
    return (column if row is None else f"{column}\0{row}").encode("utf-8")


MARK = "\x1arow:"
"""Precedes a row's id and a blank, where a statement reads a value together with its row's id."""


def vault_of(dialect: sa.Dialect) -> KeyVault | None:
    """Returns the keys of the database that this dialect object belongs to."""
    found: KeyVault | None = getattr(dialect, "vault", None)
    return found


def use_vault(engine: sa.Engine, vault: KeyVault | None) -> None:
    """Sets the keys that seal and open content in this engine's database."""
    engine.dialect.vault = vault  # type: ignore[attr-defined]


def sealing(connection: sa.Connection) -> bool:
    """Returns whether content written now is sealed."""
    vault = vault_of(connection.dialect)
    return vault is not None and vault.current is not None


class OfRow(str):
    """A text to be written into the row of this id."""

    __slots__ = ("row",)
    row: str

    def __new__(cls, text: str, row: str) -> "OfRow":
        made = super().__new__(cls, text)
        made.row = row
        return made


def for_row(table: sa.Table, values: Mapping[str, Any], row: str | None = None) -> dict[str, Any]:
    """Binds the content values of a row to its id.
    `row`: the id, unless it is among the values."""
    made = dict(values)
    for name, value in values.items():
        kind = table.c[name].type
        if isinstance(kind, SealedText) and isinstance(value, str):
            made[name] = OfRow(value, row if row is not None else values[kind.row])
    return made


def with_id(column: sa.Column[Any], value: Any, row: str) -> Any:
    """Marks a value from the driver with its row's id, as a statement of SQLAlchemy's would have read it."""
    return f"{MARK}{row} {value}" if value and isinstance(column.type, SealedText) else value


class SealedText(sa.types.TypeDecorator[str]):
    """A text that is sealed at rest."""

    impl = sa.Text
    cache_ok = True

    def __init__(
        self, column: str, row: str = "id", length: int | None = None, source: sa.ColumnElement[str] | None = None
    ) -> None:
        """`column`: its name among the keys; a value may be moved between columns of one name. `row`: the column of the
        same table that identifies its row. `length`: of the plain text, where the column was created with one.
        `source`: in place of `row`, for an expression that belongs to no table."""
        super().__init__()
        self.column = column
        self.row = row
        self.length = length
        self.source = source

    def load_dialect_impl(self, dialect: sa.Dialect) -> Any:
        """Returns the column's type; SQLite ignores its length."""
        plain = self.length is not None and dialect.name == "sqlite"
        return sa.String(self.length) if plain else sa.Text()

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        """Returns plain text as the type of what a value is compared with."""
        return sa.Text()

    def column_expression(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Selects the value with its row's id, where there are keys."""
        table = getattr(column.element if isinstance(column, sa.Label) else column, "table", None)
        found = table.c.get(self.row) if table is not None else None
        row = found if found is not None else self.source
        return column if row is None else _WithRow(row, column, kind=self)

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], Any] | None:
        """Returns what seals a value; None without a current key."""
        vault, column = vault_of(dialect), self.column
        if vault is None or vault.current is None:
            return None

        def process(value: str | None) -> str | None:
            return vault.seal(value, column, getattr(value, "row", None)) if value else value

        return process

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Returns what opens a value; None without keys."""
        vault, column = vault_of(dialect), self.column
        if vault is None:
            return None

        def process(value: str | None) -> str | None:
            if not value:
                return value
            row = None
            if value.startswith(MARK):
                row, _, value = value[len(MARK) :].partition(" ")
            return vault.open(value, column, row)

        return process


class WithheldText(sa.types.TypeDecorator[str]):
    """A text that is not stored where content is sealed."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def load_dialect_impl(self, dialect: sa.Dialect) -> Any:
        """Returns the same type as that of the sealed column beside it."""
        return sa.String(self.length) if dialect.name == "sqlite" else sa.Text()

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        """Returns plain text as the type of what a value is compared with."""
        return sa.Text()

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], Any] | None:
        """Returns what withholds a value; None without a current key."""
        vault = vault_of(dialect)
        return None if vault is None or vault.current is None else lambda value: None if value else value


class _WithRow(FunctionElement[str]):
    """A column's value, preceded by the id of its row where there are keys."""

    inherit_cache = True
    name = "with_row"

    def __init__(self, row: sa.ColumnElement[Any], column: sa.ColumnElement[Any], *, kind: SealedText) -> None:
        super().__init__(row, column)
        self.type = kind


@compiles(_WithRow)
def _compile(element: _WithRow, compiler: Any, **options: Any) -> str:
    row, column = element.clauses
    options = {"literal_binds": False} | options
    options.pop("add_to_result_map", None)
    text: str = compiler.process(column, **options)
    if vault_of(compiler.dialect) is None:
        return text
    return f"'{MARK}' || {compiler.process(row, **options)} || ' ' || {text}"


def sealed(column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Returns the condition that a stored value is sealed; a database cannot search such a value."""
    return sa.func.substr(sa.type_coerce(column, sa.Text), 1, len(PREFIX)) == PREFIX


DRIVER = "driver"
"""The connection option that holds the driver's connection."""


def driver_of(connection: sa.Connection) -> Any:
    """Returns the driver's own connection to an SQLite database."""
    return connection.get_execution_options().get(DRIVER) or connection.connection.driver_connection


@record
class _InsertStatement:
    """An insert as the driver takes it. `pick` returns a row's values in its order; `converts`: the columns, by
    position, whose values need conversion for the driver; `sealed`: the columns whose values are sealed, each with the
    column that identifies the row."""

    text: str
    pick: Callable[[dict[str, Any]], tuple[Any, ...]]
    converts: tuple[tuple[int, Callable[[Any], Any]], ...]
    sealed: tuple[tuple[int, int, Callable[[str, str], str]], ...] = ()

    def values(self, rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
        """Converts rows for the driver, by columns and each value once: most rows of a request share values."""
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
    """`INSERT` of whole rows into one table, without SQLAlchemy's cost per statement: compiled once per dialect, with
    rows that go to the driver as tuples, converted as the columns' types require.

    `conflict`: the clause for a row that exists already; both databases word it the same."""

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
        if dialect.name == "sqlite":  # SQLAlchemy's overhead per statement exceeds SQLite's time for a row
            try:
                driver_of(connection).executemany(statement.text, values).close()
            except sqlite3.IntegrityError as error:
                raise IntegrityError(statement.text, None, error) from error
        else:
            connection.exec_driver_sql(statement.text, values if len(values) > 1 else values[0])

    def one(self, connection: sa.Connection, row: dict[str, Any]) -> Any:
        """Inserts a row and returns what the conflict clause returns: None where it left the existing row unchanged."""
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
        """Updates these columns."""
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
    """Columns of one row by its `id`, as cheap as `RowInsert`. `lock`: locks the row until the transaction ends."""

    def __init__(self, table: sa.Table, *names: str, lock: bool = False) -> None:
        columns = [table.c[name] for name in names]
        self._columns = columns
        query = sa.select(*columns).where(table.c.id == sa.bindparam("id"))
        self._query = query.with_for_update() if lock else query
        self._text = f"SELECT {', '.join(names)} FROM {table.name} WHERE id = ?"  # noqa: S608 - as above
        self._row = namedtuple("Row", names)  # type: ignore[misc]
        self._converts: dict[KeyVault | None, list[Callable[[Any], Any] | None]] = {}

    def __call__(self, connection: sa.Connection, key: str) -> Any:
        """Reads the row, with these columns as its attributes; None if there is none."""
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
    """Returns what converts a value of this type for the driver; None where none is needed. SQLite's driver takes bytes
    and truth values directly, for which SQLAlchemy still has calls."""
    if dialect.name == "sqlite" and isinstance(kind, sa.Boolean | sa.LargeBinary):
        return None
    if dialect.name == "sqlite" and isinstance(kind, sa.DateTime):
        return _time_text
    return kind.bind_processor(dialect)


def _time_text(value: datetime | None) -> str | None:
    """Renders a time as SQLAlchemy does."""
    if value is None:
        return None
    return _utc_text(value) if value.tzinfo is UTC else value.replace(tzinfo=None).isoformat(" ", "microseconds")


@lru_cache(16)
def _utc_text(value: datetime) -> str:
    """Renders a UTC time; cached, as a turn's rows have few times and rendering one takes as long as storing a row."""
    return value.replace(tzinfo=None).isoformat(" ", "microseconds")


def _sealed(
    table: sa.Table, names: Sequence[str], vault: KeyVault | None
) -> tuple[tuple[int, int, Callable[[str, str], str]], ...]:
    """Returns the positions of sealed columns, each with that of the column that identifies its row, and what seals."""
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
