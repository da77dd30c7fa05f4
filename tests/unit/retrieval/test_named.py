"""What a question names exactly comes first, with all of its record."""

import json

from gateway.core.types.relevance import RelevanceQuery
from tests.unit.retrieval.asking import documents, ranked, turns


def _trip(code: str, made: str) -> dict[str, object]:
    stops = [{"stop": number, "note": "window seat, vegetarian meal, no luggage " * 6} for number in range(12)]
    return {"code": code, "stops": stops, "made_on": made}


def test_all_pieces_of_the_record_with_that_identifier_come_before_other_records() -> None:
    trips = [_trip(f"TR{number}XQ7", f"2031-04-{number:02d}") for number in range(10, 28)]
    text = json.dumps(trips)
    best = ranked("When was trip TR17XQ7 made?", documents(text))
    assert any("2031-04-17" in passage for passage in best[:2])


def test_a_name_that_few_passages_hold_outranks_words_that_many_hold() -> None:
    said = [f"We looked at the garden plans again, number {number}." for number in range(60)]
    said.insert(20, "Odile said she will think about it.")
    assert ranked("What did Odile say about the garden plans?", turns(*said))[0].startswith("Odile")


def test_a_name_that_everybody_uses_says_nothing() -> None:
    said = [f"Ben, that is fine, bye {number}." for number in range(40)]
    said.append("Yesterday I rode to the lighthouse, Ben.")
    assert "lighthouse" in ranked("Where did Ben ride yesterday?", turns(*said))[0]


def test_a_pronoun_that_stands_for_a_name_in_the_question_borrows_nothing() -> None:
    said = ["The ferry to the island was full of cyclists.", "Mara rode her bike to the mill."]
    said += [*(f"Noted, {number}." for number in range(6)), "The ferry leaves at noon from Kiel."]
    query = RelevanceQuery("When did Mara ride her bike?", (said[-1],))
    assert ranked(query, turns(*said))[0].startswith("Mara")


def test_a_pronoun_before_any_name_borrows() -> None:
    texts = documents('[{"film":"Blue Kites","by":"A. Moreau"},{"film":"Red Sails","by":"J. Abara"}]')
    query = RelevanceQuery("Who made it, A or B?", ("I might watch Red Sails tonight.", "It is in the list."))
    assert "Abara" in ranked(query, texts)[0]
