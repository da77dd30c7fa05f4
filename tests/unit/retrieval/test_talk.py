"""Turns have neighbours, pronouns stand for something, and one thing leads to another."""

import pytest

from gateway.core.types.relevance import RelevanceQuery
from gateway.retrieval.rank import relevance
from tests.unit.retrieval.asking import documents, ranked, turns

TALK = (
    "Did you ever learn to skate, Mira?",
    "Only last winter, on the lake behind our barn.",
    "What did you have for lunch?",
    "Soup, and then a pear.",
    "Was the bus late again?",
    "It was, by ten minutes.",
)


def test_the_reply_to_a_turn_that_was_asked_for_comes_with_it() -> None:
    assert ranked("When did Mira learn skating?", turns(*TALK))[:2] == list(TALK[:2])


def test_lines_of_a_table_do_not_come_with_their_neighbours() -> None:
    table = "\n".join(f"row {name},{n},plain" for n, name in enumerate(["ash", "birch", "cedar", "elm", "fir"] * 9))
    found = ranked("the birch", documents(table))
    assert len(found) == 9
    assert all("birch" in text for text in found)


def test_a_pronoun_borrows_from_the_messages_just_before() -> None:
    sources = documents("parcel PX-881 goes to Leeds", "parcel PX-902 goes to Hull", "parcel PX-415 goes to York")
    query = RelevanceQuery(
        "Where does that one go?", recent=("Look at PX-415", "Yes?", "No, take PX-902.", "What about it?")
    )
    assert ranked(query, sources)[:2] == ["parcel PX-902 goes to Hull", "parcel PX-415 goes to York"]


def test_a_question_that_names_what_it_means_borrows_nothing() -> None:
    sources = documents("parcel PX-881 goes to Leeds", "parcel PX-902 goes to Hull")
    query = RelevanceQuery("Where does parcel PX-881 of Mrs Brown with the Blue Ribbon go?", recent=("Look at PX-902",))
    assert ranked(query, sources)[0] == "parcel PX-881 goes to Leeds"


def test_what_the_best_passage_names_is_sought_elsewhere() -> None:
    orders = [f"order ZZ-{n} of user_id u_{n * 7}, two chairs" for n in range(300, 340)]
    users = [f"user_id u_{n * 7}: phone 555-0{n}, since spring" for n in range(300, 340)]
    found = ranked("Which phone has the customer of order ZZ-321?", documents(*orders, *users))
    assert {orders[21], users[21]} <= set(found[:3])


def test_both_sides_of_a_comparison_come_first() -> None:
    trees = [
        f"{name}: height {n} m, found in the park" for n, name in enumerate(["Oak", "Larch", "Yew", "Beech", "Plane"])
    ]
    assert set(ranked("Which is higher, the Yew or the Plane?", documents(*trees))[:2]) == {trees[2], trees[4]}


def test_searches_never_outweigh_the_question() -> None:
    texts = ["the mill by the brook", "a list of taxes", "the old chapel", "nothing here"]
    query = RelevanceQuery("mill", searches=("taxes", "taxes list", "chapel", "old chapel"))
    found = ranked(query, documents(*texts))
    assert found[0] == texts[0]
    assert set(found[1:]) == {texts[1], texts[2]}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
def test_all_searches_together_weigh_no_more_than_the_question(count: int) -> None:
    """One text has all that every search seeks, the other what the question asks: that one comes first."""
    texts = ["the mill by the brook", "taxes of the old chapel", "nothing here", "nor here"]
    query = RelevanceQuery("mill", searches=tuple(f"taxes of the old chapel {n}" for n in range(count)))
    scores = [passages[0].score for passages in relevance(query, documents(*texts))]
    assert scores[0] >= scores[1] > scores[2]


def test_a_search_without_a_word_of_its_own_changes_nothing() -> None:
    sources = documents("The old mill by the brook.", "A mill was sold.", "Bread of the chapel.")
    question = "Who sold the old mill?"
    alone = relevance(RelevanceQuery(question), sources)
    assert relevance(RelevanceQuery(question, searches=("old mill", "sold the mill")), sources) == alone
    assert relevance(RelevanceQuery(question, searches=("old mill", "bread")), sources) != alone
