"""A document before and after it is read, and the reading: `DOCUMENT_KINDS` names the reader of each kind."""

import hashlib
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from gateway.core.frozen_records import record
from gateway.core.types import places
from gateway.core.types.files import DOCUMENT_KINDS, document_digest
from gateway.core.types.places import TextPlaces


class LeftOut(str):
    """A note on a part of the document that was not read; the client has it in `document_incomplete` (guarantee §2)."""

    __slots__ = ()


class UnreadableDocument(Exception):
    """The file claims to be a document but cannot be read; the message says why."""


MAX_RATIO = 200
"""Bytes that a file may unpack to, for each of its own: office files and texts take about 30."""
MIN_UNPACKED = 32 * 2**20
"""Bytes that even the smallest file may unpack to."""
INLINE_DOCUMENT_BYTES = 2**18
"""A longer document is read in a process of its own, whatever its kind; plain text needs no reading."""


@record
class ReadOptions:
    """How documents are read. `ocr`: images of text are recognized where the program for it is installed. `seconds`:
    the time that the whole document may take. `careful`: only readers in pure Python, since another one crashed. `cut`:
    page numbers; the reading's text is then a PDF of only these pages, in base64."""

    ocr: bool = False
    ocr_languages: str = "eng"
    seconds: float = 60.0
    careful: bool = False
    cut: tuple[int, ...] = ()


NO_OPTIONS = ReadOptions()


def unpackable(size: int, most: int) -> int:
    """Returns how many bytes a file of `size` bytes may unpack to, at most `most`: small honest files need no more."""
    return min(most, max(MIN_UNPACKED, MAX_RATIO * size))


@record
class PageFacts:
    """A page of a PDF. `width`, `height`: points. `has_picture`: an image or drawing fills a notable part of it."""

    width: float
    height: float
    has_picture: bool


@record
class Reading:
    """The result of reading a document.

    Attributes:
        text: with its places marked by lines of their own (`core.types.places`).
        notes: what the model and the client should know, as sentences: "Pages 3, 7-9 hold no text."; those on parts
            that were not read are `LeftOut`.
        empty: numbers of pages without text.
        pages: of a PDF.
    """

    text: str
    notes: tuple[str, ...] = ()
    empty: tuple[int, ...] = ()
    pages: tuple[PageFacts, ...] = ()

    @property
    def told(self) -> str:
        """The text followed by its notes as lines, so that whoever stores the text stores them too: those on what was
        left out last, where they are surely found."""
        notes = sorted(self.notes, key=lambda note: isinstance(note, LeftOut))
        starts = (places.LEFT_OUT_START if isinstance(note, LeftOut) else places.NOTE_START for note in notes)
        lines = (
            f"\n{start}{' '.join(note.split())}{places.NOTE_END}" for start, note in zip(starts, notes, strict=True)
        )
        return f"{self.text}\n{''.join(lines)}" if self.notes else self.text

    def as_json(self) -> dict[str, Any]:
        pages = [[page.width, page.height, page.has_picture] for page in self.pages]
        return {
            "text": self.text,
            "notes": [[note, isinstance(note, LeftOut)] for note in self.notes],
            "empty": self.empty,
            "pages": pages,
        }

    def of_pages(self, numbers: Sequence[int]) -> "Reading":
        """Returns the part of the reading that covers the pages with these numbers, from 1."""
        places = TextPlaces(self.text)
        spans = [span for number in numbers for span in places.find(f"page {number}")]
        text = "".join(self.text[start:end] for start, end in spans)
        empty = tuple(number for number in self.empty if number in numbers)
        return Reading(text, (), empty, tuple(self.pages[number - 1] for number in numbers))

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "Reading":
        """Builds a reading from `as_json`. Raises KeyError, TypeError, ValueError: the object is no reading."""
        pages = tuple(PageFacts(float(w), float(h), bool(picture)) for w, h, picture in found["pages"])
        notes = tuple(LeftOut(note) if is_left_out else str(note) for note, is_left_out in found["notes"])
        return cls(str(found["text"]), notes, tuple(map(int, found["empty"])), pages)


@record
class DocumentOwner:
    """The tenant whose document is read, in whose turn. `keeps`: its text may be cached beyond the request."""

    tenant: str
    keeps: bool


@record
class DocumentFile:
    """A document's bytes, the claimed kind of document (a key of `DOCUMENT_KINDS`), and its name."""

    raw: bytes
    kind: str
    name: str = ""

    @property
    def digest(self) -> str:
        """A digest of the bytes and the kind by which they are read."""
        return document_digest(self.kind, hashlib.sha256(self.raw).hexdigest())

    @property
    def is_slow(self) -> bool:
        """Whether the document is read in a process of its own, and its text cached."""
        return DOCUMENT_KINDS[self.kind].apart or (self.kind != "text" and len(self.raw) > INLINE_DOCUMENT_BYTES)


def read(file: DocumentFile, options: ReadOptions = NO_OPTIONS) -> Reading:
    """Reads the document by its kind. Raises UnreadableDocument: the bytes are no document of that kind."""
    reader = import_module(f"gateway.documents.{DOCUMENT_KINDS[file.kind].reader}")
    if nested := getattr(reader, "read_nested", None):  # it holds other files
        reading: Reading = import_module("gateway.documents.nested_documents").reading_of(nested, file.raw, options)
    else:
        reading = reader.read(file.raw, options)
    return reading
