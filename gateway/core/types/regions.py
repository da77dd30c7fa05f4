"""A large text in regions: short enough that a few of them are read for a question, with the place that each is of.

A region is what is stored, indexed and read of a large document (guarantee §14.7).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gateway.core.types.places import MARKER, SHEET, gap, sheet_marker

REGION_CHARS = 8_000
"""Characters of a region: several chunks, so that words that belong together are seldom in two."""
LOOK_BACK = REGION_CHARS // 4
"""Characters before a region's end within which the end of a paragraph or line is looked for."""
STORED_LINE = re.compile(r"(?:^|\n)line (\d{1,9})\Z")
ENDS = ("\n\n", "\n", " ")
"""Where a region may end: after a paragraph, a line, a word."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TextRegion:
    """A stretch of a text: its number, its first character, the marker lines that it stands under, and the number of
    its first line, as `core.types.places` counts lines; None where it counts none, or where it was stored without."""

    number: int
    start: int
    text: str
    place: str = ""
    line: int | None = None

    @property
    def where(self) -> str:
        """Place and line as they are stored."""
        return "\n".join(each for each in (self.place, f"line {self.line}" if self.line is not None else "") if each)


def place_and_line(where: str) -> tuple[str, int | None]:
    """The marker lines and the number of the first line, as `TextRegion.where` has them."""
    found = STORED_LINE.search(where)
    return (where[: found.start()], int(found[1])) if found else (where, None)


class RegionPlace(NamedTuple):
    """Where a region stands, as `TextRegion` tells it."""

    number: int
    place: str
    line: int | None


def region_spans(text: str) -> Iterator[Span]:
    """The text in regions, each of which ends with a paragraph, a line or a word, if it has any."""
    start = 0
    while start < len(text):
        end = min(len(text), start + REGION_CHARS)
        if end < len(text):
            ends = (text.rfind(sign, end - LOOK_BACK, end) + len(sign) for sign in ENDS)
            end = next((at for at in ends if at > end - LOOK_BACK), end)
        yield start, end
        start = end


def region_count(text: str) -> int:
    """How many regions a text has."""
    return sum(1 for _ in region_spans(text))


def regions_of(text: str) -> Iterator[TextRegion]:
    """The regions one after the other; no copy of the whole is made."""
    carried = _CarriedMarkers()
    for number, (start, end) in enumerate(region_spans(text)):
        own = text[start:end]
        yield TextRegion(number, start, own, carried.place, carried.line)
        carried.read(own)


class _CarriedMarkers:
    """The marker lines that hold at the end of what was read: a file's, and that of a place in it."""

    def __init__(self) -> None:
        self._file = ""
        self._inner = ""
        self._rows = 0

    @property
    def place(self) -> str:
        return "\n".join(line for line in (self._file, self._moved()) if line)

    @property
    def line(self) -> int | None:
        """The number of the line that comes next, where no place but a file's holds."""
        return self._rows + 1 if not self._inner else None

    def read(self, text: str) -> None:
        """A stretch that follows on what was read."""
        at = 0
        for found in MARKER.finditer(text):
            if found[1] == "file":
                self._file, self._inner = found[0], ""
            else:
                self._inner = found[0]
            at = found.end() + 1
            self._rows = 0
        self._rows += text.count("\n", at)

    def _moved(self) -> str:
        """The marker of a sheet begins with the row that comes next, since cells follow from counting lines."""
        marked = MARKER.match(self._inner)
        found = SHEET.match(marked[2]) if marked is not None and marked[1] == "sheet" else None
        if found is None:
            return self._inner
        name, left, top, right, bottom = found.groups()
        first = min(int(top) + self._rows, int(bottom))
        return sheet_marker(name, first, right, int(bottom), left)


def joined(regions: Iterable[TextRegion]) -> str:
    """Regions as one text in their order. Where something is left out between two, a line says so, with the number of
    the next line where that is known; below it stands the place of what follows."""
    pieces: list[str] = []
    expected = 0
    for region in regions:
        if region.number != expected:
            left_out = gap(region.line)
            pieces.append(f"{left_out}\n" if not pieces or pieces[-1].endswith("\n") else f"\n{left_out}\n")
            if region.place:
                pieces.append(f"{region.place}\n")
        pieces.append(region.text)
        expected = region.number + 1
    return "".join(pieces)
