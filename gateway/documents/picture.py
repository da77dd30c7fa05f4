"""Attached pictures of text: photos and scans as PNG, JPEG or TIFF, read by `tesseract` (guarantee §14.3)."""

import struct

from gateway.core.types import places
from gateway.documents.document import PageFacts, Reading, ReadOptions, UnreadableDocument
from gateway.documents.ocr import is_installed, recognized_pages
from gateway.documents.sniff import is_picture

ONE = PageFacts(0.0, 0.0, has_picture=True)
MAX_PAGES = 10_000
ENTRY_BYTES = 12
"""Bytes of a field of a picture in a TIFF."""
RECOGNIZED = "This text was recognized from a picture (OCR)."
NOT_RECOGNIZED = "it is a picture whose text could not be recognized (OCR)"


def read(raw: bytes, options: ReadOptions) -> Reading:
    """Reads the text of a picture; of a TIFF with several, each as a page. A picture without text is an empty page.
    Raises UnreadableDocument: it is no picture, or recognizing its text takes too long."""
    if not is_picture(raw):
        raise UnreadableDocument("it is no readable picture")
    if not options.ocr or not is_installed():
        return _reading([""])
    texts = recognized_pages(raw, options)
    if texts is None:
        raise UnreadableDocument(NOT_RECOGNIZED)
    pages = _pages(raw)
    return _reading([*texts, *[""] * pages][:pages])


def _pages(raw: bytes) -> int:
    """Counts the pictures in the file: a TIFF's are in a linked list."""
    if raw[:2] not in (b"II", b"MM"):
        return 1
    order, found = "<" if raw[:2] == b"II" else ">", set[int]()
    at = int(struct.unpack_from(f"{order}I", raw, 4)[0]) if len(raw) >= 8 else 0
    while at and at not in found and len(found) < MAX_PAGES:
        found.add(at)
        try:
            end = at + 2 + ENTRY_BYTES * struct.unpack_from(f"{order}H", raw, at)[0]
            at = int(struct.unpack_from(f"{order}I", raw, end)[0])
        except struct.error:  # it is cut off
            break
    return max(1, len(found))


def _reading(texts: list[str]) -> Reading:
    empty = tuple(number for number, text in enumerate(texts, 1) if not text)
    pages = (ONE,) * len(texts)
    notes = [] if len(empty) == len(texts) else [RECOGNIZED]
    if empty:
        notes.append(places.no_text_note(empty, " (they are pictures)"))
    if len(texts) == 1:  # a place would say nothing
        return Reading(places.plain_lines(texts[0]), tuple(notes), empty, pages)
    text = "\n\n".join(
        f"{places.marker('page', str(number))}\n{places.plain_lines(text)}" for number, text in enumerate(texts, 1)
    )
    return Reading(text, tuple(notes), empty, pages)
