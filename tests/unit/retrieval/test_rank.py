"""Which passages come first: by words, names, topics, speakers, values and positions."""

import json
import random
import re
from dataclasses import replace
from itertools import chain, product
from pathlib import Path

import pytest

from gateway.core.types.relevance import RelevanceQuery, SearchedSource
from gateway.retrieval import rank
from gateway.retrieval.corpus import STOPWORDS, SourceCorpus, TermLexicon, index_texts
from gateway.retrieval.question import MAX_RESPELT, respelt, speaker
from gateway.retrieval.rank import quantity, relevance, superlative
from tests.support.documents import lamps
from tests.unit.retrieval.asking import documents, ranked, turns

TABLES = {path.name: path.read_text(encoding="utf-8") for path in Path(rank.__file__).parent.glob("*.txt")}
LINES = [line for line in TABLES["topics.txt"].splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_file_says_where_its_words_come_from(table: str) -> None:
    assert "# Source: " in table


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.partition("|")[0].strip())
def test_a_line_of_the_file_is_names_of_a_topic_and_words_that_speak_of_it(line: str) -> None:
    assert re.fullmatch(r"[a-z]+(?: [a-z]+)* \| [a-z]+(?: [a-z]+)*", line)
    names, members = (side.split() for side in line.split("|"))
    assert len(set(names)) == len(names)
    assert len(set(members)) == len(members)
    assert not STOPWORDS.intersection(chain(names, members))


def test_a_topic_finds_what_is_told_of_it_in_other_words() -> None:
    talk = [f"nothing to tell about number {n}" for n in range(30)]
    talk[7] = "yesterday we brought a puppy home"
    talk[21] = "then a short trip to Lisbon"
    assert talk[7] in ranked("Which pets do they keep?", turns(*talk))[:3]
    assert talk[21] in ranked("Which cities did she see?", turns(*talk))[:3]


def test_the_topic_s_own_word_counts_more_than_what_belongs_to_it() -> None:
    talk = [f"nothing to tell about number {n}" for n in range(30)]
    talk[7] = "yesterday we brought a puppy home"
    talk[21] = "yesterday we brought a pet home"
    assert ranked("What about a pet?", turns(*talk))[0] == talk[21]


@pytest.mark.parametrize(
    "question", ["Why did it fail?", "What went wrong?", "Why doesn't it start?", "Was war der Fehler?"]
)
@pytest.mark.parametrize(
    "fault", ["ERROR: disk full", "\x1b[31mERROR\x1b[0m disk full", "java.io.IOException: disk full"]
)
def test_a_question_for_a_fault_finds_the_line_of_a_log_that_reports_one(question: str, fault: str) -> None:
    lines = [f"Step {n} done, {n * 7} bytes written to the store" for n in range(2000)]
    lines[1500] = fault
    log = documents("\n".join(lines))
    assert fault in ranked(question, log)[0]
    assert [p.called for p in relevance(RelevanceQuery(question), log)[0]].count(True) == 1
    assert not any(fault in each for each in ranked("How long did it take?", log))


def test_what_all_passages_report_tells_none_apart() -> None:
    log = documents("\n".join(f"ERROR: {word} {n} is late" for n, word in enumerate(["tide", "gull"] * 500)))
    assert not any(p.called for p in relevance(RelevanceQuery("What went wrong?"), log)[0])


def test_topics_are_looked_up_in_conversations_alone() -> None:
    assert ranked("Which pets are there?", documents("a puppy", "a chair")) == []


RANDOM = random.Random(5)
LAKES: list[dict[str, object]] = [
    {
        "lake": f"Lake {n}",
        "basin": {"depth_m": d, "area_km2": 500 - d},
        "surveyed": f"20{d % 90 + 10}-01-05",
        "fee": f"${d}.50",
    }
    for n, d in enumerate(RANDOM.sample(range(100, 400), 60))
]


PROSE = SearchedSource(
    "Which one is deep? This one is about none of which anybody asked.", "artifact", "notes", True, 3
)


def lake(question: str, text: str | None = None) -> dict[str, object]:
    source = SearchedSource(text or json.dumps(LAKES), "artifact", "list_lakes {}", True, 3)
    best = ranked(question, [source, SearchedSource("A lake is deep.", "turn", "user", True, 1)])[0]
    found: dict[str, object] = json.loads(best.strip().strip(",[]"))
    return found


def depth(record: dict[str, object]) -> int:
    return int(record["basin"]["depth_m"])  # type: ignore[index]


@pytest.mark.parametrize(
    "question",
    [
        "Which lake is the deepest?",
        "Which one has the smallest area?",
        "the lake with the highest depth",
        "Where is the most expensive fee charged, and for which lake?",
        "What is the maximum depth?",
    ],
)
def test_the_extreme_record_is_first(question: str) -> None:
    assert depth(lake(question)) == max(map(depth, LAKES))


@pytest.mark.parametrize("question", ["Which lake is the shallowest?", "cheapest lake?", "the least expensive lake"])
def test_the_other_end(question: str) -> None:
    assert depth(lake(question)) == min(map(depth, LAKES))


def test_dates_have_an_order_too() -> None:
    assert lake("Which lake was surveyed latest?")["surveyed"] == max(str(each["surveyed"]) for each in LAKES)


def test_rows_of_a_table() -> None:
    rows = [f"{name},{weight} kg" for name, weight in zip("abcdefghij", [5, 9, 12, 3, 8, 7, 6, 4, 2, 10], strict=True)]
    table = "parcel,weight\n" + "\n".join(rows) + "\n" + "\n".join(f"x{n},1 kg" for n in range(80))
    source = SearchedSource(table, "artifact", "list_parcels", True, 1)
    assert "c,12 kg" in ranked("Which parcel is the heaviest?", [source])[0]


@pytest.mark.parametrize("question", ["Is it deep?", "the forest", "an honest guest", "Does the rest arrest you?", ""])
def test_no_superlative(question: str) -> None:
    assert superlative(question) is None


@pytest.mark.parametrize("question", ["Who is the tallest?", "the loudest lake"])
def test_without_such_a_field_words_decide(question: str) -> None:
    plain = SearchedSource("The tallest, loudest tree.", "artifact", "", True, 9)
    assert ranked(question, [SearchedSource(json.dumps(LAKES), "artifact", "", True, 3), plain])[0] == plain.content


def test_a_table_of_a_few_rows_has_an_order_too() -> None:
    """It is one passage: that one is found, although no word of the question stands in it."""
    rows = "\n".join(f"{name},{depth}" for name, depth in (("Ammer", 81), ("Chiem", 73), ("Boden", 251)))
    found = ranked(
        "Which one is the deepest?", [SearchedSource(f"name,depth\n{rows}", "artifact", "list {}", True, 1), PROSE]
    )
    assert found[0].startswith("name,depth")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        ("12", 12.0),
        ("$1,250.50", 1250.5),
        ("2.5 million", 2_500_000.0),
        ("4 KB", 4000.0),
        ("90 min", 5400.0),
        ("1h 30m", 5400.0),
        ("2021-03-01", quantity("Mar 1, 2021")),
        ("1 March 2021", quantity("3/1/2021")),
        (None, None),
        (True, None),
        ("Hull", None),
        ("2021-99-01", None),
        ([1], None),
    ],
)
def test_quantities(value: object, number: float | None) -> None:
    assert quantity(value) == number


def test_dates_are_in_order() -> None:
    dates = ["Dec 31 1974", "1975-01-01", "2 January 1975", "1975-01-02T00:00:01", "1/3/1975"]
    values = [quantity(each) or 0.0 for each in dates]
    assert values == sorted(values)


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


LOG = (
    "[9:00 am on 4 May, 2021] Ada: Ben told me that the harvest was poor, all of the plums are gone.",
    "[9:00 am on 4 May, 2021] Ben: Good morning to you.",
    "[9:01 am on 4 May, 2021] Ada: Is it raining over there?",
    "[9:01 am on 4 May, 2021] Ben: Dry as ever. Lunch was late again.",
    "[9:02 am on 4 May, 2021] Ada: Oh well.",
    "[9:02 am on 4 May, 2021] Ben: The harvest of plums was poor, too.",
    "[9:03 am on 4 May, 2021] Ada: Pity.",
)


def test_what_the_person_asked_about_said_comes_first() -> None:
    told, own = LOG[0], LOG[5]
    assert ranked("What of Ben and the harvest of plums?", turns(*LOG))[0] == own
    assert ranked("What of Ada and the harvest of plums?", turns(*LOG))[0] == told


def test_a_message_s_name_says_who_speaks() -> None:
    said = SearchedSource("all of it", "turn", "user Ada_L", True, 3)
    assert speaker(said) == "Ada_L"
    assert speaker(replace(said, label="user", content="Grace Hopper: all of it")) == "Grace Hopper"
    assert speaker(replace(said, label="user")) == ""
    assert speaker(replace(said, kind="artifact")) == ""


def test_one_line_that_begins_like_a_speaker_s_says_nothing() -> None:
    texts = (
        "Error: it stopped",
        "what now?",
        "an error of the mill, an error in the mill's wheel",
        "so",
        "Note: oil it",
    )
    assert ranked("error of the mill", turns(*texts))[0] == texts[2]


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


@pytest.mark.parametrize("slip", ["Ghandi", "Gandi", "Ganddhi", "Gadnhi", "Gahndi", "gandhy", "GANHDI"])
def test_a_name_is_found_despite_a_slip_of_the_keyboard(slip: str) -> None:
    texts = documents(*[f"Person{n} wrote a long letter." for n in range(9)], "A pamphlet by Gandhi: Hind Swaraj.")
    assert ranked(f"What was the pamphlet's author {slip} known for?", texts[:9]) == []
    assert ranked(f"What did {slip} do?", texts) == [texts[9].content]


def test_a_slip_in_the_name_of_a_tool_s_argument_is_mended_too() -> None:
    texts = [*documents("nine", label="read orchard"), *documents("ten", label="read harbour")]
    assert ranked("What does harbuor say?", texts) == ["ten"]


def test_a_word_that_a_text_holds_is_never_respelt() -> None:
    texts = documents("The county is small.", *["The country is large."] * 5)
    assert ranked("Which county?", texts) == [texts[0].content]


def test_of_two_spellings_the_more_frequent_one_is_meant() -> None:
    texts = documents("Marten", *["Martin"] * 3)
    assert respelt_in("Who is Martan?", texts) == "Who is Martin?"


@pytest.mark.parametrize("question", ["Who is Ada?", "Who is Adaa?", "Who is Bda Lovelace-Kign?", "user_nmae?", "Kín?"])
def test_short_words_first_letters_and_compounds_stay_as_they_are_asked(question: str) -> None:
    assert respelt_in(question, documents("Adam Ada Cda Kin user_name Lovelace-King")) == question


def test_of_a_long_text_that_speaks_of_something_else_few_words_are_respelt() -> None:
    names = [f"Wordy{chr(97 + n)}" for n in range(20)]
    question = respelt_in(" ".join(f"{name}x" for name in names), documents(" ".join(names)))
    assert question.split()[:MAX_RESPELT] == names[:MAX_RESPELT]
    assert not set(question.split()[MAX_RESPELT:]) & set(names)


def test_data_in_a_question_is_not_respelt() -> None:
    texts = documents(*["Anything"] * 3)
    assert respelt_in("Anythign " + "A" * 1_000_000, texts).startswith("Anything ")
    many = " ".join(f"{a}{b}{c}word" for a, b, c in product("abcdefghij", repeat=3))
    assert respelt_in(f"{many} Anythign", texts).endswith("Anythign")


def test_a_superlative_that_no_record_holds_stays_a_superlative() -> None:
    lakes = documents("\n".join(f'{{"lake": "Lake {n}", "depth": {n}, "shore": "deepset"}}' for n in range(90)))
    assert '"depth": 89,' in ranked("Which is the deepest lake?", lakes)[0]


def test_what_goes_on_from_the_best_passage_comes_before_passages_that_share_a_common_word() -> None:
    begins, goes_on = "The plugs-out test began with an odor in the spacesuits.", "Then a fire began in the cabin."
    others = [f"During the test of engine {n} nothing was found{', and the crew went home' * n}." for n in range(80)]
    padding = " The weather was fair in that month, and many people saw it from the shore of the lake." * 8
    text = "\n\n".join([*others[:40], begins + padding, goes_on + padding, *others[40:]])
    found = ranked("What happened during the plugs-out test when an odor was noticed?", documents(text))
    assert begins in found[0]
    assert any(goes_on in passage for passage in found[:-10])


def respelt_in(question: str, sources: list[SearchedSource]) -> str:
    """The question as the texts spell its words."""
    lexicon = TermLexicon()
    return respelt(SourceCorpus(sources, index_texts([s.content for s in sources], lexicon), lexicon), question)
