"""What calamine does not tell of XLSX: errors that cells show, formulas nobody has calculated, comments."""

import re
from dataclasses import dataclass, field

from gateway.documents.packages import Package, attribute, children, local

MOST_SCANNED = 2**29
"""Bytes of a sheet's XML that are looked through."""
PIECE = 2**20
TAIL = 1300
"""Bytes in which the XML of one cell with an error fits; pieces overlap by them."""
MOST_ERRORS = 10_000
MOST_COMMENTS = 1000
ERROR = re.compile(
    rb'<c r="([A-Z]{1,3})(\d{1,7})"[^<>]{0,60}\bt="e"[^<>]{0,60}>(?:<f[^<>]{0,80}>[^<]{0,1000}</f>)?'
    rb"<v>(#[A-Z0-9/?!]{1,14})</v>"
)
UNCALCULATED = re.compile(rb"</f>(?:<v ?/>|<v></v>)?</c>")


@dataclass(frozen=True, slots=True)
class SheetParts:
    """Of one sheet. `errors`: column (from 0) and text, by row (from 0). `comments`: `Comment on B4: …`"""

    errors: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    uncalculated: bool = False
    comments: tuple[str, ...] = ()


NO_PARTS = SheetParts()


def sheet_parts(package: Package) -> dict[str, SheetParts]:
    """By the sheet's name; empty for spreadsheets that are no XLSX."""
    main = next((each.target for each in package.relations("").values() if each.kind == "officeDocument"), "")
    if main not in package or not main.endswith(".xml"):
        return {}
    related = package.relations(main)
    found = {}
    for sheets in children(package.xml(main), "sheets"):
        for sheet in sheets:
            relation = related.get(attribute(sheet, "id"))
            if relation is not None and relation.target in package and relation.kind == "worksheet":
                found[attribute(sheet, "name")] = _parts(package, relation.target)
    return found


def _parts(package: Package, part: str) -> SheetParts:
    errors: dict[int, list[tuple[int, str]]] = {}
    uncalculated, count, before = False, 0, b""
    for piece in package.pieces(part, PIECE, MOST_SCANNED):
        scanned = before + piece
        uncalculated = uncalculated or UNCALCULATED.search(scanned) is not None
        if b't="e"' in scanned and count < MOST_ERRORS:
            for match in ERROR.finditer(scanned):
                errors.setdefault(int(match[2]) - 1, []).append((_column(match[1]), match[3].decode()))
                count += 1
        before = scanned[-TAIL:]
    return SheetParts(errors, uncalculated, tuple(_comments(package, part)))


def _comments(package: Package, part: str) -> list[str]:
    lines: list[str] = []
    for relation in package.relations(part).values():
        if relation.kind == "comments" and relation.target in package:
            for node in package.xml(relation.target).iter():
                if local(node.tag) == "comment" and len(lines) < MOST_COMMENTS:
                    said = " ".join("".join(each.text or "" for each in node.iter() if local(each.tag) == "t").split())
                    lines.append(f"Comment on {attribute(node, 'ref')}: {said}")
    return lines


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + letter - ord("A") + 1
    return number - 1
