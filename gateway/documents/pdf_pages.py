"""Pages of a PDF, cut out as a PDF of their own, by pypdf (guarantee §14.13). The same pages give the same bytes."""

import io
from collections.abc import Sequence
from typing import Any

from gateway.documents.document import UnreadableDocument

LEFT_OUT = ("/B", "/AA", "/StructParents", "/PieceInfo", "/Thumb", "/Metadata", "/Tabs", "/Annots")
"""Of a page: what no reader of it sees, and what would bring other pages along."""
SHOWN_OF_ANNOTATION = ("/Type", "/Subtype", "/Rect", "/AP", "/AS", "/F", "/C", "/Contents")
"""Its looks. Its links, its parent and its page are left out: they lead to all other pages."""
FIELD, STAMP = "/Widget", "/Stamp"
"""A form's field becomes a stamp: without its form not every program would draw it."""
UNSEEN = ("/Link", "/Popup")
MOST_ANNOTATIONS = 500
BROKEN = "its pages cannot be cut out"
FAULTS = (ValueError, LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError, AssertionError, OSError)
"""Beside its own, what pypdf raises for broken files."""


def cut_out(raw: bytes, numbers: Sequence[int]) -> bytes:
    """A PDF of the pages with these numbers, from 1. Filled forms and comments are drawn as they were; nothing in it
    leads anywhere.

    Raises:
        UnreadableDocument: pypdf cannot read it, or it has no such page.
    """
    from pypdf import PdfReader, PdfWriter
    from pypdf.errors import PyPdfError

    try:
        reader, writer = PdfReader(io.BytesIO(raw)), PdfWriter()
        for number in numbers:
            _add(writer, reader.pages[number - 1])
        out = io.BytesIO()
        writer.write(out)
    except (PyPdfError, *FAULTS) as error:
        raise UnreadableDocument(BROKEN) from error
    return out.getvalue()


def _add(writer: Any, page: Any) -> None:
    from pypdf.generic import ArrayObject, NameObject

    added = writer.add_page(page, excluded_keys=LEFT_OUT)
    annotations = page.get("/Annots")
    annotations = annotations.get_object() if annotations is not None else ()
    drawn = [_looks(each.get_object()) for each in list(annotations)[:MOST_ANNOTATIONS]]
    if any(drawn):
        cloned = [writer._add_object(each.clone(writer)) for each in drawn if each]
        added[NameObject("/Annots")] = ArrayObject(cloned)


def _looks(annotation: Any) -> Any:
    """What is seen of an annotation; None if nothing is."""
    from pypdf.generic import DictionaryObject, NameObject

    if annotation.get("/Subtype") in UNSEEN:
        return None
    looks = DictionaryObject({NameObject(key): annotation[key] for key in SHOWN_OF_ANNOTATION if key in annotation})
    if annotation.get("/Subtype") == FIELD:
        looks[NameObject("/Subtype")] = NameObject(STAMP)
    return looks
