"""What calamine does not tell of XLSX: errors that cells show, number formats, formulas that nobody has calculated,
comments, text boxes."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from xml.etree import ElementTree

from gateway.documents.document import UnreadableDocument
from gateway.documents.number_formats import BUILT_IN, NumberFormat
from gateway.documents.packages import BROKEN, ZipPackage, attribute, child, children, local
from gateway.documents.pptx import chart_lines, shape_texts

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
