"""Attached pictures of text: which files are, and what is read of them (guarantee §14.3)."""

import base64
import shutil
import stat
from pathlib import Path

import pytest

from gateway.core.types.places import pages_without_text
from gateway.documents import ocr
from gateway.documents.document import ReadOptions, UnreadableDocument
from gateway.documents.file_reader import encoded_document, inline_file, sent_document, stored_document
from gateway.documents.picture import read
from tests.support.pdfs import pictured

OCR = ReadOptions(ocr=True)
FORMS = ["PNG", "JPEG", "TIFF"]
needs_tesseract = pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")


@needs_tesseract
@pytest.mark.parametrize("form", FORMS)
def test_s14_3_the_text_of_a_picture_is_recognized(form: str) -> None:
    found = read(pictured(["Marlow keeps the lamp"], form), OCR)
    assert found.text == "Marlow keeps the lamp"
    assert found.notes == ("This text was recognized from a picture (OCR).",)
    assert found.empty == ()


@needs_tesseract
def test_s14_3_pictures_of_a_tiff_are_pages() -> None:
    found = read(pictured(["One fish", "", "Two ships", ""], "TIFF"), OCR)
    assert found.text == "[page 1]\nOne fish\n\n[page 2]\n\n\n[page 3]\nTwo ships\n\n[page 4]\n"
    assert pages_without_text(found.told) == "2, 4"


@pytest.mark.parametrize("options", [ReadOptions(), OCR], ids=["switched off", "not installed"])
def test_s14_3_unrecognized_a_picture_is_a_page_without_text(
    options: ReadOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = read(pictured(["Marlow"], "PNG"), options)
    assert (found.text, found.empty, len(found.pages)) == ("", (1,), 1)


@pytest.mark.parametrize("said", ["sleep 9", "exit 3"], ids=["late", "broken"])
def test_s14_3_a_picture_that_cannot_be_recognized_says_so(
    said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "tesseract"
    program.write_text(f'#!/bin/sh\nif [ "$1" = --list-langs ]; then echo eng; exit 0; fi\n{said}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    ocr._languages.cache_clear()
    with pytest.raises(UnreadableDocument, match="could not be recognized"):
        read(pictured(["Marlow"], "PNG"), ReadOptions(ocr=True, seconds=0.5 if said == "sleep 9" else 60))
    ocr._languages.cache_clear()


@pytest.mark.parametrize("raw", [b"/etc/passwd\n", b"http://example.com/a.png\n", b"GIF89a", b"", b"P5 1 1 255\n0"])
def test_s14_3_nothing_but_a_picture_reaches_the_program(raw: bytes) -> None:
    """It takes a text for a list of files, and addresses in it for files, too."""
    with pytest.raises(UnreadableDocument, match="no readable picture"):
        read(raw, OCR)


@pytest.mark.parametrize("form", FORMS)
def test_only_attached_pictures_are_documents(form: str) -> None:
    raw, name = pictured(["Marlow"], form), f"a.{form.lower()}"
    data = f"data:image/{form.lower()};base64,{base64.b64encode(raw).decode()}"
    assert sent_document(data, name).kind == "image"
    assert stored_document(name, f"image/{form.lower()}", raw, pictures=True).kind == "image"
    found = encoded_document(data)
    assert found is not None
    assert found.kind == "image"
    assert inline_file({"filename": name, "file_data": data}, decode_pdf=True) is None, "it goes up as it came"
    with pytest.raises(UnreadableDocument, match="no text document"):
        stored_document(name, f"image/{form.lower()}", raw)
