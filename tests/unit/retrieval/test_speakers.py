"""What is asked about a person, that person has mostly said."""

from dataclasses import replace

from gateway.core.types.relevance import SearchedSource
from gateway.retrieval.question import speaker
from tests.unit.retrieval.asking import ranked, turns

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
