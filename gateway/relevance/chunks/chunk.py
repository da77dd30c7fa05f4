"""A stretch of a text that is understood by itself, or with its heading above it."""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, overload
from unicodedata import combining

import numpy as np
from numpy.typing import NDArray

TARGET_CHARS = 700
"""Prose is gathered up to this length."""
MAX_CHARS = 1400
"""Nothing is longer."""

Kind = Literal["record", "row", "line", "code", "prose"]


class Chunk(NamedTuple):
    """Characters `start` to `end` of a text.

    `heading` has to stand above it to be understood: a table's first row, the headings of a section, what a long record
    begins with. Records, rows and lines are numbered from 0 by `ordinal` (-1: is none of several), and pieces of one
    record have its number; `origin` is where that record begins.
    """

    start: int
    end: int
    heading: str = ""
    kind: Kind = "prose"
    ordinal: int = -1
    origin: int = -1

    @property
    def record(self) -> tuple[int, int]:
        """The same for all pieces of one record of a text."""
        return self.origin, self.ordinal


# Where a text may be cut that has no structure left: between sentences, words, or at least characters.


Span = tuple[int, int]
SENTENCE = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+\s|[。！？；．｡؟۔।॥]+[”』」）]*|\n")
ASCII_SENTENCE = re.compile(r"(?<![.!?])[.!?]++[\"')\]]*+\s|\n")
"""The same for what is all ASCII, where it is found twice as fast."""
SPACE = re.compile(r"\s+")
LOOK_BACK = 200
NOISE_CHARS = 240
"""What has neither sentences nor words (base64, hexadecimal digits) takes up to a token a character: small pieces fill
a budget."""
JOINED = frozenset("\u200d\ufe0e\ufe0f\u20e3\n") | {chr(code) for code in range(0x1F3FB, 0x1F400)}
"""Follow the character that they belong to: joiners, variants, skin tones, a line feed after a carriage return."""


def trimmed(text: str, start: int, end: int) -> Span:
    """The span without white space at its ends."""
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())


def bounded(text: str, start: int, end: int, target: int = TARGET_CHARS) -> Iterator[Span]:
    """A span in pieces of whole sentences, of about `target` characters where it is longer than what is allowed."""
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
    """Where the piece that begins at `at` ends: after the last sentence within the target, else the first one within
    the limit, else between words, else between characters."""
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
    """The nearest place up to `at` where no character is torn from what belongs to it: marks, joined signs, halves of
    surrogate pairs, line ends."""
    for place in range(at, max(least, at - 20), -1):
        after, before = text[place], text[place - 1]
        halves = "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff"
        feed = after == "\n" and before != "\r"
        if not combining(after) and (after not in JOINED or feed) and before != "\u200d" and not halves:
            return place
    return at


# Bounds how many chunks a text has: of hundreds of thousands of tiny ones nobody needs each by itself.


MOST_CHUNKS = 50_000
"""About as many has a text at most, unless its chunks are long. One chunk takes some 20 µs of every question."""


def gathered(chunks: list[Chunk], most: int = MOST_CHUNKS) -> list[Chunk]:
    """The same chunks if they are not too many, else those that are shorter than an even share of the text are gathered
    with the next ones of their kind and heading until they are not. What was gathered counts as the first of them."""
    if len(chunks) <= most:
        return chunks
    least = (chunks[-1].end - chunks[0].start) // most
    found: list[Chunk] = []
    first = chunks[0]
    until = first.end
    for chunk in chunks[1:]:
        is_alike = chunk.kind == first.kind and chunk.heading == first.heading
        if is_alike and until - first.start < least and chunk.end - first.start <= MAX_CHARS:
            until = chunk.end
            continue
        found.append(Chunk(first.start, until, *first[2:]))
        first, until = chunk, chunk.end
    return [*found, Chunk(first.start, until, *first[2:])]


# The chunks of a long text as columns of numbers: a ninth of the memory, and nothing for the garbage collector.


KINDS: tuple[Kind, ...] = ("record", "row", "line", "code", "prose")
COLUMNS = ("start", "end", "ordinal", "origin")
STRING_BYTES = 60


class PackedChunks(Sequence[Chunk]):
    """The same sequence; each chunk is made when it is asked for."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
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
    def __getitem__(self, index: int) -> Chunk: ...

    @overload
    def __getitem__(self, index: slice) -> list[Chunk]: ...

    def __getitem__(self, index: int | slice) -> Chunk | list[Chunk]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        start, end, ordinal, origin = (int(column[index]) for column in self._columns)
        return Chunk(start, end, self._headings[self._heading_of[index]], KINDS[self._kinds[index]], ordinal, origin)

    def __iter__(self) -> Iterator[Chunk]:
        starts, ends, ordinals, origins = (column.tolist() for column in self._columns)
        headings = map(self._headings.__getitem__, self._heading_of.tolist())
        kinds = map(KINDS.__getitem__, self._kinds.tolist())
        return map(Chunk, starts, ends, headings, kinds, ordinals, origins)
