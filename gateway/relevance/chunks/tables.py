"""Tables: each row is a chunk, with the table's first row as its heading."""

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from gateway.relevance.chunks.bounds import Span, bounded
from gateway.relevance.chunks.chunk import MAX_CHARS, Chunk

SEPARATORS = ("\t", ",", ";", "|")
HEADER_CHARS = 1000
SAMPLE_ROWS = 30
LEAST_ROWS = 3
LEAST_EVEN = 0.9
"""How many of a table's rows have as many cells as the first."""
LINE = re.compile(r"[^\n]+")
NUMBERED = re.compile(r"[\s\"|]*[\d.,-]+[\s\"]*(?:[,;|\t→:]|$)")
"""A first row that begins with a number names no columns: it is data, or a listing with line numbers."""
QUOTED = re.compile(r'"[^"]*"')
RULE = re.compile(r"[\s|:+=-]+\Z")
"""What stands between the header and the rows of a table that is drawn with signs."""


def separator_of(text: str, start: int = 0, end: int | None = None) -> str | None:
    """What separates the cells of a text that is a table; None if it is none.

    No row is understood without the first: it must name its columns, and the others must have as many cells.
    """
    end = len(text) if end is None else end
    sample = [m.group().rstrip("\r") for m in islice(LINE.finditer(text, start, end), SAMPLE_ROWS)]
    if len(sample) < LEAST_ROWS or len(sample[0]) > HEADER_CHARS:
        return None
    if NUMBERED.match(sample[0]) or not any(c.isalpha() for c in sample[0]):
        return None
    for separator in SEPARATORS:
        columns = sample[0].count(separator)
        if columns == 0:
            continue
        if separator == "|" and sample[0].lstrip().startswith("|") and RULE.match(sample[1]):
            return separator if all(row.count("|") >= columns for row in sample[2:5]) else None
        if _is_even(sample, separator):
            return separator
    return None


def rows(text: str, start: int, end: int, separator: str) -> Iterator[Chunk]:
    """The rows of a table, a cell with line ends in quotes included; the header and what rules it off come first."""
    spans = list(_quoted(text, start, end, separator)) if text.find('"', start, end) >= 0 else []
    spans = spans or [m.span() for m in LINE.finditer(text, start, end)]
    header = text[slice(*spans[0])].strip("\r\n")
    first = 2 if len(spans) > 1 and RULE.match(text[slice(*spans[1])]) else 1
    yield Chunk(spans[0][0], spans[first - 1][1])
    for number, (begin, until) in enumerate(spans[first:]):
        if until - begin <= MAX_CHARS:
            yield Chunk(begin, until, header, "row", number, begin)
        else:
            for piece in bounded(text, begin, until):
                yield Chunk(*piece, header, "row", number, begin)


def cells(header: str, row: str) -> list[tuple[str, str]]:
    """The values of a row by the names of their columns."""
    separator = max(SEPARATORS, key=header.count)
    names, values = ([cell.strip() for cell in _cells(line, separator)] for line in (header, row))
    return list(zip(names, values, strict=False))


def _cells(line: str, separator: str) -> list[str]:
    line = line.strip()
    if separator == "|" and line.startswith("|"):
        return line.strip("|").split("|")
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return line.split(separator)


def _is_even(sample: Sequence[str], separator: str) -> bool:
    """Whether rows have as many cells as the first one, quotes read or not, and none of those is a sentence."""
    plain = [row.count(separator) for row in sample]
    if sum(count == plain[0] for count in plain) < LEAST_EVEN * len(plain):
        try:
            widths = [len(row) for row in csv.reader(sample, delimiter=separator)][:-1]
        except csv.Error:
            return False
        if len(widths) < LEAST_ROWS - 1 or sum(width == widths[0] for width in widths) < LEAST_EVEN * len(widths):
            return False
    names = [name.strip() for name in _cells(sample[0], separator)]
    if separator == ",":
        named = sum(bool(name) and len(name) <= 40 and not name.endswith((":", "{", "(", ".")) for name in names)
        spaced = sum(", " in QUOTED.sub("", row) for row in sample)
        return named == len(names) and (spaced < len(sample) / 2 or len(names) > 3)
    return sum(bool(name) for name in names) >= 2


def _quoted(text: str, start: int, end: int, separator: str) -> Iterator[Span]:
    """Rows as a reader of separated values sees them; none at all if that does not make a table."""
    lines = text[start:end].splitlines(keepends=True)
    offsets = [start]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    found, widths, before = [], [], 0
    reader = csv.reader(lines, delimiter=separator)
    try:
        for row in reader:
            if row:
                found.append((offsets[before], offsets[reader.line_num]))
                widths.append(len(row))
            before = reader.line_num
    except csv.Error:
        return
    if found and sum(width == widths[0] for width in widths) >= LEAST_EVEN * len(widths):
        for begin, until in found:
            while until > begin and text[until - 1] in "\r\n":
                until -= 1
            yield begin, until
