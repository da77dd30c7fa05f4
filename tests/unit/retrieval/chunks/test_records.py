"""JSON is cut between its records, tables between their rows, and both give their values."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.retrieval.chunks.split import fields_of, passages
from tests.unit.retrieval.chunks.test_passages import covers

RECORDS = [{"id": n, "text": f"record {n} " + "word " * (n % 7), "tags": ["a", {"b": n}]} for n in range(40)]
WRAPS: dict[str, Callable[[Any], Any]] = {
    "array": lambda r: r,
    "member": lambda r: {"count": 40, "results": r},
    "deep": lambda r: {"status": "ok", "data": {"page": 1, "items": r, "next": None}},
    "members": lambda r: {f"key {each['id']}": each for each in r},
    "late": lambda r: {"head": {f"k{n}": "x" * 50 for n in range(40)}, "results": r},
}


def texts(text: str) -> list[str]:
    found = passages(text)
    covers(text, found)
    return [text[chunk.start : chunk.end] for chunk in found]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("wrap", WRAPS.values(), ids=list(WRAPS))
def test_a_record_is_not_torn_apart_and_knows_its_place_and_values(
    indent: int | None, wrap: Callable[[Any], Any]
) -> None:
    text = json.dumps(wrap(RECORDS), indent=indent)
    found = passages(text)
    covers(text, found)
    for number, record in enumerate(RECORDS):
        holders = [chunk for chunk in found if f'"id": {record["id"]},' in text[chunk.start : chunk.end]]
        assert len(holders) == 1
        assert str(record["text"]) in text[holders[0].start : holders[0].end]
        assert (holders[0].kind, holders[0].ordinal) == ("record", number)
        assert fields_of(text, holders[0]) == [
            ("id", number),
            ("text", record["text"]),
            ("tags", "a"),
            ("tags b", number),
        ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", ""])
def test_json_lines_are_records(end: str) -> None:
    text = end.join(json.dumps(record) for record in RECORDS)
    assert [json.loads(each) for each in texts(text)] == RECORDS
    assert [chunk.ordinal for chunk in passages(text)] == list(range(40))


def test_records_that_a_tool_cut_off_are_records_as_far_as_they_go() -> None:
    text = json.dumps({"total": 40, "items": RECORDS})[:-300] + "... [truncated]"
    found = [chunk for chunk in passages(text) if chunk.kind == "record"]
    covers(text, passages(text))
    assert len(found) >= 30
    assert fields_of(text, found[20])[0] == ("id", 20)


def test_json_behind_and_before_words_is_found() -> None:
    text = f"Found these:\n{json.dumps(RECORDS)}\nThat is all. There is no more to be told."
    found = passages(text)
    covers(text, found)
    assert sum(chunk.kind == "record" for chunk in found) == 40
    assert text[found[0].start : found[0].end] == "Found these:"


def test_a_log_line_that_begins_with_a_bracket_is_no_json() -> None:
    text = "\n".join(f"[10.30 21:10:{n:02}] chrome.exe - closed, {n} bytes" for n in range(60))
    assert texts(text) == text.split("\n")


def test_a_long_record_is_cut_at_its_members_below_what_it_begins_with() -> None:
    dates = {
        f"2024-05-{day:02}": {"status": "available", "price": day * 10, "seats": {"economy": day}}
        for day in range(1, 31)
    }
    text = json.dumps([{"flight": f"HAT{n:03}", "origin": "JFK", "dates": dates} for n in range(5)])
    found = passages(text)
    covers(text, found)
    (chunk,) = [c for c in found if c.ordinal == 3 and '"2024-05-23"' in text[c.start : c.end]]
    assert '"flight": "HAT003"' in chunk.heading
    assert '"price": 230' in text[chunk.start : chunk.end]
    assert fields_of(text, chunk)[0] == ("flight", "HAT003")
    items = [{"name": f"thing {n}", "price": n, "note": "words " * 20} for n in range(30)]
    text = json.dumps([{"order": f"#W{n}", "items": items} for n in range(3)])
    (chunk,) = [c for c in passages(text) if c.ordinal == 1 and '"thing 17"' in text[c.start : c.end]]
    assert '"order": "#W1"' in chunk.heading


def test_numbers_and_words_are_gathered() -> None:
    assert len(texts(json.dumps(list(range(3000))))) < 40
    assert len(texts("{}" * 5000)) < 40


def table(separator: str, quoting: Any = csv.QUOTE_MINIMAL, end: str = "\n", cell: str = "a word") -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=separator, quoting=quoting, lineterminator=end)
    writer.writerows([["id", "name", "note"], *([n, f"name {n}", cell] for n in range(30))])
    return out.getvalue()


@pytest.mark.parametrize("separator", [",", "\t", ";", "|"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL], ids=["few quotes", "all quoted"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("cell", ["plain", 'say "x", and; more|\there', "two\nlines, of it"])
def test_a_row_stands_below_the_first_one_and_gives_its_values(
    separator: str, quoting: Any, end: str, cell: str
) -> None:
    text = table(separator, quoting, end, cell)
    found = passages(text)
    covers(text, found)
    rows = [chunk for chunk in found if chunk.kind == "row"]
    assert [chunk.ordinal for chunk in rows] == list(range(30))
    assert {chunk.heading for chunk in rows} == {text.partition(end)[0]}
    assert fields_of(text, rows[7])[:2] == [("id", "7"), ("name", "name 7")]
    assert fields_of(text, rows[7])[2] == ("note", cell)


def test_a_drawn_table_in_a_document_has_rows() -> None:
    text = "| id | name |\n|----|------|\n" + "\n".join(f"| {n} | name {n} |" for n in range(20))
    found = passages(text)
    covers(text, found)
    assert found[0].kind == "prose"
    assert [(c.heading, fields_of(text, c)) for c in found[1:3]] == [
        ("| id | name |", [("id", "0"), ("name", "name 0")]),
        ("| id | name |", [("id", "1"), ("name", "name 1")]),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Dear all,\nI write to you\nabout that\nthing",
        "id,name\n1,a",
        "1,name one,17\n2,name two,34\n3,name three,51\n4,name four,68",
        "     1\timport a\n     2\timport b\n     3\tdef c():\n     4\t    pass",
        "a = f(1, 2)\nb = f(1, 3)\nc = f(1, 4)\nd = f(1, 5)",
        "Yes, of course.\nNo, not now.\nWell, maybe.\nHm, who knows.",
        "",
    ],
)
def test_what_is_no_table_has_no_rows(text: str) -> None:
    found = passages(text)
    covers(text, found)
    assert not [chunk for chunk in found if chunk.kind == "row"]
