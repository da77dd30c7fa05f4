"""Number formats of spreadsheets: a number as its cell shows it, by the code of ECMA-376 (part 1, 18.8.30 and 18.8.31).

Pure. Separators are those of the codes themselves (1,234.50). Dates are the library's (`xlsx`), so codes of dates are
none here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

BUILT_IN = {
    **dict(zip((1, 2, 3, 4, 9, 10, 11), ("0", "0.00", "#,##0", "#,##0.00", "0%", "0.00%", "0.00E+00"), strict=True)),
    **dict.fromkeys((5, 6), "$#,##0;($#,##0)"),
    **dict.fromkeys((7, 8), "$#,##0.00;($#,##0.00)"),
    **dict.fromkeys((37, 38), "#,##0;(#,##0)"),
    **dict.fromkeys((39, 40), "#,##0.00;(#,##0.00)"),
    **dict(zip((12, 13, 48), ("# ?/?", "# ??/??", "##0.0E+0"), strict=True)),
    **dict(zip((41, 42), ('#,##0;(#,##0);"-"?', '$#,##0;($#,##0);$"-"?'), strict=True)),
    **dict(zip((43, 44), ('#,##0.00;(#,##0.00);"-"??', '$#,##0.00;($#,##0.00);$"-"??'), strict=True)),
}
"""Codes that a file names by number alone."""
MAX_CODE_CHARS = 500
"""A longer code is none; programs allow 255."""
MAX_PLACES = 30
MAX_DIGITS = 15
"""Of a number, as spreadsheet programs keep them."""
EXACT = Context(prec=120, rounding=ROUND_HALF_UP)
TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|_.|\*.|\[\$(?P<currency>[^\]\-]*)(?:-[^\]]*)?\]'
    r"|\[(?P<operator><=|>=|<>|<|>|=)(?P<limit>-?\d{1,15}(?:\.\d{1,15})?)\]|\[(?P<colour>[A-Za-z]{3,7}(?: ?\d{1,2})?)\]"
    r"|(?P<general>General)|(?P<exponent>[eE][+-])|(?P<digit>[0#?])|(?P<letter>[A-Za-z\[\]])|(?P<other>.)",
    re.DOTALL | re.IGNORECASE,
)
PLAIN = re.compile(
    r"[_%]{0,9}(?P<whole>[0#?](?:,?[0#?]){0,20}|)(?:\.(?P<part>[0#?]{0,15}))?(?P<commas>,{0,5})[_%]{0,9}"
)
"""The kinds of a section's items, `_` for a literal."""
MAX_PLAIN = 10.0**15
Item = tuple[str, str]
"""Kind and text: a digit (`0#?`), a literal (`""`), or `.`, `,`, `/`, `%`, `E`, `@`, `G` for General."""


class _NoFormat(Exception):
    """The code is one of dates, or broken."""


@dataclass(frozen=True, slots=True)
class _PlainSection:
    """A section whose places stand side by side, as nearly all do: it is worked out in floats, since a sheet has
    millions of cells. `least`: places after the point that are always shown."""

    before: str
    after: str
    zeros: int
    places: int
    least: int
    factor: float
    is_grouped: bool

    def shown(self, value: float) -> tuple[str, bool] | None:
        """How it shows a number that is not negative, and whether that is exact; None if it is too large."""
        scaled = float(f"{value * self.factor * 10**self.places:.15g}")
        if scaled >= MAX_PLAIN:
            return None
        rounded = int(scaled + 0.5)
        whole, part = divmod(rounded, 10**self.places)
        digits = (f"{whole:,}" if self.is_grouped else f"{whole:0{self.zeros}d}") if whole or self.zeros else ""
        if self.places:
            parts = f"{part:0{self.places}d}"
            if self.least < self.places:
                parts = parts[: self.least] + parts[self.least :].rstrip("0")
            digits = f"{digits}.{parts}" if parts else digits
        return f"{self.before}{digits}{self.after}", rounded == scaled


@dataclass(frozen=True, slots=True)
class _FormatSection:
    items: tuple[Item, ...]
    operator: str = ""
    limit: float = 0.0
    plain: _PlainSection | None = None

    def takes(self, value: float) -> bool:
        """Whether its own condition holds."""
        order = -1 if value < self.limit else int(value > self.limit)
        return order in {"<": (-1,), "<=": (-1, 0), "=": (0,), ">=": (0, 1), ">": (1,), "<>": (-1, 1)}[self.operator]


class NumberFormat:
    """A code of numbers; `of` says whether a code is one."""

    def __init__(self, sections: Sequence[_FormatSection]) -> None:
        has_text = len(sections) == 4 or (len(sections) > 1 and any(kind == "@" for kind, _ in sections[-1].items))
        self._numbers = sections[:-1] if has_text else sections
        self._text = sections[-1].items if has_text or any(kind == "@" for kind, _ in sections[0].items) else ()

    @classmethod
    def of(cls, code: str) -> "NumberFormat | None":
        """None for the codes of dates, for General and text, and for broken ones."""
        if len(code) > MAX_CODE_CHARS:
            return None
        try:
            sections = _sections(code)
        except _NoFormat:
            return None
        shows = {kind for section in sections for kind, _ in section.items}
        return cls(sections[:4]) if shows - {"G", "@"} else None

    def text(self, value: str) -> str:
        """A cell of text as it is shown."""
        if not any(not kind and text.strip() for kind, text in self._text):
            return value  # it only moves the text in its cell
        return "".join(value if kind == "@" else text for kind, text in self._text if kind in ("", "@")).strip()

    def number(self, value: float, raw: str) -> str:
        """A number as it is shown, and `raw` behind it in brackets where what is shown is rounded or no number."""
        if not abs(value) < 10**MAX_DIGITS:
            return raw
        section, is_negated = self._section(value)
        plain = None if section.plain is None else section.plain.shown(abs(value))
        if plain is not None:
            shown, is_exact = plain
        elif any(kind in ("G", "@") for kind, _ in section.items):
            own = raw.removeprefix("-") if is_negated else raw
            return "".join(own if kind in ("G", "@") else text for kind, text in section.items).strip()
        else:
            exact = abs(Decimal(format(value, f".{MAX_DIGITS}g")))
            try:
                shown, told = _shown(section.items, exact)
            except ArithmeticError:  # a code of a hundred percent signs
                return raw
            shown, is_exact = " ".join(shown.split()), told == exact
        if value < 0 and not is_negated:
            shown = f"-{shown}"
        return shown if is_exact and shown else f"{shown} ({raw})" if shown else raw

    def _section(self, value: float) -> tuple[_FormatSection, bool]:
        """The section for a value, and whether it says by itself that the value is negative."""
        numbers = self._numbers
        if any(section.operator for section in numbers):
            found = next((each for each in numbers if not each.operator or each.takes(value)), numbers[-1])
            return found, found.operator.startswith("<") and found.limit <= 0
        if value < 0 and len(numbers) > 1:
            return numbers[1], True
        return numbers[2 if value == 0 and len(numbers) > 2 else 0], False


def _sections(code: str) -> list[_FormatSection]:
    """Raises _NoFormat: it has letters that stand for dates, or that mean nothing."""
    sections, items = [], list[Item]()
    condition = ("", 0.0)
    for found in TOKEN.finditer(code):
        kind, text = found.lastgroup, found[0]
        if kind == "other" and text == ";":
            sections.append(_FormatSection(tuple(items), *condition, _plain(items)))
            items, condition = [], ("", 0.0)
        elif kind == "limit":
            condition = (found["operator"], float(found["limit"]))
        elif kind == "letter" or (kind == "colour" and text[1:-1].lower() in ("hh", "mm", "ss")):
            raise _NoFormat
        elif kind in ("quoted", "escaped", "currency"):
            items.append(("", found[kind]))
        elif kind == "digit":
            items.append((text, text))
        elif kind == "general":
            items.append(("G", ""))
        elif kind == "exponent":
            items.append(("E", text[1]))
        elif kind == "other":
            items.append((text if text in ".,/%@" else "", text))
    return [*sections, _FormatSection(tuple(items), *condition, _plain(items))]


def _plain(items: Sequence[Item]) -> _PlainSection | None:
    """None where the places do not stand side by side, or are of a fraction or a power."""
    found = PLAIN.fullmatch("".join(kind or "_" for kind, _ in items))
    if found is None or not (found["whole"] or found["part"]):
        return None
    whole, part = found["whole"].replace(",", ""), found["part"] or ""
    zeros, is_grouped = len(whole.lstrip("#?")), whole != found["whole"]
    if is_grouped and zeros > 1:
        return None
    before = "".join(text for _, text in items[: found.start("whole")])
    after = "".join(text for _, text in items[found.end("commas") :])
    factor = 100.0 ** found[0].count("%") / 1000.0 ** len(found["commas"])
    least = part.rfind("0") + 1
    return _PlainSection(before.lstrip(), after.rstrip(), zeros, len(part), least, factor, is_grouped)


def _shown(items: Sequence[Item], value: Decimal) -> tuple[str, Decimal | None]:
    """How a section shows a number that is not negative, and which number that says; None: none."""
    kinds = [kind for kind, _ in items]
    digits = [at for at, kind in enumerate(kinds) if kind in ("0", "#", "?")]
    if not digits:
        return "".join(text for kind, text in items if kind in ("", "%", "/", ",", ".")), None
    if "E" in kinds:
        return _scientific(items, kinds.index("E"), value)
    if "/" in kinds and digits[0] < kinds.index("/") < len(kinds) - 1:
        return _fraction(items, kinds.index("/"), value)
    point = kinds.index(".") if "." in kinds else len(kinds)
    whole = [at for at in digits if at < point]
    last = whole[-1] if whole else digits[-1]
    thousands = sum(_commas(kinds, at) for at in {last, digits[-1]})
    grouped = bool(whole) and "," in kinds[whole[0] : last]
    shift = 2 * kinds.count("%") - 3 * thousands
    places = min(MAX_PLACES, len([at for at in digits if at > point]))
    rounded = EXACT.quantize(EXACT.scaleb(value, shift), Decimal(1).scaleb(-places))
    before, _, after = format(rounded, "f").partition(".")
    least = max((n for n, at in enumerate((a for a in digits if a > point), 1) if kinds[at] == "0"), default=0)
    after = after[:least] + after[least:].rstrip("0")
    head = _whole(items[:point], before.lstrip("0"), grouped=grouped)
    return head + _after(items[point:], after), EXACT.scaleb(rounded, -shift)


def _whole(items: Sequence[Item], digits: str, *, grouped: bool) -> str:
    """The digits before the point in their places, from the last one on."""
    out: list[str] = []
    count, left = 0, list(digits)
    first = next((at for at, (kind, _) in enumerate(items) if kind in ("0", "#", "?")), -1)
    for at in range(len(items) - 1, -1, -1):
        kind, text = items[at]
        if kind in ("0", "#", "?"):
            taken = [left.pop()] if left else ["0"] if kind == "0" else []
            if at == first:
                taken += reversed(left)
            for digit in taken:
                out.append("," if grouped and count and count % 3 == 0 else "")
                out.append(digit)
                count += 1
        elif kind != ",":
            out.append(text)
    return "".join(reversed(out))


def _commas(kinds: Sequence[str], at: int) -> int:
    """How many commas stand behind a place: each divides by a thousand."""
    return next((n for n, kind in enumerate(kinds[at + 1 :]) if kind != ","), len(kinds) - at - 1)


def _after(items: Sequence[Item], digits: str) -> str:
    """The point with the digits behind it, and what else stands there."""
    out, at = [], 0
    for kind, text in items:
        if kind in ("0", "#", "?"):
            out.append(digits[at : at + 1])
            at += 1
        elif kind == ".":
            out.append("." if digits and "." not in out else "")
        elif kind != ",":
            out.append(text)
    return "".join(out)


def _scientific(items: Sequence[Item], at: int, value: Decimal) -> tuple[str, Decimal]:
    kinds = [kind for kind, _ in items]
    point = kinds.index(".") if "." in kinds[:at] else at
    step = max(1, len([kind for kind in kinds[:point] if kind in ("0", "#", "?")]))
    places = min(MAX_PLACES, len([kind for kind in kinds[point:at] if kind in ("0", "#", "?")]))
    power = (value.adjusted() // step) * step if value else 0
    rounded = EXACT.quantize(EXACT.scaleb(value, -power), Decimal(1).scaleb(-places))
    if rounded >= 10**step:
        power += step
        rounded = EXACT.quantize(EXACT.scaleb(rounded, -step), Decimal(1).scaleb(-places))
    width = len([kind for kind in kinds[at + 1 :] if kind in ("0", "#", "?")])
    sign = "-" if power < 0 else "+" if items[at][1] == "+" else ""
    lead = "".join(text for kind, text in items[:point] if not kind)
    rest = "".join(text for kind, text in items[at + 1 :] if not kind)
    return f"{lead}{rounded:f}E{sign}{abs(power):0{width}}{rest}", EXACT.scaleb(rounded, power)


def _fraction(items: Sequence[Item], at: int, value: Decimal) -> tuple[str, Decimal | None]:
    """A whole number, if it has a place of its own, and a fraction."""
    kinds = [kind for kind, _ in items]
    below = re.match(r"[0-9#?]+", "".join(text for _, text in items[at + 1 :]))
    if below is None:
        return "", None
    number = Fraction(value)
    fixed = int(below[0]) if below[0].isdigit() and int(below[0]) else 0
    most = 10 ** min(5, len(below[0])) - 1
    found = Fraction(round(number * fixed), fixed) if fixed else number.limit_denominator(most)
    upper = next((n for n in range(at - 1, -1, -1) if kinds[n] not in ("0", "#", "?")), -1)
    has_whole = any(kind in ("0", "#", "?") for kind in kinds[: upper + 1])
    whole, rest = divmod(found, 1) if has_whole else (0, found)
    scale = fixed // rest.denominator if fixed else 1
    parts = [str(whole)] if has_whole and (whole or not rest) else []
    parts += [f"{rest.numerator * scale}/{rest.denominator * scale}"] if rest or not has_whole else []
    return " ".join(parts), value if found == number else None
