"""What holds of all passages, and of very many tiny ones. Texts in which places are marked are cut between the markers,
and YAML at its items (guarantee §14.2)."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.artifacts.lossless_compaction import compact
from gateway.core.types.places import BEGINS, PLACE_KINDS, PLACE_MARKER, after_markers, marker, sheet_marker
from gateway.core.types.relevance import RelevanceQuery, SearchedSource
from gateway.retrieval.chunks.chunk import MAX_CHUNK_CHARS, MAX_CHUNKS, PackedChunks, TextChunk, gathered
from gateway.retrieval.chunks.split import fields_of, passages
from gateway.retrieval.corpus import TermLexicon, index_texts
from gateway.retrieval.question import LARGE_TEXT_CHARS, search_by_regions
from gateway.retrieval.rank import relevance
from tests.support.growth import is_linear
from tests.support.marks import few_or_many
from tests.unit.retrieval.asking import covers, cut

WORDS = st.sampled_from(
    [
        "fox",
        "a",
        "Zürich.",
        "🙂",
        "{",
        '"x":',
        "[",
        "]",
        "}",
        ",",
        "#",
        "- ",
        "1",
        "end. ",
        "\\",
        "```",
        "<p>",
        "<h1>",
        "def f(x):",
        "class A:",
        "}",
        "2024-01-01 10:00:00 INFO ",
        "===",
        "| a | b |",
        "a,b,c",
        '"q, r",',
        "\tat x",
        "句。",
        '{"a": 1}',
        "____ t ____",
        "     1\t",
    ]
)
SPACES = st.sampled_from([" ", "\n", "\n\n", "\t", "\n  ", "\r\n", "", "\u2028", "\n# "])
TEXTS = st.lists(st.tuples(WORDS, SPACES, st.sampled_from([1, 1, 1, 40, 400])), max_size=80).map(
    lambda parts: "".join((word + space) * times for word, space, times in parts)
)


@given(text=TEXTS)
def test_chunks_are_the_whole_text_in_order_without_overlap(text: str) -> None:
    covers(text, passages(text))


@given(text=st.text(max_size=300), times=st.sampled_from([1, 30]))
def test_chunks_of_any_characters_are_the_whole_text(text: str, times: int) -> None:
    covers(text * times, passages(text * times))


values = st.recursive(
    st.one_of(st.none(), st.integers(), st.text('ab \n"\\{[é', max_size=30), st.just("word " * 400)),
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(st.text("ab", max_size=3), inner, max_size=4)),
    max_leaves=40,
)


@given(
    value=values,
    indent=st.sampled_from([None, 2]),
    head=st.sampled_from(["", "Results: ", "[12:00] ", "Here:\n"]),
    tail=st.sampled_from(["", "\n", " trailing words", "]", "\n{"]),
    cut=st.sampled_from([0, 1, 30]),
)
def test_chunks_of_json_are_the_whole_text_too(
    value: object, indent: int | None, head: str, tail: str, cut: int
) -> None:
    text = json.dumps({"results": [value] * 3, "more": value}, indent=indent)
    text = head + text[: len(text) - cut] + tail
    covers(text, passages(text))


@pytest.mark.parametrize("text", ["", " \n\t", "\u2028"])
def test_nothing_has_no_chunks(text: str) -> None:
    assert passages(text) == []


PIECES = [
    "{",
    "[",
    '"',
    "`",
    "\n",
    "```\n",
    "[{",
    '{"a":',
    '{"a":[',
    "[1,",
    "a,b\n",
    'a,"b\n',
    '"a,\n',
    " ",
    "\t",
    "#",
    " #\n",
    "===\n",
    "_ \n",
    "<p>",
    "<h1>",
    "def a(\n",
    "x(",
    "*/",
    "\r\n",
    "{}",
    "[]\n",
    '["a\n',
    "1\n",
    "a a(",
    "A::",
    "public ",
    "\\",
    '"\\',
    "|",
    "|-|\n",
    '{"a":1}x',
    '[["',
    "12:",
    "  at ",
    "a=",
    "const a=(",
    "a b ",
    "=\n",
    "。",
    "\u0301",
    "a.",
    ".",
    "!…",
    '."',
    "# a\n",
    "a" + 30_000 * " ",
]


@pytest.mark.long
@pytest.mark.parametrize("size", [40_000, pytest.param(300_000, marks=pytest.mark.chaos)])
@pytest.mark.parametrize("piece", PIECES)
def test_s7_no_text_takes_quadratic_time(piece: str, size: int) -> None:
    """Of tens of thousands of characters, or a third of a million; quadratic time would be seconds, or minutes."""

    def cut(size: int) -> None:
        text = piece * (size // len(piece))
        covers(text, passages(text))
        passages("{\n" + text)

    assert is_linear(cut, size)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "1}"), ('[{"a":[', "")])
def test_s7_deep_nesting_is_cut_all_the_same(opening: str, closing: str) -> None:
    text = opening * 300 + "word " * 2000 + closing * 300
    covers(text, passages(text))


ROWS = 3 * MAX_CHUNKS // 2
TINY = {
    "rows": "a,b\n" + "".join(f"{n},{n % 7}\n" for n in range(ROWS)),
    "records": json.dumps([{"a": n, "b": n % 7} for n in range(ROWS)]),
    "json lines": "\n".join(json.dumps({"a": n, "b": n % 7}) for n in range(ROWS)),
    "lines": "".join(f"12:{n // 60 % 60:02}:{n % 60:02} {n}\n" for n in range(ROWS)),
}


@pytest.mark.long
@pytest.mark.parametrize("text", TINY.values(), ids=list(TINY))
def test_a_text_has_no_more_chunks_than_anybody_needs(text: str) -> None:
    chunks = passages(text)
    assert MAX_CHUNKS / 3 < len(chunks) <= 1.1 * MAX_CHUNKS
    assert all(one.end <= other.start and not text[one.end : other.start].strip() for one, other in pairwise(chunks))
    assert all(chunk.end - chunk.start <= MAX_CHUNK_CHARS for chunk in chunks)
    assert not text[chunks[-1].end :].strip()


def test_records_of_a_table_of_ordinary_size_stay_records() -> None:
    rows = 20_000
    chunks = passages("a,b\n" + "".join(f"{n},{n % 7}\n" for n in range(rows)))
    assert [chunk.ordinal for chunk in chunks] == [-1, *range(rows)]


def test_what_is_asked_for_is_found_among_what_was_gathered() -> None:
    text = TINY["rows"].replace("\n54321,", "\nquince,")
    (found,) = relevance(RelevanceQuery("Where is quince?"), [SearchedSource(text, "artifact")])
    best = max(found, key=lambda passage: passage.score)
    assert "\nquince," in text[best.start - 1 : best.end]
    assert best.heading == "a,b"


SPANS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 1400), st.sampled_from("pq"), st.sampled_from(["row", "line"]))
)


@given(spans=SPANS, most=st.integers(1, 20))
def test_only_neighbours_of_one_kind_and_heading_are_gathered_and_nothing_is_lost(
    spans: list[tuple[int, int, str, str]], most: int
) -> None:
    chunks: list[TextChunk] = []
    at = 0
    for number, (gap, chars, heading, kind) in enumerate(spans):
        chunks.append(TextChunk(at + gap, at + gap + chars, heading, kind, number, at))  # type: ignore[arg-type]
        at += gap + chars
    found = gathered(chunks, most)
    covered = [[c for c in chunks if each.start <= c.start and c.end <= each.end] for each in found]
    assert [c for group in covered for c in group] == chunks
    for each, group in zip(found, covered, strict=True):
        assert {(c.heading, c.kind) for c in group} == {(each.heading, each.kind)}
        assert each[2:] == group[0][2:]
        assert each.end - each.start <= MAX_CHUNK_CHARS


@given(spans=SPANS)
def test_packed_chunks_are_the_same_sequence(spans: list[tuple[int, int, str, str]]) -> None:
    chunks = [TextChunk(a, b, heading, kind, a, -1) for a, b, heading, kind in spans]  # type: ignore[arg-type]
    packed = PackedChunks(chunks)
    assert list(packed) == chunks == [packed[n] for n in range(len(packed))] == packed[:]
    assert packed[-2:] == chunks[-2:]
    assert all(type(each) is int for chunk in packed for each in (chunk.start, chunk.end, chunk.ordinal, chunk.origin))


def test_an_index_of_many_records_takes_about_as_much_as_the_text() -> None:
    text = json.dumps([{"id": n, "name": f"name of {n}", "value": n * 37 % 1001} for n in range(20_000)], indent=4)
    (index,) = index_texts([text], TermLexicon())
    assert isinstance(index.chunks, PackedChunks)
    assert index.size < 1.1 * len(text)


PROSE = "A sentence about the weather in the hills. " * 50
SHEET = f"{sheet_marker('Sales', 4, 'C', 9)}\nname\tx\ty\n" + "\n".join(f"n{n}\t{n}\t{2 * n}" for n in range(5))
LINES = [
    "text",
    "[page 1]",
    "[page 2]",
    "[file a.py]",
    "[file b/c.yaml]",
    "[sheet A A1:B9]",
    "a,b",
    "1,2",
    "",
    "- a: 1",
]
LINES += [
    "[table t]",
    "{",
    '[{"a": 1}, {"a": 2}]',
    "def f():",
    "    return 1",
    "---",
    "[cell 3]",
    "[page",
    "[page 1] x",
]


def test_s14_2_no_chunk_crosses_a_page_and_each_says_which_it_is_of() -> None:
    text = "\n\n".join(f"{marker('page', str(n))}\n{PROSE if n == 30 else f'page {n} of it'}" for n in range(1, 41))
    found = cut(text)
    late = [each for each in found if "weather" in each[1]]
    assert late[0][1].startswith("[page 30]\n")
    assert len(late) > 1
    assert {heading for heading, _ in late[1:]} == {"[page 30]"}
    assert all(len(PLACE_MARKER.findall(own)) <= 1 for _, own in found)


def test_s14_2_a_sheets_rows_have_its_marker_and_its_columns_above_them() -> None:
    found = passages(SHEET)
    assert [chunk.heading for chunk in found[1:]] == ["[sheet Sales A4:C9]\nname\tx\ty"] * 5
    assert fields_of(SHEET, found[2]) == [("name", "n1"), ("x", "1"), ("y", "2")]
    numbers = f"{sheet_marker('B', 1, 'B', 3)}\n1,2\n3,4\n5,6"
    assert cut(numbers)[1:] == [("[sheet B A1:B3]\n1,2", "3,4"), ("[sheet B A1:B3]\n1,2", "5,6")]


def test_s14_2_files_are_cut_as_what_they_are() -> None:
    code = "x = 1\n\n\ndef f():\n    return 1\n"
    objects = [f'{{"a": "{letter * 700}"}}' for letter in "xyz"]
    text = f"Subject: x\n\n[file a.py]\n{code}\n[file b.json]\n[{', '.join(objects)}]"
    text += f"\n[file c.pdf]\n[page 1]\none\n[page 2]\n{PROSE}"
    kinds = {chunk.kind for chunk in passages(text) if text.startswith("[file a.py]", chunk.start)}
    assert kinds == {"code"}
    found = cut(text)
    assert ("[file b.json]", f"{objects[1]},") in found
    assert ("", "[file c.pdf]\n[page 1]\none") in found
    assert {heading for heading, own in found if "weather" in own} == {"[file c.pdf]", "[file c.pdf]\n[page 2]"}


@given(st.lists(st.sampled_from(LINES), max_size=40), st.integers(1, 30))
def test_s14_2_marked_texts_are_covered_and_never_crossed(lines: list[str], times: int) -> None:
    text = "\n".join(lines * times)
    found: list[TextChunk] = passages(text)
    covers(text, found)
    for chunk in found:
        body = after_markers(text, chunk.start, chunk.end)
        assert PLACE_MARKER.search(text, body, chunk.end) is None or "[file " in text[chunk.start : chunk.end]


@pytest.mark.long
@pytest.mark.parametrize("kind", PLACE_KINDS)
@few_or_many(30_000, 200_000)
def test_s7_markers_take_linear_time(kind: str, number: int) -> None:
    """§7: very many markers, and what nearly is one."""

    def each(size: int) -> None:
        passages(f"[{kind} 1]\na\n" * (size // 12))
        passages(f"\n[{kind} " * (size // 8))
        passages("- a: 1\n" * (size // 7))
        passages(f"[file x.yaml]\n{'- ' * (size // 4)}\n" + "a:\n" * (size // 8))

    assert is_linear(each, number)


def test_s14_2_a_marked_text_is_not_compacted() -> None:
    """§14.2: its lines are counted."""
    text = f'{sheet_marker("A", 1, "B", 4)}\na,b\n"1",2\n"3",4\n"5",6'
    assert compact(text) == text
    assert BEGINS.search(text) is None


@pytest.mark.long
def test_s14_2_a_large_marked_text_keeps_its_pages() -> None:
    """§14.2: it is looked through by regions, each with the marker above it."""
    pages = [f"{marker('page', str(n))}\n{'nothing of note happened here today. ' * 700}" for n in range(1, 180)]
    pages[150] += "The zebrafish was weighed at noon. " + "nothing of note. " * 50
    text = "\n\n".join(pages)
    assert len(text) > LARGE_TEXT_CHARS
    query = RelevanceQuery("When was the zebrafish weighed?")
    found = search_by_regions(lambda sources: relevance(query, sources), query, [SearchedSource(text, "artifact")])[0]
    best = max(found, key=lambda each: each.score)
    assert "zebrafish" in text[best.start : best.end]
    assert best.heading == "[page 151]"


ITEMS = "".join(f"  - name: svc{n}\n    port: {8000 + n}\n    env:\n      - A={n}\n" for n in range(40))


def test_a_yaml_lists_items_are_records() -> None:
    found = passages(f"# which run\nservices:\n{ITEMS}")
    text = f"# which run\nservices:\n{ITEMS}"
    covers(text, found)
    assert [chunk.ordinal for chunk in found] == list(range(40))
    assert {chunk.kind for chunk in found} == {"record"}
    assert {chunk.heading for chunk in found[1:]} == {"services:"}
    own = [text[chunk.start : chunk.end] for chunk in found]
    assert all(f"name: svc{n}\n" in each and f"A={n}" in each for n, each in enumerate(own))


def test_a_long_yaml_records_pieces_have_its_beginning_above_them() -> None:
    text = "- name: first\n  port: 1\n- name: long\n  notes: |\n"
    text += "".join(f"    line {n} of a long note\n" for n in range(200))
    text += "- name: short\n  port: 2\n"
    found = passages(text)
    covers(text, found)
    pieces = [chunk for chunk in found if chunk.ordinal == 1]
    assert len(pieces) > 2
    assert all("- name: long" in chunk.heading for chunk in pieces[1:])
    assert all(chunk.end - chunk.start <= MAX_CHUNK_CHARS for chunk in pieces)


def test_each_yaml_document_is_a_record() -> None:
    text = "".join(f"---\nname: d{n}\nkind: Service\nspec:\n  a: {n}\n" for n in range(30))
    found = passages(text)
    assert [text[chunk.start : chunk.end] for chunk in found] == [
        f"---\nname: d{n}\nkind: Service\nspec:\n  a: {n}" for n in range(30)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "- It is late: nobody knows why, and the whole house sleeps on.",
        "- [ ] do it",
        "key: value, a sentence goes on.",
        "Note: this is prose about a thing.",
        "- plain words in a list",
    ],
)
def test_lists_of_prose_are_not_yaml(line: str) -> None:
    assert all(chunk.kind != "record" for chunk in passages(f"{line}\n" * 40))
