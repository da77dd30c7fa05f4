"""Texts with marked places (`core.types.places`): what stands between two markers is cut by itself (§14.2)."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gateway.core.types.places import MARKER, NUMBERED
from gateway.retrieval.chunks.chunk import MAX_CHARS, TextChunk

ROWS = frozenset({"sheet", "table"})
"""Markers below which each line is a row, the first one with the names of the columns."""
_CODE = """
py pyi js jsx mjs ts tsx java kt c h cc cpp hpp cs go rs rb php swift scala sh bash sql lua pl r dart vue
"""
CODE = frozenset(_CODE.split())
"""Endings of the names of programs."""
YAML = frozenset({"yaml", "yml"})
FIRST_LINE = re.compile(r"\s*[^\n]+\n?")
ENDING = re.compile(r"\.(\w{1,8})\Z")
LINE_START = re.compile(r"^[ \t]*+([^\W_])", re.MULTILINE)
WRAPPED = 0.4
"""Fraction of a page's lines that begin with a small letter from which they are lines of paragraphs: in a PDF nothing
else tells these from lists."""


class MarkedSection(NamedTuple):
    """From one marker to the next one.

    `start` is where its marker begins, `body` what follows it. `above` are the markers that it stands in, `heading`
    those and its own. A file's marker above that of its first page belongs to that page.
    """

    start: int
    body: int
    end: int
    kind: str = ""
    ending: str = ""
    above: str = ""
    heading: str = ""


def sections(text: str) -> Iterator[MarkedSection]:
    """The sections of a text in order; what stands before the first marker is one without a marker."""
    found = list(MARKER.finditer(text))
    first = found[0].start() if found else len(text)
    if text[:first].strip():
        yield MarkedSection(0, 0, first)
    file = ending = ""
    waiting: int | None = None
    for match, after in zip(found, [*found[1:], None], strict=True):
        kind, start = match[1], match.start()
        end = after.start() if after else len(text)
        if kind == "file":
            file, ending = match[0], _ending(match[2])
            if after is not None and after[1] != "file" and not text[match.end() : end].strip():
                waiting = start if waiting is None else waiting
                continue
            yield MarkedSection(start, match.end(), end, kind, ending, "", file)
        else:
            begins_file = waiting is not None
            heading = f"{file}\n{match[0]}" if file else match[0]
            begin = waiting if waiting is not None else start
            yield MarkedSection(begin, match.end(), end, kind, ending, "" if begins_file else file, heading)
        waiting = None


def is_wrapped(text: str, start: int, end: int) -> bool:
    """Whether the lines of a page are those of paragraphs, not entries of a list or a log."""
    first: list[str] = [match[1] for match in LINE_START.finditer(text, start, end)]
    return sum(map(str.islower, first)) >= WRAPPED * len(first)


def _ending(name: str) -> str:
    found = ENDING.search(name)
    return found[1].lower() if found else ""


def placed(section: MarkedSection, chunks: Sequence[TextChunk]) -> Iterator[TextChunk]:
    """The chunks of a section with its markers above them; the markers themselves stand with the first one."""
    if not section.kind:
        yield from chunks
        return
    rest = iter(chunks)
    first = next(rest, None)
    if first is None or first.end - section.start > MAX_CHARS:
        yield TextChunk(section.start, section.body, section.above)
    else:
        yield first._replace(start=section.start, heading=_joined(section.above, first.heading))
        first = None
    for chunk in [first, *rest] if first is not None else rest:
        yield chunk._replace(heading=_joined(section.heading, chunk.heading))


class MarkerHeadings:
    """What must stand above a stretch of a text in which places are marked."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._sections = list(sections(text))
        self._starts = [each.start for each in self._sections]

    def above(self, start: int) -> str:
        """The markers that a place stands in, and the names of its columns, a line each; "" where they begin."""
        number = bisect_right(self._starts, start) - 1
        if number < 0 or self._starts[number] == start or not self._sections[number].kind:
            return ""
        section = self._sections[number]
        first = FIRST_LINE.match(self._text, section.body, section.end) if section.kind in ROWS else None
        if first is None or start < first.end() or first.end() - first.start() > MAX_CHARS:
            return f"{section.heading}\n"
        return f"{section.heading}\n{first[0].strip()}\n"


def _joined(above: str, own: str) -> str:
    return f"{above}\n{own}" if above and own else above or own


def split_heading(heading: str) -> tuple[str, str]:
    """The markers at the beginning of a heading, and what else it says."""
    at = 0
    while (match := MARKER.match(heading, at)) is not None:
        at = match.end() + 1
    return heading[: max(0, at - 1)], heading[at:]


def names_in(heading: str) -> str:
    """The markers of a heading by which a chunk is found: names. By its number a place is found otherwise
    (`retrieval.question`)."""
    markers, _ = split_heading(heading)
    return "\n".join(match[0] for match in MARKER.finditer(markers) if match[1] not in NUMBERED)
