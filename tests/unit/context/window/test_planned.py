"""A plan that is followed: where all fits, what it decides on costs less, and nothing that is needed leaves; where
something has to leave, half of the room goes by the heuristic's order, then the plan's (guarantee §5)."""

from dataclasses import replace

import pytest

from gateway.core.types.artifacts import ProcessingStrategy
from tests.unit.context.window.planning import (
    EXCLUDE,
    EXTRACT,
    FULL,
    LAMP,
    SHIPS,
    SUMMARIZE,
    counting,
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


BUDGET = 1500
SUMMARY = "Eighty vessels brought coal, three tons more each time."


@pytest.mark.parametrize("strategy", list(ProcessingStrategy))
def test_what_the_question_needs_stands_in_a_tight_budget_too(strategy: ProcessingStrategy) -> None:
    plan = planned(decided("art_ships", FULL), decided("art_lamp", strategy, 2), searches=["coal for the harbour"] * 4)
    found = fitted(TWO, BUDGET, plan)
    assert ANSWER in text(found)
    assert found.tokens <= BUDGET
    assert found.guarded == ({"art_lamp"} if strategy is EXCLUDE else frozenset())


def test_a_plan_has_the_other_half() -> None:
    """Without it the lamp, which the question names, has nearly all of the room."""
    plain = fitted(TWO, BUDGET)
    found = fitted(TWO, BUDGET, planned(decided("art_ships", FULL, 1)))
    assert shown(plain, "art_ships") < 600
    room = shown(found, "art_ships") + shown(found, "art_lamp")
    assert 0.3 * room < shown(found, "art_ships") < 0.6 * room


def test_what_the_plan_excludes_comes_last_of_all() -> None:
    plain = fitted(TWO, BUDGET)
    found = fitted(TWO, BUDGET, planned(decided("art_lamp", EXCLUDE)))
    assert 0.3 * shown(plain, "art_lamp") < shown(found, "art_lamp") < 0.7 * shown(plain, "art_lamp")
    assert shown(found, "art_ships") > shown(plain, "art_ships")
    only = fitted(material([ASK], paper("lamp", LAMP)), 900, planned(decided("art_lamp", EXCLUDE)))
    assert only.tokens == fitted(material([ASK], paper("lamp", LAMP)), 900).tokens
    assert only.guarded == {"art_lamp"}


def test_what_bears_on_nothing_comes_before_what_the_plan_excludes() -> None:
    herds = "\n\n".join(f"Zebras {chr(97 + n % 26) * 4} grazed beside acacias, far inland." for n in range(60))
    made = material([ASK], paper("lamp", LAMP), replace(paper("herds", herds), historical=True))
    assert shown(fitted(made, BUDGET), "art_herds") <= 0
    assert shown(fitted(made, BUDGET, planned(decided("art_lamp", EXCLUDE))), "art_herds") > 1000


def test_priorities_count() -> None:
    other = SHIPS.replace("vessel", "barge")
    made = material([ASK], paper("lamp", LAMP), paper("ships", SHIPS), paper("barges", other))
    for first, second in (("art_ships", "art_barges"), ("art_barges", "art_ships")):
        found = fitted(made, 2000, planned(decided(second, FULL, 7), decided(first, FULL, 3)))
        assert shown(found, first) > 2 * max(0, shown(found, second))


def test_a_summary_stands_with_the_heuristics_extracts_beside_it() -> None:
    wants = decided("art_lamp", SUMMARIZE, summarization_focus="who lit it, when")
    found = fitted(TWO, BUDGET, planned(wants, summaries={"art_lamp": SUMMARY}))
    rendering = found.selection.renderings["art_lamp"]
    assert (rendering.strategy, rendering.text, rendering.focus) == (SUMMARIZE, SUMMARY, "who lit it, when")
    assert ANSWER in text(found)
    assert SUMMARY in text(found)
    assert rendering.shown_chars == len(SUMMARY) + rendering.extract_chars


def test_a_summary_that_was_paid_for_keeps_its_room_whatever_is_extracted_before_it() -> None:
    query = "the lamp of the lighthouse was lit by keeper"
    wants = (decided("art_lamp", EXTRACT, 1, extraction_query=query), decided("art_ships", SUMMARIZE, 2))
    for trusted in (False, True):
        found = fitted(TWO, BUDGET, planned(*wants, summaries={"art_ships": SUMMARY}, trusted=trusted))
        assert SUMMARY in text(found)
        assert found.selection.renderings["art_ships"].strategy is SUMMARIZE


def test_a_summary_for_which_there_is_no_room_gives_way_to_an_extract() -> None:
    """Degrading step by step: no summary, then an extract, then a line that says what was left out."""
    wants = planned(decided("art_lamp", SUMMARIZE), summaries={"art_lamp": "word " * 900}, trusted=True)
    made = material([ASK], paper("lamp", LAMP))
    found = fitted(made, 600, wants)
    assert found.selection.renderings["art_lamp"].strategy is EXTRACT
    assert ANSWER in text(found)
    tiny = fitted(made, counting(made).message(ASK) + 100, wants)
    assert tiny.selection.renderings["art_lamp"].strategy is EXCLUDE
    assert 'shown="nothing of ' in text(tiny)


def test_what_is_wanted_in_full_and_does_not_fit_is_extracted_by_what_bears_on_the_question() -> None:
    found = fitted(TWO, 900, planned(decided("art_lamp", FULL), decided("art_ships", EXCLUDE), trusted=True))
    assert found.selection.renderings["art_lamp"].strategy is EXTRACT
    assert ANSWER in text(found)


def test_a_trusted_plan_is_followed_to_the_letter_where_something_leaves() -> None:
    wants = (decided("art_lamp", EXCLUDE), decided("art_ships", EXTRACT, extraction_query="vessel number 44"))
    found = fitted(TWO, BUDGET, planned(*wants, trusted=True))
    assert shown(found, "art_lamp") == 0
    assert "vessel number 44 carried" in text(found)
    assert found.guarded == frozenset()


def test_a_trusted_summary_stands_alone() -> None:
    wants = (decided("art_lamp", FULL), decided("art_ships", SUMMARIZE))
    found = fitted(TWO, BUDGET, planned(*wants, summaries={"art_ships": SUMMARY}, trusted=True))
    assert shown(found, "art_ships") == len(SUMMARY)


def test_an_imagined_passage_brings_an_old_turn_back() -> None:
    """Also where no artifact is decided on: what a planner imagines is sought in turns that left the window."""
    talk = [user("Good morning."), assistant("Hello.")]
    talk += [user("The harbour master's dog answers to Biscuit."), assistant("Noted.")]
    for n in range(40):
        talk += [user(f"What is in crate {n} on the pier?"), assistant(f"Crate {n} of the pier holds rope. " * 12)]
    made = material([*talk, user("Who barks on the pier?")])
    assert "Biscuit" not in text(fitted(made, 700))
    assert "Biscuit" in text(fitted(made, 700, planned(searches=["the dog of the harbour master is called"])))


def test_a_plans_queries_have_no_say_in_the_heuristics_half() -> None:
    """Whatever they bring, the first of what bears on the question stays; the other half is for what they find."""
    plain = fitted(TWO, BUDGET)
    found = fitted(TWO, BUDGET, planned(searches=["vessel tons coal harbour", "the vessel carried coal to harbour 5"]))
    assert ANSWER in text(found)
    assert shown(found, "art_lamp") > 0.4 * shown(plain, "art_lamp")
    assert shown(found, "art_ships") > shown(plain, "art_ships")


def test_a_document_wanted_in_full_that_has_no_room_leaves_some_to_what_bears_on_the_question() -> None:
    made = material([ASK], paper("lamp", LAMP), paper("ships", SHIPS))
    found = fitted(made, BUDGET, planned(decided("art_ships", FULL)))
    assert shown(found, "art_lamp") > 1.2 * shown(found, "art_ships")
