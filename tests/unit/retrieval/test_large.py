"""Very long texts are looked through by regions: what bears on the question is found, nothing is missing."""

import random

import pytest

from gateway.core.types.relevance import RankedPassage, RelevanceQuery, SearchedSource
from gateway.retrieval.index_cache import ContentIndexes, PassageFinder
from gateway.retrieval.question import LARGE_TEXT_CHARS, SEARCHED_CHARS
from tests.support.hand_clock import HandClock

WORDS = ["harbour", "engine", "window", "letter", "stone", "river", "market", "candle", "bridge", "paper", "garden"]
FACT = "The spare key of the Skerrow station is kept under the third bollard."
QUESTION = RelevanceQuery("Where do they keep the spare keys of the Skerrow station?")


def prose(chars: int, fact_at: float) -> str:
    """Sentences of common words, and the fact at that share of them."""
    rng = random.Random(3)
    sentences, size = [], 0
    while size < chars:
        sentences.append(" ".join(rng.choices(WORDS, k=12)).capitalize() + ".\n")
        size += len(sentences[-1])
    sentences.insert(int(len(sentences) * fact_at), FACT + "\n")
    return "".join(sentences)


def found(text: str, query: RelevanceQuery, kept: ContentIndexes | None = None) -> list[RankedPassage]:
    finder = PassageFinder(kept, "tenant")
    (passages,) = finder(query, [SearchedSource(text, "artifact", "book", True, 1)])
    finder.keep()
    return passages


@pytest.mark.long
@pytest.mark.parametrize("share", [0.0, 0.37, 1.0])
def test_the_passage_that_answers_is_the_best_wherever_it_stands(share: float) -> None:
    text = prose(LARGE_TEXT_CHARS + 1, share)
    best = max(found(text, QUESTION), key=lambda passage: passage.score)
    assert FACT in text[best.start : best.end]


@pytest.mark.long
def test_all_of_the_text_is_in_passages_in_order_and_only_a_part_was_looked_at_closely() -> None:
    text = prose(LARGE_TEXT_CHARS + 1, 0.5)
    passages, at = found(text, QUESTION), 0
    for passage in passages:
        assert at <= passage.start < passage.end
        assert not text[at : passage.start].strip()
        at = passage.end
    assert not text[at:].strip()
    assert sum(p.end - p.start for p in passages if p.score > 0) <= SEARCHED_CHARS


@pytest.mark.long
def test_a_row_of_a_table_is_found_with_the_names_of_its_columns() -> None:
    rows = [f"{n},{WORDS[n % 11]},{n % 977}" for n in range(300_000)]
    rows[200_000] = "200000,Skerrow lantern,42"
    text = "id,name,price\n" + "\n".join(rows)
    assert len(text) > LARGE_TEXT_CHARS
    best = max(found(text, RelevanceQuery("What does the Skerrow lantern cost?")), key=lambda passage: passage.score)
    assert "Skerrow lantern,42" in text[best.start : best.end]
    assert "id,name,price" in best.heading


@pytest.mark.long
def test_regions_are_not_kept_beyond_the_request() -> None:
    """They are of one question, and deleting the text would not find them."""
    kept = ContentIndexes(2**30, 60.0, HandClock())  # of a clock only this is used
    found(prose(LARGE_TEXT_CHARS + 1, 0.5), QUESTION, kept)
    assert not kept._indexes
    found(prose(10_000, 0.5), QUESTION, kept)
    assert kept._indexes
