"""Passages that share words with the question come first."""

import pytest

from gateway.relevance.ranking import rank

DOCUMENTS = [
    "The river rose after the rain.",
    "Payments of customer 4711 failed: error E_TIMEOUT in payment_gateway.",
    "The kettle is on sale in the market.",
    "数据库索引损坏",
]


@pytest.mark.parametrize(
    ("question", "best"),
    [
        ("How high is the river?", 0),
        ("Why did the payment fail?", 1),
        ("what about E_TIMEOUT", 1),
        ("paymentGateway", 1),
        ("customer 4711", 1),
        ("Where are kettles sold? At which markets?", 2),
        ("数据库", 3),
    ],
)
def test_the_passage_that_answers_is_best(question: str, best: int) -> None:
    scores = rank(question, DOCUMENTS)
    assert max(range(4), key=scores.__getitem__) == best
    assert scores[best] > 0
    assert rank(question, DOCUMENTS) == scores


@pytest.mark.parametrize("question", ["", "the of and", "what is it?", "xylophone", "?!"])
def test_a_question_without_a_word_that_occurs_scores_nothing(question: str) -> None:
    assert rank(question, DOCUMENTS) == [0.0] * 4


def test_no_passages_have_no_scores() -> None:
    assert rank("river", []) == []
    assert rank("river", ["", "  "]) == [0.0, 0.0]
