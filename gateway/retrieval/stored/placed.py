"""Which regions of a large document hold the places that a question names (guarantees §14.2, §14.7)."""

import json
import math
import zlib
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from gateway.core.types.places import MARKER, SHEET, RegionPlace, TextRegion
from gateway.retrieval.in_places import is_named
from gateway.retrieval.named_places import NamedPlaces

LINE = "line"
"""The kind of lines and of rows (`retrieval.named_places`)."""
MAX_PLACED = 12
"""Regions of one document that are read since the question names their places."""
MAX_OF_NAME = 2
"""Regions of a sheet or file that is named without a line or page: its first ones."""


@dataclass(frozen=True, slots=True)
class _RegionStart:
    """Where a region begins: in which file, and part of it (the kind of place, a sheet's name); the number of its page
    or row, and the last row of its sheet."""

    file: str
    kind: str
    sheet: str
    number: int | None
    last: float = math.inf

    def is_in(self, other: "_RegionStart | None") -> bool:
        """Whether both are in the same part of one file."""
        return other is not None and (self.file, self.kind, self.sheet) == (other.file, other.kind, other.sheet)

    def count(self, kind: str, line: int | None) -> int | None:
        """Its number, if that is one of such places; of a line `line`."""
        if not self.kind:
            return line if kind == LINE else None
        return self.number if self.kind == ("sheet" if kind == LINE else kind) else None


def packed_places(regions: Sequence[TextRegion]) -> bytes:
    """Where these regions stand, as an index keeps it beside its terms."""
    told = [[each.number, each.place, each.line] for each in regions]
    return zlib.compress(json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def unpacked_places(data: bytes) -> list[RegionPlace]:
    """The same read again. Raises ValueError, TypeError, zlib.error: it is none."""
    told = json.loads(zlib.decompress(data).decode("utf-8", "surrogatepass"))
    return [RegionPlace(number, place, line) for number, place, line in told]


def regions_named(named: NamedPlaces, places: Sequence[RegionPlace]) -> list[int]:
    """The numbers of these regions, `MAX_PLACED` at most. `places`: of all regions of a document, in order."""
    known = {place: _at(place) for place in {each.place for each in places}}
    files = {name for name in {each.file for each in known.values()} if name and is_named("file", name, named)}
    sheets = {name for name in {each.sheet for each in known.values()} if name and is_named("sheet", name, named)}
    wanted = [*named.numbered, *((LINE, first) for first, _ in named.lines)]
    found: list[int] = []
    first_ones: Counter[tuple[str, str]] = Counter()
    if not wanted and not files and not sheets:
        return found
    for region, following in zip(places, [*places[1:], None], strict=True):
        here, after = known[region.place], known[following.place] if following is not None else None
        if (files or sheets) and not any(_is_of(each, files, sheets) for each in (here, after) if each is not None):
            continue
        last = after if after is not None else here
        lines = (region.line, following.line if following is not None else None)
        if any(_between(*each, here, after, lines) for each in wanted) or (
            not wanted and first_ones[last.file, last.sheet] < MAX_OF_NAME
        ):
            first_ones[last.file, last.sheet] += 1
            found.append(region.number)
            if len(found) == MAX_PLACED:
                break
    return found


def _is_of(at: _RegionStart, files: Container[str], sheets: Container[str]) -> bool:
    """Whether it is in a file and sheet that are named, where any are."""
    return (not files or at.file in files) and (not sheets or at.sheet in sheets)


def _at(place: str) -> _RegionStart:
    file, found = "", _RegionStart("", "", "", None)
    for marker in MARKER.finditer(place):
        sheet = SHEET.match(marker[2]) if marker[1] == "sheet" else None
        if marker[1] == "file":
            file = marker[2]
        elif sheet is not None:
            found = _RegionStart("", "sheet", sheet[1], int(sheet[3]), int(sheet[5]))
        else:
            found = _RegionStart("", marker[1], "", int(marker[2]) if marker[2].isdigit() else None)
    return replace(found, file=file)


def _between(
    kind: str, number: int, here: _RegionStart, after: _RegionStart | None, lines: tuple[int | None, int | None]
) -> bool:
    """Whether a place begins in a region that begins at `here` and ends at `after`, or holds at its beginning. Where
    another part begins in between, nobody knows where the first one ends."""
    begins = here.count(kind, lines[0])
    ends = after.count(kind, lines[1]) if after is not None else None
    until = number < ends if ends is not None and kind == LINE else ends is not None and number <= ends
    from_here = begins is not None and begins <= number <= here.last
    return from_here and until if here.is_in(after) else from_here or until
