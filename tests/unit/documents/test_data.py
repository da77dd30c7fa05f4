"""Notebooks, Parquet, SQLite, subtitles and XML say what is in them (guarantee §14.11)."""

import builtins
import io
import json
import random
import sqlite3
from collections.abc import Callable
from typing import Any

import pyarrow as arrow
import pytest
from pyarrow import parquet

from gateway.core.types.places import TextPlaces
from gateway.documents.document import DocumentFile, Reading, UnreadableDocument, read
from tests.support.growth import is_linear


def reading(raw: bytes, kind: str) -> Reading:
    return read(DocumentFile(raw, kind))


def place(text: str, words: str) -> str:
    at = text.index(words)
    return TextPlaces(text).of(at, at + len(words))


def notebook(*cells: dict[str, Any]) -> bytes:
    return json.dumps({"cells": cells, "nbformat": 4, "metadata": {"language_info": {"name": "julia"}}}).encode()


def database(*statements: str) -> bytes:
    connection = sqlite3.connect(":memory:")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    return connection.serialize()


def table(rows: int = 1000, group: int = 300) -> bytes:
    columns = {
        "id": list(range(rows)),
        "name": [None if n % 3 else f"name {n}" for n in range(rows)],
        "tags": [[n, n] for n in range(rows)],
    }
    out = io.BytesIO()
    parquet.write_table(arrow.table(columns), out, row_group_size=group)
    return out.getvalue()


def test_s14_11_a_notebook_is_its_cells_with_what_they_printed() -> None:
    picture = {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo" * 1000, "text/plain": ["<Figure>"]}}
    text = reading(
        notebook(
            {"cell_type": "markdown", "source": ["# Title\n", "words"]},
            {
                "cell_type": "code",
                "source": "1 + 1",
                "outputs": [
                    {"output_type": "execute_result", "data": {"text/html": "<b>two</b>", "text/plain": ["2"]}},
                    {"output_type": "stream", "text": ["\x1b[31mred\x1b[0m\n"]},
                    picture,
                    {"output_type": "error", "traceback": ["\x1b[0;31mValueError\x1b[0m: no"]},
                ],
            },
        ),
        "notebook",
    ).text
    assert text == (
        "[cell 1]\n# Title\nwords\n\n[cell 2]\n```julia\n1 + 1\n```\nOutput:\n2\nOutput:\nred\n"
        "Output:\n(A picture.)\nOutput:\nValueError: no"
    )
    assert place(text, "red") == "cell 2"


def test_s14_11_a_parquet_file_is_its_schema_its_figures_and_a_sample() -> None:
    text = reading(table(), "parquet").text
    assert "Parquet table of 1,000 rows and 3 columns:\n- id: int64, from 0 to 999\n" in text
    assert "- name: string, from name 0 to name 999, 666 empty\n- tags: list<" in text
    assert '\n0,name 0,"[0, 0]"\n1,,"[1, 1]"\n' in text
    assert text.endswith('999,name 999,"[999, 999]"')
    assert place(text, "999,name 999") == "table 1"
    small = reading(table(250, 60), "parquet").text
    assert "\n199," in small
    assert small.endswith('249,name 249,"[249, 249]"')
    assert reading(table(0), "parquet").text.startswith("[table 1]\nParquet table of 0 rows")


def test_s2_what_is_cut_of_data_is_noted_as_left_out() -> None:
    long = "word " * 200
    rows = [f"INSERT INTO t VALUES ({n}, '{long if n == 3 else 'x'}')" for n in range(300)]
    assert reading(database("CREATE TABLE t (a, b)", *rows), "sqlite").notes == (
        "Rows were left out: 80 of t.",
        "Values were cut at 500 characters in t.",
    )
    out = io.BytesIO()
    parquet.write_table(arrow.table({"a": [long, *["x"] * 299]}), out)
    assert reading(out.getvalue(), "parquet").notes == (
        "Values were cut at 500 characters.",
        "80 of its 300 rows were left out.",
    )
    printed = {"cell_type": "code", "source": "x", "outputs": [{"output_type": "stream", "text": "y" * 20_001}]}
    assert reading(notebook(printed), "notebook").notes == ("1 outputs were cut at 20,000 characters.",)
    assert reading(f'<a><b c="{"d" * 2001}"/></a>'.encode(), "xml").notes == (
        "Attributes were cut at 2,000 characters.",
    )
    whole = [database("CREATE TABLE t (a)"), table(200), notebook({"cell_type": "raw", "source": "x"}), b"<a b='c'/>"]
    for raw, kind in zip(whole, ("sqlite", "parquet", "notebook", "xml"), strict=True):
        assert reading(raw, kind).notes == ()


def test_parquet_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return whole(name, *rest)

    raw = table(3)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnreadableDocument, match="the extra `documents`"):
        reading(raw, "parquet")


def test_s14_11_a_database_is_its_tables_and_a_sample_of_each() -> None:
    raw = database(
        "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, photo BLOB)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)"
        " INSERT INTO people SELECT i, 'name ' || i, x'00ff' FROM n",
        'CREATE TABLE "odd ""name] [page 3]" ("a ""b" TEXT)',
        "CREATE VIEW adults AS SELECT * FROM people",
        "CREATE TABLE w (k TEXT PRIMARY KEY, u TEXT GENERATED ALWAYS AS (upper(k))) WITHOUT ROWID",
        "INSERT INTO w (k) VALUES ('key')",
    )
    text = reading(raw, "sqlite").text
    assert text.startswith("SQLite database of 3 tables.\nCREATE VIEW adults AS SELECT * FROM people\n")
    assert "[table people]\nCREATE TABLE people (" in text
    assert "500 rows, of which the first 200 and the last 20 stand here:\nid,name,photo\n1,name 1,(2 bytes)\n" in text
    assert "\n200,name 200,(2 bytes)\n…\n481,name 481,(2 bytes)\n" in text
    assert "[table w]" in text
    assert "key,KEY" in text
    assert place(text, "500,name 500") == "table people"
    assert '[table odd "name) (page 3)]' in text
    log = bytearray(raw)
    log[18:20] = b"\x02\x02"  # as programs leave it that write changes to a file beside it
    assert "name 500" in reading(bytes(log), "sqlite").text


def test_s14_11_nothing_in_a_database_is_run(tmp_path: Any) -> None:
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE t (x)")
    connection.execute("INSERT INTO t VALUES (1)")
    connection.execute("CREATE VIRTUAL TABLE f USING fts5(words)")
    connection.execute("INSERT INTO f VALUES ('found in here')")
    connection.commit()
    # The schema is made to say that `t` is a view that would never end, or an extension of its own.
    connection.execute("PRAGMA writable_schema=ON")
    endless = "CREATE VIEW t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n"
    connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 't'", (endless,))
    connection.commit()
    connection.close()
    try:
        found = reading(other.read_bytes(), "sqlite")
        assert "endless" not in found.text
    except UnreadableDocument:
        pass
    virtual = database("CREATE VIRTUAL TABLE f USING fts5(words)", "INSERT INTO f VALUES ('found in here')")
    text = reading(virtual, "sqlite").text
    assert "(A virtual table, which was not read.)" in text
    assert place(text, "found in here") == "table f_content"


def test_s14_11_subtitles_are_what_is_said_with_its_time() -> None:
    vtt = (
        "WEBVTT\n\nintro\n00:01.000 --> 00:02.000 align:start\n<v Bob>Hi <b>there</b>\n- &amp; you\n\n"
        "NOTE a remark\n\n01:02:03.000 --> 01:02:04.000\nBye\n"
    )
    assert reading(vtt.encode(), "subtitles").text == "[00:00:01] Bob: Hi there - & you\n[01:02:03] Bye"
    srt = "1\r\n00:00:01,000 --> 00:00:02,000\r\n{\\an8}<i>Größe</i>\r\n2\r\n00:00:05,000 --> 00:00:06,000\r\nC\r\n"
    assert reading(srt.encode("latin-1"), "subtitles").text == "[00:00:01] Größe\n[00:00:05] C"
    assert reading(b"no times at all", "subtitles").text == "no times at all"


def test_s14_11_xml_keeps_the_names_of_what_stands_in_it() -> None:
    raw = (
        '<?xml version="1.0" encoding="iso-8859-1"?><!DOCTYPE order SYSTEM "http://127.0.0.1:9/x.dtd">'
        '<o:order xmlns:o="urn:o"><customer id="7" city="Köln">Jörg</customer>'
        "<text>one <em>two</em> three</text><empty/><![CDATA[<raw>]]></o:order>"
    )
    assert reading(raw.encode("latin-1"), "xml").text == (
        'order (xmlns:o="urn:o"):\n  customer (id="7", city="Köln"): Jörg\n  text: one\n    em: two\n    three\n'
        "  empty:\n  <raw>"
    )


def test_xml_that_is_none_or_has_entities_stays_as_it_is() -> None:
    lol = '<!DOCTYPE a [<!ENTITY x "lol"><!ENTITY y "&x;&x;">]><a>&y;</a>'
    outside = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'
    for text in (lol, outside, "<a><b></a>", "no xml", "", "<a>" * 20_000 + "</a>" * 20_000):
        assert reading(text.encode(), "xml").text == text
    deep = reading(b"<a>" * 5000 + b"x" + b"</a>" * 5000, "xml").text
    assert deep.endswith("a: x")
    assert len(deep) < 5000 * 50


WHOLE: dict[str, Callable[[], bytes]] = {
    "notebook": lambda: notebook({"cell_type": "code", "source": "1", "outputs": [{"text": ["a"]}]}),
    "parquet": lambda: table(50),
    "sqlite": lambda: database("CREATE TABLE t (a, b)", "INSERT INTO t VALUES (1, 'two')", "CREATE INDEX i ON t (a)"),
    "subtitles": lambda: b"1\n00:00:01,000 --> 00:00:02,000\nwords\n\n",
    "xml": lambda: b"<?xml version='1.0'?><a b='c'><d>e</d></a>",
}


@pytest.mark.parametrize("kind", list(WHOLE))
def test_broken_files_are_told_never_more(kind: str) -> None:
    whole, chance = WHOLE[kind](), random.Random(3)
    cut = [whole[:size] for size in range(0, len(whole), max(1, len(whole) // 40))]
    changed = []
    for _ in range(150):
        raw = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        changed.append(bytes(raw))
    for each in [*cut, *changed, b"[" * 100_000, b"{" * 100_000, b"null", b'{"cells": [[]]}']:
        try:
            assert isinstance(reading(each, kind).text, str)
        except UnreadableDocument:
            continue


@pytest.mark.parametrize(
    ("kind", "unit"),
    [
        ("xml", "<b c='d'>e</b>"),
        ("xml", "<b "),
        ("xml", "a&amp;"),
        ("subtitles", "00:00:01,000 --> 00:00:02,000\n<b>\n"),
        ("subtitles", "<v "),
        ("subtitles", "00:"),
        ("subtitles", "1 \t"),
    ],
)
def test_data_take_linear_time(kind: str, unit: str) -> None:
    def work(size: int) -> object:
        inside = unit * (size // len(unit))
        return reading((f"<a>{inside}</a>" if kind == "xml" else f"WEBVTT\n{inside}").encode(), kind)

    assert is_linear(work, 400_000)
