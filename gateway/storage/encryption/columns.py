"""The columns that hold what people and models wrote, as SQLAlchemy knows them.

The one seam between rows and keys: a statement of SQLAlchemy's, and those that go by the driver
(`database.transactions`), convert the values of such a column as its type says. Without keys the type is a text like
any other. With keys a statement that reads one reads its row's id with it, and one that writes it has to name it
(`for_row`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from gateway.storage.encryption.vault import PREFIX, KeyVault

MARK = "\x1arow:"
"""Stands before the id of a row and a blank where a statement reads a value with it."""


def vault_of(dialect: sa.Dialect) -> KeyVault | None:
    """The keys of the database of this dialect, which is one database's own."""
    found: KeyVault | None = getattr(dialect, "vault", None)
    return found


def use_vault(engine: sa.Engine, vault: KeyVault | None) -> None:
    """Content in this engine's database is under these keys from now on."""
    engine.dialect.vault = vault  # type: ignore[attr-defined]


def sealing(connection: sa.Connection) -> bool:
    """Whether what is written now is sealed."""
    vault = vault_of(connection.dialect)
    return vault is not None and vault.current is not None


class OfRow(str):
    """A text that is to be written into the row of this id."""

    __slots__ = ("row",)
    row: str

    def __new__(cls, text: str, row: str) -> "OfRow":
        made = super().__new__(cls, text)
        made.row = row
        return made


def for_row(table: sa.Table, values: Mapping[str, Any], row: str | None = None) -> dict[str, Any]:
    """Values of a row of a table, of which those of content name the row.

    Args:
        row: its id, unless it is among the values.
    """
    made = dict(values)
    for name, value in values.items():
        kind = table.c[name].type
        if isinstance(kind, SealedText) and isinstance(value, str):
            made[name] = OfRow(value, row if row is not None else values[kind.row])
    return made


def with_id(column: sa.Column[Any], value: Any, row: str) -> Any:
    """A value that the driver gave, as a statement of SQLAlchemy's would have read it."""
    return f"{MARK}{row} {value}" if value and isinstance(column.type, SealedText) else value


class SealedText(sa.types.TypeDecorator[str]):
    """A text that is sealed at rest."""

    impl = sa.Text
    cache_ok = True

    def __init__(
        self, column: str, row: str = "id", length: int | None = None, source: sa.ColumnElement[str] | None = None
    ) -> None:
        """
        Args:
            column: what it is called among the keys; a value may be moved between columns of one name.
            row: the column of the same table that tells its row.
            length: of what it holds in clear, where the column was made for that.
            source: the same as `row`, for an expression that is of no table.
        """
        super().__init__()
        self.column = column
        self.row = row
        self.length = length
        self.source = source

    def load_dialect_impl(self, dialect: sa.Dialect) -> Any:
        """SQLite does not mind the length of a column."""
        plain = self.length is not None and dialect.name == "sqlite"
        return sa.String(self.length) if plain else sa.Text()

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        """What it is compared with is a text as it stands."""
        return sa.Text()

    def column_expression(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """The value with its row's id, where there are keys."""
        table = getattr(column.element if isinstance(column, sa.Label) else column, "table", None)
        found = table.c.get(self.row) if table is not None else None
        row = found if found is not None else self.source
        return column if row is None else _WithRow(row, column, kind=self)

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], Any] | None:
        """Seals; None without keys."""
        vault, column = vault_of(dialect), self.column
        if vault is None or vault.current is None:
            return None

        def process(value: str | None) -> str | None:
            return vault.seal(value, column, getattr(value, "row", None)) if value else value

        return process

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Opens; None without keys."""
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
    """A text that is not kept at all where content is sealed."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def load_dialect_impl(self, dialect: sa.Dialect) -> Any:
        """As that of the column beside it."""
        return sa.String(self.length) if dialect.name == "sqlite" else sa.Text()

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        """What it is compared with is a text as it stands."""
        return sa.Text()

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], Any] | None:
        """Withholds; None without a key."""
        vault = vault_of(dialect)
        return None if vault is None or vault.current is None else _withhold


def _withhold(value: str | None) -> str | None:
    return value if not value else None


class _WithRow(FunctionElement[str]):
    """A column's value, with the id of its row before it where there are keys."""

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
    """Whether a stored value is sealed: nothing in it can be found by a database then."""
    return sa.func.substr(sa.type_coerce(column, sa.Text), 1, len(PREFIX)) == PREFIX
