"""Spreadsheets: XLSX, XLSM, XLSB, XLS and ODS. Each sheet's rows as CSV, below a marker that tells their cells."""

import csv
import datetime
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from gateway.core.types.places import plain_lines, sheet_marker
from gateway.documents.document import LeftOut, Reading, ReadOptions, UnreadableDocument
from gateway.documents.html import html_text
from gateway.documents.number_formats import BUILT_IN, NumberFormat
from gateway.documents.packages import BROKEN, PROTECTED, ZipPackage, attribute, child, children, local, reading
from gateway.documents.plain import decoded
from gateway.documents.pptx import chart_lines, shape_texts
from gateway.documents.sandbox_worker import tell_progress
from gateway.documents.sniff import OLE_MAGIC, ZIP_MAGIC, ole_kind

if TYPE_CHECKING:
    from python_calamine import CalamineSheet, CalamineWorkbook


# What calamine does not tell of XLSX: errors that cells show, number formats, formulas that nobody has calculated,
# comments, text boxes.

MAX_SCANNED = 2**29
"""Bytes of a sheet's XML that are looked through."""
PIECE = 2**20
TAIL = 1300
"""Bytes in which the XML of one cell with an error fits; pieces overlap by them."""
MAX_ERRORS = 10_000
MAX_COMMENTS = 1000
ERROR = re.compile(
    rb'<c r="([A-Z]{1,3})(\d{1,7})"[^<>]{0,60}\bt="e"[^<>]{0,60}>(?:<f[^<>]{0,80}>[^<]{0,1000}</f>)?'
    rb"<v>(#[A-Z0-9/?!]{1,14})</v>"
)
STYLED = re.compile(
    rb'<(?:\w{1,9}:)?c\s(?=[^<>]{0,200}?\bs="(\d{1,5})")[^<>]{0,200}?\br="([A-Z]{1,3})(\d{1,7})"',
)
"""A cell with a style of its own."""
MAX_TAG = 4096
"""Bytes of a tag that is carried over to the next piece."""
MAX_STYLES = 65_536
MAX_SHAPES = 1000
"""Text boxes, pictures and charts of a sheet."""
UNCALCULATED = re.compile(rb"</f>(?:<v ?/>|<v></v>)?</c>")


@dataclass(frozen=True, slots=True)
class SheetParts:
    """Of one sheet. `errors`: column (from 0) and text, by row (from 0). `comments`: `Comment on B4: …`. `shapes`:
    `Text box at B4: …`, and whether all could be read. `formatted`: begins to tell its cells with a format."""

    errors: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    uncalculated: bool = False
    comments: tuple[str, ...] = ()
    shapes: tuple[Sequence[str], bool] = ((), True)
    formatted: "Callable[[], Iterator[FormattedCell]] | None" = None


FormattedCell = tuple[int, int, NumberFormat]
"""Row and column, from 0, and its format."""
NO_PARTS = SheetParts()


def sheet_parts(package: ZipPackage) -> dict[str, SheetParts]:
    """By the sheet's name; empty for spreadsheets that are no XLSX."""
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
    """What is drawn in these drawings, and whether all of them could be read."""
    said: list[str] = []
    try:
        for part in parts:
            said += islice(_drawn(package, part), MAX_SHAPES)
    except (UnreadableDocument, *BROKEN):
        return said, False
    return said, True


def _drawn(package: ZipPackage, part: str) -> Iterator[str]:
    """The text boxes, charts and alternative texts of a drawing, with the cells at which they begin."""
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
    """The letters of a column, counted from 0."""
    letters = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def cell(row: int, number: int) -> str:
    """A cell's name; both counted from 0."""
    return f"{column(number)}{row + 1}"


def _formats(styles: ElementTree.Element) -> dict[int, NumberFormat]:
    """The formats by the numbers that cells name, without those that show a number as it is."""
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
    """The cells of a sheet that have one of these formats, in their order."""
    before = b""
    for piece in package.pieces(part, PIECE, MAX_SCANNED):
        scanned = before + piece
        end = scanned.rfind(b"<")  # before it, all tags are whole
        for found in STYLED.finditer(scanned, 0, max(0, end)):
            if (form := formats.get(int(found[1]))) is not None:
                yield int(found[3]) - 1, _column(found[2]), form
        before = scanned[end:][:MAX_TAG] if end >= 0 else b""


def _parts(package: ZipPackage, part: str, formats: dict[int, NumberFormat]) -> SheetParts:
    errors: dict[int, list[tuple[int, str]]] = {}
    uncalculated, count, before = False, 0, b""
    for piece in package.pieces(part, PIECE, MAX_SCANNED):
        scanned = before + piece
        uncalculated = uncalculated or UNCALCULATED.search(scanned) is not None
        if b't="e"' in scanned and count < MAX_ERRORS:
            for match in ERROR.finditer(scanned):
                errors.setdefault(int(match[2]) - 1, []).append((_column(match[1]), match[3].decode()))
                count += 1
        before = scanned[-TAIL:]
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
"""Of one spreadsheet; rows beyond it are left out, and a note says so."""
MAX_FORMATTED = 1_000_000
"""Cells of a spreadsheet whose numbers are shown by their formats: about ten seconds."""
MAX_NAMED = 20
"""Merged cells, or sheets, that one note names."""
LINES = re.compile(r"[\r\n\v\f\x85\u2028\u2029]+")
DURATION = re.compile(r"PT(\d+)H(\d\d)M(\d\d)(?:\.\d+)?S\Z")
CONTROL = re.compile("[\0-\x08]")
TEXT_HEAD = 2**16
CONTENT = "content.xml"
"""Of ODS."""
TEXT_BOX = re.compile(rb"<draw:(?:text-box|custom-shape)\b")
DRAWING = re.compile(r"/drawings/drawing\d{1,6}\.xml$")


class ShownNumber(str):
    """A number as its cell shows it."""

    __slots__ = ()


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """Values as people see them, without their colours and widths: dates as in ISO 8601, line breaks as spaces. A
    number of XLSX is shown by its format, such as `25%`, and as it is stored behind that where the format rounds.
    Raises UnreadableDocument: it is no spreadsheet, needs a password, or would be too large once unpacked."""
    with reading("spreadsheet"):
        if not raw.startswith((ZIP_MAGIC, OLE_MAGIC)):
            return Reading(plain_lines(_exported(raw)))
        if ole_kind(raw) == "protected":
            raise UnreadableDocument(PROTECTED)
        package = ZipPackage(raw) if raw.startswith(ZIP_MAGIC) else None
        return _workbook(raw, package)


def _workbook(raw: bytes, package: ZipPackage | None) -> Reading:
    from python_calamine import CalamineError, CalamineWorkbook, PasswordError

    try:
        with CalamineWorkbook.from_filelike(io.BytesIO(raw)) as book:
            return _XlsxBook(book, package).reading()
    except PasswordError as error:
        raise UnreadableDocument(PROTECTED) from error
    except CalamineError as error:
        raise UnreadableDocument("it is no readable spreadsheet") from error
    except BaseException as error:  # what the library is written in has errors that are no `Exception`
        if type(error).__name__ != "PanicException":
            raise
        raise UnreadableDocument("it is no readable spreadsheet") from error


class _XlsxBook:
    def __init__(self, book: "CalamineWorkbook", package: ZipPackage | None) -> None:
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
            self._notes.append(f"Hidden in the program: sheet {', '.join(hidden[:MAX_NAMED])}.")
        others = () if self._package is None else self._package.notes()
        if macros and not any("macros" in note for note in others):
            self._notes.append(LeftOut("It holds macros, which were not read."))
        if self._package is not None and not self._parts:
            self._drawn(self._package)
        return Reading("\n\n".join(self._blocks), (*self._notes, *others))

    def _drawn(self, package: ZipPackage) -> None:
        """Text boxes of files that do not tell in XML on which sheet they are, and whether those of ODS are there."""
        parts = [name for name in package.names if DRAWING.search(name)]
        said, is_whole = drawn(package, parts)
        self._blocks += [plain_lines("\n".join(said))] if said else []
        self._notes += [] if is_whole else [LeftOut("What is drawn on its sheets could not be read.")]
        before = b""
        for piece in package.pieces(CONTENT, 2**20, 2**29) if CONTENT in package else ():
            if TEXT_BOX.search(before + piece):
                self._notes.append(LeftOut("Its text boxes were not read."))
                break
            before = piece[-20:]

    def _sheet(self, sheet: "CalamineSheet", parts: SheetParts) -> None:
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
        self._blocks += [plain_lines("\n".join(each)) for each in (parts.comments, parts.shapes[0]) if each]
        self._note(sheet, parts)

    def _note(self, sheet: "CalamineSheet", parts: SheetParts) -> None:
        if not parts.shapes[1]:
            self._notes.append(LeftOut(f"What is drawn on sheet {sheet.name} could not be read."))
        merged = sheet.merged_cell_ranges or []
        if merged:
            shown = ", ".join(f"{cell(*start)}:{cell(*end)}" for start, end in merged[:MAX_NAMED])
            more = f" and {len(merged) - MAX_NAMED} more" if len(merged) > MAX_NAMED else ""
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
        """Bytes of the row `number` (from 1) as a line; 0 if it is blank."""
        used = len(row)
        while used and row[used - 1] == "":
            used -= 1
        if not used:
            return 0
        self._used = max(self._used, used)
        self._row = number
        self._writer.writerow([FORMS[type(value)](value) for value in row])
        line = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        self.lines.append(line)
        return 1 + (len(line) if line.isascii() else len(line.encode("utf-8", "replace")))

    def taken(self) -> str:
        """The rows below their marker. Columns that none of them uses are left out."""
        first_row = self._row - len(self.lines) + 1
        last = column(self._first + self._used - 1)
        head = sheet_marker(self._name, first_row, last, self._row, column(self._first))
        unused = self._width - self._used
        lines = (line[:-unused] for line in self.lines) if unused else self.lines
        text = f"{head}\n{plain_lines(chr(10).join(lines))}"
        self.lines, self._used = [], 0
        return text


def _rows(sheet: "CalamineSheet", parts: SheetParts, formats: Iterator[int]) -> Iterator[list[Any]]:
    """All rows from the first on, with the errors and the numbers as cells show them, as far as `formats` last."""
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
    """As many digits as spreadsheet programs show."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else format(value, ".15g")


def _moment(value: datetime.datetime) -> str:
    return value.isoformat(" ", "seconds") if value.time() != datetime.time() else value.date().isoformat()


def _duration(value: datetime.timedelta) -> str:
    seconds = round(value.total_seconds())
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _string(value: str) -> str:
    if value.startswith("PT") and (found := DURATION.match(value)):
        return f"{int(found[1])}:{found[2]}:{found[3]}"
    return value if value.isalnum() else LINES.sub(" ", value)


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
    """What programs export under the name `.xls` that is none: HTML, or text with separators.
    Raises UnreadableDocument: it is no text."""
    text = decoded(raw)
    head = text[:TEXT_HEAD].lower()
    if not text.strip() or CONTROL.search(head):
        raise UnreadableDocument("it is no readable spreadsheet")
    return html_text(text) if "<table" in head or "<html" in head else text
