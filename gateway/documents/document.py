"""A document before and after it is read, and the reading: `DOCUMENT_KINDS` says which module reads what."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from gateway.core.types import places
from gateway.core.types.files import DOCUMENT_KINDS, document_digest
from gateway.core.types.places import TextPlaces


class LeftOut(str):
    """A note of a part of the document that was not read; the client has it in `document_incomplete` (guarantee §2)."""

    __slots__ = ()


class UnreadableDocument(Exception):
    """The file claims to be a document but cannot be read; the message says why."""


MAX_RATIO = 200
"""What a file may unpack to, for each of its bytes: office files and texts take about 30."""
MIN_UNPACKED = 32 * 2**20
"""What the smallest may unpack to."""
INLINE_DOCUMENT_BYTES = 2**18
"""A longer document is read apart, whatever it is; plain text needs no reading."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How documents are read. `ocr`: pictures of text are recognized where the program for it is installed. `seconds`:
    what the whole document may take. `careful`: only readers in pure Python, since another one crashed. `cut`: numbers
    of pages; the reading's text is a PDF of these alone, in base64."""

    ocr: bool = False
    ocr_languages: str = "eng"
    seconds: float = 60.0
    careful: bool = False
    cut: tuple[int, ...] = ()


def unpackable(size: int, most: int) -> int:
    """Bytes to which a file of `size` bytes may unpack, at most `most`: a small one that is honest needs no more."""
    return min(most, max(MIN_UNPACKED, MAX_RATIO * size))


@dataclass(frozen=True, slots=True)
class PageFacts:
    """A page of a PDF. `width`, `height`: points. `has_picture`: an image or drawing fills more than a trifle of it."""

    width: float
    height: float
    has_picture: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of a document.

    Attributes:
        text: with its places marked by lines of their own (`core.types.places`).
        notes: what the model and the client should know, as sentences: "Pages 3, 7-9 hold no text."; those of parts
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
        """The text with its notes as lines behind it, so that whoever keeps the text keeps them."""
        starts = (places.LEFT_OUT_START if isinstance(note, LeftOut) else places.NOTE_START for note in self.notes)
        lines = (
            f"\n{start}{' '.join(note.split())}{places.NOTE_END}"
            for start, note in zip(starts, self.notes, strict=True)
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
        """What was read of the pages with these numbers, from 1."""
        places = TextPlaces(self.text)
        spans = [span for number in numbers for span in places.find(f"page {number}")]
        text = "".join(self.text[start:end] for start, end in spans)
        empty = tuple(number for number in self.empty if number in numbers)
        return Reading(text, (), empty, tuple(self.pages[number - 1] for number in numbers))

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "Reading":
        """Raises KeyError, TypeError, ValueError: that is none."""
        pages = tuple(PageFacts(float(w), float(h), bool(picture)) for w, h, picture in found["pages"])
        notes = tuple(LeftOut(note) if is_left_out else str(note) for note, is_left_out in found["notes"])
        return cls(str(found["text"]), notes, tuple(map(int, found["empty"])), pages)


@dataclass(frozen=True, slots=True)
class DocumentOwner:
    """Whose document it is, in whose turn it is read. `keeps`: what it says may outlive the request, in the cache."""

    tenant: str
    keeps: bool


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """A document's bytes, the kind of document that they claim to be (a key of `DOCUMENT_KINDS`), and its name."""

    raw: bytes
    kind: str
    name: str = ""

    @property
    def digest(self) -> str:
        """The same for the same bytes read in the same way."""
        return document_digest(self.kind, hashlib.sha256(self.raw).hexdigest())

    @property
    def is_slow(self) -> bool:
        """Whether it is read in a process apart, and its text kept."""
        return DOCUMENT_KINDS[self.kind].apart or (self.kind != "text" and len(self.raw) > INLINE_DOCUMENT_BYTES)


def read(file: DocumentFile, options: ReadOptions = ReadOptions()) -> Reading:
    """What the document says. Raises UnreadableDocument: the bytes are no document of that kind."""
    reader = import_module(f"gateway.documents.{DOCUMENT_KINDS[file.kind].reader}")
    reading: Reading = reader.read(file.raw, options)
    return reading
