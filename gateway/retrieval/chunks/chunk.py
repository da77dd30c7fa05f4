"""Chunks: parts of a text that can be understood by themselves, or with their heading above them. In texts with marked
places (`core.types.places`) the text between two markers is cut by itself (§14.2)."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, overload
from unicodedata import combining

import numpy as np
from numpy.typing import NDArray

from gateway.core.types import places

TARGET_CHARS = 700
"""Length in characters up to which paragraphs and statements are gathered. Tuned (ADR 11)."""
MAX_CHUNK_CHARS = 1400
"""Length in characters of the longest chunk."""

Kind = Literal["record", "row", "line", "code", "prose"]


class TextChunk(NamedTuple):
    """Characters `start` to `end` of a text.

    `heading` must precede the chunk for it to be understood: a table's first row, the headings of a section, the
    beginning of a long record. `ordinal` numbers records, rows and lines from 0 (-1: it is none of these); all pieces
    of a record have its number. `origin` is where the record begins.
    """

    start: int
    end: int
    heading: str = ""
    kind: Kind = "prose"
    ordinal: int = -1
    origin: int = -1

    @property
    def record(self) -> tuple[int, int]:
        return self.origin, self.ordinal


Span = tuple[int, int]
SENTENCE = re.compile(
    r"[.!?…\n。！？；．｡؟۔।॥](?:(?<=\n)|(?<=[.!?…])(?<![.!?…][.!?…])[.!?…]*+[\"'”’»)\]]*+\s"
    r"|(?<=[。！？；．｡؟۔।॥])[。！？；．｡؟۔।॥]*[”』」）]*)"
)
"""The end of a sentence or a line. It begins with the one character by which a search is several times faster; what is
asked of that character stands behind it."""
ASCII_SENTENCE = re.compile(r"[.!?\n](?:(?<=\n)|(?<![.!?][.!?])[.!?]*+[\"')\]]*+\s)")
"""`SENTENCE` for ASCII texts."""
SPACE = re.compile(r"\s+")
LOOK_BACK = 200
"""Characters before the target that are searched for a space."""
NOISE_CHARS = 240
"""Length of a piece without sentences or words (base64, hexadecimal digits), with up to one token per character."""
JOINED = frozenset("\u200d\ufe0e\ufe0f\u20e3\n") | {chr(code) for code in range(0x1F3FB, 0x1F400)}
"""Characters that belong to the previous one: joiners, variants, skin tones, a line feed after a carriage return."""


def trimmed(text: str, start: int, end: int) -> Span:
    """Returns the span without white space at its ends."""
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())


def bounded(text: str, start: int, end: int, target: int = TARGET_CHARS) -> Iterator[Span]:
    """Yields the span in pieces of whole sentences: one if a chunk holds it, else of about `target` characters."""
    start, end = trimmed(text, start, end)
    if end - start <= MAX_CHUNK_CHARS:
        if end > start:
            yield start, end
        return
    at = start
    while end - at > MAX_CHUNK_CHARS:
        until = _cut(text, at, target)
        yield trimmed(text, at, until)
        at = until
        while at < end and text[at].isspace():
            at += 1
    if at < end:
        yield at, end


def pieces_of(text: str, start: int, end: int, heading: str, *record: Any) -> Iterator[TextChunk]:
    """Returns the chunks of a span, each with that heading; `record` are their kind, ordinal and origin."""
    return (TextChunk(*piece, heading, *record) for piece in bounded(text, start, end))


def _cut(text: str, at: int, target: int) -> int:
    """Returns the end of the piece that begins at `at`: after the last sentence within the target, else after the first
    one within the limit, else between words, else between characters."""
    best = 0
    sentence = ASCII_SENTENCE if text.isascii() else SENTENCE
    for match in sentence.finditer(text, at + 1, at + MAX_CHUNK_CHARS):
        if match.end() - at > target:
            best = best or match.end()
            break
        best = match.end()
    if best - at >= target // 4:
        return best
    until = at + target
    words = list(SPACE.finditer(text, until - LOOK_BACK, until))
    return words[-1].start() if words else between_characters(text, at + NOISE_CHARS, at + 1)


def between_characters(text: str, at: int, least: int) -> int:
    """Returns the nearest index up to `at` that splits no character from its marks, joiners, surrogate or line feed."""
    for place in range(at, max(least, at - 20), -1):
        after, before = text[place], text[place - 1]
        halves = "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff"
        feed = after == "\n" and before != "\r"
        if not combining(after) and (after not in JOINED or feed) and before != "\u200d" and not halves:
            return place
    return at


MAX_CHUNKS = 50_000
"""Approximate limit of a text's chunks. Each takes some 20 µs of every question, and 5 MB of tiny rows had 800,000."""


def gathered(chunks: list[TextChunk], most: int = MAX_CHUNKS) -> list[TextChunk]:
    """Returns at most about `most` chunks: joins chunks shorter than an even share of the text with the next ones of
    their kind and heading. A joined chunk has the number of its first one."""
    if len(chunks) <= most:
        return chunks
    least = (chunks[-1].end - chunks[0].start) // most
    found: list[TextChunk] = []
    first = chunks[0]
    until = first.end
    for chunk in chunks[1:]:
        is_alike = chunk.kind == first.kind and chunk.heading == first.heading
        if is_alike and until - first.start < least and chunk.end - first.start <= MAX_CHUNK_CHARS:
            until = chunk.end
            continue
        found.append(TextChunk(first.start, until, *first[2:]))
        first, until = chunk, chunk.end
    return [*found, TextChunk(first.start, until, *first[2:])]


CHUNK_KINDS: tuple[Kind, ...] = ("record", "row", "line", "code", "prose")
CHUNK_COLUMNS = ("start", "end", "ordinal", "origin")
STRING_BYTES = 60
"""Bytes of a string in Python besides its characters."""


class PackedChunks(Sequence[TextChunk]):
    """Chunks as columns of numbers: a ninth of the memory, and no objects for the garbage collector."""

    def __init__(self, chunks: Sequence[TextChunk]) -> None:
        numbers: dict[str, int] = {}
        headings = (numbers.setdefault(chunk.heading, len(numbers)) for chunk in chunks)
        self._heading_of = np.fromiter(headings, np.int32, len(chunks))
        self._headings = list(numbers)
        self._kinds = np.fromiter((CHUNK_KINDS.index(chunk.kind) for chunk in chunks), np.uint8, len(chunks))
        self._columns: list[NDArray[np.int32]] = [
            np.fromiter((getattr(chunk, name) for chunk in chunks), np.int32, len(chunks)) for name in CHUNK_COLUMNS
        ]

    @property
    def nbytes(self) -> int:
        """Approximate size in bytes."""
        texts = sum(STRING_BYTES + len(heading) for heading in self._headings)
        columns = sum(column.nbytes for column in self._columns)
        return texts + columns + self._heading_of.nbytes + self._kinds.nbytes

    def __len__(self) -> int:
        return len(self._kinds)

    @overload
    def __getitem__(self, index: int) -> TextChunk: ...

    @overload
    def __getitem__(self, index: slice) -> list[TextChunk]: ...

    def __getitem__(self, index: int | slice) -> TextChunk | list[TextChunk]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        start, end, ordinal, origin = (int(column[index]) for column in self._columns)
        return TextChunk(
            start, end, self._headings[self._heading_of[index]], CHUNK_KINDS[self._kinds[index]], ordinal, origin
        )

    def __iter__(self) -> Iterator[TextChunk]:
        starts, ends, ordinals, origins = (column.tolist() for column in self._columns)
        headings = map(self._headings.__getitem__, self._heading_of.tolist())
        kinds = map(CHUNK_KINDS.__getitem__, self._kinds.tolist())
        return map(TextChunk, starts, ends, headings, kinds, ordinals, origins)


MARKED_ROWS = frozenset({"sheet", "table"})
"""Markers followed by one row per line, the first one with the names of the columns."""
_CODE_ENDINGS = """
py pyi js jsx mjs ts tsx java kt c h cc cpp hpp cs go rs rb php swift scala sh bash sql lua pl r dart vue
"""
CODE_ENDINGS = frozenset(_CODE_ENDINGS.split())
"""File extensions of programs."""
YAML_ENDINGS = frozenset({"yaml", "yml"})
FIRST_LINE = re.compile(r"\s*[^\n]+\n?")
ENDING = re.compile(r"\.(\w{1,8})\Z")
LINE_START = re.compile(r"^[ \t]*+([^\W_])", re.MULTILINE)
WRAPPED = 0.4
"""Minimum fraction of a page's lines that begin with a lower-case letter if they are lines of paragraphs: in a PDF
nothing else distinguishes these from lists."""


class MarkedSection(NamedTuple):
    """The text from one marker to the next one.

    `start` is where its marker begins, `body` where the text behind it begins. `above` are the markers that contain it,
    `heading` those and its own. A file's marker directly above that of its first page belongs to that page.
    """

    start: int
    body: int
    end: int
    kind: str = ""
    ending: str = ""
    above: str = ""
    heading: str = ""


def sections(text: str) -> Iterator[MarkedSection]:
    """Yields the sections of a text in order; the text before the first marker is a section without a marker."""
    found = list(places.PLACE_MARKER.finditer(text))
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
    """Returns whether the lines of a page are those of paragraphs, not entries of a list or a log."""
    first: list[str] = [match[1] for match in LINE_START.finditer(text, start, end)]
    return sum(map(str.islower, first)) >= WRAPPED * len(first)


def _ending(name: str) -> str:
    found = ENDING.search(name)
    return found[1].lower() if found else ""


def placed(section: MarkedSection, chunks: Sequence[TextChunk]) -> Iterator[TextChunk]:
    """Yields the chunks of a section with its markers as heading; the markers themselves are in the first chunk."""
    if not section.kind:
        yield from chunks
        return
    rest = iter(chunks)
    first = next(rest, None)
    if first is None or first.end - section.start > MAX_CHUNK_CHARS:
        yield TextChunk(section.start, section.body, section.above)
    else:
        yield first._replace(start=section.start, heading=_joined(section.above, first.heading))
        first = None
    for chunk in [first, *rest] if first is not None else rest:
        yield chunk._replace(heading=_joined(section.heading, chunk.heading))


class MarkerHeadings:
    """Finds the headings of stretches of a text in which places are marked."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._sections = list(sections(text))
        self._starts = [each.start for each in self._sections]

    def above(self, start: int) -> str:
        """Returns the markers that contain a place, and the names of its columns, a line each; "" where they begin."""
        number = bisect_right(self._starts, start) - 1
        if number < 0 or self._starts[number] == start or not self._sections[number].kind:
            return ""
        section = self._sections[number]
        first = FIRST_LINE.match(self._text, section.body, section.end) if section.kind in MARKED_ROWS else None
        if first is None or start < first.end() or first.end() - first.start() > MAX_CHUNK_CHARS:
            return f"{section.heading}\n"
        return f"{section.heading}\n{first[0].strip()}\n"


def _joined(above: str, own: str) -> str:
    return f"{above}\n{own}" if above and own else above or own


def split_heading(heading: str) -> tuple[str, str]:
    """Splits a heading into the markers at its beginning and the rest."""
    at = 0
    while (match := places.PLACE_MARKER.match(heading, at)) is not None:
        at = match.end() + 1
    return heading[: max(0, at - 1)], heading[at:]


def names_in(heading: str) -> str:
    """Returns the markers of a heading whose names a chunk is found by. Numbered places are found otherwise
    (`retrieval.question`)."""
    markers, _ = split_heading(heading)
    return "\n".join(match[0] for match in places.PLACE_MARKER.finditer(markers) if match[1] not in places.NUMBERED)
