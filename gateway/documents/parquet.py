"""Parquet files: columns, number of rows, some of the rows, and the file's own statistics of its values (§14.11)."""

import csv
import io
from typing import Any

from gateway.core.types import places
from gateway.documents.document import LeftOut, Reading, ReadOptions, UnreadableDocument, unpackable
from gateway.documents.packages import reading

FIRST_ROWS, LAST_ROWS = 200, 20
MAX_PARQUET_COLUMNS = 500
MAX_VALUE = 500
"""Characters of one value that are read."""
CUT_VALUES = LeftOut(f"Values were cut at {MAX_VALUE} characters.")
TOO_LARGE = LeftOut("Rows were left out: they unpack to too much.")
MAX_GROUP_BYTES = 256 * 2**20
"""A group of rows that unpacks to more than this, in a small file to less (`unpackable`), is not read; its columns and
statistics are reported."""


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """Reads columns with types, smallest and largest values and gaps, then the first and the last rows as CSV.
    Raises UnreadableDocument: it is no Parquet file, or the package that reads it is not installed."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UnreadableDocument("reading Parquet needs the extra `documents` of the gateway") from error
    arrow = pyarrow
    arrow.set_cpu_count(1)
    arrow.set_memory_pool(arrow.system_memory_pool())
    notes: list[str] = []
    with reading("Parquet file", arrow.ArrowException):
        file = arrow.parquet.ParquetFile(arrow.BufferReader(raw), page_checksum_verification=False)
        text = _text(file, notes, unpackable(len(raw), MAX_GROUP_BYTES))
    return Reading(text, tuple(notes))


def _text(file: Any, notes: list[str], most: int) -> str:
    names = list(file.schema_arrow.names)
    rows = file.metadata.num_rows
    lines = [f"Parquet table of {rows:,} rows and {len(names):,} columns:", *_columns(file)]
    if len(names) > MAX_PARQUET_COLUMNS:
        notes.append(LeftOut(f"{len(names) - MAX_PARQUET_COLUMNS:,} columns were left out."))
    wanted = names[:MAX_PARQUET_COLUMNS]
    first = _rows(file, _beginning(file), 0, FIRST_ROWS, wanted, notes, most) if rows else []
    last: list[list[str]] = []
    if rows > FIRST_ROWS:
        group = file.num_row_groups - 1
        size = file.metadata.row_group(group).num_rows
        take = min(LAST_ROWS, size, rows - FIRST_ROWS)
        last = _rows(file, [group], size - take, take, wanted, notes, most)
    shown = [] if len(first) + len(last) >= rows else ["…"]
    if len(first) + len(last) < rows and TOO_LARGE not in notes:
        notes.append(LeftOut(f"{rows - len(first) - len(last):,} of its {rows:,} rows were left out."))
    told = f"The first {len(first)} and the last {len(last)} rows:" if last else "The rows:"
    return "\n".join(
        [
            places.marker("table", "1"),
            *lines,
            "",
            told,
            *map(places.plain_lines, (*_csv([wanted, *first]), *shown, *_csv(last))),
        ]
    )


def _columns(file: Any) -> list[str]:
    """Renders one line for each column. The statistics come from the file; nested columns have none."""
    metadata, lines = file.metadata, []
    flat = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
    for field in list(file.schema_arrow)[:MAX_PARQUET_COLUMNS]:
        told = _statistics(metadata, flat[field.name]) if field.name in flat else ""
        lines.append(f"- {_short(field.name)}: {_short(field.type)}{told}")
    return lines


def _statistics(metadata: Any, column: int) -> str:
    lows, highs, nulls, all_known = [], [], 0, True
    for group in range(metadata.num_row_groups):
        found = metadata.row_group(group).column(column).statistics
        if found is None or not found.has_min_max:
            all_known = all_known and found is not None and found.null_count == found.num_values
        else:
            lows.append(found.min)
            highs.append(found.max)
        nulls += (found.null_count or 0) if found is not None else 0
    gaps = f", {nulls:,} empty" if nulls else ""
    try:
        return f", from {_short(min(lows), 60)} to {_short(max(highs), 60)}{gaps}" if lows and all_known else gaps
    except TypeError:  # values without an order
        return gaps


def _beginning(file: Any) -> list[int]:
    """Returns the groups that hold the first rows."""
    groups: list[int] = []
    rows = 0
    while rows < FIRST_ROWS and len(groups) < file.num_row_groups:
        rows += file.metadata.row_group(len(groups)).num_rows
        groups.append(len(groups))
    return groups


def _rows(
    file: Any, groups: list[int], start: int, count: int, names: list[str], notes: list[str], most: int
) -> list[list[str]]:
    """Returns rows of some groups as texts. Only what is needed is unpacked, unless they are the last."""
    if sum(file.metadata.row_group(each).total_byte_size for each in groups) > most:
        notes.extend([TOO_LARGE] if TOO_LARGE not in notes else [])
        return []
    rows: list[list[str]] = []
    at = 0
    for batch in file.iter_batches(batch_size=4096, row_groups=groups, columns=names, use_threads=False):
        if at + batch.num_rows > start:
            part = batch.slice(max(0, start - at), count - len(rows)).to_pylist()
            rows.extend([_short(value) for value in row.values()] for row in part)
            if CUT_VALUES not in notes and any(len(_line(value)) > MAX_VALUE for row in part for value in row.values()):
                notes.append(CUT_VALUES)
        at += batch.num_rows
        if len(rows) >= count:
            break
    return rows


def _short(value: object, most: int = MAX_VALUE) -> str:
    return _line(value)[:most]


def _line(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return f"({len(value)} bytes)"
    return " ".join(str(value).split())


def _csv(rows: list[list[str]]) -> list[str]:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().splitlines()
