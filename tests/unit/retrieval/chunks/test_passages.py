"""Chunks cover a text in order, without overlap, whatever it holds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.retrieval.chunks.chunk import MAX_CHUNK_CHARS, TextChunk
from gateway.retrieval.chunks.split import passages
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
@pytest.mark.parametrize("size", [100_000, pytest.param(300_000, marks=pytest.mark.chaos)])
@pytest.mark.parametrize("piece", PIECES)
def test_s7_no_text_takes_quadratic_time(piece: str, size: int) -> None:
    """A tenth, or a third, of a million characters; quadratic time would be minutes."""

    def cut(size: int) -> None:
        text = piece * (size // len(piece))
        covers(text, passages(text))
        passages("{\n" + text)

    assert is_linear(cut, size)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "1}"), ('[{"a":[', "")])
def test_s7_deep_nesting_is_cut_all_the_same(opening: str, closing: str) -> None:
    text = opening * 300 + "word " * 2000 + closing * 300
    covers(text, passages(text))
