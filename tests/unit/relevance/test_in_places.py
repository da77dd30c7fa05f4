"""A question that names a place finds it (guarantee §14.2)."""

import pytest

from gateway.models.places import marker, sheet_marker
from gateway.models.relevance import Passage, Query, Source
from gateway.relevance.rank import relevance

FILLER = "The committee met and talked about several matters of the budget at some length. "
PAGES = "\n\n".join(f"{marker('page', str(n))}\n{FILLER * 12}Remark {n}." for n in range(1, 31))
SLIDES = PAGES.replace("[page ", "[slide ")
SHEETS = "\n\n".join(
    f"{sheet_marker(name, 1, 'B', 21)}\nitem\tamount\n" + "\n".join(f"thing {n}\t{n}" for n in range(20))
    for name in ("Income", "Sheet2", "Q1 plan")
)
FILES = "\n\n".join(f"{marker('file', f'src/{name}')}\n{FILLER * 5}" for name in ("a.txt", "main.txt", "other.txt"))


def best(text: str, question: str) -> tuple[str, Passage]:
    """The best passage with its heading above it."""
    found = relevance(Query(question), [Source(text, "artifact")])[0]
    passage = max(found, key=lambda each: each.score)
    return f"{passage.heading}\n{text[passage.start : passage.end]}", passage


@pytest.mark.parametrize(
    ("text", "question", "place"),
    [
        (PAGES, "What did the committee talk about on page 17?", "[page 17]"),
        (PAGES, "Summarize page 3", "[page 3]"),
        (SLIDES, "what does slide 12 say?", "[slide 12]"),
        (SHEETS, "What is the amount of thing 7 in Sheet2?", "[sheet Sheet2 "),
        (SHEETS, "the amounts of the Q1 plan, please", "[sheet Q1 plan "),
        (FILES, "what does main.txt say of the budget?", "[file src/main.txt]"),
    ],
)
def test_s14_2_a_place_that_a_question_names_comes_first(text: str, question: str, place: str) -> None:
    """§14.2."""
    shown, passage = best(text, question)
    assert place in shown
    assert passage.called


def test_s14_2_words_still_count_within_a_place() -> None:
    """§14.2."""
    shown, _ = best(SHEETS, "What is the amount of thing 7 in Sheet2?")
    assert shown.endswith("thing 7\t7")


def test_texts_without_markers_have_no_places() -> None:
    plain = PAGES.replace("[page", "(page")
    found = relevance(Query("What is on page 17 of it?"), [Source(plain, "artifact")])[0]
    assert all(not each.heading for each in found)
