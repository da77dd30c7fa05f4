"""Inserts without SQLAlchemy's cost per statement: compiled once a dialect, rows go to the driver as tuples."""

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

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
