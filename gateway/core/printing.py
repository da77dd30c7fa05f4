"""Figures and texts as commands and web pages print them, safe for terminals and, as CSV, for spreadsheets."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

FORMULA = re.compile(r'\A(?=[\t\r\n])|(?:\A|[;\t\r\n])(?:[^\S\t\r\n]|")*+(?=[=+\-@\uff1d\uff0b\uff0d\uff20])')
"""Position before what a spreadsheet may take for a formula, also behind blanks, if it separates cells by semicolons,
or at our line breaks."""
CONTROL_BLANKS = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
"""Those that a terminal obeys, other than tabs and line breaks."""


def printable(text: str) -> str:
    """Replaces non-printable characters, which a terminal would obey, by U+FFFD."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def in_short(names: Sequence[str], most: int = 5) -> str:
    """Joins names for one line: the first `most`, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def usd_text(value: Any) -> str:
    """Formats USD with 12 decimals; empty for what is not an amount."""
    return f"{Decimal(value):.12f}" if isinstance(value, Decimal | int) else ""


def digits_of(value: float) -> str:
    """Formats a number with all its digits, without an exponent or zeros behind them."""
    text = f"{Decimal(str(value)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def cost_text(cost: Decimal, unpriced: int, *, is_known: bool) -> str:
    """Formats a cost in USD; `>=` marks a sum that lacks calls of unknown price, "unknown" one of such calls alone."""
    if unpriced and not is_known:
        return "unknown"
    return f"{'>=' if unpriced else ''}{usd_text(cost)}"


def aligned(lines: Sequence[Sequence[str]], is_right: Sequence[bool]) -> Iterable[str]:
    """Yields a table as lines without line ends. `is_right`: which of its columns are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = zip(line, widths, is_right, strict=True)
        yield "  ".join(text.rjust(size) if right else text.ljust(size) for text, size, right in cells).rstrip()


def csv_line(values: Iterable[Any]) -> str:
    """Formats a line of CSV in which no spreadsheet takes a cell for a formula, and that no terminal obeys."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow([_cell(value) for value in values])
    return buffer.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return usd_text(value)
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if not text.isprintable():
        text = "".join(c if c.isprintable() or (c.isspace() and c not in CONTROL_BLANKS) else "\ufffd" for c in text)
    return FORMULA.sub(r"\g<0>'", text)
