"""Kinds by their bytes (guarantee §14.10)."""

import base64

import pytest

from gateway.core.types.files import DOCUMENT_KINDS
from gateway.documents.document import UnreadableDocument
from gateway.documents.file_reader import encoded_document, inline_file, sent_document, stored_document
from gateway.documents.sniff import MAGICS, OLE_NAMES, ZIP_NAMES, ZIP_TYPES, may_be_known, sniffed
from tests.support.answers import there
from tests.support.office import MAKERS, ole, zipped

OCTETS = "application/octet-stream"


@pytest.mark.parametrize("kind", MAKERS)
def test_s14_10_a_file_is_known_by_its_bytes_whatever_its_name(kind: str) -> None:
    raw = MAKERS[kind]("fact")
    assert sniffed(raw) == kind
    for name, media in (("", OCTETS), ("data.bin", ""), ("upload", OCTETS)):
        found = there(inline_file({"filename": name, "file_data": url(raw, media)}, decode_pdf=True))
        assert found.kind == kind
        assert stored_document(name, media, raw).kind == kind
    of_text = there(encoded_document(url(raw, OCTETS)))
    assert of_text.kind == kind


def url(raw: bytes, media: str) -> str:
    return f"data:{media};base64,{base64.b64encode(raw).decode()}"


@pytest.mark.parametrize("kind", MAKERS)
def test_base64_in_lines_is_read_as_in_one(kind: str) -> None:
    raw = MAKERS[kind]("fact" * 1000)
    lines = base64.encodebytes(raw).decode()
    for file in ({"filename": f"a.{kind}", "file_data": lines}, {"file_data": f"data:{OCTETS};base64,{lines}"}):
        found = there(inline_file(dict(file), decode_pdf=True))
        assert (found.kind, found.raw) == (kind, raw)


def test_the_name_counts_where_it_says_something() -> None:
    found = there(inline_file({"filename": "a.docx", "file_data": url(MAKERS["xlsx"]("x"), OCTETS)}, decode_pdf=True))
    assert found.kind == "docx"


def test_a_csv_that_a_browser_calls_excel_stays_text() -> None:
    for name, raw, kind in (("a.csv", b"a,b", "text"), ("a.xls", b"a\tb", "xls"), ("", ole("Workbook"), "xls")):
        found = there(
            inline_file({"filename": name, "file_data": url(raw, "application/vnd.ms-excel")}, decode_pdf=True)
        )
        assert found.kind == kind


def test_what_is_no_document_goes_up_as_it_came() -> None:
    pictures = (b"\x89PNG\r\n\x1a\n" + bytes(100), "image/png"), (MAKERS["docx"]("x"), "image/png")
    for raw, media in (*pictures, (b"\1\2\3", OCTETS), (b"", OCTETS)):
        assert inline_file({"filename": "x", "file_data": url(raw, media)}, decode_pdf=True) is None
    with pytest.raises(UnreadableDocument):
        stored_document("x", OCTETS, b"\xfd\xfc\1\2\3")


def test_s14_11_what_its_sender_says_of_its_charset_counts() -> None:
    """By any way that a document comes with a media type, for XML too; not where the bytes are not valid in it."""
    words = "<a>Привет, мир</a>"
    raw = words.encode("koi8-r")
    for media in ("text/xml;charset=koi8-r", "text/html; charset=koi8-r", "text/plain;charset=koi8-r"):
        sent = f"data:{media};base64,{base64.b64encode(raw).decode()}"
        found = inline_file({"filename": "x", "file_data": sent}, decode_pdf=True)
        for document in (found, sent_document(sent, "x"), encoded_document(sent.replace("; ", ";"))):
            assert document is not None
            assert document.raw.decode() == words
    wrong = f"data:text/xml;charset=ascii;base64,{base64.b64encode(words.encode()).decode()}"
    assert sent_document(wrong, "x").raw.decode() != ""
    assert stored_document("x", OCTETS, words.encode("utf-16")).kind == "text"


def test_a_pdf_without_a_name_is_decoded_only_where_the_model_takes_none() -> None:
    file = {"filename": "", "file_data": url(b"%PDF-1.7 rubbish", OCTETS)}
    assert inline_file(dict(file), decode_pdf=False) is None
    found = there(inline_file(dict(file), decode_pdf=True))
    assert found.kind == "pdf"


def test_containers_of_older_programs_are_told_apart_by_their_streams() -> None:
    assert sniffed(ole("WordDocument")) == "doc"
    assert sniffed(ole("Workbook")) == "xls"
    assert sniffed(ole("EncryptedPackage")) == "protected"
    assert sniffed(ole("Something")) is None


def test_any_bytes_are_looked_at_without_an_error() -> None:
    for kind in ("xlsx", "odt", "epub"):
        raw = MAKERS[kind]("x")
        for end in range(0, len(raw), 37):
            sniffed(raw[:end])
            sniffed(raw[:30] + raw[end:])
    assert sniffed(zipped({"absurd/../../" * 30 + "word/document.xml": "x", "\n" * 500: ""})) != "docx"


def test_tables_name_kinds_and_what_they_begin_with_is_worth_a_look() -> None:
    named = {kind for kind, _ in (*MAGICS, *ZIP_NAMES, *ZIP_TYPES, *OLE_NAMES)}
    assert named - {"msg", "zip", "tar", "gzip", "eml", "mbox", "sqlite", "parquet"} <= DOCUMENT_KINDS.keys()
    assert may_be_known(b"PK\3\4")
    assert not may_be_known(b"plain text")
