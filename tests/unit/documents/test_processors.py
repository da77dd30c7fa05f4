"""How many documents are read at once (guarantee §14.4)."""

import asyncio
import io
import os
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from gateway.core.errors import Overloaded
from gateway.core.types.places import left_out_of, notes_of
from gateway.documents import document, process
from gateway.documents.document import read as read_kind
from gateway.documents.packages import ZipPackage
from gateway.documents.process import MAX_AT_ONCE, DocumentReader, processors
from tests.support.pdfs import with_photos


@pytest.mark.parametrize(
    ("quota", "count"), [("max 100000", 8), ("150000 100000", 2), ("1000 100000", 1), ("x", 8), ("900000 100000", 8)]
)
def test_s14_4_a_container_has_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, count: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)
    (tmp_path / "cpu.max").write_text(quota)
    assert processors(tmp_path / "cpu.max") == count
    assert processors(tmp_path / "none") == 8


async def test_s12_16_documents_of_tenants_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """§12.16: a tenant with a hundred documents keeps nobody waiting for all, and fills no more than half."""
    order: list[str] = []

    async def apart(_self: DocumentReader, file: document.DocumentFile, *_args: object) -> document.Reading:
        order.append(file.name)
        await asyncio.sleep(0)
        return document.Reading("x")

    monkeypatch.setattr(DocumentReader, "_read_apart", apart)
    reader = DocumentReader()

    async def read(tenant: str, size: int = 1) -> None:
        await reader.read(document.DocumentFile(bytes(size), "pdf", tenant), tenant)

    await asyncio.gather(*(read(name) for name in (*["busy"] * 100, "other")))
    assert order.index("other") <= MAX_AT_ONCE
    monkeypatch.setattr(process, "WAITING_BYTES", 100)
    outcomes = await asyncio.gather(*(read(name, 30) for name in ("busy", "busy", "other")), return_exceptions=True)
    assert [type(each) for each in outcomes] == [type(None), Overloaded, type(None)]


def test_s2_what_a_reader_left_out_is_told_apart_from_its_other_notes() -> None:
    """§2: for the warning `document_incomplete`."""
    whole = document.Reading("x", ("Sheet A has merged cells.",)).told
    rows = document.LeftOut("Rows of sheet A from 9 on are missing.")
    reading = document.Reading("x", ("Sheet A was not read aloud.", rows, "Hidden."))
    part = document.Reading.from_json(reading.as_json()).told
    assert left_out_of(whole) == ""
    assert left_out_of(part) == "Rows of sheet A from 9 on are missing."
    assert notes_of(part) == "Sheet A was not read aloud. Hidden. Rows of sheet A from 9 on are missing."


def test_s14_10_a_small_file_may_unpack_to_no_more_than_its_size_allows() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/media/a.bin", bytes(document.MIN_UNPACKED + 1))
    with pytest.raises(document.UnreadableDocument, match="too large"):
        ZipPackage(packed.getvalue())
    assert document.unpackable(2**30, 2**31) == 2**31


@pytest.mark.parametrize(
    ("kind", "told"), [("pdf", "page 2-3 was"), ("sqlite", "table b and"), ("parquet", "Rows were")]
)
@pytest.mark.parametrize("careful", [False, True])
def test_s14_10_what_a_small_file_says_is_bounded_by_its_size(
    kind: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, careful: bool
) -> None:
    if kind == "pdf":
        raw = with_photos(["word " * 40] * 3)
    elif kind == "sqlite":
        with closing(sqlite3.connect(tmp_path / "a.db")) as database:
            for table in "abc":
                database.execute(f"CREATE TABLE {table} AS SELECT printf('%0200d', 7) AS x")
        raw = (tmp_path / "a.db").read_bytes()
    else:
        parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        out = io.BytesIO()
        parquet.write_table(arrow.table({"x": list(range(200))}), out)
        raw = out.getvalue()
    options = document.ReadOptions(careful=careful)
    assert not any(
        isinstance(note, document.LeftOut) for note in read_kind(document.DocumentFile(raw, kind), options).notes
    )
    monkeypatch.setattr("gateway.documents.document.MAX_RATIO", 0)
    monkeypatch.setattr("gateway.documents.document.MIN_UNPACKED", 150)
    found = read_kind(document.DocumentFile(raw, kind), options)
    assert [told in note for note in found.notes if isinstance(note, document.LeftOut)] == [True]
