"""Pages of a PDF, cut out as a PDF of their own, by pypdf (guarantee §14.13). The same pages give the same bytes."""

import io
import re
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
NAME = re.compile(rb"/([^\x00\t\n\x0c\r ()<>\[\]{}/%]+)")
"""A name in what draws a page."""
CODE = re.compile(rb"#([0-9A-Fa-f]{2})")
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
            page = reader.pages[number - 1]
            _leave_out_unused(page)
            _add(writer, page)
        out = io.BytesIO()
        writer.write(out)
    except (PyPdfError, *FAULTS) as error:
        raise UnreadableDocument(BROKEN) from error
    return out.getvalue()


def _leave_out_unused(page: Any) -> None:
    """Leaves out images and forms that the page does not draw: many programs name those of the whole document in each
    page. All stay where something without resources of its own, which draws with those of its page, may need them."""
    from pypdf.errors import PyPdfError
    from pypdf.generic import DictionaryObject, NameObject

    resources = _object(page.get("/Resources"))
    drawn = _object(resources.get("/XObject")) if isinstance(resources, DictionaryObject) else None
    contents = page.get_contents() if isinstance(drawn, DictionaryObject) else None
    if contents is None or not isinstance(drawn, DictionaryObject):
        return
    try:
        named = {CODE.sub(_decoded, name) for name in NAME.findall(contents.get_data())}
    except (PyPdfError, *FAULTS):
        return
    used = {name: each for name, each in drawn.items() if name[1:].encode("utf-8", "surrogateescape") in named}
    if len(used) == len(drawn) or any(_draws_with_its_page(_object(each)) for each in used.values()):
        return
    fonts = _object(resources.get("/Font"))
    if isinstance(fonts, DictionaryObject) and any(_is_drawn(_object(font)) for font in fonts.values()):
        return
    kept = DictionaryObject({NameObject("/XObject"): DictionaryObject(used)})
    page[NameObject("/Resources")] = DictionaryObject({**resources, **kept})


def _object(value: Any) -> Any:
    return value.get_object() if value is not None else None


def _decoded(code: re.Match[bytes]) -> bytes:
    return bytes((int(code[1], 16),))


def _draws_with_its_page(each: Any) -> bool:
    """Whether it is a form without resources of its own."""
    return isinstance(each, dict) and each.get("/Subtype") == "/Form" and "/Resources" not in each


def _is_drawn(font: Any) -> bool:
    """Whether it is a font of drawings without resources of its own."""
    return isinstance(font, dict) and font.get("/Subtype") == "/Type3" and "/Resources" not in font


def _add(writer: Any, page: Any) -> None:
    from pypdf.generic import ArrayObject, DictionaryObject, NameObject

    added = writer.add_page(page, excluded_keys=LEFT_OUT)
    annotations = page.get("/Annots")
    annotations = annotations.get_object() if annotations is not None else ()
    found = [each.get_object() for each in list(annotations)[:MOST_ANNOTATIONS]]
    drawn = [_looks(each) for each in found if isinstance(each, DictionaryObject)]
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
