"""PDFs read: their text page by page, pages without text, and what was done about these (guarantee §14.3)."""

import io
import shutil
import stat
from pathlib import Path

import pytest
from pypdf import PdfWriter
from pypdf.generic import ArrayObject, DictionaryObject, NameObject, TextStringObject
from reportlab.pdfgen.canvas import Canvas

from gateway.core.types.places import notes_of, pages_without_text
from gateway.documents import ocr
from gateway.documents.document import Reading, ReadOptions, UnreadableDocument
from gateway.documents.pdf import read
from tests.support.pdfs import encrypted, scanned, with_photos

PLAIN, OCR = ReadOptions(), ReadOptions(ocr=True)
MIXED = scanned(["!First", "Marlow keeps the lamp", "Second", "!Last", "Third"])


def test_pages_are_marked_and_those_with_pictures_are_known() -> None:
    found = read(with_photos(["One\nline", "Two"]), PLAIN)
    assert found.text == "[page 1]\nOne\nline\n\n[page 2]\nTwo"
    assert [(round(p.width), round(p.height), p.has_picture) for p in found.pages] == [(595, 842, True)] * 2
    assert found.notes == ()


def test_s14_3_pages_without_text_are_told() -> None:
    found = read(MIXED, PLAIN)
    assert found.empty == (2, 3, 5)
    assert found.notes == ("Pages 2-3, 5 hold no text (they are pictures).",)
    assert pages_without_text(found.told) == "2-3, 5"
    assert notes_of(found.told) == found.notes[0]
    assert Reading.from_json(found.as_json()) == found


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")
def test_s14_3_scanned_pages_are_recognized() -> None:
    found = read(MIXED, OCR)
    assert "[page 2]\nMarlow keeps the lamp" in found.text
    assert found.notes == ("Pages 2-3, 5 were recognized from pictures (OCR).",)
    assert found.empty == ()
    assert pages_without_text(found.told) == ""


def test_s14_3_without_the_program_pages_stay_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read(MIXED, OCR) == read(MIXED, PLAIN)


def _program(folder: Path, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "tesseract"
    program.write_text(f"#!/bin/sh\n{said}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    ocr._languages.cache_clear()


@pytest.mark.long
@pytest.mark.parametrize("said", ["sleep 9", "exit 3", "exit 0"], ids=["late", "broken", "nothing found"])
def test_s14_3_a_program_that_fails_leaves_pages_told(
    said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listed = 'if [ "$1" = --list-langs ]; then echo eng; exit 0; fi'
    _program(tmp_path, f"{listed}\n{said}", monkeypatch)
    found = read(MIXED, ReadOptions(ocr=True, seconds=0.5 if said == "sleep 9" else 60))
    assert found.empty == (2, 3, 5)
    assert found.notes[-1] == "Pages 2-3, 5 hold no text (they are pictures)."
    assert len(found.notes) == 1 + (said != "exit 0"), "that there was no time, or that it did not work"


@pytest.mark.long
def test_only_languages_that_are_there_are_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listed = 'if [ "$1" = --list-langs ]; then printf "List:\\neng\\ndeu\\n"; exit 0; fi'
    _program(tmp_path, f'{listed}\ncat >/dev/null\necho "Asked for $4"', monkeypatch)
    assert "Asked for deu+eng" in read(MIXED, ReadOptions(ocr=True, ocr_languages="deu+eng+xxx")).text


def test_a_pdf_encrypted_without_a_password_is_read() -> None:
    assert "keeper" in read(encrypted(with_photos(["the keeper"])), PLAIN).text
    with pytest.raises(UnreadableDocument, match="password"):
        read(encrypted(with_photos(["the keeper"]), "secret"), PLAIN)


def test_what_is_left_of_a_damaged_pdf_is_read_with_a_note() -> None:
    whole = with_photos(["the keeper"])
    found = read(whole[: whole.rindex(b"startxref")], PLAIN)
    assert "the keeper" in found.text
    assert found.notes == ("The PDF is cut off; what could be found of it was read.",)


def test_every_other_cut_is_read_or_refused() -> None:
    whole = with_photos(["the keeper"], side=20)
    for end in range(0, len(whole), 97):
        try:
            read(whole[:end], PLAIN)
        except UnreadableDocument:
            continue


def test_fields_of_forms_and_comments_are_read_and_embedded_files_told() -> None:
    out = io.BytesIO()
    canvas = Canvas(out)
    canvas.drawString(50, 700, "Form")
    canvas.acroForm.textfield(name="town", value="Bremen", x=50, y=600)
    canvas.textAnnotation("Check this", Rect=[50, 500, 90, 540])
    canvas.save()
    writer, changed = PdfWriter(clone_from=io.BytesIO(out.getvalue())), io.BytesIO()
    writer.add_attachment("a.txt", b"text")
    action = {NameObject("/S"): NameObject("/JavaScript"), NameObject("/JS"): TextStringObject("app.alert(1)")}
    scripts = ArrayObject([TextStringObject("first"), DictionaryObject(action)])
    names = writer.root_object["/Names"]
    assert isinstance(names, DictionaryObject)
    names[NameObject("/JavaScript")] = DictionaryObject({NameObject("/Names"): scripts})
    writer.write(changed)
    found = read(changed.getvalue(), PLAIN)
    assert "town: Bremen" in found.text
    assert "(Comment: Check this)" in found.text
    assert found.notes == ("Files embedded in the PDF (1) were not read.", "The PDF holds scripts, which were not run.")
