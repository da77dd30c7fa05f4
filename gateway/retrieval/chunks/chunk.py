"""Chunks: parts of a text that can be understood by themselves, or with their heading above them."""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, overload
from unicodedata import combining

import numpy as np
from numpy.typing import NDArray

TARGET_CHARS = 700
"""Length in characters up to which paragraphs and statements are gathered. Tuned (ADR 11)."""
MAX_CHARS = 1400
"""Length in characters of the longest chunk."""

Kind = Literal["record", "row", "line", "code", "prose"]


class TextChunk(NamedTuple):
    """Characters `start` to `end` of a text.

    `heading` must stand above the chunk for it to be understood: a table's first row, the headings of a section, the
    beginning of a long record. `ordinal` numbers records, rows and lines from 0 (-1: it is none); all pieces of a
    record have its number. `origin` is where the record begins.
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
SENTENCE = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+\s|[。！？；．｡؟۔।॥]+[”』」）]*|\n")
ASCII_SENTENCE = re.compile(r"(?<![.!?])[.!?]++[\"')\]]*+\s|\n")
"""The same for what is all ASCII, where it is found twice as fast."""
SPACE = re.compile(r"\s+")
LOOK_BACK = 200
"""Characters before the target within which a space is looked for."""
NOISE_CHARS = 240
"""Length of a piece without sentences or words (base64, hexadecimal digits), which takes up to a token a character."""
JOINED = frozenset("\u200d\ufe0e\ufe0f\u20e3\n") | {chr(code) for code in range(0x1F3FB, 0x1F400)}
"""Characters that belong to the one before: joiners, variants, skin tones, a line feed after a carriage return."""


def trimmed(text: str, start: int, end: int) -> Span:
    """The span without white space at its ends."""
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())


def bounded(text: str, start: int, end: int, target: int = TARGET_CHARS) -> Iterator[Span]:
    """The span in pieces of whole sentences: one if it is within `MAX_CHARS`, else of about `target` characters."""
    start, end = trimmed(text, start, end)
    if end - start <= MAX_CHARS:
        if end > start:
            yield start, end
        return
    at = start
    while end - at > MAX_CHARS:
        until = _cut(text, at, target)
        yield trimmed(text, at, until)
        at = until
        while at < end and text[at].isspace():
            at += 1
    if at < end:
        yield at, end


def _cut(text: str, at: int, target: int) -> int:
    """The end of the piece that begins at `at`: after the last sentence within the target, else after the first one
    within the limit, else between words, else between characters."""
    best = 0
    sentence = ASCII_SENTENCE if text.isascii() else SENTENCE
    for match in sentence.finditer(text, at + 1, at + MAX_CHARS):
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
    """The nearest index up to `at` that separates no character from its marks, joiners, surrogate half or line feed."""
    for place in range(at, max(least, at - 20), -1):
        after, before = text[place], text[place - 1]
        halves = "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff"
        feed = after == "\n" and before != "\r"
        if not combining(after) and (after not in JOINED or feed) and before != "\u200d" and not halves:
            return place
    return at


MAX_CHUNKS = 50_000
"""Chunks of a text at most, roughly. Each takes some 20 µs of every question, and 5 MB of tiny rows had 800,000."""


def gathered(chunks: list[TextChunk], most: int = MAX_CHUNKS) -> list[TextChunk]:
    """At most about `most` chunks: chunks shorter than an even share of the text are joined with the next ones of their
    kind and heading. What was joined has the number of its first chunk."""
    if len(chunks) <= most:
        return chunks
    least = (chunks[-1].end - chunks[0].start) // most
    found: list[TextChunk] = []
    first = chunks[0]
    until = first.end
    for chunk in chunks[1:]:
        is_alike = chunk.kind == first.kind and chunk.heading == first.heading
        if is_alike and until - first.start < least and chunk.end - first.start <= MAX_CHARS:
            until = chunk.end
            continue
        found.append(TextChunk(first.start, until, *first[2:]))
        first, until = chunk, chunk.end
    return [*found, TextChunk(first.start, until, *first[2:])]


KINDS: tuple[Kind, ...] = ("record", "row", "line", "code", "prose")
COLUMNS = ("start", "end", "ordinal", "origin")
STRING_BYTES = 60
"""Bytes of a string in Python besides its characters."""


class PackedChunks(Sequence[TextChunk]):
    """Chunks as columns of numbers: a ninth of the memory, and no objects for the garbage collector."""

    def __init__(self, chunks: Sequence[TextChunk]) -> None:
        numbers: dict[str, int] = {}
        headings = (numbers.setdefault(chunk.heading, len(numbers)) for chunk in chunks)
        self._heading_of = np.fromiter(headings, np.int32, len(chunks))
        self._headings = list(numbers)
        self._kinds = np.fromiter((KINDS.index(chunk.kind) for chunk in chunks), np.uint8, len(chunks))
        self._columns: list[NDArray[np.int32]] = [
            np.fromiter((getattr(chunk, name) for chunk in chunks), np.int32, len(chunks)) for name in COLUMNS
        ]

    @property
    def nbytes(self) -> int:
        """Bytes, roughly."""
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
            start, end, self._headings[self._heading_of[index]], KINDS[self._kinds[index]], ordinal, origin
        )

    def __iter__(self) -> Iterator[TextChunk]:
        starts, ends, ordinals, origins = (column.tolist() for column in self._columns)
        headings = map(self._headings.__getitem__, self._heading_of.tolist())
        kinds = map(KINDS.__getitem__, self._kinds.tolist())
        return map(TextChunk, starts, ends, headings, kinds, ordinals, origins)
