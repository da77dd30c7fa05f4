"""Pictures of text that are attached: photos and scans as PNG, JPEG or TIFF, read by `tesseract` (guarantee §14.3)."""

from gateway.documents.document import PageFacts, Reading, ReadOptions, UnreadableDocument
from gateway.documents.ocr import is_installed, recognized_pages
from gateway.documents.sniff import is_picture
from gateway.models.places import marker, no_text_note

ONE = PageFacts(0.0, 0.0, has_picture=True)
RECOGNIZED = "This text was recognized from a picture (OCR)."
NOT_RECOGNIZED = "it is a picture whose text could not be recognized (OCR)"


def read(raw: bytes, options: ReadOptions) -> Reading:
    """The text of a picture; of a TIFF with several, each as a page. A picture without text is an empty page.

    Raises:
        UnreadableDocument: it is no picture, or recognizing its text takes too long.
    """
    if not is_picture(raw):
        raise UnreadableDocument("it is no readable picture")
    if not options.ocr or not is_installed():
        return _reading([""])
    texts = recognized_pages(raw, options)
    if texts is None:
        raise UnreadableDocument(NOT_RECOGNIZED)
    return _reading(texts)


def _reading(texts: list[str]) -> Reading:
    empty = tuple(number for number, text in enumerate(texts, 1) if not text)
    pages = (ONE,) * len(texts)
    notes = [] if len(empty) == len(texts) else [RECOGNIZED]
    if empty:
        notes.append(no_text_note(empty, " (they are pictures)"))
    if len(texts) == 1:  # a place would say nothing
        return Reading(texts[0], tuple(notes), empty, pages)
    text = "\n\n".join(f"{marker('page', str(number))}\n{text}" for number, text in enumerate(texts, 1))
    return Reading(text, tuple(notes), empty, pages)
