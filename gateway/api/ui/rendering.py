"""Templates and static files of the page. Jinja2 is loaded with the first page."""

import asyncio
import hashlib
import mimetypes
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gateway import __version__
from gateway.api.ui.glossary import TERMS

HERE = Path(__file__).parent
SERVED = (".css", ".js", ".svg")
UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters: browsers draw nothing for them, or something of their own."""
LEAST_SHOWN = Decimal("0.000001")
"""USD: short money says of less only that it is less."""
SHORT_DIGITS = 3
"""Digits of short money below a dollar, beside leading zeros."""
UNITS = ("B", "KB", "MB", "GB", "TB")
CENTS = 2


async def rendered(template: str, context: Mapping[str, Any]) -> bytes:
    """A template as bytes, made in a thread."""
    return await asyncio.to_thread(_render, template, context)


def _render(template: str, context: Mapping[str, Any]) -> bytes:
    return environment().get_template(template).render(context).encode("utf-8", "replace")


@cache
def environment() -> Environment:
    """Everything is escaped; a name that is not known is an error."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    figures = {"usd": usd, "money": money, "number": number, "size": size}
    made.filters |= {**figures, "iso": iso, "shown_time": shown_time, "said": said}
    made.globals |= {"static": static, "version": __version__, "terms": TERMS}
    return made


@cache
def files() -> Mapping[str, tuple[str, bytes]]:
    """Media type and content of each static file, by a name that holds a digest of it: it may be kept for good."""
    found = {}
    for path in sorted((HERE / "static").iterdir()):
        if path.suffix in SERVED:
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:16]
            kind = mimetypes.types_map.get(path.suffix, "application/octet-stream")
            charset = "; charset=utf-8" if path.suffix != ".svg" else ""
            found[f"{path.stem}.{digest}{path.suffix}"] = (kind + charset, content)
    return found


@cache
def static(name: str) -> str:
    """The address of a static file.

    Raises:
        KeyError: there is no such file.
    """
    stem, _, suffix = name.rpartition(".")
    for served in files():
        if served.startswith(f"{stem}.") and served.endswith(f".{suffix}") and served.count(".") == name.count(".") + 1:
            return f"/ui/static/{served}"
    raise KeyError(name)


def usd(value: Decimal | None, *, at_least: bool = False) -> str:
    """USD with all its digits; `at_least` marks a sum without calls whose price is not known."""
    if value is None:
        return "unknown"
    text = f"{value:f}"
    whole, _, digits = text.partition(".")
    digits = digits.rstrip("0").ljust(CENTS, "0")
    sign, whole = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
    return f"{'>= ' if at_least else ''}{sign}${int(whole):,}.{digits}"


def money(value: Decimal, *, at_least: bool = False) -> str:
    """USD as pages show it: cents from a dollar on, below it `SHORT_DIGITS` digits. `at_least` as for `usd`; such a
    sum is not rounded up."""
    size = abs(value)
    if not size or size >= 1:
        least = Decimal("0.01")
    elif size < LEAST_SHOWN:
        return f"{'-' if value < 0 else ''}<${LEAST_SHOWN:f}"
    else:
        least = Decimal(1).scaleb(size.adjusted() + 1 - SHORT_DIGITS)
    return usd(value.quantize(least, ROUND_FLOOR if at_least else ROUND_HALF_EVEN), at_least=at_least)


def number(value: int | float | None) -> str:
    """A number with its thousands apart."""
    return "–" if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Bytes, in the unit in which they are short."""
    if value is None:
        return "–"
    amount, unit = float(value), 0
    while amount >= 1000 and unit < len(UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.0f} {UNITS[unit]}" if amount >= 100 or not unit else f"{amount:.1f} {UNITS[unit]}"


def iso(value: datetime) -> str:
    """For machines: UTC, to the second."""
    return _utc(value).strftime("%Y-%m-%dT%H:%M:%SZ")


def shown_time(value: datetime) -> str:
    """For people: UTC, to the second."""
    return _utc(value).strftime("%Y-%m-%d %H:%M:%S")


def said(text: object) -> str:
    """What somebody wrote, with a sign in place of each control character."""
    return UNSEEN.sub("\ufffd", str(text))


def _utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
