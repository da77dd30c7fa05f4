"""Cuts lines: entries of logs and listings, and rows of tables below their first row."""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice

from gateway.retrieval.chunks.chunk import MAX_CHARS, Span, TextChunk, bounded

LINE = re.compile(r"[^\n]+")
SAMPLE_LINES = 200
STAMP = re.compile(
    r"""[\[(<"']?(?: \d{4}[-/.]\d\d[-/.]\d\d | \d\d[-/.]\d\d[-/.]\d\d(?:\d\d)? | \d\d?[-/.]\d\d?[ T]\d\d?:\d\d
    | \d{6,8}[ -]\d\d:?\d\d | \d\d?:\d\d:\d\d | \d{10,19}\b | <\d{1,3}> | [IWEF]\d{4}[ ]
    | (?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?[ ])?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[ ]{1,2}\d\d?[ ]
    | (?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b)""",
    re.VERBOSE,
)
"""Beginning of an entry of a log: a time, a date or a level."""
MIN_STAMPED = 0.25
"""Fraction of the lines that must begin like that; the others continue an entry."""
TRACE = re.compile(r"[ \t]*+(?:at\s|\.\.\. \d+ more|Caused by:|[\])}]+[,;]?\s*$)")
CONTINUES = re.compile(rf"{TRACE.pattern}|[ \t]+\S")
LINES_RULE = re.compile(r"([=_#*-])\1{2,}+[ \t]++(\S[^\n]{0,300}?)[ \t]+\1{3,}\s*$")
"""A title in the middle of a line of signs, as test runners write it."""
MIN_LINES = 4
MIN_AVERAGE, MAX_AVERAGE = 8, 400
"""Characters of a line on average; longer lines are paragraphs, shorter ones numbers or single words."""


def is_lines(text: str, start: int, end: int) -> bool:
    """Whether a text consists of independent lines, not of paragraphs."""
    lines = text.count("\n", start, end) + 1
    if lines < MIN_LINES or not MIN_AVERAGE <= (end - start) / lines <= MAX_AVERAGE:
        return False
    empty = text.count("\n\n", start, end) + text.count("\n\r\n", start, end)
    return empty <= lines / 8


def blocks(text: str, start: int, end: int) -> Iterator[TextChunk]:
    """Lines, each with the lines that continue it; the title of a report's section is the heading of its lines."""
    goes_on = _continuation(text, start, end)
    title = heading = ""
    is_section = False
    begin = until = -1
    number = 0
    for match in LINE.finditer(text, start, end):
        at, line_end = match.span()
        rule = LINES_RULE.match(text, at, line_end) if text[at] in "=_#*-" else None
        fits = begin >= 0 and line_end - begin <= MAX_CHARS
        if fits and not rule and (is_section or goes_on(text, at, line_end)):
            until = line_end
            continue
        if begin >= 0:
            yield from _entry(text, begin, until, heading, number)
            number += 1
        begin, until = at, line_end
        heading = "" if rule else title
        if rule:
            title, is_section = rule.group(2), rule.group(1) == "_"
    if begin >= 0:
        yield from _entry(text, begin, until, heading, number)


def _entry(text: str, begin: int, until: int, title: str, number: int) -> Sequence[TextChunk]:
    if until - begin <= MAX_CHARS:
        return () if text[begin:until].isspace() else (TextChunk(begin, until, title, "line", number, begin),)
    return [TextChunk(*piece, title, "line", number, begin) for piece in bounded(text, begin, until)]


def _continuation(text: str, start: int, end: int) -> Callable[[str, int, int], object]:
    """The test whether a line continues the one before. If many lines begin with a time or a level, all others do; if
    most lines are indented, indentation does not count."""
    sample = [m.group() for m in islice(LINE.finditer(text, start, end), SAMPLE_LINES)]
    whole = [line for line in sample if not line[0].isspace()]
    if sum(STAMP.match(line) is not None for line in whole) > MIN_STAMPED * max(1, len(whole)):
        return lambda text, at, line_end: not STAMP.match(text, at, line_end)
    return (TRACE if len(whole) < len(sample) / 2 else CONTINUES).match


SEPARATORS = ("\t", ",", ";", "|")
HEADER_CHARS = 1000
SAMPLE_ROWS = 30
MIN_ROWS = 3
MIN_EVEN = 0.9
"""Fraction of a table's rows that must have as many cells as the first."""
NUMBERED_ROW = re.compile(r"[\s\"|]*[\d.,-]+[\s\"]*(?:[,;|\t→:]|$)")
"""A row that begins with a number, as data and listings do: it names no columns."""
QUOTED_CELL = re.compile(r'"[^"]*"')
TABLE_RULE = re.compile(r"[\s|:+=-]+\Z")
"""The line between header and rows of a table that is drawn with signs."""


def separator_of(text: str, start: int, end: int) -> str | None:
    """The separator of a table's cells; None if the text is no table: its first row names columns, and the other rows
    have as many cells."""
    sample = [m.group().rstrip("\r") for m in islice(LINE.finditer(text, start, end), SAMPLE_ROWS)]
    if len(sample) < MIN_ROWS or len(sample[0]) > HEADER_CHARS:
        return None
    if NUMBERED_ROW.match(sample[0]) or STAMP.match(sample[0]) or not any(c.isalpha() for c in sample[0]):
        return None
    for separator in SEPARATORS:
        columns = sample[0].count(separator)
        if columns == 0:
            continue
        if separator == "|" and sample[0].lstrip().startswith("|") and TABLE_RULE.match(sample[1]):
            return separator if all(row.count("|") >= columns for row in sample[2:5]) else None
        if _is_even(sample, separator):
            return separator
    return None


def rows_below(text: str, start: int, end: int) -> Iterator[TextChunk]:
    """The rows of what surely is a table: its first line names the columns, whatever it looks like. Only lines if there
    is but one column."""
    stop = text.find("\n", start, end)
    first = text[start : stop if stop >= 0 else end]
    separator = separator_of(text, start, end) or max(SEPARATORS, key=first.count)
    if separator not in first or len(first) > HEADER_CHARS:
        return blocks(text, start, end)
    return rows(text, start, end, separator)


def rows(text: str, start: int, end: int, separator: str) -> Iterator[TextChunk]:
    """The rows of a table, in which quoted cells may hold line ends; the header is the first chunk."""
    spans = list(_quoted(text, start, end, separator)) if text.find('"', start, end) >= 0 else []
    spans = spans or [m.span() for m in LINE.finditer(text, start, end)]
    header = text[slice(*spans[0])].strip("\r\n")
    first = 2 if len(spans) > 1 and TABLE_RULE.match(text[slice(*spans[1])]) else 1
    yield TextChunk(spans[0][0], spans[first - 1][1])
    for number, (begin, until) in enumerate(spans[first:]):
        if until - begin <= MAX_CHARS:
            yield TextChunk(begin, until, header, "row", number, begin)
        else:
            for piece in bounded(text, begin, until):
                yield TextChunk(*piece, header, "row", number, begin)


def cells(header: str, row: str) -> list[tuple[str, str]]:
    """The values of a row by the names of their columns."""
    separator, names = _columns(header)
    return list(zip(names, _cells(row, separator), strict=False))


@lru_cache(16)
def _columns(header: str) -> tuple[str, list[str]]:
    """The separator of a table's first row and the names in it."""
    separator = max(SEPARATORS, key=header.count)
    return separator, _cells(header, separator)


def _cells(line: str, separator: str) -> list[str]:
    line = line.strip()
    if separator == "|" and line.startswith("|"):
        line = line.strip("|")
    if '"' in line:
        with suppress(csv.Error):
            return [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])]
    return [cell.strip() for cell in line.split(separator)]


def _is_even(sample: Sequence[str], separator: str) -> bool:
    """Whether rows have as many cells as the first one, quotes read or not, and none of those is a sentence."""
    plain = [row.count(separator) for row in sample]
    if sum(count == plain[0] for count in plain) < MIN_EVEN * len(plain):
        try:
            widths = [len(row) for row in csv.reader(sample, delimiter=separator)][:-1]
        except csv.Error:
            return False
        if len(widths) < MIN_ROWS - 1 or sum(width == widths[0] for width in widths) < MIN_EVEN * len(widths):
            return False
    names = _cells(sample[0], separator)
    if separator == ",":
        named = sum(bool(name) and len(name) <= 40 and not name.endswith((":", "{", "(", ".")) for name in names)
        spaced = sum(", " in QUOTED_CELL.sub("", row) for row in sample)
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
    if found and sum(width == widths[0] for width in widths) >= MIN_EVEN * len(widths):
        for begin, until in found:
            while until > begin and text[until - 1] in "\r\n":
                until -= 1
            yield begin, until
