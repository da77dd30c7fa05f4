"""Reads values of records as numbers: amounts with units, sizes, durations, dates."""

import re
from datetime import date
from typing import Any

DIGIT = re.compile(r"\d")
NUMBER = re.compile(r"^\s*[~<>≈]?\s*[$€£¥₹]?\s*([+-]?\d[\d,_ ]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-zµ%°$€£]{0,8})")
DATE = re.compile(r"^\s*(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2}))?)?")
SLASHED = re.compile(r"^\s*(\d{1,2})/(\d{1,2})/(\d{4})\b")
_MONTH = r"([A-Z][a-z]{2})[a-z]*\.?"
WORDED = re.compile(rf"^\s*{_MONTH} (\d{{1,2}}),? (\d{{4}})\b|^\s*(\d{{1,2}}) {_MONTH} (\d{{4}})\b")
DURATION = re.compile(r"^\s*(?:(\d+)\s*h(?:ours?|rs?)?)\s*(?:(\d+)\s*m(?:in(?:utes?)?)?)?\s*$")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_UNITS = {
    1e3: "k thousand kb km",
    1e6: "m mn million mb",
    1e9: "b bn billion gb",
    1e12: "tb",
    2.0**10: "kib",
    2.0**20: "mib",
    2.0**30: "gib",
    1e-6: "mg",
    1e-3: "ms mm g",
    1e-2: "cm",
    1.0: "s sec seconds kg",
    60.0: "min mins minutes",
    3600.0: "h hours",
    86400.0: "days",
}
UNITS = {unit: factor for factor, units in _UNITS.items() for unit in units.split()}
"""Factors to one base unit (second, metre, kilogram, byte). `m` and `b` are read as in amounts of money."""
DAY = 86400.0
MOST_CHARS = 60
"""Characters beyond which a value is text, whatever it begins with."""


def quantity(value: Any) -> float | None:
    """A number by which values of one field compare, dates in seconds; None if the value says no quantity."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    return _of_text(value) if isinstance(value, str) and len(value) < MOST_CHARS else None


def _of_text(text: str) -> float | None:
    if DIGIT.search(text) is None:
        return None
    try:
        moment = _moment(text)
    except ValueError:
        return None
    if moment is not None:
        return moment
    if duration := DURATION.match(text):
        return int(duration[1]) * 3600.0 + int(duration[2] or 0) * 60.0
    found = NUMBER.match(text)
    if found is None:
        return None
    return float(re.sub(r"[,_ ]", "", found[1])) * UNITS.get(found[2].lower(), 1.0)


def _moment(text: str) -> float | None:
    """Seconds of a date.

    Raises:
        ValueError: there is no such day.
    """
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
