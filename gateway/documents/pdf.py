"""PDF files: text page by page, and the facts of the pages; read by PDFium, or by pypdf if PDFium cannot open them."""

import base64
import ctypes
import io
import re
from collections.abc import Sequence
from typing import Any

import pypdfium2
import pypdfium2.raw as pdfium

from gateway.core.types import places
from gateway.documents.document import LeftOut, PageFacts, Reading, ReadOptions, UnreadableDocument, unpackable
from gateway.documents.ocr import recognized
from gateway.documents.sandbox_worker import tell_progress

# Pages of a PDF, cut out as a PDF of their own, by pypdf (guarantee §14.13). The same pages give the same bytes.

PDF_LEFT_OUT = ("/B", "/AA", "/StructParents", "/PieceInfo", "/Thumb", "/Metadata", "/Tabs", "/Annots")
"""Entries of a page that no reader of it sees, or that would bring other pages along."""
SHOWN_OF_ANNOTATION = ("/Type", "/Subtype", "/Rect", "/AP", "/AS", "/F", "/C", "/Contents")
"""An annotation's looks. Its links, parent and page are left out: they lead to all other pages."""
FIELD, STAMP = "/Widget", "/Stamp"
"""A form's field becomes a stamp: without its form not every program would draw it."""
PDF_HIDDEN_ANNOTATIONS = ("/Link", "/Popup")
MAX_ANNOTATIONS = 500
PDF_NAME = re.compile(rb"/([^\x00\t\n\x0c\r ()<>\[\]{}/%]+)")
"""A name in a page's content stream."""
PDF_NAME_ESCAPE = re.compile(rb"#([0-9A-Fa-f]{2})")
PDF_PAGES_BROKEN = "its pages cannot be cut out"
PYPDF_FAULTS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RuntimeError,
    ArithmeticError,
    AssertionError,
    OSError,
)
"""What pypdf raises for broken files, beside its own exceptions."""


def _library() -> Any:
    """Imports pypdf, which few PDFs need: PDFium reads most."""
    import pypdf.generic

    return pypdf


def cut_out(raw: bytes, numbers: Sequence[int]) -> bytes:
    """Cuts out the pages with these numbers, from 1, as a PDF. Filled forms and comments are drawn as they were;
    nothing in it leads anywhere.
    Raises UnreadableDocument: pypdf cannot read it, or it has no such page."""
    pypdf = _library()
    try:
        reader, writer = pypdf.PdfReader(io.BytesIO(raw)), pypdf.PdfWriter()
        for number in numbers:
            page = reader.pages[number - 1]
            _leave_out_unused(page)
            _add(writer, page)
        out = io.BytesIO()
        writer.write(out)
    except (pypdf.errors.PyPdfError, *PYPDF_FAULTS) as error:
        raise UnreadableDocument(PDF_PAGES_BROKEN) from error
    return out.getvalue()


def _leave_out_unused(page: Any) -> None:
    """Removes images and forms that the page does not draw: many programs name those of the whole document in each
    page. All stay if something without resources of its own, which draws with its page's, may need them."""
    pypdf = _library()
    generic = pypdf.generic
    resources = _object(page.get("/Resources"))
    drawn = _object(resources.get("/XObject")) if isinstance(resources, generic.DictionaryObject) else None
    contents = page.get_contents() if isinstance(drawn, generic.DictionaryObject) else None
    if contents is None or not isinstance(drawn, generic.DictionaryObject):
        return
    try:
        named = {PDF_NAME_ESCAPE.sub(_decoded, name) for name in PDF_NAME.findall(contents.get_data())}
    except (pypdf.errors.PyPdfError, *PYPDF_FAULTS):
        return
    used = {name: each for name, each in drawn.items() if name[1:].encode("utf-8", "surrogateescape") in named}
    if len(used) == len(drawn) or any(_draws_with_its_page(_object(each)) for each in used.values()):
        return
    fonts = _object(resources.get("/Font"))
    if isinstance(fonts, generic.DictionaryObject) and any(_is_drawn(_object(font)) for font in fonts.values()):
        return
    kept = generic.DictionaryObject({generic.NameObject("/XObject"): generic.DictionaryObject(used)})
    page[generic.NameObject("/Resources")] = generic.DictionaryObject({**resources, **kept})


def _object(value: Any) -> Any:
    return value.get_object() if value is not None else None


def _decoded(code: re.Match[bytes]) -> bytes:
    return bytes((int(code[1], 16),))


def _draws_with_its_page(each: Any) -> bool:
    """Returns whether an object is a form without resources of its own."""
    return isinstance(each, dict) and each.get("/Subtype") == "/Form" and "/Resources" not in each


def _is_drawn(font: Any) -> bool:
    """Returns whether a font consists of drawings and has no resources of its own."""
    return isinstance(font, dict) and font.get("/Subtype") == "/Type3" and "/Resources" not in font


def _add(writer: Any, page: Any) -> None:
    generic = _library().generic
    added = writer.add_page(page, excluded_keys=PDF_LEFT_OUT)
    annotations = page.get("/Annots")
    annotations = annotations.get_object() if annotations is not None else ()
    found = [each.get_object() for each in list(annotations)[:MAX_ANNOTATIONS]]
    drawn = [_looks(each, generic) for each in found if isinstance(each, generic.DictionaryObject)]
    if any(drawn):
        cloned = [writer._add_object(each.clone(writer)) for each in drawn if each]
        added[generic.NameObject("/Annots")] = generic.ArrayObject(cloned)


def _looks(annotation: Any, generic: Any) -> Any:
    """Returns the visible part of an annotation; None if nothing is visible."""
    if annotation.get("/Subtype") in PDF_HIDDEN_ANNOTATIONS:
        return None
    name = generic.NameObject
    looks = generic.DictionaryObject({name(key): annotation[key] for key in SHOWN_OF_ANNOTATION if key in annotation})
    if annotation.get("/Subtype") == FIELD:
        looks[name("/Subtype")] = name(STAMP)
    return looks


# Whether a page of a PDF holds a picture: an image, or a drawing such as a chart, which is made of paths.

PICTURE_SHARE = 0.02
"""Share of a page's area: a smaller picture does not count."""
MAX_OBJECTS = 500
"""Images and paths of a page that are examined."""
MAX_SEGMENTS = 2000
"""Segments of all paths of a page together: they take some milliseconds."""
MIN_SIDE = 15.0
"""Points of a path's shorter side; what is smaller is a bullet or an icon."""
SLANTED_SHARE = 0.5
"""Share of a path's width that its curves and slanted lines must cover: a box's rounded corners cover less."""
MIN_SMALL = 50
"""Small paths with curves or slanted lines that make a drawing together, such as a map, or a text made of outlines."""
MIN_BARS = 3
"""Filled boxes of different lengths that begin at one line: bars of a chart. Those of a table are of one length."""
MAX_BAR = 0.7
"""Share of a page's width; a longer box is the background of a heading or a row."""
LEVEL = 0.1
"""Points by which the ends of a level line may differ."""

Bounds = tuple[float, float, float, float]


def has_picture(page: Any, width: float, height: float) -> bool:
    """Returns whether an image, or a drawing, fills a notable part of the page.
    `page`: PDFium's; `width`, `height`: its size in points."""
    least = PICTURE_SHARE * width * height
    left_to_see = MAX_SEGMENTS
    small: list[Bounds] = []
    bars: dict[tuple[str, int], set[int]] = {}
    kinds = [pdfium.FPDF_PAGEOBJ_IMAGE, pdfium.FPDF_PAGEOBJ_PATH]
    for number, each in enumerate(page.get_objects(filter=kinds, max_depth=3)):
        if number == MAX_OBJECTS:
            break
        left, bottom, right, top = bounds = each.get_bounds()
        if each.type == pdfium.FPDF_PAGEOBJ_IMAGE:
            if (right - left) * (top - bottom) > least:
                return True
            continue
        slanted, seen = _slanted_width(each.raw, left_to_see)
        left_to_see -= seen
        if slanted and min(right - left, top - bottom) >= MIN_SIDE and slanted >= SLANTED_SHARE * (right - left):
            if (right - left) * (top - bottom) > least:
                return True
        elif slanted:
            small.append(bounds)
            if len(small) >= MIN_SMALL and _area(small) > least:
                return True
        elif right - left < width * MAX_BAR and _is_filled(each.raw):
            upright = bars.setdefault(("bottom", round(bottom)), set())
            level = bars.setdefault(("left", round(left)), set())
            upright.add(round(top - bottom))
            level.add(round(right - left))
            if max(len(upright), len(level)) >= MIN_BARS:
                return True
    return False


def _slanted_width(path: Any, most: int) -> tuple[float, int]:
    """Returns the horizontal extent, in points, of a path's curves and slanted lines, and how many of its segments were
    examined: at most so many."""
    x, y = ctypes.c_float(), ctypes.c_float()
    before: tuple[float, float] | None = None
    found, number = 0.0, 0
    for number in range(min(most, max(0, pdfium.FPDFPath_CountSegments(path)))):
        segment = pdfium.FPDFPath_GetPathSegment(path, number)
        if not pdfium.FPDFPathSegment_GetPoint(segment, x, y):
            break
        here = (x.value, y.value)
        kind = pdfium.FPDFPathSegment_GetType(segment)
        if before is not None and kind != pdfium.FPDF_SEGMENT_MOVETO:
            aside, up = abs(here[0] - before[0]), abs(here[1] - before[1])
            if kind == pdfium.FPDF_SEGMENT_BEZIERTO or (aside > LEVEL and up > LEVEL):
                found += aside
        before = here
    return found, number


def _is_filled(path: Any) -> bool:
    mode, stroke = ctypes.c_int(), pdfium.FPDF_BOOL()
    return bool(pdfium.FPDFPath_GetDrawMode(path, mode, stroke)) and mode.value != pdfium.FPDF_FILLMODE_NONE


def _area(bounds: list[Bounds]) -> float:
    """Returns the area of the box around all of them."""
    lefts, bottoms, rights, tops = zip(*bounds, strict=True)
    return float((max(rights) - min(lefts)) * (max(tops) - min(bottoms)))


LOCKED = "it is protected by a password; save it without one and send it again"
MAX_PDF_TEXT = 64 * 2**20
"""Characters of one PDF, a small one fewer (`document.unpackable`); pages beyond them are left out."""
PDF_CUT_OFF = LeftOut("The PDF is cut off; what could be found of it was read.")
END, PDF_TAIL_BYTES = b"%%EOF", 2048
"""The mark at the end of a PDF, within so many bytes."""
CATALOG = re.compile(rb"(\d{1,9})\s+(\d{1,5})\s+obj\b[^>]{0,400}?/Type\s{0,9}/Catalog\b")
MENDED = b"\nendobj\ntrailer\n<< /Root %b %b R >>\nstartxref\n0\n%b\n"
PDF_BROKEN = "it is no readable PDF"
MAX_STRING = 2**20
"""Bytes of a field's value or a comment; a longer one is left out."""
POINTS = (612.0, 792.0)
"""The size of a page whose own is not known: US letter."""
BROKEN_WORD = re.compile("[\x02\ufffe]\n?")
"""A hyphen at the end of a line, as PDFium writes it."""
PDF_CONTROL_CHAR = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def read(raw: bytes, options: ReadOptions) -> Reading:
    """Reads or cuts out pages. Raises UnreadableDocument: it is no PDF, or needs a password, or lacks such pages."""
    if options.cut:
        return Reading(base64.b64encode(cut_out(raw, options.cut)).decode("ascii"))
    if options.careful:
        return _by_pypdf(raw)
    is_whole = END in raw[-PDF_TAIL_BYTES:]
    most = unpackable(len(raw), MAX_PDF_TEXT)
    return _opened(raw if is_whole else _mended(raw), options, most, is_whole=is_whole) or _by_pypdf(raw)


def _opened(raw: bytes, options: ReadOptions, most: int, *, is_whole: bool) -> Reading | None:
    """Reads the PDF with PDFium; None if PDFium finds no page."""
    try:
        with pypdfium2.PdfDocument(raw) as document:
            return _by_pdfium(document, options, most, is_whole=is_whole) if len(document) else None
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise UnreadableDocument(LOCKED) from error
        return None


def _mended(raw: bytes) -> bytes:
    """Returns a PDF that is cut off with an end that names its catalog, so that PDFium finds the rest itself."""
    found = list(CATALOG.finditer(raw))
    return raw + MENDED % (*found[-1].groups(), END) if found else raw


def _by_pdfium(document: Any, options: ReadOptions, left: int, *, is_whole: bool) -> Reading | None:
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
    text = "\n\n".join(
        f"{places.marker('page', str(number))}\n{places.plain_lines(text)}" for number, text in enumerate(texts, 1)
    )
    if empty:
        pictures = all(pages[number - 1].has_picture for number in empty) if pages else False
        why = " (they are pictures)" if pictures else ""
        notes = [*notes, places.no_text_note(empty, why)]
    return Reading(text, tuple(notes), tuple(empty), tuple(pages))


def _text(document: Any, page: Any) -> str:
    text = page.get_textpage().get_text_range(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    text = PDF_CONTROL_CHAR.sub("", BROKEN_WORD.sub("", text)).strip()
    return "\n".join(each for each in (text, *_annotated(document, page)) if each)


def _annotated(document: Any, page: Any) -> list[str]:
    """Returns values of form fields, and comments."""
    found: list[str] = []
    for number in range(min(MAX_ANNOTATIONS, max(0, pdfium.FPDFPage_GetAnnotCount(page)))):
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
    """Returns a string of PDFium's: its size is queried first; it is UTF-16 with a zero at its end."""
    size = min(get(*of, None, 0), MAX_STRING)
    buffer = (ctypes.c_ushort * (size // 2 + 1))()
    get(*of, buffer, size)
    return bytes(buffer)[: max(0, size - 2)].decode("utf-16-le", "replace").strip()


def _is_blank(page: Any) -> bool:
    """Returns whether nothing at all is drawn on the page."""
    return int(pdfium.FPDFPage_CountObjects(page)) == 0


def _facts(page: Any) -> PageFacts:
    width, height = page.get_size()
    return PageFacts(width, height, has_picture(page, width, height))


def _notes(document: Any, broken: Sequence[int], *, is_whole: bool) -> list[str]:
    found: list[str] = []
    if broken:
        found.append(LeftOut(f"Of this damaged PDF, page {places.page_list(broken)} could not be read."))
    files = document.count_attachments()
    if files:
        found.append(LeftOut(f"Files embedded in the PDF ({files}) were not read."))
    if pdfium.FPDFDoc_GetJavaScriptActionCount(document) > 0:
        found.append("The PDF holds scripts, which were not run.")
    if not is_whole:
        found.append(PDF_CUT_OFF)
    return found


def _by_pypdf(raw: bytes) -> Reading:
    pypdf = _library()
    notes = [] if END in raw[-PDF_TAIL_BYTES:] else [PDF_CUT_OFF]
    try:
        pages = list(pypdf.PdfReader(io.BytesIO(raw)).pages)
        texts: list[str] = []
        left = unpackable(len(raw), MAX_PDF_TEXT)
        for page in pages:
            if left <= 0:
                break
            texts.append(page.extract_text().strip()[:left])
            left -= len(texts[-1])
        read = pages[: len(texts)]
        facts = [PageFacts(float(p.mediabox.width), float(p.mediabox.height), has_picture=False) for p in read]
    except (pypdf.errors.FileNotDecryptedError, pypdf.errors.DependencyError) as error:
        # It lacks the password, or the cipher to try none.
        raise UnreadableDocument(LOCKED) from error
    except (pypdf.errors.PyPdfError, *PYPDF_FAULTS) as error:
        raise UnreadableDocument(PDF_BROKEN) from error
    if not texts:
        raise UnreadableDocument(PDF_BROKEN)
    empty = [number for number, text in enumerate(texts, 1) if not text]
    return _reading(texts, [*notes, *_beyond(len(texts), len(pages))], empty, facts)


def _beyond(read: int, count: int) -> list[str]:
    """Returns the note on the pages after those that were read."""
    if read == count:
        return []
    return [LeftOut(f"The text would be too long: page {places.page_list(range(read + 1, count + 1))} was left out.")]
