"""Office formats: what is read of each, and the place of it (guarantee §14.10); of files that are broken or made to do
harm a document that cannot be read, or a reading, within bounds."""

import datetime
import io
import random
import zipfile
from contextlib import suppress

import pytest
from openpyxl import Workbook
from openpyxl.chart import BarChart
from openpyxl.comments import Comment
from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from gateway.core.types.places import TextPlaces
from gateway.documents.document import DocumentFile, Reading, UnreadableDocument, read
from gateway.documents.packages import PROTECTED, ZipPackage
from gateway.documents.process import DocumentReader
from gateway.documents.xlsx import NumberFormat, formatted_cells
from tests.support.answers import there
from tests.support.office import MAKERS, docx_of, epub, odf, ole, paragraph, relations, rtf, zipped

FACT = "The keeper of lamp 7 is called Name49x"
PLACES = {
    "xlsx": "'Late sheet'!A47:C47",
    "pptx": "slide 8",
    "docx": "page 5",
    "odt": "page 3",
    "odp": "slide 4",
    "ods": "Two!A6:B6",
    "epub": "chapter 3",
    "rtf": "line 3",
}


def reading(kind: str, raw: bytes) -> Reading:
    return read(DocumentFile(raw, kind))


@pytest.mark.parametrize("kind", MAKERS)
def test_s14_10_a_fact_on_a_late_page_sheet_or_slide_is_read_with_its_place(kind: str) -> None:
    text = reading(kind, MAKERS[kind](FACT)).text
    assert text.count(FACT) == 1
    assert TextPlaces(text).of(text.index(FACT), text.index(FACT) + len(FACT)) == PLACES[kind]


def saved(book: Workbook) -> bytes:
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def test_cells_are_read_as_people_see_them() -> None:
    book = Workbook()
    sheet = book.active
    sheet.title = "Values"
    sheet["B2"], sheet["C2"], sheet["D2"], sheet["E2"] = 3, 0.1 + 0.2, True, "a,b\nc"
    sheet["B3"], sheet["C3"] = datetime.date(2024, 3, 1), datetime.datetime(2024, 3, 1, 12, 30)  # noqa: DTZ001 - cells have no zone
    sheet["D3"], sheet["E3"] = datetime.time(3, 4), datetime.timedelta(hours=30)
    sheet["B4"] = "#REF!"
    sheet["B4"].data_type = "e"
    sheet["C4"] = 1e20
    sheet["B8"], sheet["C8"] = "other table", -0.5
    sheet["C8"].comment = Comment("why  half?", "Ann")
    text = reading("xlsx", saved(book)).text
    assert text.split("\n\n")[0].splitlines() == [
        "[sheet Values B2:E4]",
        '3,0.3,TRUE,"a,b c"',
        "2024-03-01,2024-03-01 12:30:00,03:04:00,30:00:00",
        "#REF!,1e+20,,",
    ]
    assert text.split("\n\n")[1].splitlines() == ["[sheet Values B8:C8]", "other table,-0.5"]
    assert "Comment on C8: why half?" in text


def test_numbers_and_texts_stand_as_their_formats_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    book = Workbook()
    sheet = book.active
    sheet.title = "Shown"
    cells = {
        "A1": ("Share", '"Ref "@'),
        "B1": (0.25, "0%"),
        "C1": (0.2537, "0%"),
        "D1": (-1234.5, "#,##0.00;(#,##0.00)"),
    }
    cells |= {"A2": (1234.5, "[$€-407]#,##0.00"), "C2": (7, "General"), "D2": (datetime.date(2024, 3, 1), "dd/mm/yy")}
    for name, (value, code) in cells.items():
        sheet[name] = value
        sheet[name].number_format = code
    rows = reading("xlsx", saved(book)).text.splitlines()
    assert rows == ["[sheet Shown A1:D2]", 'Ref Share,25%,25% (0.2537),"(1,234.50)"', '"€1,234.50",,7,2024-03-01']
    monkeypatch.setattr("gateway.documents.xlsx.MAX_FORMATTED", 2)
    found = reading("xlsx", saved(book))
    assert found.text.splitlines()[1] == "Ref Share,25%,0.2537,-1234.5"
    assert found.notes == ("Beyond 2 cells with formats, numbers stand as they are stored.",)


@pytest.mark.parametrize("cell", ['<c r="B3" s="1" t="n">', '<c s="1" r="B3">', '<x:c r="B3" xml:space="" s="1"/>'])
@pytest.mark.parametrize("piece", range(1, 60, 7))
def test_a_cells_format_is_found_however_its_tag_is_written(
    cell: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a piece ends amid a tag."""
    monkeypatch.setattr("gateway.documents.xlsx.SCANNED_PIECE", piece)
    sheet = f'<row r="3"><c r="A3" s="2"><v>1</v></c>{cell}<v>1</v></c><c r="C3"/><cs r="D3" s="1"/></row>'
    form = there(NumberFormat.of("0%"))
    assert list(formatted_cells(ZipPackage(zipped({"sheet": sheet})), "sheet", {1: form})) == [(2, 1, form)]


def test_what_is_drawn_on_a_sheet_is_read_at_its_cell() -> None:
    book = Workbook()
    book.active["A1"] = 1
    chart = BarChart()
    chart.title = "Growth"
    book.active.add_chart(chart, "B3")
    with zipfile.ZipFile(io.BytesIO(saved(book))) as archive:
        files: dict[str, str | bytes] = {name: archive.read(name) for name in archive.namelist()}
    name = "xl/drawings/drawing1.xml"
    box = (
        '<x:twoCellAnchor xmlns:x="urn:x" xmlns:a="urn:a"><x:from><x:col>2</x:col><x:row>4</x:row></x:from><x:grpSp>'
        "<x:sp><x:txBody><a:p><a:r><a:t>Approved by Ann</a:t></a:r></a:p></x:txBody></x:sp></x:grpSp></x:twoCellAnchor>"
    )
    drawing = bytes(files[name]).decode()  # type: ignore[arg-type]
    at = drawing.rindex("</")
    text = reading("xlsx", zipped({**files, name: drawing[:at] + box + drawing[at:]})).text
    assert "Text box at C5: Approved by Ann" in text
    assert "Chart at B3:\nChart: Growth" in text
    broken = reading("xlsx", zipped({**files, name: drawing[:at]}))
    assert broken.text.endswith("1")
    assert broken.notes == ("What is drawn on sheet Sheet could not be read.",)


def test_notes_tell_what_a_sheet_does_not_show() -> None:
    book = Workbook()
    sheet = book.active
    sheet["A1"], sheet["A2"] = "head", "=SUM(B1:B9)"
    sheet.merge_cells("A1:C1")
    book.create_sheet("Secret").append(["x"])
    book["Secret"].sheet_state = "hidden"
    notes = " ".join(reading("xlsx", saved(book)).notes)
    assert "merged cells, with the value in the first of each: A1:C1." in notes
    assert "formulas without stored values" in notes
    assert "Hidden in the program: sheet Secret." in notes


def test_a_spreadsheet_that_is_too_long_is_read_to_a_row_that_its_note_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.documents.xlsx.MAX_TEXT_BYTES", 500)
    found = reading("xlsx", MAKERS["xlsx"](FACT))
    assert len(found.text) < 600
    assert found.notes[0].startswith("Rows of sheet Start from ")
    assert found.notes[1] == "Sheet Costs and those after it were left out: the text would be too long."


def test_an_export_named_xls_is_read_as_what_it_is() -> None:
    assert reading("xls", b"a\tb\n1\t2").text == "a\tb\n1\t2"
    assert "1\t2" in reading("xls", b"<table><tr><td>1</td><td>2</td></tr></table>").text
    with pytest.raises(UnreadableDocument):
        reading("xls", b"\1\2\3")


def test_slides_keep_tables_charts_pictures_and_tell_which_are_hidden() -> None:
    show = Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "Results"
    frame = slide.placeholders[1].text_frame
    frame.text = "Upper"
    frame.add_paragraph().text = "Lower"
    frame.paragraphs[1].level = 1
    box = (Inches(1), Inches(1), Inches(2), Inches(1))
    table = slide.shapes.add_table(2, 2, *box).table
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        table.cell(row, column).text = f"c{row}{column}"
    data = CategoryChartData()  # type: ignore[no-untyped-call]
    data.categories = ["Q1", "Q2"]
    data.add_series("Sales", (1.5, 2))  # type: ignore[no-untyped-call]
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *box, data)
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(*box).text_frame.text = "in a group"
    group.shapes[0]._element.nvSpPr.cNvPr.set("descr", "a lighthouse")
    slide._element.set("show", "0")
    buffer = io.BytesIO()
    show.save(buffer)
    found = reading("pptx", buffer.getvalue())
    assert found.text.startswith("[slide 1]\n# Results\n\nUpper\n  - Lower\n\nc00\tc01\nc10\tc11")
    for each in ("in a group", "(Picture: a lighthouse)", "Sales: Q1 = 1.5; Q2 = 2"):
        assert each in found.text
    assert found.notes == ("Hidden in the presentation: slides 1.",)


NUMBERING = """<w:numbering xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">
<w:abstractNum w:abstractNumId="1"><w:lvl w:ilvl="0"><w:start w:val="4"/><w:numFmt w:val="decimal"/>
<w:lvlText w:val="%1."/></w:lvl><w:lvl w:ilvl="1"><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="%1.%2)"/></w:lvl>
</w:abstractNum><w:num w:numId="7"><w:abstractNumId w:val="1"/></w:num></w:numbering>"""


def numbered(text: str, level: int) -> str:
    return paragraph(text, f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="7"/></w:numPr>')


def test_docx_numbers_its_lists() -> None:
    body = numbered("Scope", 0) + numbered("one", 1) + numbered("two", 1) + numbered("Term", 0) + numbered("x", 1)
    text = reading("docx", docx_of(body, {"word/numbering.xml": NUMBERING})).text
    assert text.split("\n\n") == ["4. Scope", "4.a) one", "4.b) two", "5. Term", "5.a) x"]


def test_docx_keeps_footnotes_comments_headers_and_boxes_and_leaves_deletions_out() -> None:
    word = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    box = "<w:r><w:txbxContent><w:p><w:r><w:t>boxed</w:t></w:r></w:p></w:txbxContent></w:r>"
    body = (
        "<w:p><w:r><w:t>Kept</w:t><w:footnoteReference w:id='9'/></w:r><w:del><w:r><w:delText>gone</w:delText></w:r>"
        f"</w:del><w:r><w:commentReference w:id='3'/></w:r>{box}</w:p>"
    )
    files: dict[str, str | bytes] = {
        "word/footnotes.xml": f"<w:footnotes {word}><w:footnote w:id='9'>{paragraph('small')}</w:footnote>"
        "</w:footnotes>",
        "word/comments.xml": f"<w:comments {word}><w:comment w:id='3' w:author='Ann'>{paragraph('why?')}</w:comment>"
        "</w:comments>",
        "word/header1.xml": f"<w:hdr {word}>{paragraph('Draft')}</w:hdr>",
        "word/_rels/document.xml.rels": relations(("r1", "header", "header1.xml", False)),
    }
    text = reading("docx", docx_of(body, files)).text
    assert text.split("\n\n") == ["(Header: Draft)", "Kept", "(Footnote 1: small)", "(Comment by Ann: why?)", "boxed"]


def test_docx_keeps_columns_under_heads_that_take_several_and_tabs_to_a_position() -> None:
    def cells(*said: str, span: str = "") -> str:
        properties = f"<w:tcPr>{span}</w:tcPr>"
        return "".join(f"<w:tc>{properties}{paragraph(each)}</w:tc>" for each in said)

    head = cells("Area") + cells("2023", "2024", span="<w:gridSpan w:val='2'/>")
    body = f"<w:tbl><w:tr>{head}</w:tr><w:tr>{cells('North', '1', '2', '3', '4')}</w:tr></w:tbl>"
    tabbed = "<w:p><w:r><w:t>Left</w:t><w:ptab/><w:t>Right</w:t></w:r></w:p>"
    text = reading("docx", docx_of(body + tabbed)).text
    assert text == "Area\t2023\t\t2024\t\nNorth\t1\t2\t3\t4\n\nLeft\tRight"


def test_docx_reads_boxes_diagrams_and_charts_once_wherever_they_stand() -> None:
    box = "<w:txbxContent><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:txbxContent>"
    choice = f"<a:Choice>{box}</a:Choice><a:Fallback><w:pict>{box}</w:pict></a:Fallback>"
    both = f'<w:p><w:r><a:AlternateContent xmlns:a="urn:a">{choice}</a:AlternateContent></w:r></w:p>'
    vml = f'<w:p><w:r><w:pict><v:textbox xmlns:v="urn:v">{box.format("In VML")}</v:textbox></w:pict></w:r></w:p>'
    cells = f"<w:tbl><w:tr><w:tc>{both.format('In a cell', 'In a cell')}</w:tc></w:tr></w:tbl>"
    named = '<x:relIds xmlns:x="urn:x" r:dm="d"/><x:chart xmlns:x="urn:x" r:id="c"/>'
    drawn = f"<w:p><w:r><w:drawing>{named}</w:drawing></w:r></w:p>"
    files: dict[str, str | bytes] = {
        "word/_rels/document.xml.rels": relations(
            ("d", "diagramData", "diagrams/data1.xml", False), ("c", "chart", "charts/chart1.xml", False)
        ),
        "word/diagrams/data1.xml": "<pt><t><p><r><t>Step one</t></r></p></t></pt>",
        "word/charts/chart1.xml": "<c><ser><tx><v>Sales</v></tx><val><v>12</v></val></ser></c>",
    }
    text = reading("docx", docx_of(both.format("In a shape", "In a shape") + vml + cells + drawn, files)).text
    assert " ".join(text.split()) == "In a shape In VML In a cell Step one Sales: 12"


def test_docx_without_page_breaks_has_no_pages_and_one_in_a_table_stands_before_its_row() -> None:
    assert "[page" not in reading("docx", docx_of(paragraph("a"))).text
    first = [paragraph(f"a{n}", before="<w:lastRenderedPageBreak/>" * n) for n in range(2)]
    rows = "".join(f"<w:tr><w:tc>{each}</w:tc><w:tc>{paragraph('b')}</w:tc></w:tr>" for each in first)
    text = reading("docx", docx_of(f"<w:tbl>{rows}</w:tbl>")).text
    assert text == "[page 1]\na0\tb\n\n[page 2]\na1\tb"


def test_odt_keeps_lists_tables_notes_and_leaves_deletions_out() -> None:
    body = """<office:text><text:tracked-changes><text:p>gone</text:p></text:tracked-changes>
<text:list text:style-name="L"><text:list-item><text:p>one</text:p><text:list><text:list-item><text:p>deep</text:p>
</text:list-item></text:list></text:list-item><text:list-item><text:p>two</text:p></text:list-item></text:list>
<text:p>A<text:s text:c="3"/>b<text:note><text:note-citation>1</text:note-citation><text:note-body>
<text:p>small</text:p></text:note-body></text:note> end</text:p>
<table:table><table:table-row><table:table-cell><text:p>x</text:p>
</table:table-cell><table:table-cell table:number-columns-repeated="2"><text:p>y</text:p></table:table-cell>
</table:table-row></table:table></office:text>"""
    level = '<text:list-level-style-number text:level="1" style:num-format="1"/>'
    style = f'<text:list-style style:name="L">{level}</text:list-style>'
    text = reading("odt", odf("text", body, style)).text
    assert text.split("\n\n") == ["1. one\n  - deep\n2. two", "A   b (Footnote 1: small) end", "x\ty\ty"]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (rb"{\rtf1 {\header Draft} x}", "headers and footers"),
        (rb"{\rtf1\headery720 {\footerr 3} x}", "headers and footers"),
        (rb"{\rtf1 x{\*\annotation why}}", "comments"),
        (rb"{\rtf1 {\b One} tw", "cut off"),
        (b"{\\rtf1\\headery720\\footery720 x}\r\n\0", ""),
    ],
)
def test_s2_what_is_not_read_of_an_rtf_is_noted(raw: bytes, told: str) -> None:
    notes = reading("rtf", raw).notes
    assert len(notes) == bool(told)
    assert told in "".join(notes)


def test_rtf_knows_its_code_page_and_characters_beyond_it() -> None:
    assert reading("rtf", rtf("x")).text == "One\nGröße 😀\nx"


@pytest.mark.parametrize("kind", ["docx", "xlsx", "pptx", "xls", "doc", "ppt"])
def test_s14_10_a_password_is_told(kind: str) -> None:
    with pytest.raises(UnreadableDocument, match=PROTECTED):
        reading(kind, ole("EncryptedPackage"))


def test_passwords_of_odf_and_books_for_one_reader_are_told() -> None:
    manifest: dict[str, str | bytes] = {"META-INF/manifest.xml": "<manifest><encryption-data/></manifest>"}
    for kind, name in (("odt", "text"), ("ods", "spreadsheet")):
        with pytest.raises(UnreadableDocument, match=PROTECTED):
            reading(kind, odf(name, "", files=manifest))
    locked = '<encryption><CipherReference URI="b/ch6.xhtml"/></encryption>'
    with pytest.raises(UnreadableDocument, match="encrypted"):
        reading("epub", epub(FACT, {"META-INF/encryption.xml": locked}))


def test_s14_10_macros_embedded_files_and_links_are_named_and_nothing_else() -> None:
    related = relations(
        ("r1", "oleObject", "embeddings/a.bin", False),
        ("r2", "image", "https://example.org/x.png", True),
        ("r3", "hyperlink", "https://example.org", True),
    )
    files: dict[str, str | bytes] = {"word/vbaProject.bin": b"x", "word/_rels/document.xml.rels": related}
    assert reading("docx", docx_of(paragraph("a"), files)).notes == (
        "It holds macros, which were not read.",
        "It holds an embedded file, which was not read.",
        "It points to other files, which were not fetched.",
    )
    linked = relations(("r3", "hyperlink", "https://example.org", True))
    assert reading("docx", docx_of(paragraph("a"), {"word/_rels/document.xml.rels": linked})).notes == ()


@pytest.mark.parametrize(
    ("kind", "stream", "better"), [("doc", "WordDocument", "DOCX"), ("ppt", "PowerPoint Document", "PPTX")]
)
def test_files_of_old_formats_say_how_to_send_them(kind: str, stream: str, better: str) -> None:
    with pytest.raises(UnreadableDocument, match=f"save it as {better}"):
        reading(kind, ole(stream))


def test_rtf_under_the_name_of_a_doc_is_read() -> None:
    assert FACT in reading("doc", rtf(FACT)).text


def test_a_zip_that_is_no_office_file_is_none() -> None:
    for kind in ("docx", "xlsx", "pptx", "odt", "odp", "ods", "epub"):
        with pytest.raises(UnreadableDocument):
            reading(kind, zipped({"a.txt": "x"}))


TRIES = 40


def tried(kind: str, raw: bytes) -> Reading | None:
    with suppress(UnreadableDocument):
        return read(DocumentFile(raw, kind))
    return None


@pytest.mark.long
@pytest.mark.parametrize("kind", MAKERS)
def test_s14_10_a_file_that_is_cut_or_changed_is_read_or_refused(kind: str) -> None:
    rng = random.Random(7)
    whole = MAKERS[kind]("fact")
    for number in range(TRIES):
        cut = whole[: len(whole) * number // TRIES]
        changed = bytearray(whole)
        for _ in range(1 + number % 9):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        for raw in (cut, bytes(changed), whole[: len(cut) // 2] + whole[len(cut) :]):
            tried(kind, raw)


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind not in ("rtf", "xlsx", "ods")])
def test_s14_10_broken_xml_in_a_sound_zip_is_read_or_refused(kind: str) -> None:
    rng = random.Random(3)
    with zipfile.ZipFile(io.BytesIO(MAKERS[kind]("fact"))) as archive:
        files: dict[str, str | bytes] = {name: archive.read(name) for name in archive.namelist()}
    xml = [name for name in files if name.endswith((".xml", ".rels", ".opf"))]
    for _ in range(TRIES):
        name = rng.choice(xml)
        old = bytearray(files[name])  # type: ignore[arg-type]  # all are bytes here
        at = rng.randrange(len(old))
        new = rng.choice(
            (old[:at], old[:at] + old[at + 9 :], old[:at] + b"9" + old[at + 1 :], old.replace(b"1", b"-1"))
        )
        tried(kind, zipped({**files, name: bytes(new)}))


ENTITIES = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("docx", zipped({"word/document.xml": f"<!-- {'x' * 5000} -->{ENTITIES}<a>&b;</a>"})),
        ("docx", zipped({"word/document.xml": f"{ENTITIES}<a>&b;</a>".encode("utf-16")})),
        ("docx", docx_of(paragraph("a"), {"word/styles.xml": f"{ENTITIES}<a>&b;</a>"})),
        ("odt", zipped({"content.xml": f"{ENTITIES}<a>&b;</a>"})),
        ("pptx", zipped({"ppt/presentation.xml": f"{ENTITIES}<a>&b;</a>"})),
        ("epub", epub("x", {"b/book.opf": f"{ENTITIES}<package>&b;</package>"})),
    ],
    ids=["late", "utf-16", "styles", "odt", "pptx", "epub"],
)
def test_entities_are_refused_wherever_they_stand(kind: str, raw: bytes) -> None:
    with pytest.raises(UnreadableDocument):
        read(DocumentFile(raw, kind))


@pytest.mark.parametrize("kind", ["docx", "pptx", "xlsx", "ods", "odt", "epub"])
def test_a_bomb_is_refused_by_its_directory(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.documents.packages.MAX_PACKAGE_UNPACKED", 2**20)
    with zipfile.ZipFile(io.BytesIO(MAKERS[kind]("fact"))) as archive:
        files: dict[str, str | bytes] = {name: archive.read(name) for name in archive.namelist()}
    with pytest.raises(UnreadableDocument, match="too large"):
        read(DocumentFile(zipped({**files, "media/big": bytes(2**21)}), kind))


def test_circles_and_depths_end() -> None:
    circle = relations(("r1", "header", "document.xml", False))
    body = f"{paragraph('a')}<w:sectPr/>"
    assert tried("docx", docx_of(body, {"word/_rels/document.xml.rels": circle})) is not None
    word = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    based = f'<w:styles {word}><w:style w:styleId="A"><w:basedOn w:val="A"/></w:style></w:styles>'
    styled = paragraph("a", '<w:pStyle w:val="A"/>')
    found = there(tried("docx", docx_of(styled, {"word/styles.xml": based})))
    assert found.text == "a"
    deep = 3000
    tables = "<w:tbl><w:tr><w:tc>" * deep + paragraph("deep") + "</w:tc></w:tr></w:tbl>" * deep
    assert tried("docx", docx_of(tables)) is not None
    lists = "<text:list><text:list-item>" * deep + "<text:p>x</text:p>" + "</text:list-item></text:list>" * deep
    tried("odt", odf("text", f"<office:text>{lists}</office:text>"))
    note = "<text:note><text:note-body><text:p>" * deep + "x" + "</text:p></text:note-body></text:note>" * deep
    tried("odt", odf("text", f"<office:text><text:p>{note}</text:p></office:text>"))


def test_repeated_cells_and_spaces_are_bounded() -> None:
    cell = '<table:table-cell table:number-columns-repeated="999999999"><text:p>x</text:p></table:table-cell>'
    table = f"<table:table><table:table-row>{cell}</table:table-row></table:table>"
    found = there(
        tried("odt", odf("text", f'<office:text><text:p>a<text:s text:c="999999999"/></text:p>{table}</office:text>'))
    )
    assert len(found.text) < 1000


def test_an_attribute_of_ten_megabytes_and_absurd_names_are_read() -> None:
    found = there(tried("docx", docx_of(f"<w:p w:x='{'y' * 10_000_000}'><w:r><w:t>kept</w:t></w:r></w:p>")))
    assert found.text == "kept"
    absurd: dict[str, str | bytes] = {
        "../../../etc/passwd": "x",
        "word/" + "a/" * 500: "",
        "\u202eexe.\n": "x",
        "/": "x",
    }
    found = there(tried("docx", docx_of(paragraph("kept"), absurd)))
    assert found.text == "kept"


async def test_a_sheet_that_claims_to_be_endless_ends_its_own_process_alone() -> None:
    far = '<row r="1048576"><c r="XFD1048576" t="str"><v>far</v></c></row>'
    sheet = f'<worksheet><sheetData><row r="1"><c r="A1" t="str"><v>near</v></c></row>{far}</sheetData></worksheet>'
    files: dict[str, str | bytes] = {}
    with zipfile.ZipFile(io.BytesIO(MAKERS["xlsx"]("fact"))) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    name_space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    files["xl/worksheets/sheet1.xml"] = sheet.replace("<worksheet>", f"<worksheet {name_space}>")
    with pytest.raises(UnreadableDocument, match="too much"):
        await DocumentReader(seconds=30).read(DocumentFile(zipped(files), "xlsx"), "t")
