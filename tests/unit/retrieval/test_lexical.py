"""Passages that share words with the question come first."""

import json

import pytest

from gateway.core.types.relevance import RelevanceQuery, SearchedSource
from gateway.retrieval.rank import relevance
from tests.unit.retrieval.asking import documents, ranked

DOCUMENTS = [
    "The river rose after the rain.",
    "Payments of customer 4711 failed: error E_TIMEOUT in payment_gateway at src/pay/retry.py:41.",
    "The kettle is on sale in the market.",
    "数据库索引损坏",
    "Книги стоят на полках",
    "وصلت السفن إلى الميناء",
    "Das Café schließt um acht.",
]


@pytest.mark.parametrize(
    ("question", "best"),
    [
        ("How high is the river?", 0),
        ("Why did the payment fail?", 1),
        ("what about E_TIMEOUT", 1),
        ("paymentGateway", 1),
        ("customer 4711", 1),
        ("what is wrong in retry.py", 1),
        ("and src/pay/retry.py?", 1),
        ("Where are kettles sold? At which markets?", 2),
        ("数据库", 3),
        ("где книга?", 4),
        ("أين سفن", 5),
        ("cafe", 6),
        ("CAFÉ", 6),
        ("schliesst", 6),
    ],
)
def test_the_passage_that_answers_is_best(question: str, best: int) -> None:
    sources = documents(*DOCUMENTS)
    assert ranked(question, sources)[0] == DOCUMENTS[best]
    assert relevance(RelevanceQuery(question), sources) == relevance(RelevanceQuery(question), sources)


@pytest.mark.parametrize("question", ["", "the of and", "what is it?", "xylophone", "?!"])
def test_a_question_without_a_word_that_occurs_scores_nothing(question: str) -> None:
    assert ranked(question, documents(*DOCUMENTS)) == []


def test_no_sources_have_no_passages() -> None:
    assert relevance(RelevanceQuery("river"), []) == []
    assert relevance(RelevanceQuery("river"), documents("", "  ")) == [[], []]


def test_what_stands_together_in_the_question_counts_more_together() -> None:
    apart = "The king was late and the lamp of the last house in Fife went out near Scotland."
    together = "He had seen the last king of Scotland leave by the lamp in the garden of the house."
    assert ranked("the last king of Scotland", documents(apart, together))[0] == together


def test_a_passage_that_holds_more_of_the_words_counts_more() -> None:
    often = "tariff tariff tariff tariff tariff tariff"
    once = "tariff of the northern zone"
    assert ranked("tariff of the northern zone", documents(often, once, "snow", "rain"))[0] == once


def test_a_label_is_searched_too() -> None:
    sources = [
        SearchedSource("[1, 2, 3]", "artifact", 'read_meter {"site": "Norwich"}', True, 1),
        SearchedSource("[4, 5, 6]", "artifact", 'read_meter {"site": "Ipswich"}', True, 2),
    ]
    assert ranked("the meter in Ipswich", sources)[0] == "[4, 5, 6]"


def test_a_piece_of_a_long_record_is_found_by_what_the_record_begins_with() -> None:
    days = {f"2024-05-{day:02}": {"status": "available", "fare": day * 10} for day in range(1, 31)}
    flights = json.dumps([{"flight": f"HAT{n:03}", "origin": "JFK", "days": days} for n in range(9)])
    (found,) = relevance(RelevanceQuery("the fare of flight HAT004 on 2024-05-23"), documents(flights))
    passage = max(found, key=lambda each: each.score)
    assert '"2024-05-23"' in flights[passage.start : passage.end]
    assert "HAT004" in passage.heading


def test_what_was_just_fetched_goes_before_the_same_of_old() -> None:
    old = SearchedSource("valve 12 is shut", "artifact", "look", True, 1)
    new = SearchedSource("valve 12 is open", "artifact", "look", False, 3)
    assert ranked("valve 12", [old, new])[0] == new.content


def test_a_quotation_is_found_word_for_word() -> None:
    inexact = "The door of the office: open, said the sign, the office door, the open door."
    exact = "A note: 'open the office door!' hung there, and it hung there for a long time, as notes do, unread."
    question = 'Who wrote "open the office door!" on the note?'
    assert ranked(question, documents(inexact, exact, "no door"))[0] == exact
    assert ranked("who wrote `OPEN THE OFFICE DOOR!`", documents(inexact, exact, "no door"))[0] == exact
