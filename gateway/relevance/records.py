"""The records of a text: elements of a JSON array, JSON lines, rows of a table; where each stands and what it holds."""

import csv
import json
import re
from dataclasses import dataclass
from datetime import date
from typing import Any

# What a value says as a number: amounts with units, sizes, durations, dates.


DIGIT = re.compile(r"\d")
NUMBER = re.compile(r"^\s*[~<>≈]?\s*[$€£¥₹]?\s*([+-]?\d[\d,_ ]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-zµ%°$€£]{0,8})")
DATE = re.compile(r"^\s*(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2}))?)?")
SLASHED = re.compile(r"^\s*(\d{1,2})/(\d{1,2})/(\d{4})\b")
_MONTH = r"([A-Z][a-z]{2})[a-z]*\.?"
WORDED = re.compile(rf"^\s*{_MONTH} (\d{{1,2}}),? (\d{{4}})\b|^\s*(\d{{1,2}}) {_MONTH} (\d{{4}})\b")
CLOCKED = re.compile(r"^\s*(?:(\d+)\s*h(?:ours?|rs?)?)\s*(?:(\d+)\s*m(?:in(?:utes?)?)?)?\s*$")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
UNITS = {
    "k": 1e3,
    "thousand": 1e3,
    "m": 1e6,
    "mn": 1e6,
    "million": 1e6,
    "b": 1e9,
    "bn": 1e9,
    "billion": 1e9,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "tb": 1e12,
    "kib": 1024.0,
    "mib": 1024.0**2,
    "gib": 1024.0**3,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "seconds": 1.0,
    "min": 60.0,
    "mins": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hours": 3600.0,
    "days": 86400.0,
    "km": 1e3,
    "cm": 1e-2,
    "mm": 1e-3,
    "kg": 1.0,
    "g": 1e-3,
    "mg": 1e-6,
}
"""Factors to one unit of their kind; letters that are short for several things are what they are for amounts."""
DAY = 86400.0


def quantity(value: Any) -> float | None:
    """A number by which values of one field can be compared; None if the value is none. Dates are seconds."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    return _of_text(value) if isinstance(value, str) and len(value) < 60 else None


def _of_text(text: str) -> float | None:
    if DIGIT.search(text) is None:
        return None
    try:
        moment = _moment(text)
    except ValueError:
        return None
    if moment is not None:
        return moment
    if clocked := CLOCKED.match(text):
        return int(clocked[1]) * 3600.0 + int(clocked[2] or 0) * 60.0
    found = NUMBER.match(text)
    if found is None:
        return None
    return float(re.sub(r"[,_ ]", "", found[1])) * UNITS.get(found[2].lower(), 1.0)


def _moment(text: str) -> float | None:
    if found := DATE.match(text):
        year, month, day, hour, minute, second = (int(group or 0) for group in found.groups())
        return date(year, month, day).toordinal() * DAY + hour * 3600 + minute * 60 + second
    if found := SLASHED.match(text):
        first, other, year = map(int, found.groups())
        month, day = (other, first) if first > 12 else (first, other)
        return date(year, month, day).toordinal() * DAY
    if found := WORDED.match(text):
        name, day_of, in_year = (found[1], found[2], found[3]) if found[1] else (found[5], found[4], found[6])
        if name.lower() in MONTHS:
            return date(int(in_year), MONTHS.index(name.lower()) + 1, int(day_of)).toordinal() * DAY
    return None


DECODER = json.JSONDecoder()
ARRAY = re.compile(r'"[^"\n]*"\s*:\s*\[\s*(?=\{)')
FAR = 4000
"""Characters within which the array of an object has to begin."""
SPACE = re.compile(r"[\s,]*")
NAME = re.compile(r"(?!\d)[^\n]{0,60}$")
"""What a column may be called; a line of a log is no row of names."""
SEPARATORS = (",", "\t", ";", "|")
SPATIAL = ("longitude", "latitude", "depth altitude elevation")
"""What the numbers of a GeoJSON position are (RFC 7946 §3.1.1)."""


@dataclass(frozen=True, slots=True)
class Record:
    """Characters `start` to `end` of a text. `fields` are names, each the way of keys to it, and values that are no
    objects; a name may come several times."""

    start: int
    end: int
    fields: tuple[tuple[str, Any], ...]


def records_of(text: str) -> list[Record]:
    """The records of a text in order; empty if it does not look like records."""
    opening = len(text) - len(text.lstrip())
    if text[opening : opening + 1] == "[":
        return _elements(text, opening + 1)
    if text[opening : opening + 1] == "{":
        array = ARRAY.search(text, opening, opening + FAR)
        return _elements(text, opening) or (_elements(text, array.end()) if array else [])
    return _rows(text)


def _elements(text: str, at: int) -> list[Record]:
    found: list[Record] = []
    while True:
        space = SPACE.match(text, at)
        at = space.end() if space else at
        try:
            value, end = DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return found if len(found) > 1 else []
        if isinstance(value, dict):
            fields: list[tuple[str, Any]] = []
            _flat(value, "", fields)
            found.append(Record(at, end, tuple(fields)))
        at = end


def _flat(value: Any, name: str, found: list[tuple[str, Any]]) -> None:
    """Adds the values that are no objects to `found`, each with its way."""
    if isinstance(value, dict):
        members = [(f"{name} {key}".strip(), inner) for key, inner in value.items()]
    else:
        spatial = name.endswith("coordinates") and len(value) in (2, 3)
        members = [(f"{name} {SPATIAL[n]}" if spatial else name, inner) for n, inner in enumerate(value)]
    for way, inner in members:
        if isinstance(inner, dict | list):
            _flat(inner, way, found)
        else:
            found.append((way, inner))


def _rows(text: str) -> list[Record]:
    """Rows of separated values beneath a row of names."""
    lines = [(m.start(), m.end()) for m in re.finditer(r"[^\n]+", text)]
    if len(lines) < 3:
        return []
    head = text[slice(*lines[0])]
    separator = max(SEPARATORS, key=head.count)
    names = _cells(head, separator)
    if len(names) < 2 or not all(NAME.match(name) for name in names):
        return []
    found = []
    for start, end in lines[1:]:
        cells = _cells(text[start:end], separator)
        if len(cells) == len(names):
            found.append(Record(start, end, tuple(zip(names, cells, strict=True))))
    return found if len(found) >= 0.8 * (len(lines) - 1) else []


def _cells(line: str, separator: str) -> list[str]:
    line = line.strip("\r")
    if '"' not in line and "\r" not in line:  # most rows: the same, three times as fast
        return [cell.strip() for cell in line.split(separator)]
    try:
        row = next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return []
    return [cell.strip() for cell in row]
