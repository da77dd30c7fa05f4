"""Which passages get a vector, and in which order."""

import pytest

from gateway.core.types.relevance import RankedPassage, RelevanceQuery, SearchedSource
from gateway.retrieval.embeddings.search import MAX_LATER, MAX_WANTED, digest, is_prose, queries, wanted

PROSE = "The keeper climbs the stairs of the lighthouse every evening and lights the lamp before the ships come in."


@pytest.mark.parametrize("text", [PROSE, "Anna: I said yes, didn't I?", "das war's", "¿Qué pasa?", "好的，明天见。"])
def test_talk_and_sentences_are_prose(text: str) -> None:
    assert is_prose(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"id": 17, "name": "Anna", "tags": ["a", "b"]}',
        "2026-11-22T07:43:03 ERROR [worker-3] job=81 failed: timeout=30s",
        "def add(self, x_1: int) -> int:\n    return self.values[x_1] + 1",
        "4711\t12.50\t3\n4712\t9.99\t1",
        "  \n",
    ],
)
def test_records_logs_code_and_figures_are_not(text: str) -> None:
    assert not is_prose(text)


def document(count: int, **scores: float) -> tuple[SearchedSource, list[RankedPassage]]:
    """Passages of prose, each one its own."""
    texts = [f"{PROSE} It was evening number {'x' * (n + 1)}." for n in range(count)]
    found, start = [], 0
    for n, text in enumerate(texts):
        found.append(RankedPassage(start, start + len(text), scores.get(f"p{n}", 0.0)))
        start += len(text) + 2
    return SearchedSource("\n\n".join(texts), "artifact"), found


def test_the_best_by_words_come_first_each_with_those_beside_it() -> None:
    source, found = document(9, p6=3.0, p2=5.0)
    made = wanted([source], [found])
    assert [each.number for each in made] == [2, 1, 3, 6, 5, 7, 0, 4, 8]
    assert {each.held_by for each in made} == {digest(source.content)}
    assert made[0].digest == digest(source.content[found[2].start : found[2].end])


def test_what_was_said_last_comes_before_what_was_said_long_ago_and_belongs_to_no_artifact() -> None:
    said = [
        SearchedSource(f"I like the {word} very much", "turn", number=n)
        for n, word in enumerate(("sea", "town", "sun"))
    ]
    found = [[RankedPassage(0, len(source.content), 0.0)] for source in said]
    assert [each.source for each in wanted(said, found)] == [2, 1, 0]
    found[0] = [RankedPassage(0, 5, 1.0)]
    made = wanted(said, found)
    assert [each.source for each in made] == [0, 1, 2], "and what was said beside it"
    assert {each.held_by for each in made} == {None}


def test_no_request_looks_for_more_than_so_many() -> None:
    source, found = document(MAX_WANTED + MAX_LATER + 50)
    assert len(wanted([source], [found])) == MAX_WANTED + MAX_LATER


def test_the_question_stands_before_further_searches() -> None:
    made = queries(RelevanceQuery("who?", searches=("the keeper", " ")))
    assert [each.text for each in made] == ["who?", "the keeper"]
    assert queries(RelevanceQuery("  ")) == []
