"""What a question calls for by itself, and what merely ranks best (guarantee §5)."""

import pytest

from gateway.core.types.relevance import RelevanceQuery, SearchedSource
from gateway.retrieval.rank import relevance
from tests.support.documents import lamps

SOURCES = [SearchedSource(lamps(60), "artifact", "The lamps", historical=True)]


def called(question: str, *recent: str, searches: tuple[str, ...] = ()) -> list[str]:
    """The first line of each passage that is called for."""
    (passages,) = relevance(RelevanceQuery(question, recent, searches), SOURCES)
    text = SOURCES[0].content
    return [text[p.start : p.end].splitlines()[0] for p in passages if p.called]


@pytest.mark.parametrize(
    "question",
    ["Who is the keeper of lamp 41?", "Is lamp 41 kept at all?", "Lamp 41?", "What is Name287x in charge of?"],
)
def test_a_passage_is_called_for_by_what_tells_it_from_others(question: str) -> None:
    found = called(question)
    assert any("41" in line for line in found)
    assert len(found) <= 3


@pytest.mark.parametrize(
    "question",
    ["Thank you, that was clear.", "How do you spell harbour?", "Which of tide and rope is older?", "Write a haiku."],
)
def test_words_that_every_passage_has_call_for_none(question: str) -> None:
    assert called(question, "Who is who?", "Certainly, number 3.") == []


def test_a_pronoun_calls_for_what_it_stands_for() -> None:
    assert any("41" in line for line in called("What else is said of it?", "And now?", "That is Name287x."))


def test_a_further_search_calls_too() -> None:
    assert any("41" in line for line in called("Who is who?", searches=("the keeper of lamp 41",)))
