"""Text out of files, and documents inside over-long messages (guarantee §2 `file` parts, §4 I4)."""

import base64
import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.artifacts.collect import document_spans
from gateway.core.types.items import pdf_data
from gateway.documents.document import UnreadableDocument, read
from gateway.documents.file_reader import encoded_document, inline_file, sent_document

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def part(content: bytes, name: str = "", media: str = "") -> dict[str, str]:
    data = base64.b64encode(content).decode()
    return {"filename": name, "file_data": f"data:{media};base64,{data}" if media else data}


def text(file: dict[str, str]) -> str | None:
    found = inline_file(dict(file), decode_pdf=True)
    return None if found is None else read(found).text


def docx(*paragraphs: str, head: str = "") -> bytes:
    runs = "".join(f"<w:p><w:r><w:t>{p}</w:t></w:r></w:p>" for p in paragraphs)
    xml = f'{head}<w:document xmlns:w="{WORD}"><w:body>{runs}</w:body></w:document>'
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", xml)
    return buffer.getvalue()


def pdf(words: str) -> bytes:
    stream = f"BT /F1 12 Tf 20 100 Td ({words}) Tj ET"
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    resources = f"<< /Font << /F1 {font} >> >>"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents 4 0 R /Resources {resources} >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
    ]
    out, places = "%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{each}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"trailer << /Size 5 /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF"
    return f"{out}xref\n0 5\n0000000000 65535 f \n{table}{end}".encode("latin-1")


def test_text_files_of_every_kind_are_read_by_name_or_media_type() -> None:
    for name in ("a.txt", "a.MD", "a.csv", "a.json", "a.log", "a.yaml"):
        assert text(part("größe ✓".encode(), name)) == "größe ✓"
    for media in ("text/plain", "text/markdown", "application/json", "text/csv; charset=utf-8"):
        assert text(part("größe ✓".encode(), media=media)) == "größe ✓"
    assert text(part(b"\xef\xbb\xbfa", "a.txt")) == "a"
    assert text(part(b"a\xff", "a.txt")) == "a\ufffd"


def test_html_gives_its_visible_text() -> None:
    html = "<html><style>x{}</style><h1>Ti&amp;le</h1><p>One<br>two</p><script>bad()</script><ul><li>a<li>b</ul>"
    assert text(part(html.encode(), "a.html")) == "# Ti&le\n\nOne\ntwo\n\na\nb"


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        (
            "<tr><th></th><th>Q1<th>Q2</tr>\n<tr><td>Rent</td><td>10</td><td></td></tr><tr><td><td><td>20",
            "\tQ1\tQ2\nRent\t10\n\t\t20",
        ),
        ("<tr><td><p>North</p></td><td><div>1</div><ul><li>2</ul></td></tr>", "North\t1 2"),
        (
            "<tr><th rowspan=2>Area<th colspan='2'>2023<th colspan=2>2024<tr><th>H1<th>H2<th>H1<th>H2"
            "<tr><td>North<td>1<td>2<td>3<td>4",
            "Area\t2023\t\t2024\n\tH1\tH2\tH1\tH2\nNorth\t1\t2\t3\t4",
        ),
        ("<tr><td><h1>Head</h1><p>One</p><p>Two</p></td></tr>", "# Head\n\nOne\n\nTwo"),
        ("<tr><td>a<td><table><tr><td>1<td><tr><td><td>2</table><p>end</tr>", "a\n\n1\n\t2\n\nend"),
        (f"<tr><td><p>One</p><p>Two</p><td>{'x' * 2000}", f"One\n\nTwo\n{'x' * 2000}"),
    ],
    ids=["empty cells", "blocks in cells", "spans", "one cell", "nested", "layout"],
)
def test_s14_a_row_of_a_table_in_html_is_a_line_whose_columns_stand_below_their_heads(html: str, expected: str) -> None:
    assert text(part(f"<table>{html}</table>".encode(), "a.html")) == expected


def test_s14_preformatted_lines_of_html_stay_and_blocks_do_not_run_together() -> None:
    html = (
        "<title>T</title><body>x<dl><dt>Term<dd>Means</dl><pre>if a:\n<b>  b</b>\n\n\tc</pre><p>z <code>y  y</code></p>"
    )
    assert text(part(html.encode(), "a.html")) == "T\nx\n\nTerm\nMeans\n\nif a:\n  b\n\n\tc\n\nz y y"


def test_docx_gives_its_paragraphs() -> None:
    assert text(part(docx("First &amp; one", "Second"), "a.docx")) == "First & one\n\nSecond"


def test_docx_keeps_headings_and_the_rows_of_tables() -> None:
    def paragraph(text: str, style: str = "") -> str:
        properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
        return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"

    rows = "".join(f"<w:tr><w:tc>{paragraph(f'a{n}')}</w:tc><w:tc>{paragraph(f'b{n}')}</w:tc></w:tr>" for n in range(2))
    held = f"<w:sdt><w:sdtContent>{paragraph('held')}</w:sdtContent></w:sdt>"
    body = (
        f"{paragraph('One', 'Heading1')}{paragraph('text')}{paragraph('Two', 'heading 2')}<w:tbl>{rows}</w:tbl>{held}"
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>')
    expected = "# One\n\ntext\n\n## Two\n\na0\tb0\na1\tb1\n\nheld"
    assert text(part(buffer.getvalue(), "a.docx")) == expected


def test_files_of_programs_and_wide_characters_are_text() -> None:
    for name in ("a.py", "a.ts", "a.sql", "a.toml", "a.ndjson"):
        assert text(part(b"x", name, "application/octet-stream")) == "x"
    assert text(part("größe ✓".encode("utf-16"), "a.csv")) == "größe ✓"
    assert text(part(b"<svg/>", "a.xml", "image/svg+xml")) is None
    assert text(part(b"{}", media="application/ld+json")) == "{}"


def test_pdf_gives_its_pages_unless_the_model_can_take_it() -> None:
    file = part(pdf("Hello from page one"), "a.pdf", "application/pdf")
    assert text(file) == "[page 1]\nHello from page one"
    assert inline_file(dict(file), decode_pdf=False) is None


@pytest.mark.parametrize(
    "file",
    [
        *(part(b"x", "a.png"), part(b"x", media="image/png"), part(b"RIFF\x00\x01\x02\x00WEBP\x00\xff\x03"), part(b"")),
        *({"file_id": "file-1"}, {"file_data": None}, {"file_data": "no base64!"}, {}),
    ],
)
def test_what_is_no_document_is_forwarded_as_it_is(file: dict[str, str]) -> None:
    assert inline_file(dict(file), decode_pdf=True) is None


@pytest.mark.parametrize(
    "file",
    [
        {"filename": "a.txt", "file_data": "no base64!"},
        {"filename": "a.txt", "file_data": "data:text/plain;base64,%%%"},
        part(b"no pdf", "a.pdf"),
        part(b"%PDF-1.4 broken", "a.pdf"),
        part(b"no zip", "a.docx"),
        part(docx("a", head='<!DOCTYPE x [<!ENTITY e "eeee">]>'), "a.docx"),
        part(docx("<unclosed>"), "a.docx"),
    ],
    ids=["base64", "data url", "pdf", "broken pdf", "docx", "entities", "xml"],
)
def test_a_document_that_cannot_be_read_says_so(file: dict[str, str]) -> None:
    with pytest.raises(UnreadableDocument):
        text(file)


@pytest.mark.parametrize(
    "data",
    [
        "data:text/plain,gr%C3%B6%C3%9Fe%20%E2%9C%93",
        "data:text/plain;charset=iso-8859-1,gr%F6%DFe%20-",
        f"DATA:text/plain;BASE64,{base64.b64encode('größe ✓'.encode()).decode()}",
        f"Data:Text/Plain;base64,{base64.b64encode('größe ✓'.encode()).decode()}",
        f"data:;base64,{base64.b64encode('größe ✓'.encode()).decode()}",
        base64.b64encode("größe ✓".encode()).decode(),
    ],
)
def test_s2_a_file_is_read_however_its_data_is_written(data: str) -> None:
    """§2: as the same data is where it is attached, also without a name and a media type."""
    assert str(text({"file_data": data})).startswith("größe ")
    assert read(sent_document(data, "")).text == text({"file_data": data})


@pytest.mark.parametrize("name", ["a.pdf", ""])
def test_s2_a_pdf_in_other_letters_is_one(name: str) -> None:
    data = base64.b64encode(pdf("Hello")).decode()
    file = {"filename": name, "file_data": f"DATA:Application/PDF;base64,{data}"}
    assert text(file) == "[page 1]\nHello"
    assert pdf_data({"type": "file", "file": file}) is not None
    assert inline_file(dict(file), decode_pdf=False) is None


def test_s2_a_text_of_any_script_needs_no_name() -> None:
    """§2: its start may end within a character."""
    for words in ("größe ✓ " * 400, "дождь и снег " * 300, "雨と雪" * 500):
        assert text(part(words.encode())) == words


LINES = "\n".join(f"line {n} of the document" for n in range(500))


@pytest.mark.parametrize(
    ("message", "document"),
    [
        (f"Q?\n```python\n{LINES}\n```\nThanks", LINES),
        (f"Q?\n~~~\n{LINES}\n~~~", LINES),
        (f"Q? <doc id='1'>{LINES}</doc> Thanks", LINES),
        (f"First paragraph\n\n{LINES}\n\nLast paragraph", LINES),
        (f"First line\n{LINES}\nLast line", LINES),
    ],
    ids=["fence", "tildes", "tags", "paragraphs", "lines"],
)
def test_the_document_in_an_over_long_message_is_found_and_nothing_else(message: str, document: str) -> None:
    assert [message[s:e] for s, e in document_spans(message, 8000, beside=False)] == [document]


def test_a_message_of_8000_characters_holds_no_document() -> None:
    assert document_spans(f"```\n{LINES[:7990]}\n```"[:8000], 8000, beside=False) == []
    assert document_spans("x" * 8000, 8000, beside=False) == []
    assert document_spans("x" * 8001, 8000, beside=False) == [(1000, 7001)]


@given(
    parts=st.lists(st.sampled_from(["a ", "\n", "\n\n", "x" * 300, "```\n", "<t>", "</t>", "b" * 900]), max_size=60),
    least=st.sampled_from([500, 1000, 2000, 8000]),
    beside=st.booleans(),
)
def test_spans_lie_inside_the_text_in_order_without_overlap(parts: list[str], least: int, beside: bool) -> None:
    message = "".join(parts)
    at = 0
    for start, end in document_spans(message, least, beside=beside):
        assert at <= start < end <= len(message)
        at = end


@pytest.mark.parametrize("name", ["x.pdf", "x.docx", "X.PDF"])
def test_what_is_text_is_text_whatever_its_name_says(name: str) -> None:
    """§10.17: unless it begins as what its name says."""
    assert text(part(b"Clause 14", name, "text/plain")) == "Clause 14"
    assert inline_file(part(b"Clause 14", name, "text/plain"), decode_pdf=False) is not None
    kind = name.lower().rpartition(".")[2]
    whole = pdf("Clause 14") if kind == "pdf" else docx("Clause 14")
    assert "Clause 14" in str(text(part(whole, name, "text/plain")))


@pytest.mark.parametrize(
    ("header", "name", "raw", "kind"),
    [
        ("data:;base64,", "a.pdf", b"%PDF-1.4", "pdf"),
        ("data:;base64,", "a.html", b"<p>x", "html"),
        ("data:;base64,", "a.pdf", b"mere text", "text"),
        ("data:;base64,", "", b"mere text", "text"),
        ("data:text/plain;base64,", "a.pdf", b"mere text", "text"),
    ],
)
def test_s14_2_a_name_counts_where_a_data_url_tells_no_media_type(
    header: str, name: str, raw: bytes, kind: str
) -> None:
    found = encoded_document(header + base64.b64encode(raw).decode(), name=name)
    assert found is not None
    assert found.kind == kind
