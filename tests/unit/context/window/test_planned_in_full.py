"""A plan where everything fits: what it decides on costs less, and nothing that is needed leaves (guarantee §5)."""

import pytest

from gateway.core.types.artifacts import ProcessingStrategy
from tests.unit.context.window.planning import (
    EXCLUDE,
    EXTRACT,
    FULL,
    LAMP,
    SHIPS,
    SUMMARIZE,
    decided,
    fitted,
    material,
    paper,
    planned,
    shown,
    text,
)
from tests.unit.making import assistant, tool, user

WIDE = 50_000
ASK = user("When was the lamp lit on night 61, and by which keeper?")
ANSWER = "On night 61 the lamp of the lighthouse was lit at 1:15 by keeper 61."
TWO = material([ASK], paper("lamp", LAMP), paper("ships", SHIPS))
PLAIN = fitted(TWO, WIDE)


def test_what_the_plan_excludes_is_left_out_and_says_so() -> None:
    found = fitted(TWO, WIDE, planned(decided("art_lamp", FULL), decided("art_ships", EXCLUDE)))
    assert found.tokens < 0.7 * PLAIN.tokens
    assert shown(found, "art_lamp") == len(LAMP)
    assert 0 <= shown(found, "art_ships") < 800
    assert 'id="art_ships"' in text(found)
    assert not found.new_pass


@pytest.mark.parametrize("strategy", [EXCLUDE, SUMMARIZE])
def test_what_the_question_needs_stands_whatever_an_untrusted_plan_says(strategy: ProcessingStrategy) -> None:
    plan = planned(decided("art_lamp", strategy), decided("art_ships", FULL), summaries={"art_lamp": "It was a lamp."})
    found = fitted(TWO, WIDE, plan)
    assert ANSWER in text(found)
    assert found.guarded == ({"art_lamp"} if strategy is EXCLUDE else frozenset())


def test_half_of_everything_stays_in_the_heuristics_order() -> None:
    found = fitted(TWO, WIDE, planned(decided("art_lamp", EXCLUDE), decided("art_ships", EXCLUDE)))
    half = (len(LAMP) + len(SHIPS)) / 2
    assert half * 0.95 <= shown(found, "art_lamp") + max(0, shown(found, "art_ships")) <= half * 1.15
    assert found.guarded >= {"art_lamp"}


def test_a_trusted_plan_is_followed_to_the_letter() -> None:
    summary = "Eighty vessels with coal."
    wants = (decided("art_lamp", EXCLUDE), decided("art_ships", SUMMARIZE, summarization_focus="coal"))
    found = fitted(TWO, WIDE, planned(*wants, summaries={"art_ships": summary}, trusted=True))
    assert (shown(found, "art_lamp"), shown(found, "art_ships")) == (0, len(summary))
    assert found.guarded == frozenset()
    assert "keeper 61" not in text(found).replace(str(ASK["content"]), "")


def test_an_extraction_query_finds_in_its_artifact_what_the_question_does_not_name() -> None:
    wants = (decided("art_lamp", FULL), decided("art_ships", EXTRACT, extraction_query="vessel number 44 coal"))
    found = fitted(TWO, WIDE, planned(*wants, trusted=True))
    assert "vessel number 44 carried" in text(found)
    assert shown(found, "art_ships") < len(SHIPS) / 2


def test_a_summary_that_could_not_be_made_becomes_an_extract_by_its_focus() -> None:
    wants = (decided("art_lamp", FULL), decided("art_ships", SUMMARIZE, summarization_focus="vessel number 44"))
    found = fitted(TWO, WIDE, planned(*wants, trusted=True))
    assert found.selection.renderings["art_ships"].strategy is EXTRACT
    assert "vessel number 44 carried" in text(found)


def test_an_artifact_that_the_plan_forgets_stays_in_full() -> None:
    found = fitted(TWO, WIDE, planned(decided("art_ships", EXCLUDE)))
    assert shown(found, "art_lamp") == len(LAMP)


def test_a_plan_that_saves_nothing_changes_nothing() -> None:
    plans = [
        planned(decided("art_lamp", FULL), decided("art_ships", FULL)),
        planned(searches=["the keeper lit the lamp"]),
        planned(decided("art_unknown", EXCLUDE)),
    ]
    assert [fitted(TWO, WIDE, plan).forwarded for plan in plans] == [PLAIN.forwarded] * 3


def test_without_a_budget_nothing_is_touched() -> None:
    plan = planned(decided("art_ships", EXCLUDE), trusted=True)
    assert fitted(TWO, None, plan).forwarded == fitted(TWO, None).forwarded


STEPS = [user("ships?"), assistant(None, "c1"), tool("c1", SHIPS), assistant("yes"), ASK]


def names(bodies: list[dict[str, object]], known: int = 0) -> list[str]:
    return [a.artifact_id for a in material(bodies, known=known).artifacts]


def test_a_tool_result_is_reduced_where_it_stands_and_turns_stay() -> None:
    (ships,) = names(STEPS)
    made = material(STEPS)
    found = fitted(made, WIDE, planned(decided(ships, EXTRACT, extraction_query="vessel number 44"), trusted=True))
    contents = [message["content"] for message in found.forwarded.messages]
    assert [contents[i] for i in (0, 1, 3, 4)] == [STEPS[i]["content"] for i in (0, 1, 3, 4)]
    assert contents[2].startswith(f'[Extract of tool result "search", id {ships}, from history:msg_2:search: ')


def test_what_was_forwarded_before_stands_as_it_stood() -> None:
    (ships,) = names(STEPS, known=4)
    found = fitted(material(STEPS, known=4), WIDE, planned(decided(ships, EXCLUDE), trusted=True))
    assert [m["content"] for m in found.forwarded.messages] == [m["content"] for m in STEPS]


def test_a_document_in_the_users_own_message_stays_while_it_fits() -> None:
    pasted = [user(f"{ASK['content']}\n\n```\n{SHIPS}\n```\n\nThanks.")]
    made = material(pasted, document_chars=1000)
    (ships,) = [a.artifact_id for a in made.artifacts]
    assert fitted(made, WIDE, planned(decided(ships, EXCLUDE), trusted=True)).forwarded.messages == pasted


def test_what_a_trusted_plan_leaves_is_not_guarded() -> None:
    """A result that is no longer than its label stays, excluded or not."""
    small = [user("ships?"), assistant(None, "c1"), tool("c1", "none"), assistant("no"), ASK]
    (name,) = names(small)
    exclusion = decided(name, EXCLUDE)
    assert fitted(material(small), WIDE, planned(exclusion, trusted=True)).guarded == frozenset()
    assert fitted(material(small), WIDE, planned(exclusion)).guarded == {name}


def test_a_summary_that_takes_more_tokens_than_its_source_is_not_shown() -> None:
    """Characters say little of a script of which each is several tokens."""
    plan = planned(decided("art_ships", SUMMARIZE), summaries={"art_ships": "𒀀𒁀" * 1200}, trusted=True)
    assert fitted(TWO, WIDE, plan).forwarded == PLAIN.forwarded


def test_a_summary_that_says_no_less_with_its_extracts_than_the_whole_gives_way() -> None:
    only = material([ASK], paper("lamp", LAMP))
    plan = planned(decided("art_lamp", SUMMARIZE), summaries={"art_lamp": "w" * int(0.8 * len(LAMP))})
    found = fitted(only, WIDE, plan).selection.renderings["art_lamp"]
    assert (found.strategy, found.text) == (EXTRACT, "")
