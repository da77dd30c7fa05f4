"""Lossless compaction: JSON and CSV lose what no reader of them sees, nothing else is touched (guarantee §4 I5)."""

import csv
import io
import json
import re

import orjson

# Separated values without quotes that hold nothing together, and with line ends of one character. Padding is data.


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


# JSON without white space between its tokens. Its text is edited, never written anew: numbers keep their digits,
# members their order and doubled names.


WHITE = str.maketrans("", "", " \t\r\n")
WHITE_IN_LINE = str.maketrans("", "", " \t\r")
ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
BACKSLASH, QUOTE = "\x00", "\x01"
"""Stand for an escaped backslash and an escaped quote: JSON's strings hold no control characters as they are."""


def compact_json(text: str) -> str | None:
    """The text of one JSON array or object, or of several on lines of their own, without its spacing; None if it is
    neither. Escapes become the characters they stand for, but for halves of surrogate pairs."""
    if _is_json(text):
        return _without(WHITE, text)
    if "\n" in text and all(map(_is_line, text.split("\n"))):
        return _without(WHITE_IN_LINE, text)
    return None


def _is_line(line: str) -> bool:
    """Whether it can stand in JSON lines: an array, an object, or nothing."""
    bare = line.strip(" \t\r")
    return not bare or (bare[0] in "{[" and _is_json(bare))


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except (
        ValueError
    ):  # whole numbers and halves of surrogate pairs of which orjson will not hear are JSON all the same
        pass
    else:
        return True
    try:
        json.loads(text, parse_constant=_no_json, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):
        return False
    return True


def _no_json(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


def _without(white: dict[int, int | None], text: str) -> str:
    """Takes characters out of what stands outside of strings. Between two quotes that are not escaped stands, by turns,
    what is outside and what is inside of one."""
    escaped = "\\" in text
    if escaped:
        text = text.replace("\\\\", BACKSLASH).replace('\\"', QUOTE)
    pieces = text.split('"')
    pieces[::2] = '"'.join(pieces[::2]).translate(white).split('"')
    text = '"'.join(pieces)
    if escaped:
        text = ESCAPES.sub(_unescaped, text).replace("\\/", "/")
        text = text.replace(QUOTE, '\\"').replace(BACKSLASH, "\\\\")
    return text


def _unescaped(match: re.Match[str]) -> str:
    """What `\\uXXXX` stands for, if JSON can hold it as it is."""
    characters = json.dumps(json.loads(f'"{match.group()}"'), ensure_ascii=False)[1:-1]
    try:
        characters.encode()
    except UnicodeEncodeError:
        return match.group()
    return characters.replace("\\\\", BACKSLASH).replace('\\"', QUOTE)


def compact(text: str) -> str:
    """The same value in fewer characters, or the text itself: equal when parsed as JSON, as JSON lines, or as a table
    of separated values. White space around it stays: a fence closes on a line of its own."""
    core = text.strip(" \t\r\n")
    if not core:
        return text
    shorter = compact_json(core) if core[0] in "{[" else compact_csv(core)
    if shorter is None or len(shorter) >= len(core):
        return text
    start = text.index(core[0])
    return f"{text[:start]}{shorter}{text[start + len(core) :]}"
