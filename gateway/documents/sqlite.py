"""SQLite's files: the schema, and each table's number of rows and some of its rows (guarantee §14.11)."""

import csv
import io
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from gateway.core.types import places
from gateway.documents.document import LeftOut, Reading, ReadOptions, UnreadableDocument, unpackable
from gateway.documents.packages import reading

MAGIC = b"SQLite format 3\x00"
JOURNALS = slice(18, 20)
"""Bytes that mark whether changes are in a file beside it (2), which nobody sent, or not (1)."""
MAX_TABLES = 500
MAX_SQLITE_TEXT = 64 * 2**20
"""Characters of one value, and of the text, a small file fewer (`document.unpackable`); what is beyond is left out."""
FIRST_ROWS, LAST_ROWS = 200, 20
MAX_NAMED_TABLES = 10
"""Tables that one note names."""
INNER = "config data docsize idx segdir segments stat node parent rowid"
MAX_VALUE = 500
"""Characters of one value that are read."""
TABLE_SECONDS = 2.0
ALL_SECONDS = 30.0
SQLITE_PROGRESS_STEPS = 20_000
"""Instructions of SQLite's virtual machine between two checks of the clock."""
ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})
PURE = """count substr typeof length upper lower trim ltrim rtrim replace instr round abs coalesce ifnull nullif iif min
    max json_extract -> ->> date datetime time julianday strftime unixepoch"""
FUNCTIONS = frozenset(PURE.split())
"""The reader's functions, and those that usually compute columns: they read nothing and make nothing large."""
VALUE = "CASE typeof({0}) WHEN 'blob' THEN '(' || length({0}) || ' bytes)' ELSE substr({0}, 1, {1}) END"


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """Reads, for each table, how it was created, how many rows it has, and the first and the last of them as CSV.

    The database is read from memory, where nothing can be written: no view, trigger or virtual table is run, no
    extension loaded, no other file opened.
    Raises UnreadableDocument: it is no database of SQLite's, or a damaged one."""
    if not raw.startswith(MAGIC):
        raise UnreadableDocument("it is no database of SQLite's")
    notes: list[str] = []
    with reading("database of SQLite's", sqlite3.Error), closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(raw[: JOURNALS.start] + b"\x01\x01" + raw[JOURNALS.stop :])
        parts = list(_parts(connection, notes, unpackable(len(raw), MAX_SQLITE_TEXT)))
    return Reading("\n\n".join(parts), tuple(notes))


def _parts(connection: sqlite3.Connection, notes: list[str], left: int) -> Iterator[str]:
    connection.text_factory = lambda value: value.decode("utf-8", "replace")
    for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "query_only=ON"):
        connection.execute(f"PRAGMA {pragma}")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_SQLITE_TEXT)
    connection.set_authorizer(_authorize)
    clock = _StatementClock()
    connection.set_progress_handler(clock.is_over, SQLITE_PROGRESS_STEPS)
    clock.begin(TABLE_SECONDS)
    found = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE substr(name, 1, 7) != 'sqlite_' ORDER BY type != 'table', name"
    ).fetchmany(4 * MAX_TABLES)
    tables = _without_inner([(str(name), str(sql or "")) for kind, name, sql in found if kind == "table"])
    others = [" ".join(str(sql).split())[:2000] for kind, _, sql in found if kind != "table" and sql]
    yield "\n".join([f"SQLite database of {len(tables)} {'table' if len(tables) == 1 else 'tables'}.", *others])
    if len(tables) > MAX_TABLES:
        notes.append(LeftOut(f"{len(tables) - MAX_TABLES} tables were left out."))
    began = time.monotonic()
    parts = _LeftOutParts({}, [])
    for name, sql in tables[:MAX_TABLES]:
        if left <= 0:
            notes.append(
                LeftOut(f"The text would be too long: the table {name[:100]} and those after it were left out.")
            )
            break
        clock.begin(min(TABLE_SECONDS, ALL_SECONDS - time.monotonic() + began))
        head = f"{places.marker('table', name)}\n{' '.join(sql.split())[:4000]}"
        if _is_virtual(sql):
            yield f"{head}\n(A virtual table, which was not read.)"
            continue
        try:
            text = _table(connection, name, clock, parts)
            yield f"{head}\n{text[:left]}"
            left -= len(text)
        except sqlite3.Error as error:
            notes.append(LeftOut(f"The table {name[:100]} could not be read: {error}."))
            yield head
    notes.extend(parts.notes())


class _LeftOutParts(NamedTuple):
    """What is missing of tables: how many rows, and which have values that were cut."""

    rows: dict[str, str]
    cut: list[str]

    def notes(self) -> Iterator[str]:
        if self.rows:
            yield LeftOut(f"Rows were left out: {_named([f'{count} of {name}' for name, count in self.rows.items()])}.")
        if self.cut:
            yield LeftOut(f"Values were cut at {MAX_VALUE} characters in {_named(self.cut)}.")


def _named(tables: list[str]) -> str:
    more = len(tables) - MAX_NAMED_TABLES
    return ", ".join(tables[:MAX_NAMED_TABLES]) + (f" and {more} more tables" if more > 0 else "")


def _is_virtual(sql: str) -> bool:
    return sql.lstrip()[:14].upper() == "CREATE VIRTUAL"


def _without_inner(tables: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Removes the tables in which virtual ones store their index; the tables of their contents stay."""
    inner = {f"{name}_{part}" for name, sql in tables if _is_virtual(sql) for part in INNER.split()}
    return [(name, sql) for name, sql in tables if name not in inner]


def _table(connection: sqlite3.Connection, name: str, clock: "_StatementClock", left_out: _LeftOutParts) -> str:
    quoted = '"' + name.replace('"', '""') + '"'
    columns = [each[0] for each in connection.execute(f"SELECT * FROM {quoted} LIMIT 0").description]  # noqa: S608
    try:
        count = connection.execute(f"SELECT count(*) FROM {quoted}").fetchone()[0]  # noqa: S608 - a quoted name
    except sqlite3.OperationalError:
        if not clock.is_over():
            raise
        count = None
        clock.begin(TABLE_SECONDS)
    values = ", ".join(VALUE.format('"' + each.replace('"', '""') + '"', MAX_VALUE + 1) for each in columns)
    query = f"SELECT {values} FROM {quoted}"  # noqa: S608 - names out of the schema, quoted
    rows = connection.execute(f"{query} LIMIT {FIRST_ROWS}").fetchall()
    rest: list[tuple[object, ...]] = []
    if count is not None and count > FIRST_ROWS:
        rest = connection.execute(f"{query} LIMIT {LAST_ROWS} OFFSET {max(FIRST_ROWS, count - LAST_ROWS)}").fetchall()
    if any(type(value) is str and len(value) > MAX_VALUE for row in (*rows, *rest) for value in row):
        left_out.cut.append(name[:100])
    if count != len(rows) + len(rest):
        left_out.rows[name[:100]] = f"{count - len(rows) - len(rest):,}" if count is not None else "some"
    told = f"{count:,} {'row' if count == 1 else 'rows'}" if count is not None else f"more than {len(rows):,} rows"
    shown = len(rows) + len(rest)
    head = f"{told}{'' if count == shown else f', of which the first {len(rows)} and the last {len(rest)} stand here'}:"
    between = ["…"] if count is not None and rest and count > shown else []
    return "\n".join([head, *_csv([tuple(columns), *rows]), *between, *_csv(rest)])


def _csv(rows: list[tuple[object, ...]]) -> list[str]:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        writer.writerow([" ".join(str("" if value is None else value)[:MAX_VALUE].split()) for value in row])
    return places.plain_lines(out.getvalue()).splitlines()


class _StatementClock:
    """Ends statements that take too long."""

    def __init__(self) -> None:
        self._until = 0.0

    def begin(self, seconds: float) -> None:
        """Gives the next statements so much time."""
        self._until = time.monotonic() + seconds

    def is_over(self) -> int:
        return int(time.monotonic() > self._until)


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, source: str | None) -> int:
    """Allows only reading, of tables themselves; nothing from a view or a trigger (`source`)."""
    if source is not None:
        return sqlite3.SQLITE_DENY
    if action in ALLOWED or (action == sqlite3.SQLITE_FUNCTION and second in FUNCTIONS):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY
