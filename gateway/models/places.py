"""Places in the text of a document: pages, sheets, slides, files, lines (guarantee §14.2).

Readers mark a place by a line of its own, such as `[page 12]`. The text is all that is stored, so a place can be told
of any stretch of it, at any time.

| marker | what follows |
|---|---|
| `[page 12]`, `[slide 3]`, `[chapter 4]`, `[cell 5]` | that part of the document |
| `[sheet Sales A4:F500]` | one line for each row, row 4 first, values of the columns A to F |
| `[table customers]` | rows of a database's table |
| `[file docs/a.txt]` | a file in an archive, or an attachment of a mail; other markers may follow in it |
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

KINDS = ("page", "slide", "chapter", "cell", "sheet", "table", "file")
NAME_CHARS = 200
"""Characters of a name in a marker at most."""
MARKER = re.compile(rf"^\[({'|'.join(KINDS)}) ([^\]\n]{{1,{NAME_CHARS + 40}}})\]$", re.MULTILINE)
BEGINS = re.compile(rf"\n\[(?:{'|'.join(KINDS)}) ")
"""How a marker begins that is not at the beginning of a text. It is far faster to look for."""
SHEET = re.compile(r"(.+) ([A-Z]{1,3})(\d+):([A-Z]{1,3})(\d+)\Z")
NUMBERS_NAMED = re.compile(r"(page|slide|chapter|cell)s? (\d{1,7})(?:-(\d{1,7}))?\Z")
LINES_NAMED = re.compile(r"lines? (\d{1,9})(?:-(\d{1,9}))?\Z")
CELLS_NAMED = re.compile(r"(?:'((?:[^']|'')+)'|([^!']+))![A-Z]{1,3}(\d{1,7})(?::[A-Z]{1,3}(\d{1,7}))?\Z")
NUMBERED = frozenset({"page", "slide", "chapter", "cell"})
GAP = "[…]"
"""The line between two stretches of an excerpt (`models.regions`)."""
NOTE_START, NOTE_END = "(Note: ", ")"
NOTES = re.compile(r"(?:\n\(Note: [^\n]*\))+\s*\Z")
NOTES_CHARS = 4000
"""Characters at the end of a text in which its notes stand."""
NO_TEXT = re.compile(r"\bPages? ([\d, -]+) holds? no text")
PLAIN_NAME = re.compile(r"\w+\Z")


def is_marked(text: str) -> bool:
    """Whether places are marked in a text."""
    first = BEGINS.search(text)
    return MARKER.match(text) is not None or (first is not None and MARKER.search(text, first.start()) is not None)


def after_markers(text: str, start: int, end: int) -> int:
    """Where a stretch begins that stands below its markers."""
    while (found := MARKER.match(text, start, end)) is not None:
        start = found.end()
        while start < end and text[start] in "\r\n":
            start += 1
    return start


def marker(kind: str, name: str) -> str:
    """The line that marks a place. What a marker cannot hold of a name is left out."""
    plain = " ".join(name.replace("[", "(").replace("]", ")").split())
    return f"[{kind} {plain[:NAME_CHARS] or '?'}]"


def plain_lines(text: str) -> str:
    """A document's own text, of which no line looks like the mark of a place: only readers mark places."""
    return MARKER.sub(lambda found: f" {found[0]}", text) if "[" in text else text


def sheet_marker(name: str, first_row: int, last_column: str, last_row: int, first_column: str = "A") -> str:
    """The line above the rows `first_row` to `last_row` of a sheet."""
    plain = marker("sheet", name)[1:-1]
    return f"[{plain} {first_column}{first_row}:{last_column}{last_row}]"


class _Marked(NamedTuple):
    start: int
    end: int
    kind: str
    name: str


class Places:
    """The places of one text; finding the markers is one pass over it. `excerpt`: what is left out of it is told by
    lines `GAP`, below which nobody can count lines."""

    def __init__(self, text: str, *, excerpt: bool = False) -> None:
        self._text = text
        self._excerpt = excerpt
        self._marked = [_Marked(m.start(), m.end(), m[1], m[2]) for m in MARKER.finditer(text)]
        self._starts = [each.start for each in self._marked]
        files = (number if each.kind == "file" else -1 for number, each in enumerate(self._marked))
        self._file_of = list(accumulate(files, max))

    def of(self, start: int, end: int) -> str:
        """The place of the characters `start` to `end`: `page 12`, `pages 12-13`, `Sales!A4:F19`, `file a.txt, lines
        3-9`, `lines 120-131`; "" for the only line of a text without marks."""
        first = bisect_right(self._starts, start) - 1
        last = max(first, bisect_right(self._starts, max(start, end - 1)) - 1)
        if 0 <= first < last and self._is_empty_file(first):
            first += 1
        file = self._file_of[first] if first >= 0 else -1
        inner = self._inner(first, last, start, end)
        return ", ".join(each for each in (f"file {self._marked[file].name}" if file >= 0 else "", inner) if each)

    def find(self, place: str) -> tuple[int, int] | None:
        """The characters of a place as `of` words it: None if the text has no such place."""
        low, high, origin = 0, len(self._marked), 0
        if place.startswith("file "):
            file = self._file(place.removeprefix("file "))
            if file is None:
                return None
            low, high = file
            origin = self._marked[low].end + 1
            place = place.removeprefix(f"file {self._marked[low].name}").removeprefix(", ")
            if not place:
                return self._marked[low].start, self._end_of(high - 1)
        if found := NUMBERS_NAMED.match(place):
            return self._numbered(found[1], int(found[2]), int(found[3] or found[2]), range(low, high))
        if found := LINES_NAMED.match(place):
            return self._lines_named(origin, int(found[1]), int(found[2] or found[1]), self._end_of_lines(origin))
        if found := CELLS_NAMED.match(place):
            name = found[1].replace("''", "'") if found[1] else found[2]
            return self._cells(name, int(found[3]), int(found[4] or found[3]), range(low, high))
        whole = (n for n in range(low, high) if f"{self._marked[n].kind} {self._marked[n].name}" == place)
        number = next(whole, None)
        return None if number is None else (self._marked[number].start, self._end_of(number))

    def _file(self, wanted: str) -> tuple[int, int] | None:
        """The numbers of a file's markers, from its own on; the longest name that fits counts."""
        best: int | None = None
        for number, each in enumerate(self._marked):
            fits = each.kind == "file" and (wanted == each.name or wanted.startswith(f"{each.name}, "))
            if fits and (best is None or len(each.name) > len(self._marked[best].name)):
                best = number
        if best is None:
            return None
        after = (n for n in range(best + 1, len(self._marked)) if self._marked[n].kind == "file")
        return best, next(after, len(self._marked))

    def _numbered(self, kind: str, first: int, last: int, among: range) -> tuple[int, int] | None:
        """From the marker of one number to the end of another's section."""
        numbers = [n for n in among if self._marked[n].kind == kind]
        begin = next((n for n in numbers if self._marked[n].name == str(first)), None)
        until = next(
            (n for n in numbers if self._marked[n].name == str(last) and begin is not None and n >= begin), None
        )
        return None if begin is None or until is None else (self._marked[begin].start, self._end_of(until))

    def _end_of_lines(self, origin: int) -> int:
        number = bisect_right(self._starts, origin)
        return self._starts[number] if number < len(self._starts) else len(self._text)

    def _lines_named(self, origin: int, first: int, last: int, end: int) -> tuple[int, int] | None:
        """The lines `first` to `last` of a stretch that ends at `end`, counted from 1."""
        lines = self._text[origin:end].rstrip().split("\n")
        if not 1 <= first <= last <= len(lines):
            return None
        begin = origin + sum(len(line) + 1 for line in lines[: first - 1])
        return begin, begin + sum(len(line) + 1 for line in lines[first - 1 : last]) - 1

    def _cells(self, name: str, top: int, bottom: int, among: range) -> tuple[int, int] | None:
        """The rows `top` to `bottom` of a sheet."""
        for number in among:
            each = self._marked[number]
            found = SHEET.match(each.name) if each.kind == "sheet" else None
            if found and found[1] == name and int(found[3]) <= top <= bottom <= int(found[5]):
                above = int(found[3]) - 1
                return self._lines_named(each.end + 1, top - above, bottom - above, self._end_of(number))
        return None

    def _is_empty_file(self, number: int) -> bool:
        """Whether it is a file that begins with a marker, such as that of its first page."""
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

    def _range(self, begin: _Marked, start: int, end: int) -> str:
        """The cells of a stretch of a sheet."""
        found = SHEET.match(begin.name)
        if found is None:
            return f"sheet {begin.name}"
        name, left, top, right, bottom = found.groups()
        quoted = name if PLAIN_NAME.match(name) else "'" + name.replace("'", "''") + "'"
        low, high = self._rows(begin.end + 1, start, end)
        return f"{quoted}!{left}{min(int(top) + low, int(bottom))}:{right}{min(int(top) + high, int(bottom))}"

    def _rows(self, origin: int, start: int, end: int) -> tuple[int, int]:
        """Numbers of the first and the last line of a stretch, from 0, counted from `origin`."""
        start = max(start, origin)
        stretch = self._text[start:end].rstrip()
        start += len(stretch) - len(stretch := stretch.lstrip("\n")) if stretch.startswith("\n") else 0
        low = self._text.count("\n", origin, start)
        return low, low + stretch.count("\n")

    def _lines(self, origin: int, start: int, end: int) -> str:
        if self._excerpt and self._is_cut(origin, end):
            return ""
        low, high = self._rows(origin, start, end)
        if low == high:
            return f"line {low + 1}" if low or self._text.find("\n", origin) >= 0 else ""
        return f"lines {low + 1}-{high + 1}"

    def _is_cut(self, origin: int, end: int) -> bool:
        """Whether something is left out between the line at `origin` and a stretch's end: also where the marker above
        that line was carried there (`regions.joined`)."""
        above = self._text.rfind("\n", 0, max(0, origin - 1)) + 1
        return GAP in self._text[max(0, above - len(GAP) - 1) : end]


def page_list(numbers: Sequence[int]) -> str:
    """Numbers for a sentence, neighbours joined: `3, 7-9`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def named_pages(numbers: Sequence[int]) -> str:
    """`page 7`, `pages 3, 7-9`."""
    return f"page{'s' if len(numbers) > 1 else ''} {page_list(numbers)}"


def notes_of(text: str) -> str:
    """What the reader of a document has noted behind its text; "" if nothing."""
    found = NOTES.search(text[-NOTES_CHARS:]) if NOTE_START in text[-NOTES_CHARS:] else None
    lines = found[0].split("\n") if found else []
    return " ".join(line[len(NOTE_START) : -len(NOTE_END)] for line in lines if line.strip())


def pages_without_text(text: str) -> str:
    """The pages of a PDF that its reader has told to hold no text, such as `3, 7-9`; "" if there are none."""
    found = NO_TEXT.search(notes_of(text))
    return found[1] if found else ""


def no_text_note(numbers: Sequence[int], why: str = "") -> str:
    """What is told of pages without text."""
    some, hold = ("Pages", "hold") if len(numbers) > 1 else ("Page", "holds")
    return f"{some} {page_list(numbers)} {hold} no text{why}."
