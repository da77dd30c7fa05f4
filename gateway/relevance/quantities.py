"""What a value says as a number: amounts with units, sizes, durations, dates."""

import re
from datetime import date
from typing import Any

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
