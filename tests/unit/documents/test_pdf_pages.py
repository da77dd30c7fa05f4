"""Pages of PDFs cut out as PDFs of their own, and which pages hold pictures (§14.13)."""

import io
from collections.abc import Callable
from typing import Any

import pypdfium2
import pytest
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, DecodedStreamObject, DictionaryObject, NameObject, NullObject, NumberObject
from reportlab.graphics import renderPDF
from reportlab.graphics.charts.barcharts import HorizontalBarChart, VerticalBarChart
from reportlab.graphics.charts.lineplots import LinePlot
from reportlab.graphics.charts.piecharts import Pie
from reportlab.graphics.shapes import Drawing
from reportlab.lib import colors
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import SimpleDocTemplate, Table, TableStyle

from gateway.documents.document import ReadOptions, UnreadableDocument
from gateway.documents.pdf import cut_out, has_picture, read
from tests.support.pdfs import encrypted, with_photos

TEXTS = [f"Page number {number} says word{number}" for number in range(1, 31)]


def texts(raw: bytes) -> list[str]:
    return [page.extract_text().strip() for page in PdfReader(io.BytesIO(raw)).pages]


@pytest.mark.long
@pytest.mark.parametrize("lock", [False, True])
def test_s14_13_the_same_pages_give_the_same_bytes(lock: bool) -> None:
    raw = encrypted(with_photos(TEXTS)) if lock else with_photos(TEXTS)
    cut = cut_out(raw, (7, 20))
    assert texts(cut) == [TEXTS[6], TEXTS[19]]
    assert cut == cut_out(raw, (7, 20))
    assert len(cut) < len(raw) / 10
    assert cut != cut_out(raw, (7, 21))


def linked(raw: bytes) -> bytes:
    """Each page has a link to each other one, and a field of one form."""
    writer, out = PdfWriter(clone_from=io.BytesIO(raw)), io.BytesIO()
    pages = list(writer.pages)
    fields = ArrayObject()
    form = writer._add_object(DictionaryObject({NameObject("/T"): NameObject("/all"), NameObject("/Kids"): fields}))
    for page in pages:
        box = ArrayObject(map(NumberObject, (10, 10, 90, 30)))
        widget = DictionaryObject({NameObject("/Rect"): box, NameObject("/Parent"): form})
        widget |= {NameObject("/Subtype"): NameObject("/Widget"), NameObject("/P"): page.indirect_reference}
        fields.append(writer._add_object(widget))
        links = [
            DictionaryObject(
                {
                    NameObject("/Subtype"): NameObject("/Link"),
                    NameObject("/Rect"): box,
                    NameObject("/Dest"): ArrayObject([other.indirect_reference, NameObject("/Fit")]),
                }
            )
            for other in pages
        ]
        page[NameObject("/Annots")] = ArrayObject([*map(writer._add_object, links), fields[-1]])
        page[NameObject("/B")] = ArrayObject([other.indirect_reference for other in pages])
    writer.write(out)
    return out.getvalue()


@pytest.mark.long
def test_s14_13_links_and_forms_bring_no_other_page() -> None:
    cut = cut_out(linked(with_photos(TEXTS)), (7,))
    reader = PdfReader(io.BytesIO(cut))
    assert texts(cut) == [TEXTS[6]]
    assert len(cut) < len(with_photos(TEXTS)) / 20
    annotations: list[Any] = list(reader.pages[0].annotations or ())
    assert [each.get_object()["/Subtype"] for each in annotations] == ["/Stamp"]


def resources_of(page: Any) -> Any:
    return page["/Resources"].get_object()


def sharing(raw: bytes, *, form: bool = False) -> bytes:
    """All pages have one list of pictures, those of the whole document; with a form that draws with its page's."""
    writer, out = PdfWriter(clone_from=io.BytesIO(raw)), io.BytesIO()
    drawn = DictionaryObject()
    for number, page in enumerate(writer.pages):
        own = resources_of(page)["/XObject"].get_object()
        contents = page.get_contents()
        assert contents is not None
        data = contents.get_data()
        for name in own:
            data = data.replace(name.encode() + b" ", b"/Im#2d%d " % number)
            drawn[NameObject(f"/Im-{number}")] = own.raw_get(name)
        stream = DecodedStreamObject()
        stream.set_data(data + (b"\n/Form Do" if form else b""))
        page[NameObject("/Contents")] = writer._add_object(stream)
    if form:
        inner = DecodedStreamObject()
        inner |= {
            NameObject("/Subtype"): NameObject("/Form"),
            NameObject("/BBox"): ArrayObject(map(NumberObject, (0, 0, 9, 9))),
        }
        inner.set_data(b"/Im-3 Do")
        drawn[NameObject("/Form")] = writer._add_object(inner)
    for page in writer.pages:
        resources_of(page)[NameObject("/XObject")] = drawn
    writer.write(out)
    return out.getvalue()


@pytest.mark.long
def test_s14_13_pictures_of_other_pages_stay_behind() -> None:
    """Many programs name the pictures of the whole document in each page; a form may draw with those of its page."""
    raw = sharing(with_photos(TEXTS))
    (cut,) = PdfReader(io.BytesIO(cut_out(raw, (7,)))).pages
    assert [image.name for image in cut.images] == ["Im-6.jpg"]
    raw = sharing(with_photos(TEXTS), form=True)
    (cut,) = PdfReader(io.BytesIO(cut_out(raw, (7,)))).pages
    assert len(resources_of(cut)["/XObject"]) == len(TEXTS) + 1


def test_s14_13_annotations_that_are_none_are_left_out() -> None:
    writer, out = PdfWriter(clone_from=io.BytesIO(with_photos(TEXTS[:1]))), io.BytesIO()
    writer.pages[0][NameObject("/Annots")] = ArrayObject([NullObject(), NumberObject(7)])
    writer.write(out)
    assert texts(cut_out(out.getvalue(), (1,))) == TEXTS[:1]


def test_s14_13_a_filled_form_stays_filled() -> None:
    """Its values are drawn by its fields alone."""
    out = io.BytesIO()
    canvas = Canvas(out)
    canvas.acroForm.textfield(name="town", value="Marlow", x=100, y=700, width=200, height=20)
    canvas.showPage()
    canvas.save()
    with pypdfium2.PdfDocument(cut_out(out.getvalue(), (1,))) as document:
        drawn = document[0].render(scale=1).to_numpy()
    inside = drawn[842 - 720 : 842 - 700, 100:300]
    assert inside.min() < 100
    assert len({*inside[10, 20:].flatten().tolist()}) > 2


@pytest.mark.parametrize("raw", [b"no pdf", b"%PDF-1.4 rubbish", with_photos(["x"])], ids=["text", "rubbish", "short"])
def test_s14_13_what_cannot_be_cut_says_so(raw: bytes) -> None:
    with pytest.raises(UnreadableDocument):
        cut_out(raw, (1, 2))


@pytest.mark.long
def test_s14_13_what_was_read_of_pages() -> None:
    reading = read(with_photos(TEXTS), ReadOptions()).of_pages((7, 20))
    assert TEXTS[6] in reading.text
    assert TEXTS[19] in reading.text
    assert "word8" not in reading.text
    assert len(reading.pages) == 2


def charted(kind: type) -> Callable[[Canvas], None]:
    def draw(canvas: Canvas) -> None:
        chart = kind()
        chart.data = [3, 9, 5] if kind is Pie else [[(0, 1), (1, 4), (2, 2)]] if kind is LinePlot else [[5, 9, 2, 7]]
        chart.width = chart.height = 200
        drawing = Drawing(300, 300)
        drawing.add(chart)
        renderPDF.draw(drawing, canvas, 50, 400)

    return draw


def small(canvas: Canvas) -> None:
    """Bullets, a rule and a box with rounded corners."""
    for number in range(8):
        canvas.circle(50, 700 - 20 * number, 3, fill=1)
    canvas.line(50, 500, 500, 500)
    canvas.roundRect(50, 300, 300, 100, 8)


def page_of(draw: Callable[[Canvas], None]) -> bytes:
    out = io.BytesIO()
    canvas = Canvas(out)
    draw(canvas)
    canvas.showPage()
    canvas.save()
    return out.getvalue()


def table() -> bytes:
    out = io.BytesIO()
    rows = [[f"r{row}c{column}" * (column + 1) for column in range(4)] for row in range(30)]
    grounds = ("ROWBACKGROUNDS", (0, 1), (-1, -1), [colors.white, colors.lightgrey])
    style = TableStyle([("GRID", (0, 0), (-1, -1), 0.5, colors.black), grounds])
    SimpleDocTemplate(out).build([Table(rows, style=style)])
    return out.getvalue()


@pytest.mark.parametrize(
    ("raw", "holds"),
    [
        *((page_of(charted(kind)), True) for kind in (Pie, LinePlot, VerticalBarChart, HorizontalBarChart)),
        (page_of(small), False),
        (table(), False),
        (page_of(lambda canvas: canvas.drawString(50, 500, "words")), False),
    ],
    ids=["pie", "line", "bars", "level-bars", "bullets", "table", "words"],
)
def test_s14_13_a_chart_is_a_picture(raw: bytes, holds: bool) -> None:
    """Charts are drawn with paths; so are tables, rules and boxes."""
    with pypdfium2.PdfDocument(raw) as document:
        page = document[0]
        assert has_picture(page, *page.get_size()) is holds
