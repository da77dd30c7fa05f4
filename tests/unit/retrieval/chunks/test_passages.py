"""What holds of all passages, and of very many tiny ones."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types.relevance import RelevanceQuery, SearchedSource
from gateway.retrieval.chunks.chunk import MAX_CHUNK_CHARS, MAX_CHUNKS, PackedChunks, TextChunk, gathered
from gateway.retrieval.chunks.split import passages
from gateway.retrieval.corpus import TermLexicon, index_texts
from gateway.retrieval.rank import relevance
from tests.support.growth import is_linear

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


def covers(text: str, found: list[TextChunk]) -> None:
    """In order, without overlap, bounded; between and around them there is only white space."""
    at = 0
    for chunk in found:
        assert chunk.start >= at
        assert not text[at : chunk.start].strip()
        assert text[chunk.start : chunk.end].strip()
        assert chunk.end - chunk.start <= MAX_CHUNK_CHARS
        at = chunk.end
    assert not text[at:].strip()


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
