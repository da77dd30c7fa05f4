"""Passages cover a text in order, without overlap, and respect its structure."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.relevance.chunks.passages import MAX_CHARS, Chunk, header_of, passages

WORDS = st.sampled_from(["fox", "a", "Zürich.", "🙂", "{", '"x":', "[", "]", "}", ",", "#", "- ", "1", "end. ", "\\"])
SPACES = st.sampled_from([" ", "\n", "\n\n", "\t", "\n  ", "\r\n", "", "\u2028", "\n# "])
TEXTS = st.lists(st.tuples(WORDS, SPACES, st.sampled_from([1, 1, 1, 40, 400])), max_size=80).map(
    lambda parts: "".join((word + space) * times for word, space, times in parts)
)
RECORDS = [{"id": n, "text": f"record {n} " + "word " * (n % 7)} for n in range(40)]


def covers(text: str, found: list[Chunk]) -> None:
    """In order, without overlap, bounded; between and around them there is only white space."""
    at = 0
    for passage in found:
        assert passage.start >= at
        assert not text[at : passage.start].strip()
        assert text[passage.start : passage.end].strip()
        assert passage.end - passage.start <= MAX_CHARS
        at = passage.end
    assert not text[at:].strip()


@given(text=TEXTS)
def test_passages_are_the_whole_text_in_order_without_overlap(text: str) -> None:
    covers(text, passages(text))


values = st.recursive(
    st.one_of(st.none(), st.integers(), st.text("ab \n\"\\{[é", max_size=30)),
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(st.text("ab", max_size=3), inner, max_size=4)),
    max_leaves=40,
)  # fmt: skip


@given(value=values, indent=st.sampled_from([None, 2]), tail=st.sampled_from(["", "\n", " trailing words", "]"]))
def test_passages_of_json_are_the_whole_text_too(value: object, indent: int | None, tail: str) -> None:
    text = json.dumps({"results": [value] * 3, "more": value}, indent=indent) + tail
    covers(text, passages(text))


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("wrap", [lambda r: r, lambda r: {"count": 40, "results": r}], ids=["array", "member"])
def test_a_json_record_is_not_torn_apart(indent: int | None, wrap: object) -> None:
    assert callable(wrap)
    text = json.dumps(wrap(RECORDS), indent=indent)
    found = [text[p.start : p.end] for p in passages(text)]
    covers(text, passages(text))
    for record in RECORDS:
        holders = [piece for piece in found if f'"id": {record["id"]},' in piece]
        assert len(holders) == 1
        assert str(record["text"]) in holders[0]


def test_a_table_is_cut_between_its_rows_and_a_log_between_its_entries() -> None:
    rows = [f"{n},name {n},{n * 17}" for n in range(50)]
    text = "\n".join(rows)
    assert [text[p.start : p.end] for p in passages(text)] == rows
    entries = [f"2024-01-01 ERROR {n}\n  at one({n})\n  at two({n})" for n in range(20)]
    log = "\n".join(entries)
    assert [log[p.start : p.end] for p in passages(log)] == entries


def test_a_heading_begins_a_new_passage_and_small_paragraphs_are_gathered() -> None:
    text = "\n\n".join(["# One", "a" * 100, "b" * 100, "# Two", "c" * 100])
    found = [text[p.start : p.end] for p in passages(text)]
    assert found == [f"# One\n\n{'a' * 100}\n\n{'b' * 100}", f"# Two\n\n{'c' * 100}"]


def test_a_long_paragraph_is_cut_between_sentences() -> None:
    sentences = [f"Sentence number {n} says this and that and more." for n in range(60)]
    text = " ".join(sentences)
    found = [text[p.start : p.end].strip() for p in passages(text)]
    assert len(found) > 2
    assert all(piece.startswith("Sentence") and piece.endswith("more.") for piece in found)


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_nothing_has_no_passages(text: str) -> None:
    assert passages(text) == []


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("id,name\n1,a\n2,b\n3,c", "id,name"),
        ("id;name;x\n1;a;x\n2;b;x\n3;c;x\n", "id;name;x"),
        ("id\tname\n1\ta\n2\tb\n3\tc", "id\tname"),
        ("| id | name |\n|--|--|\n| 1 | a |\n| 2 | b |", "| id | name |"),
        ("Dear all,\nI write to you\nabout that\nthing", ""),
        ("id,name\n1,a", ""),
        ("no table", ""),
        ("", ""),
    ],
)
def test_the_first_row_of_a_table_is_its_header(text: str, header: str) -> None:
    assert header_of(text) == header
