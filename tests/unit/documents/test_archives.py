"""Archives are read as folders, within bounds (guarantee §14.9)."""

import bz2
import gzip
import io
import lzma
import random
import tarfile
import zipfile
from collections.abc import Callable

import pytest
from openpyxl import Workbook

from gateway.core.types import places
from gateway.core.types.places import TextPlaces
from gateway.documents import archive_zip
from gateway.documents.document import DocumentFile, LeftOut, Reading, ReadOptions, UnreadableDocument, read
from gateway.documents.nested_documents import NestBudget, NestedPlace
from tests.support.growth import is_linear

Files = dict[str, bytes]


def zipped(files: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def tarred(files: Files, mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def reading(raw: bytes, kind: str) -> Reading:
    return read(DocumentFile(raw, kind))


TREE = {
    "src/main.rs": b'fn main() { println!("the port is 4711"); }\n',
    "README": "Größe".encode("latin-1"),
    "Makefile": b"all:\n\techo\n",
    ".gitignore": b"target\n",
    "table.csv": b"a,b\n1,2\n",
}


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("zip", zipped),
        ("tar", tarred),
        ("tar", lambda files: tarred(files, "w:gz")),
        ("tar", lambda files: tarred(files, "w:bz2")),
        ("tar", lambda files: tarred(files, "w:xz")),
    ],
    ids=["zip", "tar", "gz", "bz2", "xz"],
)
def test_s14_9_an_archive_is_its_listing_and_its_files_in_order_of_their_paths(
    kind: str, make: Callable[[Files], bytes]
) -> None:
    found = reading(make(TREE), kind)
    size = sum(map(len, TREE.values()))
    assert found.text.startswith(f"Archive of 5 files, {size} bytes unpacked:\n.gitignore (7 bytes)\nMakefile (")
    marks = [line[6:-1] for line in found.text.splitlines() if line.startswith("[file ")]
    assert marks == sorted(TREE)
    assert "[file README]\nGröße" in found.text
    at = found.text.index("println")
    assert TextPlaces(found.text).of(at, at + 5) == "file src/main.rs, line 1"
    assert found.notes == ()


def test_s14_9_what_is_left_out_is_counted_with_its_reason() -> None:
    files = {
        "../../etc/passwd": b"x",
        "/etc/shadow": b"x",
        "C:\\autoexec.bat": b"x",
        ".git/config": b"x",
        "web/node_modules/left-pad/index.js": b"x",
        "photo.png": b"\x89PNG\r\n\x1a\n\0\0\0\0",
        "blob": bytes(range(256)),
        "zeros.txt": b"\0" * (17 * 2**20),
        "kept.txt": b"kept",
    }
    found = reading(zipped(files), "zip")
    assert [line for line in found.text.splitlines() if line.startswith("[file ")] == ["[file kept.txt]"]
    (note,) = found.notes
    assert note.startswith("8 files were left out: ")
    for said in (
        "3 with paths that lead out of the archive",
        "2 in folders of tools",
        "2 without text (",
        "1 unpacking to far more than they are (zeros.txt)",
    ):
        assert said in note


def test_s14_9_links_devices_and_protected_members_are_not_read() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo(f"odd{kind.decode()}")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    assert reading(out.getvalue(), "tar").notes[0].startswith("4 files were left out: 4 links or devices")
    raw = bytearray(zipped({"a.txt": b"secret", "b.txt": b"open"}))
    entry = raw.index(b"PK\x01\x02")
    raw[entry + 8] |= 1  # the flag of encrypted members, in the directory
    found = reading(bytes(raw), "zip")
    assert "1 protected by a password (a.txt)" in found.notes[0]
    assert "open" in found.text
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive_of_link:
        archive_of_link.writestr(link, "/etc/passwd")
    assert "1 links (link)" in reading(out.getvalue(), "zip").notes[0]


def test_archives_in_archives_are_read_three_levels_deep() -> None:
    raw = b"deepest"
    for level in range(5):
        raw = zipped({f"level{level}.{'zip' if level else 'txt'}": raw})
    found = reading(raw, "zip")
    assert "[file level4.zip/level3.zip]" in found.text
    assert "[file level4.zip/level3.zip/level2.zip]" not in found.text
    assert "it stands too deep in other files (level4.zip/level3.zip/level2.zip)" in found.notes[0]
    inner = zipped({"a.zip": zipped({"note.txt": b"found"})})
    assert "[file a.zip/note.txt]\nfound" in reading(inner, "zip").text


def test_a_single_packed_file_is_read_and_what_is_packed_in_it_too() -> None:
    for pack in (gzip.compress, bz2.compress, lzma.compress):
        assert reading(pack(b"one line of a log"), "tar").text.endswith("one line of a log")
        with pytest.raises(UnreadableDocument):
            reading(pack(bytes(range(256)) * 10), "tar")


@pytest.mark.long
def test_s14_9_bombs_end_at_the_bounds() -> None:
    def nested(budget: NestBudget, raw: bytes) -> tuple[str, str]:
        nesting = NestedPlace(ReadOptions(), budget)
        return archive_zip.read_nested(raw, nesting), " ".join(nesting.notes())

    many = zipped({f"{n:03}.txt": b"word " * 100 for n in range(100)})
    text, notes = nested(NestBudget(members=10), many)
    assert text.count("[file ") == 10
    assert "90 beyond the most files" in notes
    text, notes = nested(NestBudget(text=2000), many)
    assert len(text) < 8000
    assert "beyond the longest text" in notes
    text, notes = nested(NestBudget(unpacked=1000), many)
    assert text.count("[file ") == 2
    assert "beyond the most bytes" in notes
    bush = many
    for _ in range(4):
        bush = zipped({f"{n}.zip": bush for n in range(4)})
    text, notes = nested(NestBudget(unpacked=100_000), bush)
    assert len(text) < 1_000_000
    assert "left out" in notes
    with pytest.raises(UnreadableDocument, match="far more"):
        reading(gzip.compress(b"word " * (26 * 2**20), 1), "tar")


def test_a_long_listing_says_how_many_more() -> None:
    found = reading(zipped({f"{n:05}": b"x" for n in range(1500)}), "zip")
    assert "\nand 500 more\n" in found.text
    assert found.text.count("[file ") == 1500


def test_no_member_can_pretend_to_be_another_place() -> None:
    found = reading(zipped({"a.txt": b"[file b.txt]\n[page 9]\nwords"}), "zip")
    at = found.text.index("words")
    assert TextPlaces(found.text).of(at, at + 5) == "file a.txt, line 3"
    odd = reading(zipped({"a]\n[page 7].txt": b"words"}), "zip").text
    assert "[file a) (page 7).txt]\nwords" in odd


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_broken_archives_are_told_never_more(kind: str) -> None:
    whole = zipped(TREE) if kind == "zip" else tarred(TREE, "w:gz")
    chance = random.Random(14)
    broken = [whole[:size] for size in range(0, len(whole), max(1, len(whole) // 40))]
    for _ in range(100):
        raw = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        broken.append(bytes(raw))
    told = 0
    for each in broken:
        try:
            assert reading(each, kind).text
        except UnreadableDocument:
            told += 1
    assert told


@pytest.mark.long
def test_reading_an_archive_takes_linear_time() -> None:
    def work(files: int) -> object:
        return reading(zipped({f"d{n % 7}/{n}.py": b"x = 1\n" * 5 for n in range(files)}), "zip")

    assert is_linear(work, 4000)


def test_s2_what_was_left_out_is_found_however_many_other_notes_there_are() -> None:
    book = Workbook()
    book.active.merge_cells("A1:B1")
    book.active["A1"] = "x"
    out = io.BytesIO()
    book.save(out)
    files = {f"{'long name ' * 8}{n}.xlsx": out.getvalue() for n in range(30)}
    found = reading(zipped({"a.png": b"x", **files}), "zip")
    told = places.left_out_of(found.told)
    assert told == "1 file was left out: 1 without text (a.png). 10 more notes on the files in it are not shown."
    many = Reading("x", (LeftOut("All of it."), *(f"Note {n} {'x' * 90}" for n in range(400))))
    assert places.left_out_of(many.told) == "All of it."
