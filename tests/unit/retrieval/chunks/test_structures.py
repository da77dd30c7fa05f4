"""Texts are cut along their own structure: records, rows, entries, blocks of programs."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.retrieval.chunks.chunk import MAX_CHUNK_CHARS
from gateway.retrieval.chunks.split import fields_of, passages
from tests.unit.retrieval.asking import covers, cut

STAMPS = [
    "2024-01-01 10:00:{:02} ERROR ",
    "[Mon Dec 05 13:32:{:02} 2005] [error] ",
    "Jun 18 02:08:{:02} combo ftpd: ",
    "17/06/09 20:10:{:02} INFO ",
    "081111 0445{:02} 19 INFO ",
    "{:02}:00:00 ",
    "03-17 16:13:{:02}.747  22 V ",
    "WARN {:02} ",
]


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize(
    "trace", ["", "\n  at one(x)\n\tat two", "\nTraceback (most recent call last):\nValueError: x"]
)
def test_an_entry_of_a_log_keeps_its_trace(stamp: str, trace: str) -> None:
    entries = [f"{stamp.format(n)}something happened to number {n}{trace}" for n in range(20)]
    assert cut("\n".join(entries)) == [("", entry) for entry in entries]


@pytest.mark.parametrize(
    "line",
    [
        "src/a{0}.py:{0}:    timeout = {0}",
        "{0:>8} path/of/file{0}.txt",
        "ab{0:05} Fix number {0} (Name, 2024)",
        "-rw-r--r-- 1 root root {0} Jan 1 10:00 name{0}",
        "{0},name {0},17",
    ],
)
def test_a_line_of_a_listing_stands_for_itself(line: str) -> None:
    lines = [line.format(n) for n in range(40)]
    text = "\n".join(lines)
    assert [chunk.ordinal for chunk in passages(text)] == list(range(40))
    assert cut(text) == [("", each) for each in lines]


def test_a_failure_in_a_test_report_is_one_chunk_under_its_title() -> None:
    passed = "\n".join(f"tests/test_a.py::test_{n} PASSED" for n in range(20))
    failure = (
        "____ test_x ____\n\n    def run():\n>       assert a == 1\nE       AssertionError: 2\n\na.py:3: AssertionError"
    )
    text = (
        f"==== test session starts ====\n{passed}\n==== FAILURES ====\n{failure}\n==== summary ====\nFAILED test_x - 2"
    )
    found = cut(text)
    assert ("test session starts", "tests/test_a.py::test_3 PASSED") in found
    assert ("", failure) in found
    assert found[-1][1].endswith("FAILED test_x - 2")


PYTHON = '''"""What it is for."""

import re

LIMIT = 17


@decorated(1)
def first(a: int) -> int:
    """Does the first thing."""
    def inner() -> int:
        return a
    return inner()


class Long(Base):
    """About it."""

    def method(self) -> None:
        """Does it."""
        BODY

    # why
    async def other(self,
        b: int,
    ) -> None:
        return None


print(first(2))
'''.replace("BODY", "\n        ".join(f"self.call_number({n}, 'with words')" for n in range(60)))


@pytest.mark.parametrize("numbered", [False, True])
def test_functions_of_python_are_chunks_below_their_class(numbered: bool) -> None:
    text = PYTHON
    if numbered:
        text = "\n".join(f"{n:6}\t{line}" for n, line in enumerate(PYTHON.rstrip("\n").split("\n"), 1))
    found = cut(text)
    assert all(chunk.kind == "code" for chunk in passages(text))

    def holder(words: str) -> tuple[str, str]:
        return next(each for each in found if words in each[1])

    assert "LIMIT = 17" in holder("import re")[1]
    assert all(words in holder("@decorated")[1] for words in ("def first", "Does the first", "return inner()"))
    assert "Does it." in holder("def method")[1]
    assert holder("def method")[0] == "class Long(Base):"
    assert holder("call_number(50")[0] == "class Long(Base):\ndef method(self) -> None:"
    assert holder("async def other")[0] == "class Long(Base):"
    assert "# why" in holder("async def other")[1]
    assert holder("print(first(2))")[0] == ""


BODY = "\n".join(f"    call_number({n}, withSomeWords);" for n in range(30))
PROGRAMS = {
    "js": [
        f"export async function one(a) {{\n{BODY}\n}}",
        f"const two = async (b) => {{\n{BODY}\n}};",
        f"function three() {{\n{BODY}\n}}",
    ],
    "ts": [
        f"export interface One {{\n{BODY}\n}}",
        f"export class Two {{\n{BODY}\n}}",
        f"export type Three = {{\n{BODY}\n}};",
    ],
    "go": [
        f"func One(a int) error {{\n{BODY}\n}}",
        f"func (s *Two) Two() {{\n{BODY}\n}}",
        f"type Three struct {{\n{BODY}\n}}",
    ],
    "java": [
        f"public class One {{\n{BODY}\n}}",
        f"@Override\nprotected static int two(int a) {{\n{BODY}\n}}",
        f"interface Three {{\n{BODY}\n}}",
    ],
    "c": [
        f"static int one(int a, char *b)\n{{\n{BODY}\n}}",
        f"/* why */\nvoid two(void) {{\n{BODY}\n}}",
        f"struct three {{\n{BODY}\n}};",
    ],
    "rust": [
        f"pub fn one<T>(a: T) -> T {{\n{BODY}\n}}",
        f"#[derive(Debug)]\npub struct Two {{\n{BODY}\n}}",
        f"impl Three for Two {{\n{BODY}\n}}",
    ],
    "shell": [f"one() {{\n{BODY}\n}}", f"function two {{\n{BODY}\n}}", f"three_3() {{\n{BODY}\n}}"],
}


@pytest.mark.parametrize("language", PROGRAMS)
def test_functions_of_other_languages_are_chunks(language: str) -> None:
    definitions = PROGRAMS[language]
    found = cut("\n\n".join(definitions))
    assert [text for _, text in found] == definitions


def test_headings_stand_above_what_follows_them() -> None:
    words = "word " * 130
    text = f"# One\n\nIntro.\n\n## Two\n\n{words}\n\n{words}\n\n### Three\n\n{words}\n\n# Four\nEnd."
    found = [(heading, each.split("\n")[0][:9].strip()) for heading, each in cut(text)]
    assert found == [
        ("", "# One"),
        ("# One", "## Two"),
        ("# One\n## Two", "word word"),
        ("# One\n## Two", "### Three"),
        ("", "# Four"),
    ]
    underlined = f"Title\n=====\n\nIntro.\n\nPart\n----\n\n{words}\n\n{words}"
    assert [heading for heading, _ in cut(underlined)] == ["", "Title", "Title\nPart"]


def test_small_paragraphs_are_gathered_and_a_fence_is_not_torn_apart() -> None:
    text = "\n\n".join(["# One", "a" * 100, "b" * 100, "# Two", "c" * 100])
    assert cut(text) == [("", f"# One\n\n{'a' * 100}\n\n{'b' * 100}"), ("", f"# Two\n\n{'c' * 100}")]
    fence = "```sh\n# no heading\n\nls\n\n# none either\n```"
    assert cut(f"{'w ' * 340}\n\n{fence}\n\n{'x ' * 300}")[1][1].startswith(fence)


@pytest.mark.parametrize(
    ("sentence", "between"),
    [
        ("Sentence with this and that and more.", " "),
        ("这是一个很长的句子，里面有很多字。", ""),
        ("هل هذه جملة طويلة فيها كلمات كثيرة؟", " "),
        ("यह एक लंबा वाक्य है जिसमें कई शब्द हैं।", " "),
    ],
)
def test_a_long_paragraph_is_cut_between_sentences(sentence: str, between: str) -> None:
    text = between.join([sentence] * 150)
    found = [each for _, each in cut(text)]
    assert len(found) > 2
    assert all(each.startswith(sentence[:5]) and each.endswith(sentence[-1]) for each in found)


@pytest.mark.parametrize("sign", ["👩‍👩‍👧‍👦", "e\u0301", "👍🏽", "\ud83d\ude00", "☎️"])
def test_no_sign_is_torn_apart(sign: str) -> None:
    text = "x" + sign * 1500
    found = cut(text)
    assert len(found) > 1
    assert all(len(each) <= MAX_CHUNK_CHARS for _, each in found)
    assert all(each.removeprefix("x").replace(sign, "") == "" for _, each in found)


def test_hypertext_is_cut_at_its_blocks_below_its_headings() -> None:
    words = "word " * 100
    text = f"<html><body><h1>One &amp; all</h1><p>{words}</p><p>{words}</p><h2>Two</h2><ul><li>{words}</li></ul></html>"
    assert [(heading, each[:4]) for heading, each in cut(text)] == [
        ("", "<htm"),
        ("", "<h1>"),
        ("# One & all", "<p>w"),
        ("# One & all", "<h2>"),
    ]


def test_what_has_no_words_comes_in_small_pieces() -> None:
    found = [each for _, each in cut("".join(chr(65 + n * 7 % 26) for n in range(20_000)))]
    assert all(len(each) <= 240 for each in found[:-1])


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
