"""Which regions of a large document hold the places that a question names (guarantees §14.2, §14.7)."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.models.places import MARKER, SHEET
from gateway.models.regions import RegionPlace
from gateway.relevance.in_places import is_named
from gateway.relevance.named_places import NamedPlaces

LINE = "line"
"""The kind of lines and of rows (`relevance.named_places`)."""
MOST_PLACED = 12
"""Regions of one document that are read since the question names their places."""
MOST_OF_NAME = 2
"""Regions of a sheet or file that is named without a line or page: its first ones."""


@dataclass(frozen=True, slots=True)
class _At:
    """Where a region begins: in which file, and part of it (the kind of place, a sheet's name); the number of its page,
    row or line, and the last row of its sheet."""

    file: str
    kind: str
    sheet: str
    number: int | None
    last: float = math.inf

    def is_in(self, other: "_At | None") -> bool:
        """Whether both are in the same part of one file."""
        return other is not None and (self.file, self.kind, self.sheet) == (other.file, other.kind, other.sheet)

    def count(self, kind: str) -> int | None:
        """Its number, if that is one of such places."""
        return self.number if self.kind in (("", "sheet") if kind == LINE else (kind,)) else None


def regions_named(named: NamedPlaces, places: Sequence[RegionPlace]) -> list[int]:
    """The numbers of these regions, `MOST_PLACED` at most.

    Args:
        places: of all regions of a document, in order.
    """
    at = [_at(each) for each in places]
    files = {name for name in {each.file for each in at} if name and is_named("file", name, named)}
    sheets = {name for name in {each.sheet for each in at} if name and is_named("sheet", name, named)}
    wanted = [*named.numbered, *((LINE, first) for first, _ in named.lines)]
    if not wanted and not files and not sheets:
        return []
    found: dict[int, None] = {}
    first_ones: Counter[tuple[str, str]] = Counter()
    for region, here, after in zip(places, at, [*at[1:], None], strict=True):
        both = [here, *([after] if after is not None else [])]
        if (files and not any(each.file in files for each in both)) or (
            sheets and not any(each.sheet in sheets for each in both)
        ):
            continue
        of = (both[-1].file, both[-1].sheet)
        first_ones[of] += 1
        if any(_between(*each, here, after) for each in wanted) if wanted else first_ones[of] <= MOST_OF_NAME:
            found[region.number] = None
            if len(found) == MOST_PLACED:
                break
    return list(found)


def _at(region: RegionPlace) -> _At:
    file, found = "", _At("", "", "", region.line)
    for marker in MARKER.finditer(region.place):
        sheet = SHEET.match(marker[2]) if marker[1] == "sheet" else None
        if marker[1] == "file":
            file = marker[2]
        elif sheet is not None:
            found = _At("", "sheet", sheet[1], int(sheet[3]), int(sheet[5]))
        else:
            found = _At("", marker[1], "", int(marker[2]) if marker[2].isdigit() else None)
    return replace(found, file=file)


def _between(kind: str, number: int, here: _At, after: _At | None) -> bool:
    """Whether a place begins in a region that begins at `here` and ends at `after`, or holds at its beginning. Where
    another part begins in between, nobody knows where the first one ends."""
    begins = here.count(kind)
    ends = after.count(kind) if after is not None else None
    until = number < ends if ends is not None and kind == LINE else ends is not None and number <= ends
    from_here = begins is not None and begins <= number <= here.last
    return from_here and until if here.is_in(after) else from_here or until
