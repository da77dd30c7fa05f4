"""What a plan decided is on the record, in the turn that it was made for and in later ones (guarantee §5, §6)."""

import json
from dataclasses import replace

import pytest

from gateway.billing.metadata import response_metadata
from gateway.context.manager import BuiltContext
from gateway.context.planning.artifact_decisions import (
    WindowContents,
    records_of,
    reduced_of,
    strategy_of,
    without_standing,
)
from gateway.conversations.message_forms import as_frozen
from gateway.core.types.bill import ArtifactUsageRecord, ContextUtilizationMetadata, ResponseMetadata
from gateway.core.types.conversation import ConversationHistory, frame_body, frame_of
from gateway.core.types.window import PackedWindow, PlanToFollow, WindowInputs
from gateway.pipeline.frames import new_frame
from tests.support.answers import Json
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
    text,
)
from tests.unit.making import assistant, material_of, tool, user

ASK = user("When was the lamp lit on night 61, and by which keeper?")
STEPS = [ASK, assistant(None, "c1", "c2"), tool("c1", SHIPS), tool("c2", LAMP)]
MADE = material(STEPS)
OF_SHIPS, OF_LAMP = (artifact.artifact_id for artifact in MADE.artifacts)
SUMMARY = "Eighty vessels brought coal."
TRUSTED = planned(
    decided(OF_SHIPS, SUMMARIZE, summarization_focus="coal"),
    decided(OF_LAMP, FULL),
    summaries={OF_SHIPS: SUMMARY},
    trusted=True,
)
WIDE = 50_000
POEM = "Now write a long poem: grey mice dance in green gardens, eat yellow butter and sing."


def records(made: WindowInputs, found: PackedWindow) -> dict[str, ArtifactUsageRecord]:
    return {record.artifact_id: record for record in records_of(made, found)}


def second_turn(
    plan: PlanToFollow, question: str = POEM, made: WindowInputs = MADE
) -> tuple[WindowInputs, PackedWindow]:
    """The same conversation one turn later, with what the first request left."""
    later = going_on(made, fitted(made, WIDE, plan), [assistant("At one."), user(question)], answered=1)
    return later, fitted(later, 6000)


def later_step(made: WindowInputs, found: PackedWindow, result: str) -> WindowInputs:
    """The same turn one step later, with what the first request left."""
    return going_on(made, found, [assistant(None, "c9"), tool("c9", result)])


def going_on(made: WindowInputs, found: PackedWindow, added: list[Json], answered: int = 0) -> WindowInputs:
    """What follows the first request: it left its frame, and of the messages `added` so many are stored."""
    built = BuiltContext(found, ContextUtilizationMetadata("gpt-4o"), made, counting=counting(made))
    new = [replace(message, message_id=f"msg_{n}") for n, message in enumerate(made.messages)]
    left = new_frame("gpt-4o", ConversationHistory("conv_1", True, (), ()), built, material_of(built), new)
    assert left is not None
    frame, known = frame_of(frame_body(left.frame)), len(made.messages) + answered
    later = material([*(message.body for message in made.messages), *added], *made.attached, known=known)
    frozen = as_frozen(ConversationHistory("conv_1", False, (), later.messages, stored=known, frame=frame))
    return replace(later, messages=frozen.messages, frame=frame)


def test_a_summary_is_on_the_record() -> None:
    found = records(MADE, fitted(MADE, WIDE, TRUSTED))
    assert (found[OF_SHIPS].strategy, found[OF_SHIPS].processed_size_chars) == ("summarize", len(SUMMARY))
    assert (found[OF_LAMP].strategy, found[OF_LAMP].processed_size_chars) == ("include_full", len(LAMP))


def test_a_summary_stands_in_later_turns_as_it_was_decided_then() -> None:
    later, found = second_turn(TRUSTED)
    before = fitted(MADE, WIDE, TRUSTED).forwarded.messages
    assert found.forwarded.messages[: len(before)] == before
    record = records(later, found)[OF_SHIPS]
    assert (record.strategy, record.processed_size_chars) == ("summarize", len(SUMMARY))
    assert SUMMARY in text(found)
    assert not without_standing(later, found, 5), "nothing is left to be decided"


def test_a_summary_with_extracts_in_a_later_block_stays_a_summary() -> None:
    later, found = second_turn(TRUSTED, "What did vessel number 44 carry?")
    assert found.selection.quoted == {OF_SHIPS}
    assert "The vessel number 44 carried" in found.forwarded.block
    record = records(later, found)[OF_SHIPS]
    extract = found.selection.renderings[OF_SHIPS].shown_chars
    assert (record.strategy, record.processed_size_chars) == ("summarize", len(SUMMARY) + extract)


@pytest.mark.parametrize("where", ["message", "block"])
def test_what_is_recalled_beside_an_extract_is_counted_with_it(where: str) -> None:
    """§6: the characters of it that are forwarded, in however many places they stand."""
    made = MADE if where == "message" else material([ASK], paper("ships", SHIPS), paper("lamp", LAMP))
    name = OF_SHIPS if where == "message" else "art_ships"
    plan = planned(decided(name, EXTRACT, extraction_query="zebra"))
    whole = fitted(made, WIDE, plan)
    first = records(made, whole)[name]
    assert (first.strategy, first.processed_size_chars < len(SHIPS)) == ("rag_extract", True)
    missing = next(n for n in range(10, 80) if f"vessel number {n} carried" not in text(whole))
    later, found = second_turn(plan, f"What did vessel number {missing} carry?", made=made)
    assert f"vessel number {missing} carried" in found.forwarded.block
    more = found.selection.renderings[name].shown_chars
    record = records(later, found)[name]
    assert more > 0
    assert (record.strategy, record.processed_size_chars) == ("rag_extract", first.processed_size_chars + more)


def test_a_summary_as_long_as_what_it_is_of_is_told_all_the_same() -> None:
    """Sizes alone do not say that something stands in full: a summary with extracts may be as long."""
    found = fitted(MADE, WIDE, TRUSTED)
    renderings = found.selection.renderings
    same = replace(renderings[OF_SHIPS], text="x" * len(SHIPS))
    selection = replace(found.selection, renderings={**renderings, OF_SHIPS: same})
    (told,) = [each for _, each in reduced_of(MADE, replace(found, selection=selection))]
    assert (told.artifact_id, told.strategy) == (OF_SHIPS, "summarize")


def test_of_a_small_result_that_left_with_its_turn_nothing_stands() -> None:
    """It was to be shown compacted if its turn stayed; a later bill would tell that of one that says the same."""
    spaced = json.dumps({"lamp": 7, "lit": True}, indent=20)
    made = material([user("dim?"), assistant(None, "c1"), tool("c1", spaced), assistant("no " * 400), user("And now?")])
    found = fitted(made, 40)
    assert list(found.forwarded.indexes) == [4]
    assert not list(reduced_of(made, found))


def test_a_guarded_exclusion_says_so_and_others_say_nothing() -> None:
    found = fitted(MADE, WIDE, planned(decided(OF_LAMP, EXCLUDE), decided(OF_SHIPS, FULL)))
    told = records(MADE, found)
    assert (told[OF_LAMP].guarded, told[OF_SHIPS].guarded) == (True, False)
    utilization = ContextUtilizationMetadata("gpt-4o", artifacts_processed=list(told.values()))
    bill = response_metadata(ResponseMetadata("req_1", None, None, "gpt-4o", [], None, None, utilization))
    each = {r["artifact_id"]: r for r in bill["context_utilization"]["artifacts_processed"]}
    assert each[OF_LAMP]["guarded"] is True
    assert "guarded" not in each[OF_SHIPS]


def test_a_summary_of_what_left_the_window_stands_in_the_block() -> None:
    """An old result, too large for the window it left, whose summary the plan wants."""
    old = [user("ships?"), assistant(None, "c1"), tool("c1", SHIPS), assistant("yes"), user("x " * 500), assistant("y")]
    made = material([*old, ASK])
    (name,) = [artifact.artifact_id for artifact in made.artifacts]
    plan = planned(decided(name, SUMMARIZE), summaries={name: SUMMARY})
    found = fitted(made, 700, plan)
    assert 2 not in found.forwarded.indexes
    assert SUMMARY in found.forwarded.block
    assert strategy_of(made.artifacts[0], WindowContents.of(made, found), found) is SUMMARIZE
    assert records(made, found)[name].processed_size_chars >= len(SUMMARY)


def test_an_attached_document_by_its_summary_alone() -> None:
    made = material([ASK], paper("ships", SHIPS))
    plan = planned(decided("art_ships", SUMMARIZE), summaries={"art_ships": SUMMARY}, trusted=True)
    found = fitted(made, WIDE, plan)
    assert f"\n{SUMMARY}\n</artifact>" in found.forwarded.block
    assert records(made, found)["art_ships"].strategy == "summarize"


def test_a_document_that_a_plan_reduced_in_a_block_is_not_put_into_the_next_one_again() -> None:
    made = material([ASK], paper("ships", SHIPS), paper("lamp", LAMP))
    plan = planned(decided("art_ships", SUMMARIZE), summaries={"art_ships": SUMMARY}, trusted=True)
    later, found = second_turn(plan, made=made)
    assert found.forwarded.messages[0] == fitted(made, WIDE, plan).forwarded.messages[0]
    assert found.forwarded.block == ""
    assert records(later, found)["art_ships"].strategy == "summarize"
    assert not without_standing(later, found, 2)


def test_a_new_document_that_says_what_a_reduced_result_says_is_shown() -> None:
    """What was decided for a result in its message holds there alone."""
    later, _ = second_turn(TRUSTED)
    again = replace(paper("again", SHIPS), artifact_id=f"{OF_SHIPS}-2")
    assert fitted(replace(later, attached=(again,)), WIDE).forwarded.block.count("The vessel number 44 carried") == 1


@pytest.mark.parametrize(
    ("plan", "strategy"),
    [(None, "include_full"), (planned(decided("art_ships", EXTRACT, extraction_query="zebra")), "rag_extract")],
)
def test_what_stands_in_the_block_that_a_pass_keeps_is_told_as_it_stands(
    plan: PlanToFollow | None, strategy: str
) -> None:
    """§4 I6: the block of a turn is fixed at its first step, whatever leaves later; the record says what is there."""
    made = material([ASK], paper("ships", SHIPS))
    first = fitted(made, WIDE, plan)
    told = records(made, first)["art_ships"]
    assert (told.strategy, told.processed_size_chars > 0) == (strategy, True)
    later = later_step(made, first, LAMP * 3)
    found = fitted(later, first.tokens + 1500)
    assert (found.new_pass, found.selection.keeps_block) == (True, True)
    assert found.forwarded.messages[0] == first.forwarded.messages[0]
    record = records(later, found)["art_ships"]
    assert (record.strategy, record.processed_size_chars) == (told.strategy, told.processed_size_chars)


def test_an_old_result_whose_extract_stands_in_the_kept_block_is_told_as_that_extract() -> None:
    ask = user("Which harbour did vessel number 44 carry its coal to?")
    old = [user("ships?"), assistant(None, "c1"), tool("c1", SHIPS), assistant("yes"), user("x " * 500), assistant("y")]
    made = material([*old, ask])
    (name,) = [artifact.artifact_id for artifact in made.artifacts]
    first = fitted(made, 700)
    assert 2 not in first.forwarded.indexes
    assert "vessel number 44" in first.forwarded.block
    told = records(made, first)[name]
    later = later_step(made, first, LAMP * 3)
    found = fitted(later, 1600)
    assert (found.new_pass, found.selection.keeps_block) == (True, True)
    assert first.forwarded.block in text(found)
    record = records(later, found)[name]
    assert (record.strategy, record.processed_size_chars) == ("rag_extract", told.processed_size_chars)
