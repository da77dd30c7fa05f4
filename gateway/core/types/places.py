"""Places in the text of a document: pages, sheets, slides, files, lines (guarantee §14.2).

Readers mark a place by a line of its own, such as `[page 12]`. As the text is all that is stored, the place of any
stretch of it can be determined at any time.

| marker | what follows |
|---|---|
| `[page 12]`, `[slide 3]`, `[chapter 4]`, `[cell 5]` | that part of the document |
| `[sheet Sales A4:F500]` | one line for each row, row 4 first, values of the columns A to F |
| `[table customers]` | rows of a database's table |
| `[file docs/a.txt]` | a file in an archive, or an attachment of a mail; other markers may follow in it |

A large text is split into regions, each with its place: short enough that a question needs only a few of them.

A region is the unit in which a large document is stored, indexed and read (guarantee §14.7).
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from gateway.core.frozen_records import record

PLACE_KINDS = ("page", "slide", "chapter", "cell", "sheet", "table", "file")
PLACE_NAME_CHARS = 200
"""Most characters of a name in a marker."""
PLACE_MARKER = re.compile(rf"^\[({'|'.join(PLACE_KINDS)}) ([^\]\n]{{1,{PLACE_NAME_CHARS + 40}}})\]$", re.MULTILINE)
BEGINS = re.compile(rf"\n\[(?:{'|'.join(PLACE_KINDS)}) ")
"""Matches the beginning of a marker that is not at the beginning of a text. It is far faster to search for."""
SHEET = re.compile(r"(.+) ([A-Z]{1,3})(\d+):([A-Z]{1,3})(\d+)\Z")
NUMBERS_NAMED = re.compile(r"(page|slide|chapter|cell)s? (\d{1,7})(?:-(\d{1,7}))?\Z")
LINES_NAMED = re.compile(r"lines? (\d{1,9})(?:-(\d{1,9}))?\Z")
CELLS_NAMED = re.compile(r"(?:'((?:[^']|'')+)'|([^!']+))![A-Z]{1,3}(\d{1,7})(?::[A-Z]{1,3}(\d{1,7}))?\Z")
NUMBERED = frozenset({"page", "slide", "chapter", "cell"})
GAP_LINE = re.compile(r"^\[…(?: line (\d{1,9}))?\]$", re.MULTILINE)
"""The line between two stretches of an excerpt: `[…]`, or `[… line 350]` if the number of the next line is known
(`TextRegion`)."""
Span = tuple[int, int]
NOTE_START, LEFT_OUT_START, NOTE_END = "(Note: ", "(Not read: ", ")"
NOTES = re.compile(r"(?:\n\((?:Note|Not read): [^\n]*\))+\s*\Z")
NOTES_CHARS = 16_000
"""Characters at the end of a text that are searched for its notes."""
NO_TEXT = re.compile(r"\bPages? ([\d, -]+) holds? no text")
LINES_COUNTED_CHARS = 20_000
"""Characters whose lines are counted at once; the lines of the last such piece are searched one by one."""
PLAIN_NAME = re.compile(r"\w+\Z")


def is_marked(text: str) -> bool:
    """Returns whether a text contains place markers."""
    first = BEGINS.search(text)
    return PLACE_MARKER.match(text) is not None or (
        first is not None and PLACE_MARKER.search(text, first.start()) is not None
    )


def after_markers(text: str, start: int, end: int) -> int:
    """Returns the start of a stretch after its leading markers."""
    while (found := PLACE_MARKER.match(text, start, end)) is not None:
        start = found.end()
        while start < end and text[start] in "\r\n":
            start += 1
    return start


def marker(kind: str, name: str) -> str:
    """Makes the line that marks a place. Characters of a name that a marker cannot hold are replaced or cut."""
    plain = " ".join(name.replace("[", "(").replace("]", ")").split())
    return f"[{kind} {plain[:PLACE_NAME_CHARS] or '?'}]"


def plain_lines(text: str) -> str:
    """Indents lines of a document's own text that look like place markers: only readers mark places."""
    return PLACE_MARKER.sub(lambda found: f" {found[0]}", text) if "[" in text else text


def sheet_marker(name: str, first_row: int, last_column: str, last_row: int, first_column: str = "A") -> str:
    """Makes the marker line above the rows `first_row` to `last_row` of a sheet."""
    plain = marker("sheet", name)[1:-1]
    return f"[{plain} {first_column}{first_row}:{last_column}{last_row}]"


def gap(line: int | None = None) -> str:
    """Makes the line that replaces text left out of an excerpt; `line`: the number of the next line, if known."""
    return "[…]" if line is None else f"[… line {line}]"


class _PlaceGap(NamedTuple):
    start: int
    end: int
    line: int | None


class _CountedStretch(NamedTuple):
    """A stretch without gaps, and the number of its first line; None if unknown."""

    start: int
    end: int
    line: int | None


class PlaceSection(NamedTuple):
    """Characters `start` to `end` of a text, from one marker to the next; `body` is the first one after the marker.
    `kind` and `name` are the marker's; `file` is the name of the file that contains it."""

    kind: str
    name: str
    file: str
    start: int
    body: int
    end: int


class _MarkedStretch(NamedTuple):
    start: int
    end: int
    kind: str
    name: str


def _markers(text: str) -> Iterator[re.Match[str]]:
    """Yields all markers. Searching for their beginnings takes a tenth of the time in a long text."""
    if first := PLACE_MARKER.match(text):
        yield first
    for begins in BEGINS.finditer(text):
        if found := PLACE_MARKER.match(text, begins.start() + 1):
            yield found


class TextPlaces:
    """The places of one text; finding the markers is one pass over it. `excerpt`: lines `GAP_LINE` mark omissions; the
    lines after one are counted only if it names their first number."""

    def __init__(self, text: str, *, excerpt: bool = False) -> None:
        self._text = text
        self._marked = [_MarkedStretch(m.start(), m.end(), m[1], m[2]) for m in _markers(text)]
        self._starts = [each.start for each in self._marked]
        files = (number if each.kind == "file" else -1 for number, each in enumerate(self._marked))
        self._file_of = list(accumulate(files, max))
        found = GAP_LINE.finditer(text) if excerpt else ()
        self._gaps = [_PlaceGap(m.start(), m.end(), int(m[1]) if m[1] else None) for m in found]
        self._gap_starts = [each.start for each in self._gaps]

    def of(self, start: int, end: int) -> str:
        """Names the place of the characters `start` to `end`: `page 12`, `pages 12-13`, `Sales!A4:F19`, `file a.txt,
        lines 3-9`, `lines 120-131`; "" for the only line of a text without markers."""
        start, end = self._between_gaps(start, end)
        first = bisect_right(self._starts, start) - 1
        last = max(first, bisect_right(self._starts, max(start, end - 1)) - 1)
        if 0 <= first < last and self._is_empty_file(first):
            first += 1
        file = self._file_of[first] if first >= 0 else -1
        inner = self._inner(first, last, start, end)
        return ", ".join(each for each in (f"file {self._marked[file].name}" if file >= 0 else "", inner) if each)

    def find(self, place: str) -> list[Span]:
        """Finds the stretches of a place as named by `of`, in order; empty if the text has no such place. Files may
        share a name, and an excerpt may have several parts of a place."""
        if not place.startswith("file "):
            return self._within(place, [range(len(self._marked))], 0)
        files = self._files(place.removeprefix("file "))
        if not files:
            return []
        inner = place.removeprefix(f"file {self._marked[files[0][0]].name}").removeprefix(", ")
        if not inner:
            return [(self._marked[low].start, self._end_of(high - 1)) for low, high in files]
        return self._within(inner, [range(low, high) for low, high in files], None)

    def sections(self) -> Iterator[PlaceSection]:
        """Yields the sections between markers, in order; text before the first marker has no kind."""
        if self._end_of(-1) > 0:
            yield PlaceSection("", "", "", 0, 0, self._end_of(-1))
        for number, each in enumerate(self._marked):
            file = self._file_of[number]
            named = self._marked[file].name if file >= 0 else ""
            yield PlaceSection(each.kind, each.name, named, each.start, each.end + 1, self._end_of(number))

    def lines_of(self, section: PlaceSection, first: int, last: int) -> list[Span]:
        """Finds the lines `first` to `last` of a section, as far as they exist: rows of a sheet by their numbers, lines
        below a file's marker, or lines of a text before its first marker."""
        if section.kind in ("", "file"):
            return self._lines_named(self._counted_below(section.body, section.end), first, last, whole=False)
        sheet = SHEET.match(section.name) if section.kind == "sheet" else None
        if sheet is None:
            return []
        counted = list(self._counted(section.body, section.end, int(sheet[3])))
        return self._lines_named(counted, first, min(last, int(sheet[5])), whole=False)

    def without_gaps(self, start: int, end: int) -> Iterator[Span]:
        """Yields the pieces of a stretch between the lines that mark omissions."""
        for each in self._counted(start, end):
            if self._text[each.start : each.end].strip():
                yield each.start, each.end

    def _within(self, place: str, among: Sequence[range], origin: int | None) -> list[Span]:
        """Finds a place within these ranges of markers; lines are counted from `origin`, None: from below the first
        marker of each range."""
        found: list[Span] = []
        for numbers in among:
            if named := NUMBERS_NAMED.match(place):
                found += self._numbered(named[1], int(named[2]), int(named[3] or named[2]), numbers)
            elif named := LINES_NAMED.match(place):
                begin = origin if origin is not None else self._marked[numbers.start].end + 1
                counted = self._counted_below(begin, self._end_of_lines(begin))
                found += self._lines_named(counted, int(named[1]), int(named[2] or named[1]))
            elif named := CELLS_NAMED.match(place):
                name = named[1].replace("''", "'") if named[1] else named[2]
                found += self._cells(name, int(named[3]), int(named[4] or named[3]), numbers)
            else:
                whole = (n for n in numbers if f"{self._marked[n].kind} {self._marked[n].name}" == place)
                found += [(self._marked[n].start, self._end_of(n)) for n in whole]
        return found

    def _files(self, wanted: str) -> list[tuple[int, int]]:
        """Finds the ranges of markers, each file's own included, of all files of a name; the longest matching name
        counts."""
        files = [number for number, each in enumerate(self._marked) if each.kind == "file"]
        names = {self._marked[number].name for number in files}
        name = max((n for n in names if wanted == n or wanted.startswith(f"{n}, ")), key=len, default=None)
        ends = [*files[1:], len(self._marked)]
        return [(low, high) for low, high in zip(files, ends, strict=True) if self._marked[low].name == name]

    def _numbered(self, kind: str, first: int, last: int, among: range) -> list[Span]:
        """Finds the stretch from the marker of number `first` to the end of the section of number `last`."""
        begin: int | None = None
        until: int | None = None
        for number in among:
            each = self._marked[number]
            value = int(each.name) if each.kind == kind and each.name.isdecimal() else None
            if value is None:
                continue
            if begin is None:
                begin = number if value == first else None
            elif value > last or value < first:
                break
            if begin is not None and value == last:
                until = number
        return [] if begin is None or until is None else [(self._marked[begin].start, self._end_of(until))]

    def _end_of_lines(self, origin: int) -> int:
        number = bisect_right(self._starts, origin)
        return self._starts[number] if number < len(self._starts) else len(self._text)

    def _lines_named(
        self, counted: Sequence[_CountedStretch], first: int, last: int, *, whole: bool = True
    ) -> list[Span]:
        """Finds the lines `first` to `last` in counted stretches. `whole`: all of them or none, if the text has no
        gaps."""
        found: list[Span] = []
        for each in counted:
            top = max(first, each.line or 0)
            if each.line is None or not 1 <= first <= top <= last:
                continue
            end = each.end
            while end > each.start and self._text[end - 1].isspace():
                end -= 1
            begin = self._below(each.start, end, top - each.line)
            bottom = self._below(begin, end, last - top) if begin is not None else None
            if begin is None or (bottom is None and whole and not self._gaps):
                continue
            until = self._text.find("\n", bottom, end) if bottom is not None else -1
            found.append((begin, until if until >= 0 else end))
        return found

    def _below(self, at: int, end: int, lines: int) -> int | None:
        """Returns the start of the line that is `lines` below the one at `at`; None if there is none. Lines are counted
        in bulk, since in a long text there may be a million."""
        while lines > 0 and at < end:
            until = min(end, at + LINES_COUNTED_CHARS)
            here = self._text.count("\n", at, until)
            if here < lines:
                lines, at = lines - here, until
                continue
            for _ in range(lines):
                at = self._text.find("\n", at, until) + 1
            return at
        return at if not lines else None

    def _cells(self, name: str, top: int, bottom: int, among: range) -> list[Span]:
        """Finds the rows `top` to `bottom` of a sheet."""
        found: list[Span] = []
        for number in among:
            each = self._marked[number]
            sheet = SHEET.match(each.name) if each.kind == "sheet" else None
            if sheet and sheet[1] == name and int(sheet[3]) <= top <= bottom <= int(sheet[5]):
                counted = list(self._counted(each.end + 1, self._end_of(number), int(sheet[3])))
                found += self._lines_named(counted, top, bottom)
        return found

    def _counted_below(self, origin: int, end: int) -> list[_CountedStretch]:
        """Cuts a stretch at gaps; `origin` is the beginning of a text, or of the text below a file's marker."""
        return list(self._counted(origin, end, self._first_line(origin)))

    def _first_line(self, origin: int) -> int | None:
        """Returns the number of the line at `origin`, the beginning of a text, or of the text below a file's marker: 1,
        unless the marker was carried below a gap."""
        number = bisect_right(self._gap_starts, origin) - 1
        if number < 0 or self._gaps[number].end >= origin:
            return 1
        below = self._gaps[number].end + 1
        return self._gaps[number].line if after_markers(self._text, below, origin) >= origin else 1

    def _counted(self, start: int, end: int, line: int | None = None) -> Iterator[_CountedStretch]:
        """Yields the pieces of a stretch between gaps; `line` is the number of its first line."""
        low, high = bisect_right(self._gap_starts, start - 1), bisect_right(self._gap_starts, end - 1)
        for each in self._gaps[low:high]:
            yield _CountedStretch(start, each.start, line)
            start, line = each.end + 1, each.line
        yield _CountedStretch(min(start, end), end, line)

    def _between_gaps(self, start: int, end: int) -> Span:
        """Returns a stretch without gaps at its ends."""
        if not self._gaps:
            return start, end
        found = list(self.without_gaps(start, end))
        return (found[0][0], found[-1][1]) if found else (start, end)

    def _is_empty_file(self, number: int) -> bool:
        """Returns whether a marker is that of a file whose text begins with another marker, such as a first page's."""
        here, after = self._marked[number], self._marked[number + 1]
        return here.kind == "file" != after.kind and not self._text[here.end : after.start].strip()

    def _inner(self, first: int, last: int, start: int, end: int) -> str:
        if first < 0:
            return self._lines(0, start, end)
        begin, until = self._marked[first], self._marked[last]
        if begin.kind == "file":
            return self._lines(begin.end + 1, start, end)
        if begin.kind == "sheet":
            return self._range(begin, start, min(end, self._end_of(first)))
        if begin.kind in NUMBERED and until.kind == begin.kind and until.name != begin.name:
            return f"{begin.kind}s {begin.name}-{until.name}"
        return f"{begin.kind} {begin.name}"

    def _end_of(self, number: int) -> int:
        return self._starts[number + 1] if number + 1 < len(self._starts) else len(self._text)

    def _range(self, begin: _MarkedStretch, start: int, end: int) -> str:
        """Names the cells of a stretch of a sheet."""
        found = SHEET.match(begin.name)
        if found is None:
            return f"sheet {begin.name}"
        name, left, top, right, bottom = found.groups()
        quoted = name if PLAIN_NAME.match(name) else "'" + name.replace("'", "''") + "'"
        low, high = self._rows(begin.end + 1, *self._between_gaps(start, end))
        return f"{quoted}!{left}{min(int(top) + low, int(bottom))}:{right}{min(int(top) + high, int(bottom))}"

    def _rows(self, origin: int, start: int, end: int) -> tuple[int, int]:
        """Returns the numbers of the first and the last line of a stretch, from 0, counted from `origin`."""
        start = max(start, origin)
        stretch = self._text[start:end].rstrip()
        start += len(stretch) - len(stretch := stretch.lstrip("\n")) if stretch.startswith("\n") else 0
        low = self._text.count("\n", origin, start)
        return low, low + stretch.count("\n")

    def _lines(self, origin: int, start: int, end: int) -> str:
        begin, _, line = self._counted_below(origin, end)[-1]
        if line is None or start < begin > origin:
            return ""
        low, high = self._rows(begin, start, end)
        low, high = low + line, high + line
        if low == high:
            return f"line {low}" if low > 1 or self._text.find("\n", begin) >= 0 else ""
        return f"lines {low}-{high}"


def page_list(numbers: Sequence[int]) -> str:
    """Formats numbers for a sentence, with ranges: `3, 7-9`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def named_pages(numbers: Sequence[int]) -> str:
    """Formats page numbers for a sentence: `page 7`, `pages 3, 7-9`."""
    return f"page{'s' if len(numbers) > 1 else ''} {page_list(numbers)}"


def notes_of(text: str) -> str:
    """Returns the notes that a document's reader added after its text; "" if there are none."""
    return " ".join(line.partition(": ")[2].removesuffix(NOTE_END) for line in _note_lines(text))


def _note_lines(text: str) -> list[str]:
    end = text[-NOTES_CHARS:]
    found = NOTES.search(end) if text.rstrip().endswith(NOTE_END) else None
    return found[0].strip().split("\n") if found else []


def pages_without_text(text: str) -> str:
    """Returns the pages of a PDF that its reader noted to hold no text, such as `3, 7-9`; "" if there are none."""
    found = NO_TEXT.search(notes_of(text))
    return found[1] if found else ""


def left_out_of(text: str) -> str:
    """Returns what a document's reader noted that it left out, as sentences; "" if it read everything."""
    starts, ends = len(LEFT_OUT_START), len(NOTE_END)
    return " ".join(line[starts:-ends] for line in _note_lines(text) if line.startswith(LEFT_OUT_START))


def no_text_note(numbers: Sequence[int], why: str = "") -> str:
    """Renders the note on pages without text; `why`: a reason to append."""
    some, hold = ("Pages", "hold") if len(numbers) > 1 else ("Page", "holds")
    return f"{some} {page_list(numbers)} {hold} no text{why}."


REGION_CHARS = 8_000
"""Most characters of a region: several chunks, so that related words are rarely in two regions."""
PLACE_LOOKBACK_CHARS = REGION_CHARS // 4
"""Characters before a region's end that are searched for the end of a paragraph or line."""
STORED_LINE = re.compile(r"(?:^|\n)line (\d{1,9})\Z")
REGION_ENDS = ("\n\n", "\n", " ")
"""Where a region may end: after a paragraph, a line, a word."""


@record
class TextRegion:
    """A stretch of a text: its number, the position of its first character, the marker lines in force, and the number
    of its first line, as `core.types.places` counts lines; None if lines are not counted there, or none was stored."""

    number: int
    start: int
    text: str
    place: str = ""
    line: int | None = None

    @property
    def where(self) -> str:
        """Place and line in stored form."""
        return "\n".join(each for each in (self.place, f"line {self.line}" if self.line is not None else "") if each)


def place_and_line(where: str) -> tuple[str, int | None]:
    """Parses `TextRegion.where` into the marker lines and the number of the first line; None if it has none."""
    found = STORED_LINE.search(where)
    return (where[: found.start()], int(found[1])) if found else (where, None)


class RegionPlace(NamedTuple):
    """The place of a region, with the fields of `TextRegion`."""

    number: int
    place: str
    line: int | None


def region_spans(text: str) -> Iterator[Span]:
    """Yields the spans of a text's regions, each of which ends with a paragraph, a line or a word if possible."""
    start = 0
    while start < len(text):
        end = min(len(text), start + REGION_CHARS)
        if end < len(text):
            ends = (text.rfind(sign, end - PLACE_LOOKBACK_CHARS, end) + len(sign) for sign in REGION_ENDS)
            end = next((at for at in ends if at > end - PLACE_LOOKBACK_CHARS), end)
        yield start, end
        start = end


def region_count(text: str) -> int:
    """Counts the regions of a text."""
    return sum(1 for _ in region_spans(text))


def regions_of(text: str) -> Iterator[TextRegion]:
    """Yields the regions of a text, without copying the whole."""
    carried = _CarriedMarkers()
    for number, (start, end) in enumerate(region_spans(text)):
        own = text[start:end]
        yield TextRegion(number, start, own, carried.place, carried.line)
        carried.read(own)


class _CarriedMarkers:
    """The marker lines in force at the end of the text read so far: a file's, and that of a place in it."""

    def __init__(self) -> None:
        self._file = ""
        self._inner = ""
        self._rows = 0

    @property
    def place(self) -> str:
        return "\n".join(line for line in (self._file, self._moved()) if line)

    @property
    def line(self) -> int | None:
        """The number of the next line, if no place but a file's is in force; else None."""
        return self._rows + 1 if not self._inner else None

    def read(self, text: str) -> None:
        """Reads the next stretch of the text."""
        at = 0
        for found in PLACE_MARKER.finditer(text):
            if found[1] == "file":
                self._file, self._inner = found[0], ""
            else:
                self._inner = found[0]
            at = found.end() + 1
            self._rows = 0
        self._rows += text.count("\n", at)

    def _moved(self) -> str:
        """Returns the inner marker; a sheet's is adjusted to begin with the next row, since rows are counted by
        lines."""
        marked = PLACE_MARKER.match(self._inner)
        found = SHEET.match(marked[2]) if marked is not None and marked[1] == "sheet" else None
        if found is None:
            return self._inner
        name, left, top, right, bottom = found.groups()
        first = min(int(top) + self._rows, int(bottom))
        return sheet_marker(name, first, right, int(bottom), left)


def joined(regions: Iterable[TextRegion]) -> str:
    """Joins regions into one text in their order. A line marks each gap between two, with the number of the next line
    if known; below it is the place of the next region."""
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


@record
class LargeIndex:
    """The stored index of a large document: its size, how many of its regions are indexed, and the requested buckets,
    by segment and bucket (`retrieval.stored.postings`). `status`: `building`, `ready` or `failed`."""

    digest: str
    chars: int
    regions: int
    indexed: int
    status: str
    data: Mapping[tuple[int, int], bytes]

    @property
    def progress(self) -> float:
        """The part of it that is indexed, from 0 to 1."""
        return round(self.indexed / self.regions, 4) if self.regions else 1.0


@record
class IndexClaim:
    """A document whose index a process builds, continuing after the regions that are indexed."""

    tenant: str
    digest: str
    regions: int
    indexed: int
    holder: str
