"""Office files that are broken or made to do harm: a document that cannot be read, or a reading, within bounds."""

import io
import random
import zipfile
from contextlib import suppress

import pytest

from gateway.documents.document import DocumentFile, Reading, UnreadableDocument, read
from gateway.documents.process import DocumentReader
from tests.support.office import MAKERS, docx_of, epub, odf, paragraph, relations, zipped

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
    found = tried("docx", docx_of(styled, {"word/styles.xml": based}))
    assert found is not None
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
    found = tried(
        "odt", odf("text", f'<office:text><text:p>a<text:s text:c="999999999"/></text:p>{table}</office:text>')
    )
    assert found is not None
    assert len(found.text) < 1000


def test_an_attribute_of_ten_megabytes_and_absurd_names_are_read() -> None:
    found = tried("docx", docx_of(f"<w:p w:x='{'y' * 10_000_000}'><w:r><w:t>kept</w:t></w:r></w:p>"))
    assert found is not None
    assert found.text == "kept"
    absurd: dict[str, str | bytes] = {
        "../../../etc/passwd": "x",
        "word/" + "a/" * 500: "",
        "\u202eexe.\n": "x",
        "/": "x",
    }
    found = tried("docx", docx_of(paragraph("kept"), absurd))
    assert found is not None
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
