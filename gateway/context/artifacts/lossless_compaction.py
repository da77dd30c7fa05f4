"""Compacts losslessly: JSON and CSV lose what no reader of them sees, nothing else changes (guarantee §4 I5)."""

import csv
import io
import json
import re

from gateway.core.jsons import is_json
from gateway.core.types import places

CSV_SEPARATORS = (",", "\t", ";", "|")
MIN_ROWS = 3
"""Fewer lines with equal numbers of separators may be sentences."""
MAX_COLUMNS = 1000
"""No table has more columns: the text is something else, and would take long to check."""

MAX_COMPACTED_CHARS = 16_000_000
"""A longer text is left as it is: no window holds it even compacted, and parsing takes ten times its memory."""

WHITE = str.maketrans("", "", " \t\r\n")
WHITE_IN_LINE = str.maketrans("", "", " \t\r")
UNICODE_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
BACKSLASH, QUOTE = "\x00", "\x01"
"""Stand for an escaped backslash and an escaped quote: JSON strings contain no control characters."""


def compact(text: str) -> str:
    """Returns the same value in fewer characters, or the text itself: equal when parsed as JSON, as JSON lines, or as a
    table of separated values. White space around it stays, since a fence closes on a line of its own. A text with place
    markers does not change, since lines are counted there (guarantee §14.2)."""
    core = text.strip(" \t\r\n") if len(text) <= MAX_COMPACTED_CHARS else ""
    if not core or places.is_marked(core):
        return text
    shorter = _compact_json(core) if core[0] in "{[" else _compact_csv(core)
    if shorter is None or len(shorter) >= len(core):
        return text
    start = text.index(core[0])
    return f"{text[:start]}{shorter}{text[start + len(core) :]}"


def _compact_json(text: str) -> str | None:
    """Returns one JSON array or object, or several on lines of their own, without spacing; None if it is neither.
    Escapes become the characters they represent, except halves of surrogate pairs.

    The text is edited, not serialised again: numbers keep their digits, members their order and repeated names.
    """
    if is_json(text):
        return _without(WHITE, text)
    if "\n" in text and all(map(_is_line, text.split("\n"))):
        return _without(WHITE_IN_LINE, text)
    return None


def _is_line(line: str) -> bool:
    """Returns whether it can be a line of JSON lines: an array, an object, or nothing."""
    bare = line.strip(" \t\r")
    return not bare or (bare[0] in "{[" and is_json(bare))


def _without(white: dict[int, int | None], text: str) -> str:
    """Removes characters outside of strings: of the pieces between unescaped quotes every other one is outside."""
    escaped = "\\" in text
    if escaped:
        text = text.replace("\\\\", BACKSLASH).replace('\\"', QUOTE)
    pieces = text.split('"')
    pieces[::2] = '"'.join(pieces[::2]).translate(white).split('"')
    text = '"'.join(pieces)
    if escaped:
        text = UNICODE_ESCAPES.sub(_unescaped, text).replace("\\/", "/")
        text = text.replace(QUOTE, '\\"').replace(BACKSLASH, "\\\\")
    return text


def _unescaped(match: re.Match[str]) -> str:
    """Returns the characters that `\\uXXXX` stand for, if JSON can contain them unescaped."""
    characters = json.dumps(json.loads(f'"{match.group()}"'), ensure_ascii=False)[1:-1]
    try:
        characters.encode()
    except UnicodeEncodeError:
        return match.group()
    return characters.replace("\\\\", BACKSLASH).replace('\\"', QUOTE)


def _compact_csv(text: str) -> str | None:
    """Returns the same rows without needless quotes and with line ends of one character; None if it is no table of
    separated values, or has nothing to gain. Padding is data."""
    if '"' not in text and "\r\n" not in text:
        return None
    first = text[: text.find("\n") + 1]
    for separator in CSV_SEPARATORS:
        if separator in first and _is_strict(text, separator):
            return _rewritten(text, separator)
    return None


def _is_strict(text: str, separator: str) -> bool:
    """Returns whether quotes are only around whole fields (RFC 4180): anything else may be a program or a sentence."""
    if '"' not in text:
        return True
    field = rf'(?:"[^"]*+(?:""[^"]*+)*+"|[^"\r\n{separator}]*+)'
    return re.fullmatch(rf"(?:{field}(?:{re.escape(separator)}|\r?\n|\Z))*+", text) is not None


def _rewritten(text: str, separator: str) -> str | None:
    try:
        rows = _rows(text, separator, padded=False)
        if not _is_table(rows):
            return None
        out = io.StringIO(newline="")
        csv.writer(out, delimiter=separator, lineterminator="\n").writerows(rows)
        shorter = out.getvalue().removesuffix("\n")
        equal = _rows(shorter, separator, padded=False) == rows
        if equal and '" ' in text:  # a reader that skips blanks after separators must find the same, too
            equal = _rows(shorter, separator, padded=True) == _rows(text, separator, padded=True)
    except csv.Error:
        return None
    return shorter if equal else None


def _rows(text: str, separator: str, *, padded: bool) -> list[list[str]]:
    source = io.StringIO(text, newline="")
    return list(csv.reader(source, delimiter=separator, strict=True, skipinitialspace=padded))


def _is_table(rows: list[list[str]]) -> bool:
    """Returns whether the first row names columns, each once, and all others have as many."""
    names = rows[0] if rows else []
    if len(rows) < MIN_ROWS or not 1 < len(names) <= MAX_COLUMNS:
        return False
    named = all(name.strip() for name in names) and len(set(names)) == len(names)
    return named and all(len(row) == len(names) for row in rows)
