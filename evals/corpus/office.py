"""Sheets, slides and PDFs, made by openpyxl, python-pptx and reportlab."""

import io
import random
from datetime import date, datetime

from evals.corpus import flat
from evals.corpus.facts import Fact, Place, sections
from evals.corpus.samples import Sample
from tests.support.documents import prose

SHOWN = Place("sheet", "Discounts", 3)
OFFICE = "application/vnd.openxmlformats-officedocument."
MADE = datetime(2024, 5, 1)  # noqa: DTZ001 - openpyxl takes none with a zone


def samples() -> list[Sample]:
    """One of each."""
    return [workbook(), slides(), photos()]


def workbook() -> Sample:
    """One sheet of prose, one with merged cells and dates before its rows, one of formatted numbers, one hidden."""
    from openpyxl import Workbook

    book = Workbook()
    notes = book.active
    assert notes is not None
    notes.title = "Notes"
    for said in prose(31, 200).split(". "):
        notes.append([said])
    sheet = book.create_sheet("Depot 2")
    sheet["A1"] = "What is kept where"
    sheet.merge_cells("A1:E1")
    head, rows = flat.stock(31)
    sheet.append([])
    sheet.append(head)
    for row in rows:
        sheet.append([row[0], row[1], int(row[2]), float(row[3]), date.fromisoformat(row[4])])
    discounts = book.create_sheet("Discounts")
    for line in (("Pier", "Discount", "Balance"), ("North pier", 0.05, 120), ("South pier", 0.0725, -1840.5)):
        discounts.append(line)
        discounts.cell(discounts.max_row, 2).number_format = "0.00%"
        discounts.cell(discounts.max_row, 3).number_format = '#,##0.00\\ "€";(#,##0.00\\ "€")'
    shown = Fact("cell", "Which discount has the south pier?", 'South pier,7.25%,"(1,840.50 €)"', SHOWN)
    hidden = book.create_sheet("Old")
    hidden.sheet_state = "hidden"
    hidden.append(["nothing", "of", "use"])
    book.properties.creator = "A clerk"
    book.properties.created = book.properties.modified = MADE
    out = io.BytesIO()
    book.save(out)
    return Sample(
        "depot.xlsx",
        OFFICE + "spreadsheetml.sheet",
        out.getvalue(),
        (*flat.stock_facts("Depot 2", rows, 4), flat.day_fact("Depot 2", rows, 4), shown),
    )


def slides() -> Sample:
    """Eighteen slides with bullets, a table and notes."""
    from pptx import Presentation
    from pptx.util import Inches

    deck = Presentation()
    told = sections(32, 18, 100)
    for number, each in enumerate(told):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = each.title
        slide.placeholders[1].text = f"{each.before}\n{each.sentence}\n{each.after}"
        if number == 4:
            cells = slide.shapes.add_table(2, 2, Inches(1), Inches(5), Inches(4), Inches(1)).table
            cells.cell(0, 0).text, cells.cell(0, 1).text = "Lamp", "Oil"
            cells.cell(1, 0).text, cells.cell(1, 1).text = "north", "colza"
        slide.notes_slide.notes_text_frame.text = f"Pause after sentence {number + 1}."
    deck.core_properties.created = deck.core_properties.modified = MADE
    out = io.BytesIO()
    deck.save(out)
    media = OFFICE + "presentationml.presentation"
    return Sample("deck.pptx", media, out.getvalue(), tuple(flat.asked(told, "bullet", "slide")))


def photos(pages: int = 16, words: int = 180, edge: int = 48) -> Sample:
    """A PDF with text and a picture of noise on each page."""
    told = sections(33, min(pages, 20), words)
    raw = photo_pdf([each.text for each in told], edge)
    return Sample("photos.pdf", "application/pdf", raw, tuple(flat.asked(told, "sentence", "page")))


def photo_pdf(texts: list[str], edge: int) -> bytes:
    """A page for each text, with a picture of `edge` times `edge` pixels that hardly compresses."""
    from PIL import Image
    from reportlab import rl_config
    from reportlab.lib.pagesizes import A4
    from reportlab.lib.utils import ImageReader, simpleSplit
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    rl_config.useA85 = 0  # to write streams as text takes longer than all else
    canvas = Canvas(out, pagesize=A4, invariant=True)
    for number, text in enumerate(texts):
        noise = random.Random(number).randbytes(edge * edge * 3)
        jpeg = io.BytesIO()
        Image.frombytes("RGB", (edge, edge), noise).save(jpeg, "JPEG", quality=80)
        canvas.drawImage(ImageReader(jpeg), 60, 60, 240, 240)
        line = canvas.beginText(60, 780)
        for part in simpleSplit(text, "Helvetica", 11, 470):
            line.textLine(part)
        canvas.drawText(line)
        canvas.showPage()
    canvas.save()
    return out.getvalue()
