"""A document's own text cannot say where it stands (guarantee §14.2)."""

import io
import json
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from openpyxl import Workbook
from pptx import Presentation
from reportlab.pdfgen.canvas import Canvas

from gateway.core.types.places import TextPlaces
from gateway.documents import picture
from gateway.documents.document import DocumentFile, ReadOptions, read
from tests.support.documents import docx

FORGED = "[page 9]"
XML = '<office:{0} xmlns:office="o" xmlns:text="t" xmlns:draw="d"><office:body>{1}</office:body></office:{0}>'


def _pdf() -> bytes:
    out = io.BytesIO()
    canvas = Canvas(out)
    for number, line in enumerate(("before", FORGED, "after")):
        canvas.drawString(72, 700 - 20 * number, line)
    canvas.save()
    return out.getvalue()


def _xlsx() -> bytes:
    out, book = io.BytesIO(), Workbook()
    for line in ("before", FORGED, "after"):
        book.worksheets[0].append([line])
    book.save(out)
    return out.getvalue()


def _pptx() -> bytes:
    out, show = io.BytesIO(), Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.placeholders[1].text = f"before\n{FORGED}\nafter"
    show.save(out)
    return out.getvalue()


def _zip(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as package:
        for name, text in files.items():
            package.writestr(name, text)
    return out.getvalue()


def _odf(paragraphs: str) -> bytes:
    return _zip({"content.xml": XML.format("document-content", paragraphs)})


def _odt() -> bytes:
    return _odf(f"<office:text>{''.join(f'<text:p>{line}</text:p>' for line in ('a', FORGED, 'after'))}</office:text>")


def _odp() -> bytes:
    lines = "".join(f"<text:p>{line}</text:p>" for line in ("a", FORGED, "after"))
    return _odf(f"<office:presentation><draw:page>{lines}</draw:page></office:presentation>")


def _epub() -> bytes:
    opf = (
        '<package><manifest><item id="a" href="a.html" media-type="text/html"/></manifest>'
        '<spine><itemref idref="a"/></spine></package>'
    )
    return _zip(
        {
            "META-INF/container.xml": '<container><rootfile full-path="b.opf"/></container>',
            "b.opf": opf,
            "a.html": f"<body><p>before</p><p>{FORGED}</p><p>after</p></body>",
        }
    )


def _notebook() -> bytes:
    return json.dumps({"cells": [{"cell_type": "markdown", "source": f"before\n{FORGED}\nafter"}]}).encode()


def _sqlite(folder: Path) -> bytes:
    path = folder / "a.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a TEXT)")
    connection.executemany("INSERT INTO t VALUES (?)", [("before",), (FORGED,), ("after",)])
    connection.commit()
    connection.close()
    return path.read_bytes()


MADE: dict[str, Callable[[], bytes]] = {
    "pdf": _pdf,
    "docx": lambda: docx(["before", FORGED, "after"]),
    "xlsx": _xlsx,
    "pptx": _pptx,
    "odt": _odt,
    "odp": _odp,
    "epub": _epub,
    "notebook": _notebook,
    "html": lambda: f"<html><p>before<p>{FORGED}<p>after</html>".encode(),
    "rtf": lambda: rb"{\rtf1 before\par " + FORGED.encode() + rb"\par after\par}",
    "mail": lambda: f"Subject: a\n\nbefore\n{FORGED}\nafter".encode(),
    "xml": lambda: f"<a>before\n{FORGED}\nafter".encode(),
}


@pytest.mark.parametrize("kind", MADE)
def test_s14_2_no_text_of_a_document_moves_a_place(kind: str) -> None:
    text = read(DocumentFile(MADE[kind](), kind)).text
    assert FORGED in text
    assert FORGED not in text.split("\n")
    at = text.index("after")
    assert "page 9" not in TextPlaces(text).of(at, at + 5)


def test_s14_2_no_value_of_a_database_moves_a_place(tmp_path: Path) -> None:
    text = read(DocumentFile(_sqlite(tmp_path), "sqlite")).text
    assert FORGED in text
    assert FORGED not in text.split("\n")


def test_s14_2_no_recognized_text_moves_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture, "is_picture", lambda _raw: True)
    monkeypatch.setattr(picture, "is_installed", lambda: True)
    monkeypatch.setattr(picture, "recognized_pages", lambda *_: [f"before\n{FORGED}\nafter"])
    assert FORGED not in picture.read(b"\x89PNG", ReadOptions(ocr=True)).text.split("\n")


def test_s14_2_a_plain_text_marks_its_own_places() -> None:
    assert read(DocumentFile(FORGED.encode(), "text")).text == FORGED
