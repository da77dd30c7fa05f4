"""PDF files: text page by page, and the facts of the pages; by PDFium, and by pypdf what PDFium cannot open."""

import base64
import ctypes
import io
import re
from collections.abc import Sequence
from typing import Any

from gateway.documents.apart import tell_progress
from gateway.documents.document import LeftOut, PageFacts, Reading, ReadOptions, UnreadableDocument, unpackable
from gateway.documents.ocr import recognized
from gateway.documents.pdf_drawings import has_picture
from gateway.documents.pdf_pages import FAULTS, cut_out
from gateway.models.places import marker, no_text_note, page_list, plain_lines

LOCKED = "it is protected by a password; save it without one and send it again"
MAX_TEXT = 64 * 2**20
"""Characters of one PDF, a small one fewer (`document.unpackable`); pages beyond them are left out."""
CUT_OFF = LeftOut("The PDF is cut off; what could be found of it was read.")
END, TAIL = b"%%EOF", 2048
"""How a PDF ends, within so many bytes."""
CATALOG = re.compile(rb"(\d{1,9})\s+(\d{1,5})\s+obj\b[^>]{0,400}?/Type\s{0,9}/Catalog\b")
MENDED = b"\nendobj\ntrailer\n<< /Root %b %b R >>\nstartxref\n0\n%b\n"
BROKEN = "it is no readable PDF"
MOST_ANNOTATIONS = 500
"""Of a page."""
MOST_STRING = 2**20
"""Bytes of a field's value or a comment; one that is longer is left out."""
POINTS = (612.0, 792.0)
"""The size of a page whose own is not known: US letter."""
BROKEN_WORD = re.compile("[\x02\ufffe]\n?")
"""A hyphen at the end of a line, as PDFium writes it."""
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def read(raw: bytes, options: ReadOptions) -> Reading:
    """
    Raises:
        UnreadableDocument: it is no PDF, or needs a password, or has no such pages.
    """
    if options.cut:
        return Reading(base64.b64encode(cut_out(raw, options.cut)).decode("ascii"))
    if options.careful:
        return _by_pypdf(raw)
    is_whole = END in raw[-TAIL:]
    most = unpackable(len(raw), MAX_TEXT)
    return _opened(raw if is_whole else _mended(raw), options, most, is_whole=is_whole) or _by_pypdf(raw)


def _opened(raw: bytes, options: ReadOptions, most: int, *, is_whole: bool) -> Reading | None:
    """None if PDFium finds no page."""
    import pypdfium2

    try:
        with pypdfium2.PdfDocument(raw) as document:
            return _by_pdfium(document, options, most, is_whole=is_whole) if len(document) else None
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise UnreadableDocument(LOCKED) from error
        return None


def _mended(raw: bytes) -> bytes:
    """A PDF that is cut off, with an end that names its catalog, so that PDFium looks for the rest itself."""
    found = list(CATALOG.finditer(raw))
    return raw + MENDED % (*found[-1].groups(), END) if found else raw


def _by_pdfium(document: Any, options: ReadOptions, left: int, *, is_whole: bool) -> Reading | None:
    import pypdfium2

    if document.get_formtype():
        document.init_forms()
    texts, pages, broken, blank = [], [], [], set()
    for number in range(len(document)):
        if left <= 0:
            break
        if not options.ocr:  # else it is read again, for its pictures
            tell_progress(number, len(document))
        try:
            page = document[number]
            texts.append(_text(document, page)[:left])
            left -= len(texts[-1])
            pages.append(_facts(page))
            blank |= {number + 1} if _is_blank(page) else set()
            page.close()
        except pypdfium2.PdfiumError:
            broken.append(number + 1)
            texts = [*texts[:number], ""]
            pages = [*pages[:number], PageFacts(*POINTS, has_picture=False)]
    nothing = not is_whole and not any(texts) and not any(page.has_picture for page in pages)
    if nothing or len(broken) == len(texts):
        return None
    notes = [*_notes(document, broken, is_whole=is_whole), *_beyond(len(texts), len(document))]
    empty = [number for number, text in enumerate(texts, 1) if not text and number not in {*broken, *blank}]
    if options.ocr and empty:
        found = recognized(document, empty, options)
        notes += found.notes
        for number, text in found.texts.items():
            texts[number - 1] = text
        empty = [number for number in empty if number not in found.texts]
    return _reading(texts, notes, empty, pages)


def _reading(texts: Sequence[str], notes: Sequence[str], empty: Sequence[int], pages: Sequence[PageFacts]) -> Reading:
    text = "\n\n".join(f"{marker('page', str(number))}\n{plain_lines(text)}" for number, text in enumerate(texts, 1))
    if empty:
        pictures = all(pages[number - 1].has_picture for number in empty) if pages else False
        why = " (they are pictures)" if pictures else ""
        notes = [*notes, no_text_note(empty, why)]
    return Reading(text, tuple(notes), tuple(empty), tuple(pages))


def _text(document: Any, page: Any) -> str:
    text = page.get_textpage().get_text_range(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    text = CONTROLS.sub("", BROKEN_WORD.sub("", text)).strip()
    return "\n".join(each for each in (text, *_annotated(document, page)) if each)


def _annotated(document: Any, page: Any) -> list[str]:
    """Values of form fields, and comments."""
    import pypdfium2.raw as pdfium

    found: list[str] = []
    for number in range(min(MOST_ANNOTATIONS, max(0, pdfium.FPDFPage_GetAnnotCount(page)))):
        annotation = pdfium.FPDFPage_GetAnnot(page, number)
        if not annotation:
            continue

        if pdfium.FPDFAnnot_GetSubtype(annotation) == pdfium.FPDF_ANNOT_WIDGET:
            form = document.formenv
            value = _string(pdfium.FPDFAnnot_GetFormFieldValue, form, annotation) if form else ""
            name = _string(pdfium.FPDFAnnot_GetFormFieldName, form, annotation) if value else ""
            found += [f"{name}: {value}" if name else value] if value else []
        else:
            said = _string(pdfium.FPDFAnnot_GetStringValue, annotation, b"Contents")
            found += [f"(Comment: {said})"] if said else []
        pdfium.FPDFPage_CloseAnnot(annotation)
    return found


def _string(get: Any, *of: Any) -> str:
    """A string of PDFium's: its size is asked for first; it is UTF-16 with a zero at its end."""
    size = min(get(*of, None, 0), MOST_STRING)
    buffer = (ctypes.c_ushort * (size // 2 + 1))()
    get(*of, buffer, size)
    return bytes(buffer)[: max(0, size - 2)].decode("utf-16-le", "replace").strip()


def _is_blank(page: Any) -> bool:
    """Whether nothing at all is drawn on it."""
    import pypdfium2.raw as pdfium

    return int(pdfium.FPDFPage_CountObjects(page)) == 0


def _facts(page: Any) -> PageFacts:
    width, height = page.get_size()
    return PageFacts(width, height, has_picture(page, width, height))


def _notes(document: Any, broken: Sequence[int], *, is_whole: bool) -> list[str]:
    import pypdfium2.raw as pdfium

    found: list[str] = []
    if broken:
        found.append(LeftOut(f"Of this damaged PDF, page {page_list(broken)} could not be read."))
    files = document.count_attachments()
    if files:
        found.append(LeftOut(f"Files embedded in the PDF ({files}) were not read."))
    if pdfium.FPDFDoc_GetJavaScriptActionCount(document) > 0:
        found.append("The PDF holds scripts, which were not run.")
    if not is_whole:
        found.append(CUT_OFF)
    return found


def _by_pypdf(raw: bytes) -> Reading:
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError

    notes = [] if END in raw[-TAIL:] else [CUT_OFF]
    try:
        pages = list(PdfReader(io.BytesIO(raw)).pages)
        texts: list[str] = []
        left = unpackable(len(raw), MAX_TEXT)
        for page in pages:
            if left <= 0:
                break
            texts.append(page.extract_text().strip()[:left])
            left -= len(texts[-1])
        read = pages[: len(texts)]
        facts = [PageFacts(float(p.mediabox.width), float(p.mediabox.height), has_picture=False) for p in read]
    except (FileNotDecryptedError, DependencyError) as error:  # it lacks the password, or the cipher to try none
        raise UnreadableDocument(LOCKED) from error
    except (PyPdfError, *FAULTS) as error:
        raise UnreadableDocument(BROKEN) from error
    if not texts:
        raise UnreadableDocument(BROKEN)
    empty = [number for number, text in enumerate(texts, 1) if not text]
    return _reading(texts, [*notes, *_beyond(len(texts), len(pages))], empty, facts)


def _beyond(read: int, count: int) -> list[str]:
    """What is told of the pages behind those that were read."""
    if read == count:
        return []
    return [LeftOut(f"The text would be too long: page {page_list(range(read + 1, count + 1))} was left out.")]
