"""A large text in regions: short enough that a few of them are read for a question, with the place that each is of.

A region is what is stored, indexed and read of a large document (guarantee §14.7).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gateway.models.places import GAP, MARKER, SHEET, sheet_marker

REGION_CHARS = 8_000
"""Characters of a region: several chunks, so that words that belong together are seldom in two."""
LOOK_BACK = REGION_CHARS // 4
"""Characters before a region's end within which the end of a paragraph or line is looked for."""
ENDS = ("\n\n", "\n", " ")
"""Where a region may end: after a paragraph, a line, a word."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of a text: its number, its first character, and the marker lines that it stands under."""

    number: int
    start: int
    text: str
    place: str = ""


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


def regions_of(text: str) -> Iterator[Region]:
    """The regions one after the other; no copy of the whole is made."""
    carried = _Carried()
    for number, (start, end) in enumerate(region_spans(text)):
        own = text[start:end]
        yield Region(number, start, own, carried.place)
        carried.read(own)


class _Carried:
    """The marker lines that hold at the end of what was read: a file's, and that of a place in it."""

    def __init__(self) -> None:
        self._file = ""
        self._inner = ""
        self._rows = 0

    @property
    def place(self) -> str:
        return "\n".join(line for line in (self._file, self._moved()) if line)

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


def joined(regions: Iterable[Region]) -> str:
    """Regions as one text in their order, with a line where something is left out between two, and the place of each
    that does not follow on the one before."""
    pieces: list[str] = []
    expected = 0
    for region in regions:
        if region.number != expected:
            pieces.append(f"{GAP}\n" if not pieces or pieces[-1].endswith("\n") else f"\n{GAP}\n")
            if region.place:
                pieces.append(f"{region.place}\n")
        pieces.append(region.text)
        expected = region.number + 1
    return "".join(pieces)
