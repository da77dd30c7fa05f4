"""What is the same when parsed: JSON, JSON lines, separated values. Compactions of one's own, to compare with."""

import csv
import io
import json
import re
from typing import Any

SEPARATORS = (",", ";", "\t", "|")
INSIDE = re.compile(r"```[^\n]*\n(.*?)\n?```|<(\w+)[^<>]*>(.*?)</\2>", re.DOTALL)


def same(one: str, other: str) -> bool:
    """Whether two texts are the same JSON, the same JSON lines, or the same rows."""
    if one == other:
        return True
    ours, theirs = _json(one), _json(other)
    if ours is not None or theirs is not None:
        return bool(ours == theirs)
    ours, theirs = _lines(one), _lines(other)
    if ours is not None or theirs is not None:
        return ours == theirs
    return any(_rows(one, each) is not None and _rows(one, each) == _rows(other, each) for each in SEPARATORS)


def same_but_for_a_document(text: str, original: str) -> bool:
    """Whether the texts differ in one document alone, which stands in a fence, in a tagged block, between paragraphs or
    by itself, and is the same when parsed."""
    for start, end in _documents(original):
        until = len(text) - (len(original) - end)
        beside = text[:start] == original[:start] and text[until:] == original[end:] and until >= start
        if beside and same(text[start:until], original[start:end]):
            return True
    return False


def _documents(text: str) -> list[tuple[int, int]]:
    found = [(0, len(text))]
    found += [match.span(1 if match.group(1) is not None else 3) for match in INSIDE.finditer(text)]
    breaks = [match.span() for match in re.finditer(r"\n[ \t]*\n", text)]
    if len(breaks) > 1:
        found.append((breaks[0][1], breaks[-1][0]))
    lines = [match.span() for match in re.finditer("\n", text)]
    if len(lines) > 1:
        found.append((lines[0][1], lines[-1][0]))
    return found


def shorter(text: str) -> str | None:
    """JSON, or JSON lines, without white space; None for what is neither, or no shorter so."""
    value = _json(text)
    written = _written(value) if value is not None else None
    if value is None and (lines := _lines(text)) is not None:
        written = "\n".join(_written(line) for line in lines)
    try:
        (written or "").encode()
    except UnicodeEncodeError:  # half a sign: nobody can write it otherwise
        return None
    return written if written is not None and len(written) < len(text.strip()) else None


def unquoted(text: str) -> str | None:
    """Separated values without needless quotes; None for anything else."""
    for separator in SEPARATORS:
        rows = _rows(text, separator)
        if rows is not None:
            out = io.StringIO(newline="")
            csv.writer(out, delimiter=separator, lineterminator="\n").writerows(rows)
            return out.getvalue()
    return None


class _Number(str):
    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    pass


def _json(text: str) -> Any:
    """The value, numbers as they are written, members in their order; None for what is neither array nor object."""
    if not text.strip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text, parse_float=_Number, parse_int=_Number, object_pairs_hook=_Members)
    except (ValueError, RecursionError):
        return None


def _lines(text: str) -> list[Any] | None:
    values = [_json(line) for line in text.strip().split("\n")]
    return values if len(values) > 1 and None not in values else None


def _written(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, _Members):
        return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_written(v)}" for k, v in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _rows(text: str, separator: str) -> list[list[str]] | None:
    try:
        rows = list(csv.reader(io.StringIO(text.strip("\r\n"), newline=""), delimiter=separator, strict=True))
    except csv.Error:
        return None
    width = len(rows[0]) if rows else 0
    return rows if len(rows) > 1 and width > 1 and all(len(row) == width for row in rows) else None
