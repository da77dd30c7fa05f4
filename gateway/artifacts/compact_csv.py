"""Separated values without quotes that hold nothing together, and with line ends of one character. Padding is data."""

import csv
import io
import re

SEPARATORS = (",", "\t", ";", "|")
LEAST_ROWS = 3
MOST_COLUMNS = 1000


def compact_csv(text: str) -> str | None:
    """The same rows in fewer characters; None if it is no table of separated values or there is nothing to gain."""
    if '"' not in text and "\r\n" not in text:
        return None
    first = text[: text.find("\n") + 1]
    for separator in SEPARATORS:
        if separator in first and _is_strict(text, separator):
            return _rewritten(text, separator)
    return None


def _is_strict(text: str, separator: str) -> bool:
    """Whether quotes stand only around whole fields (RFC 4180): anything else may be a program or a sentence."""
    if '"' not in text:
        return True
    field = rf'(?:"[^"]*+(?:""[^"]*+)*+"|[^"\r\n{separator}]*+)'
    return re.fullmatch(rf"(?:{field}(?:{separator if separator != '|' else '[|]'}|\r?\n|\Z))*+", text) is not None


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
    """Whether the first row names columns, each once, and all others have as many."""
    names = rows[0] if rows else []
    if len(rows) < LEAST_ROWS or not 1 < len(names) <= MOST_COLUMNS:
        return False
    named = all(name.strip() for name in names) and len(set(names)) == len(names)
    return named and all(len(row) == len(names) for row in rows)
