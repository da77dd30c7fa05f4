"""Spreadsheets: XLSX, XLSM, XLSB, XLS and ODS. Each sheet's rows as CSV, below a marker that names their cells.

Numbers are rendered as their cells show them, by the format codes of ECMA-376 (part 1, 18.8.30 and 18.8.31), with the
codes' own separators (1,234.50). The library renders dates, so date codes count as no format here.
"""

import csv
import datetime
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import cache, partial
from itertools import islice
from typing import Any
from xml.etree import ElementTree

from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, PasswordError

from gateway.core.frozen_records import record
from gateway.core.types import places
from gateway.documents.document import LeftOut, Reading, ReadOptions, UnreadableDocument
from gateway.documents.html import html_text
from gateway.documents.packages import BROKEN_FILE, PROTECTED, ZipPackage, attribute, child, children, local, reading
from gateway.documents.plain import decoded
from gateway.documents.pptx import chart_lines, shape_texts
from gateway.documents.sandbox_worker import tell_progress
from gateway.documents.sniff import OLE_MAGIC, ZIP_MAGIC, ole_kind

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
"""Codes that a file names only by number."""
MAX_CODE_CHARS = 500
"""A longer code is ignored; programs allow 255."""
MAX_DECIMALS = 30
MAX_NUMBER_DIGITS = 15
"""Significant digits of a number, as spreadsheet programs store them."""
FORMAT_CONTEXT = Context(prec=120, rounding=ROUND_HALF_UP)
FORMAT_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|_.|\*.|\[\$(?P<currency>[^\]\-]*)(?:-[^\]]*)?\]'
    r"|\[(?P<operator><=|>=|<>|<|>|=)(?P<limit>-?\d{1,15}(?:\.\d{1,15})?)\]|\[(?P<colour>[A-Za-z]{3,7}(?: ?\d{1,2})?)\]"
    r"|(?P<general>General)|(?P<exponent>[eE][+-])|(?P<digit>[0#?])|(?P<letter>[A-Za-z\[\]])|(?P<other>.)",
    re.DOTALL | re.IGNORECASE,
)
PLAIN_FORMAT = re.compile(
    r"[_%]{0,9}(?P<whole>[0#?](?:,?[0#?]){0,20}|)(?:\.(?P<part>[0#?]{0,15}))?(?P<commas>,{0,5})[_%]{0,9}"
)
"""The kinds of a section's items, `_` for a literal."""
MAX_PLAIN = 10.0**15
Item = tuple[str, str]
"""Kind and text: a digit (`0#?`), a literal (`""`), or `.`, `,`, `/`, `%`, `E`, `@`, `G` for General."""


class _NoFormat(Exception):
    """The code is one of dates, or broken."""


@record
class _PlainSection:
    """A section whose digit places are adjacent, as in nearly all: it is computed in floats, since a sheet has millions
    of cells. `least`: places after the point that are always shown."""

    before: str
    after: str
    zeros: int
    places: int
    least: int
    factor: float
    is_grouped: bool

    def shown(self, value: float) -> tuple[str, bool] | None:
        """Renders a number that is not negative; returns the text and whether it is exact; None if it is too large."""
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


@record
class _FormatSection:
    items: tuple[Item, ...]
    operator: str = ""
    limit: float = 0.0
    plain: _PlainSection | None = None

    def takes(self, value: float) -> bool:
        """Returns whether the section's own condition holds."""
        order = -1 if value < self.limit else int(value > self.limit)
        return order in {"<": (-1,), "<=": (-1, 0), "=": (0,), ">=": (0, 1), ">": (1,), "<>": (-1, 1)}[self.operator]


class NumberFormat:
    """A number format; `of` parses its code."""

    def __init__(self, sections: Sequence[_FormatSection]) -> None:
        has_text = len(sections) == 4 or (len(sections) > 1 and any(kind == "@" for kind, _ in sections[-1].items))
        self._numbers = sections[:-1] if has_text else sections
        self._text = sections[-1].items if has_text or any(kind == "@" for kind, _ in sections[0].items) else ()

    @classmethod
    def of(cls, code: str) -> "NumberFormat | None":
        """Parses a code; None for the codes of dates, for General and text, and for broken ones."""
        if len(code) > MAX_CODE_CHARS:
            return None
        try:
            sections = _sections(code)
        except _NoFormat:
            return None
        shows = {kind for section in sections for kind, _ in section.items}
        return cls(sections[:4]) if shows - {"G", "@"} else None

    def text(self, value: str) -> str:
        if not any(not kind and text.strip() for kind, text in self._text):
            return value  # the format only moves the text in its cell
        return "".join(value if kind == "@" else text for kind, text in self._text if kind in ("", "@")).strip()

    def number(self, value: float, raw: str) -> str:
        """Renders a number as its cell shows it, followed by `raw` in brackets where that is rounded or no number."""
        if not abs(value) < 10**MAX_NUMBER_DIGITS:
            return raw
        section, is_negated = self._section(value)
        plain = None if section.plain is None else section.plain.shown(abs(value))
        if plain is not None:
            shown, is_exact = plain
        elif any(kind in ("G", "@") for kind, _ in section.items):
            own = raw.removeprefix("-") if is_negated else raw
            return "".join(own if kind in ("G", "@") else text for kind, text in section.items).strip()
        else:
            exact = abs(Decimal(format(value, f".{MAX_NUMBER_DIGITS}g")))
            try:
                shown, told = _shown(section.items, exact)
            except ArithmeticError:  # a code of a hundred percent signs
                return raw
            shown, is_exact = " ".join(shown.split()), told == exact
        if value < 0 and not is_negated:
            shown = f"-{shown}"
        return shown if is_exact and shown else f"{shown} ({raw})" if shown else raw

    def _section(self, value: float) -> tuple[_FormatSection, bool]:
        """Returns the section for a value, and whether it shows by itself that the value is negative."""
        numbers = self._numbers
        if any(section.operator for section in numbers):
            found = next((each for each in numbers if not each.operator or each.takes(value)), numbers[-1])
            return found, found.operator.startswith("<") and found.limit <= 0
        if value < 0 and len(numbers) > 1:
            return numbers[1], True
        return numbers[2 if value == 0 and len(numbers) > 2 else 0], False


def _sections(code: str) -> list[_FormatSection]:
    """Parses a code into sections. Raises _NoFormat: it has letters that stand for dates, or that mean nothing."""
    sections, items = [], list[Item]()
    condition = ("", 0.0)
    for found in FORMAT_TOKEN.finditer(code):
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
    """Returns the plain section; None where digit places are not adjacent, or are of a fraction or a power."""
    found = PLAIN_FORMAT.fullmatch("".join(kind or "_" for kind, _ in items))
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
    """Renders a number that is not negative; returns also the number that is shown; None: it shows none."""
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
    places = min(MAX_DECIMALS, len([at for at in digits if at > point]))
    rounded = FORMAT_CONTEXT.quantize(FORMAT_CONTEXT.scaleb(value, shift), Decimal(1).scaleb(-places))
    before, _, after = format(rounded, "f").partition(".")
    least = max((n for n, at in enumerate((a for a in digits if a > point), 1) if kinds[at] == "0"), default=0)
    after = after[:least] + after[least:].rstrip("0")
    head = _whole(items[:point], before.lstrip("0"), grouped=grouped)
    return head + _after(items[point:], after), FORMAT_CONTEXT.scaleb(rounded, -shift)


def _whole(items: Sequence[Item], digits: str, *, grouped: bool) -> str:
    """Fills the digits before the point into their places, from the last one on."""
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
    """Counts the commas after a place: each divides by a thousand."""
    return next((n for n, kind in enumerate(kinds[at + 1 :]) if kind != ","), len(kinds) - at - 1)


def _after(items: Sequence[Item], digits: str) -> str:
    """Renders the point with the digits after it, and the literals there."""
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
    places = min(MAX_DECIMALS, len([kind for kind in kinds[point:at] if kind in ("0", "#", "?")]))
    power = (value.adjusted() // step) * step if value else 0
    rounded = FORMAT_CONTEXT.quantize(FORMAT_CONTEXT.scaleb(value, -power), Decimal(1).scaleb(-places))
    if rounded >= 10**step:
        power += step
        rounded = FORMAT_CONTEXT.quantize(FORMAT_CONTEXT.scaleb(rounded, -step), Decimal(1).scaleb(-places))
    width = len([kind for kind in kinds[at + 1 :] if kind in ("0", "#", "?")])
    sign = "-" if power < 0 else "+" if items[at][1] == "+" else ""
    lead = "".join(text for kind, text in items[:point] if not kind)
    rest = "".join(text for kind, text in items[at + 1 :] if not kind)
    return f"{lead}{rounded:f}E{sign}{abs(power):0{width}}{rest}", FORMAT_CONTEXT.scaleb(rounded, power)


def _fraction(items: Sequence[Item], at: int, value: Decimal) -> tuple[str, Decimal | None]:
    """Renders a whole number, if it has a place of its own, and a fraction."""
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


# What calamine does not report of XLSX: errors that cells show, number formats, formulas without stored values,
# comments, text boxes.

MAX_SCANNED = 2**29
"""Bytes of a sheet's XML that are searched."""
SCANNED_PIECE = 2**20
CELL_BYTES = 1300
"""Bytes in which the XML of one cell with an error fits; pieces overlap by them."""
MAX_ERRORS = 10_000
MAX_COMMENTS = 1000
ERROR = re.compile(
    rb'<c r="([A-Z]{1,3})(\d{1,7})"[^<>]{0,60}\bt="e"[^<>]{0,60}>(?:<f[^<>]{0,80}>[^<]{0,1000}</f>)?'
    rb"<v>(#[A-Z0-9/?!]{1,14})</v>"
)
STYLED = re.compile(rb'<(?:\w{1,9}:)?c\s(?=[^<>]{0,200}?\bs="(\d{1,5})")[^<>]{0,200}?\br="([A-Z]{1,3})(\d{1,7})"')
"""A cell with a style of its own."""
MAX_TAG = 4096
"""Bytes of a tag that is carried over to the next piece."""
MAX_STYLES = 65_536
MAX_SHAPES = 1000
"""Text boxes, pictures and charts of a sheet."""
UNCALCULATED = re.compile(rb"</f>(?:<v ?/>|<v></v>)?</c>")


@record
class SheetParts:
    """Parts of one sheet. `errors`: column (from 0) and text, by row (from 0). `comments`: `Comment on B4: …`.
    `shapes`: `Text box at B4: …`, and whether all could be read. `formatted`: yields the cells with a format."""

    errors: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    uncalculated: bool = False
    comments: tuple[str, ...] = ()
    shapes: tuple[Sequence[str], bool] = ((), True)
    formatted: "Callable[[], Iterator[FormattedCell]] | None" = None


FormattedCell = tuple[int, int, NumberFormat]
"""Row and column, from 0, and its format."""
NO_PARTS = SheetParts()


def sheet_parts(package: ZipPackage) -> dict[str, SheetParts]:
    """Returns the parts of sheets by name; empty for spreadsheets that are no XLSX."""
    main = next((each.target for each in package.relations("").values() if each.kind == "officeDocument"), "")
    if main not in package or not main.endswith(".xml"):
        return {}
    related = package.relations(main)
    styles = next((each.target for each in related.values() if each.kind == "styles"), "")
    formats = _formats(package.optional_xml(styles))
    found = {}
    for sheets in children(package.xml(main), "sheets"):
        for sheet in sheets:
            relation = related.get(attribute(sheet, "id"))
            if relation is not None and relation.target in package and relation.kind == "worksheet":
                found[attribute(sheet, "name")] = _parts(package, relation.target, formats)
    return found


def drawn(package: ZipPackage, parts: Iterable[str]) -> tuple[list[str], bool]:
    """Returns the texts of these drawings, and whether all of them could be read."""
    said: list[str] = []
    try:
        for part in parts:
            said += islice(_drawn(package, part), MAX_SHAPES)
    except (UnreadableDocument, *BROKEN_FILE):
        return said, False
    return said, True


def _drawn(package: ZipPackage, part: str) -> Iterator[str]:
    """Yields the text boxes, charts and alternative texts of a drawing, with the cells at which they begin."""
    related = package.relations(part)
    for anchor in package.xml(part):
        start = child(anchor, "from")
        place = "" if start is None else f" at {_cell_of(start)}"
        for said in shape_texts(anchor):
            yield f"{'Shown' if said.startswith('(Picture: ') else 'Text box'}{place}: {said}"
        for node in anchor.iter():
            relation = related.get(attribute(node, "id")) if local(node.tag) == "chart" else None
            relation = relation or (related.get(attribute(node, "dm")) if local(node.tag) == "relIds" else None)
            if relation is None or relation.external or relation.target not in package:
                continue
            if relation.kind == "chart":
                yield "\n".join([f"Chart{place}:", *chart_lines(package.xml(relation.target))])
            else:
                yield from (f"Diagram{place}: {said}" for said in shape_texts(package.xml(relation.target)))


def _cell_of(start: ElementTree.Element) -> str:
    column, row = (child(start, name) for name in ("col", "row"))
    numbers = [int(each.text or 0) if each is not None else 0 for each in (column, row)]
    return cell(numbers[1], numbers[0])


def column(number: int) -> str:
    """Returns the letters of a column, counted from 0."""
    letters = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def cell(row: int, number: int) -> str:
    """Returns a cell's name; both numbers are counted from 0."""
    return f"{column(number)}{row + 1}"


def _formats(styles: ElementTree.Element) -> dict[int, NumberFormat]:
    """Returns the formats by the numbers that cells name, without those that show a number unchanged."""
    codes: dict[str, str] = {str(number): code for number, code in BUILT_IN.items()}
    for group in children(styles, "numFmts"):
        codes |= {attribute(each, "numFmtId"): attribute(each, "formatCode") for each in group}
    made: dict[str, NumberFormat | None] = {}
    found = {}
    for group in children(styles, "cellXfs"):
        for number, each in zip(range(MAX_STYLES), group, strict=False):
            code = codes.get(attribute(each, "numFmtId"), "")
            if code not in made:
                made[code] = NumberFormat.of(code)
            if (form := made[code]) is not None:
                found[number] = form
    return found


def formatted_cells(package: ZipPackage, part: str, formats: dict[int, NumberFormat]) -> Iterator[FormattedCell]:
    """Yields the cells of a sheet that have one of these formats, in order."""
    before = b""
    for piece in package.pieces(part, SCANNED_PIECE, MAX_SCANNED):
        scanned = before + piece
        end = scanned.rfind(b"<")  # before it, all tags are whole
        for found in STYLED.finditer(scanned, 0, max(0, end)):
            if (form := formats.get(int(found[1]))) is not None:
                yield int(found[3]) - 1, _column(found[2]), form
        before = scanned[end:][:MAX_TAG] if end >= 0 else b""


def _parts(package: ZipPackage, part: str, formats: dict[int, NumberFormat]) -> SheetParts:
    errors: dict[int, list[tuple[int, str]]] = {}
    uncalculated, count, before = False, 0, b""
    for piece in package.pieces(part, SCANNED_PIECE, MAX_SCANNED):
        scanned = before + piece
        uncalculated = uncalculated or UNCALCULATED.search(scanned) is not None
        if b't="e"' in scanned and count < MAX_ERRORS:
            for match in ERROR.finditer(scanned):
                errors.setdefault(int(match[2]) - 1, []).append((_column(match[1]), match[3].decode()))
                count += 1
        before = scanned[-CELL_BYTES:]
    related = package.relations(part).values()
    shapes = drawn(package, (each.target for each in related if each.kind == "drawing" and each.target in package))
    formatted = partial(formatted_cells, package, part, formats) if formats else None
    return SheetParts(errors, uncalculated, tuple(_comments(package, part)), shapes, formatted)


def _comments(package: ZipPackage, part: str) -> list[str]:
    lines: list[str] = []
    for relation in package.relations(part).values():
        if relation.kind == "comments" and relation.target in package:
            for node in package.xml(relation.target).iter():
                if local(node.tag) == "comment" and len(lines) < MAX_COMMENTS:
                    said = " ".join("".join(each.text or "" for each in node.iter() if local(each.tag) == "t").split())
                    lines.append(f"Comment on {attribute(node, 'ref')}: {said}")
    return lines


@cache
def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + letter - ord("A") + 1
    return number - 1


MAX_TEXT_BYTES = 60 * 2**20
"""Limit of one spreadsheet's text; rows beyond it are left out, with a note."""
MAX_FORMATTED = 1_000_000
"""Cells of a spreadsheet whose numbers are shown by their formats: about ten seconds."""
MAX_NAMED_CELLS = 20
"""Merged cells, or sheets, that one note names."""
LINE_BREAKS = re.compile(r"[\r\n\v\f\x85\u2028\u2029]+")
ISO_DURATION = re.compile(r"PT(\d+)H(\d\d)M(\d\d)(?:\.\d+)?S\Z")
CONTROL = re.compile("[\0-\x08]")
TEXT_HEAD = 2**16
ODS_CONTENT = "content.xml"
"""The main part of ODS."""
TEXT_BOX = re.compile(rb"<draw:(?:text-box|custom-shape)\b")
DRAWING = re.compile(r"/drawings/drawing\d{1,6}\.xml$")


class ShownNumber(str):
    """A number as its cell shows it."""

    __slots__ = ()


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """Reads values as people see them, without colours and widths: dates as in ISO 8601, line breaks as spaces. A
    number of XLSX is rendered by its format, such as `25%`, followed by the stored number where the format rounds.
    Raises UnreadableDocument: it is no spreadsheet, needs a password, or would be too large when unpacked."""
    with reading("spreadsheet"):
        if not raw.startswith((ZIP_MAGIC, OLE_MAGIC)):
            return Reading(places.plain_lines(_exported(raw)))
        if ole_kind(raw) == "protected":
            raise UnreadableDocument(PROTECTED)
        package = ZipPackage(raw) if raw.startswith(ZIP_MAGIC) else None
        return _workbook(raw, package)


def _workbook(raw: bytes, package: ZipPackage | None) -> Reading:
    try:
        with CalamineWorkbook.from_filelike(io.BytesIO(raw)) as book:
            return _XlsxBook(book, package).reading()
    except PasswordError as error:
        raise UnreadableDocument(PROTECTED) from error
    except CalamineError as error:
        raise UnreadableDocument("it is no readable spreadsheet") from error
    except BaseException as error:  # the library's Rust panics are no `Exception`
        if type(error).__name__ != "PanicException":
            raise
        raise UnreadableDocument("it is no readable spreadsheet") from error


class _XlsxBook:
    def __init__(self, book: CalamineWorkbook, package: ZipPackage | None) -> None:
        self._book = book
        self._package = package
        self._parts = {} if package is None else sheet_parts(package)
        self._left = MAX_TEXT_BYTES
        self._formats = iter(range(MAX_FORMATTED))
        self._blocks: list[str] = []
        self._notes: list[str] = []

    def reading(self) -> Reading:
        hidden, macros = [], False
        sheets = self._book.sheets_metadata
        for number, about in enumerate(sheets):
            tell_progress(number, len(sheets))
            kind = str(about.typ).rpartition(".")[2]
            macros |= kind in ("MacroSheet", "Vba")
            if kind != "WorkSheet":
                continue
            if str(about.visible).rpartition(".")[2] != "Visible":
                hidden.append(about.name)
            if self._left <= 0:
                told = f"Sheet {about.name} and those after it were left out: the text would be too long."
                self._notes.append(LeftOut(told))
                break
            self._sheet(self._book.get_sheet_by_index(number), self._parts.get(about.name, NO_PARTS))
        if next(self._formats, None) is None:
            self._notes.append(f"Beyond {MAX_FORMATTED:,} cells with formats, numbers stand as they are stored.")
        if hidden:
            self._notes.append(f"Hidden in the program: sheet {', '.join(hidden[:MAX_NAMED_CELLS])}.")
        others = () if self._package is None else self._package.notes()
        if macros and not any("macros" in note for note in others):
            self._notes.append(LeftOut("It holds macros, which were not read."))
        if self._package is not None and not self._parts:
            self._drawn(self._package)
        return Reading("\n\n".join(self._blocks), (*self._notes, *others))

    def _drawn(self, package: ZipPackage) -> None:
        """Adds text boxes of files that do not record in XML on which sheet they are, and a note if ODS has any."""
        parts = [name for name in package.names if DRAWING.search(name)]
        said, is_whole = drawn(package, parts)
        self._blocks += [places.plain_lines("\n".join(said))] if said else []
        self._notes += [] if is_whole else [LeftOut("What is drawn on its sheets could not be read.")]
        before = b""
        for piece in package.pieces(ODS_CONTENT, 2**20, 2**29) if ODS_CONTENT in package else ():
            if TEXT_BOX.search(before + piece):
                self._notes.append(LeftOut("Its text boxes were not read."))
                break
            before = piece[-20:]

    def _sheet(self, sheet: CalamineSheet, parts: SheetParts) -> None:
        if sheet.start is None or sheet.end is None:
            return
        block = _SheetBlock(sheet.name, sheet.start[1], sheet.end[1])
        for number, row in enumerate(_rows(sheet, parts, self._formats), 1):
            if self._left <= 0:
                told = f"Rows of sheet {sheet.name} from {number} on were left out: the text is too long."
                self._notes.append(LeftOut(told))
                break
            written = block.add(number, row)
            self._left -= written
            if not written and block.lines:
                self._blocks.append(block.taken())
        if block.lines:
            self._blocks.append(block.taken())
        self._blocks += [places.plain_lines("\n".join(each)) for each in (parts.comments, parts.shapes[0]) if each]
        self._note(sheet, parts)

    def _note(self, sheet: CalamineSheet, parts: SheetParts) -> None:
        if not parts.shapes[1]:
            self._notes.append(LeftOut(f"What is drawn on sheet {sheet.name} could not be read."))
        merged = sheet.merged_cell_ranges or []
        if merged:
            shown = ", ".join(f"{cell(*start)}:{cell(*end)}" for start, end in merged[:MAX_NAMED_CELLS])
            more = f" and {len(merged) - MAX_NAMED_CELLS} more" if len(merged) > MAX_NAMED_CELLS else ""
            self._notes.append(
                f"Sheet {sheet.name} has merged cells, with the value in the first of each: {shown}{more}."
            )
        if parts.uncalculated:
            self._notes.append(
                f"Sheet {sheet.name} has formulas without stored values, whose cells are empty here; "
                "a spreadsheet program that saves it fills them."
            )


class _SheetBlock:
    """Rows of a sheet without a blank one between them, as lines of CSV."""

    def __init__(self, name: str, first_column: int, last_column: int) -> None:
        self._name = name
        self._first = first_column
        self._width = last_column - first_column + 1
        self._used = self._row = 0
        self.lines: list[str] = []
        self._buffer = io.StringIO()
        self._writer = csv.writer(self._buffer, lineterminator="")

    def add(self, number: int, row: list[Any]) -> int:
        """Adds the row `number` (from 1) as a line; returns its bytes, 0 if it is blank."""
        if row.count("") == len(row):  # all at once: a sheet may have 16,384 columns
            return 0
        used = len(row)
        while row[used - 1] == "":
            used -= 1
        self._used = max(self._used, used)
        self._row = number
        self._writer.writerow([FORMS[type(value)](value) for value in row])
        line = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        self.lines.append(line)
        return 1 + (len(line) if line.isascii() else len(line.encode("utf-8", "replace")))

    def taken(self) -> str:
        """Returns the rows below their marker, and empties the block. Columns that no row uses are left out."""
        first_row = self._row - len(self.lines) + 1
        last = column(self._first + self._used - 1)
        head = places.sheet_marker(self._name, first_row, last, self._row, column(self._first))
        unused = self._width - self._used
        lines = (line[:-unused] for line in self.lines) if unused else self.lines
        text = f"{head}\n{places.plain_lines(chr(10).join(lines))}"
        self.lines, self._used = [], 0
        return text


def _rows(sheet: CalamineSheet, parts: SheetParts, formats: Iterator[int]) -> Iterator[list[Any]]:
    """Yields all rows from the first on, with errors and numbers as cells show them, as long as `formats` lasts."""
    first = sheet.start[1] if sheet.start else 0
    formatted = (each for each, _ in zip(parts.formatted() if parts.formatted else (), formats, strict=False))
    styled = next(formatted, None)
    for number, row in enumerate(sheet.iter_rows()):
        for place, error in parts.errors.get(number, ()):
            if 0 <= place - first < len(row):
                row[place - first] = error
        while styled is not None and styled[0] <= number:
            place = styled[1] - first
            if styled[0] == number and 0 <= place < len(row):
                row[place] = _formatted(row[place], styled[2])
            styled = next(formatted, None)
        yield row


def _formatted(value: Any, form: NumberFormat) -> Any:
    if type(value) in (float, int):
        return ShownNumber(form.number(value, FORMS[type(value)](value)))
    return form.text(value) if value and type(value) is str else value


def _number(value: float) -> str:
    """Renders as many digits as spreadsheet programs show."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else format(value, ".15g")


def _moment(value: datetime.datetime) -> str:
    return value.isoformat(" ", "seconds") if value.time() != datetime.time() else value.date().isoformat()


def _duration(value: datetime.timedelta) -> str:
    seconds = round(value.total_seconds())
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _string(value: str) -> str:
    if value.startswith("PT") and (found := ISO_DURATION.match(value)):
        return f"{int(found[1])}:{found[2]}:{found[3]}"
    return value if value.isalnum() else LINE_BREAKS.sub(" ", value)


FORMS: dict[type, Callable[[Any], str]] = {
    str: _string,
    ShownNumber: str,
    float: _number,
    int: str,
    bool: lambda value: "TRUE" if value else "FALSE",
    datetime.datetime: _moment,
    datetime.date: lambda value: value.isoformat(),
    datetime.time: lambda value: value.isoformat("seconds"),
    datetime.timedelta: _duration,
}


def _exported(raw: bytes) -> str:
    """Reads what programs export under the name `.xls`: HTML, or text with separators.
    Raises UnreadableDocument: it is no text."""
    text = decoded(raw)
    head = text[:TEXT_HEAD].lower()
    if not text.strip() or CONTROL.search(head):
        raise UnreadableDocument("it is no readable spreadsheet")
    return html_text(text) if "<table" in head or "<html" in head else text
