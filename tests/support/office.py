"""Office files for tests: by the libraries that people use, or by hand where a library would hide what matters."""

import io
import zipfile

from openpyxl import Workbook
from pptx import Presentation

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
ODF = "urn:oasis:names:tc:opendocument:xmlns"
ODF_NAMES = " ".join(
    f'xmlns:{short}="{ODF}:{long}:1.0"'
    for short, long in {
        "office": "office",
        "text": "text",
        "table": "table",
        "draw": "drawing",
        "style": "style",
        "presentation": "presentation",
    }.items()
)
MANIFEST = '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>'
OUTSIDE = ' TargetMode="External"'
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504)


def zipped(files: dict[str, str | bytes]) -> bytes:
    """A ZIP of them, in their order; one named `mimetype` is not packed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content, zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def ole(stream: str) -> bytes:
    """A container of Microsoft's older programs as far as it is looked at: a stream of that name."""
    return OLE + stream.encode("utf-16-le") + bytes(64)


def relations(*entries: tuple[str, str, str, bool]) -> str:
    """A file of relations: id, kind, target, whether it is external."""
    each = "".join(
        f'<Relationship Id="{i}" Type="{RELATIONS}/{kind}" Target="{target}"{OUTSIDE * outside}/>'
        for i, kind, target, outside in entries
    )
    return f'<Relationships xmlns="{PACKAGE}">{each}</Relationships>'


def docx_of(body: str, files: dict[str, str | bytes] | None = None) -> bytes:
    """A DOCX with this XML as its body, and further files."""
    document = f'<w:document xmlns:w="{WORD}" xmlns:r="{RELATIONS}"><w:body>{body}</w:body></w:document>'
    return zipped({"[Content_Types].xml": "<Types/>", "word/document.xml": document, **(files or {})})


def paragraph(text: str, properties: str = "", before: str = "") -> str:
    """A paragraph of a DOCX."""
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r>{before}<w:t>{text}</w:t></w:r></w:p>"


def xlsx(fact: str) -> bytes:
    """Three sheets; the fact stands in C47 of the third."""
    book = Workbook()
    for name in ("Start", "Costs", "Late sheet"):
        sheet = book.create_sheet(name)
        for row in range(1, 51):
            sheet.append([row, f"{name} {row}", row * 1.5])
    book.remove(book["Sheet"])
    book["Late sheet"]["C47"] = fact
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def pptx(fact: str) -> bytes:
    """Nine slides; the fact stands in the notes of the eighth."""
    show = Presentation()
    for number in range(1, 10):
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text = f"Title {number}"
        slide.placeholders[1].text = f"Point {number}"
    show.slides[7].notes_slide.notes_text_frame.text = fact
    buffer = io.BytesIO()
    show.save(buffer)
    return buffer.getvalue()


def docx(fact: str) -> bytes:
    """Six pages; the fact stands on the fifth."""
    after = "<w:lastRenderedPageBreak/>"
    return docx_of(
        "".join(paragraph(fact if n == 5 else f"Page {n}", before=after if n > 1 else "") for n in range(1, 7))
    )


def odf(kind: str, body: str, styles: str = "", files: dict[str, str | bytes] | None = None) -> bytes:
    """An ODF file of that kind (`text`, `presentation`, `spreadsheet`)."""
    root = f"<office:automatic-styles>{styles}</office:automatic-styles><office:body>{body}</office:body>"
    content = f"<office:document-content {ODF_NAMES}>{root}</office:document-content>"
    media_type = f"application/vnd.oasis.opendocument.{kind}"
    return zipped({"mimetype": media_type, "content.xml": content, "META-INF/manifest.xml": MANIFEST, **(files or {})})


def odt(fact: str) -> bytes:
    """Four pages; the fact stands on the third."""
    pages = "".join(f"<text:soft-page-break/><text:p>{fact if n == 3 else f'Page {n}'}</text:p>" for n in range(2, 5))
    return odf("text", f"<office:text><text:h text:outline-level='2'>Head</text:h>{pages}</office:text>")


def odp(fact: str) -> bytes:
    """Five slides; the fact stands on the fourth."""
    pages = "".join(
        f"<draw:page><draw:frame><draw:text-box><text:p>{fact if n == 4 else f'Slide {n}'}</text:p></draw:text-box>"
        "</draw:frame></draw:page>"
        for n in range(1, 6)
    )
    return odf("presentation", f"<office:presentation>{pages}</office:presentation>")


def ods(fact: str) -> bytes:
    """Two sheets; the fact stands in B6 of the second."""
    row = "<table:table-row>{}</table:table-row>"
    cell = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
    rows = "".join(row.format(cell.format(n) + cell.format(fact if n == 6 else "-")) for n in range(1, 9))
    tables = "".join(f'<table:table table:name="{name}">{rows}</table:table>' for name in ("One",))
    tables += f'<table:table table:name="Two">{rows}</table:table>'
    return odf("spreadsheet", f"<office:spreadsheet>{tables.replace(fact, '-', 1)}</office:spreadsheet>")


def epub(fact: str, files: dict[str, str | bytes] | None = None) -> bytes:
    """Four chapters, named against their order; the fact stands in the third."""
    items = "".join(f'<item id="c{n}" href="ch{9 - n}.xhtml" media-type="application/xhtml+xml"/>' for n in range(1, 5))
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(1, 5))
    page = "<html><head><title>x</title></head><body><h1>Part {}</h1><p>{}</p></body></html>"
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfile full-path="b/book.opf"/></container>',
            "b/book.opf": "<package><metadata><title>The Book</title></metadata>"
            f"<manifest>{items}</manifest><spine>{spine}</spine></package>",
            **{f"b/ch{9 - n}.xhtml": page.format(n, fact if n == 3 else "text") for n in range(1, 5)},
            **(files or {}),
        }
    )


def rtf(fact: str) -> bytes:
    """The fact stands in its third line."""
    head = r"{\rtf1\ansi\ansicpg1252 {\fonttbl{\f0 Arial;}}One\par Gr\'f6\'dfe \u55357?\u56832?\par "
    return f"{head}{fact}\\par}}".encode()


MAKERS = {"xlsx": xlsx, "pptx": pptx, "docx": docx, "odt": odt, "odp": odp, "ods": ods, "epub": epub, "rtf": rtf}
