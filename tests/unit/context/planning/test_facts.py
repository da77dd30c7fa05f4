"""What the planning table is told of a conversation: what stands needs no new decision (guarantee §5, §4 I7)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gateway.context.manager import BuiltContext
from gateway.context.planning.decision import PlanningFacts, facts_of, should_use_llm_planning
from gateway.core.config.settings import ContextSettings
from gateway.core.types.artifacts import Artifact, ArtifactType
from gateway.core.types.chat import PromptBudget
from gateway.core.types.conversation import ConversationHistory, ConversationMessage, PromptFrame
from gateway.core.types.window import FullPrompt
from gateway.pipeline.frames import new_frame
from tests.unit.making import (
    FACTS,
    NOW,
    OPTIONS,
    assistant,
    chat,
    context_manager,
    history,
    material_of,
    stored,
    tool,
    user,
)

LOG = "\n".join(f"{n:05} berth {n * 7} is free" for n in range(60))
STEP = [user("find it"), assistant(None, "c1"), tool("c1", LOG), assistant("found")]
WIDE = 100_000


def _paper() -> Artifact:
    document = ArtifactType.DOCUMENT
    return Artifact("art_1", document, LOG, len(LOG), "attachment:1", title="Berths", historical=True)


async def built(bodies: Sequence[dict[str, Any]], known: int, budget: int = WIDE, **more: Any) -> BuiltContext:
    """The context of a conversation whose first `known` messages are stored."""
    before, after = bodies[:known], bodies[known:]
    path = (*stored(before), *(replace(m, sequence_number=None) for m in history(after).messages))
    made = ConversationHistory("conv_1", not known, (), path, stored=known, **more)
    manager = context_manager()
    return await manager.build(chat(bodies), made, FACTS, PromptBudget(budget, 128_000))


def facts(context: BuiltContext, known: int, budget: int = WIDE, turns: int = 20) -> PlanningFacts:
    fitted = context.fitted
    return facts_of(
        OPTIONS,
        material_of(context),
        FullPrompt(fitted.selection, fitted.forwarded, fitted.tokens, fitted.new_pass),
        stored=known,
        budget=budget,
        historical_turns=turns,
        has_planner=True,
    )


def reason(found: PlanningFacts) -> str:
    return should_use_llm_planning(found, ContextSettings()).reason


async def test_what_was_forwarded_in_full_stands_while_it_fits() -> None:
    found = facts(await built([*STEP, user("and now?")], 4), 4)
    assert (found.all_standing, found.new_historical, reason(found)) == (True, False, "standing")


async def test_a_new_result_is_to_be_decided_beside_old_ones_that_stand() -> None:
    bodies = [*STEP, user("and now?"), assistant(None, "c2"), tool("c2", f"{LOG} again")]
    found = facts(await built(bodies, 4), 4)
    assert (found.all_standing, found.new_historical, reason(found)) == (False, False, "small_total")


@pytest.mark.parametrize(("turns", "historical"), [(20, True), (2, True), (1, False), (0, False)])
async def test_history_that_was_never_forwarded_counts_so_many_turns_back(turns: int, historical: bool) -> None:
    """The result is of the turn before the last one before the current."""
    bodies = [*STEP, user("thanks"), assistant("welcome"), user("and now?")]
    found = facts(await built(bodies, 0), 0, turns=turns)
    assert (found.all_standing, found.new_historical) == (False, historical)
    assert reason(found) == ("historical_artifacts" if historical else "small_total")


async def test_once_something_has_to_leave_nothing_stands() -> None:
    context = await built([*STEP, user("which berth is free? " + "so " * 200)], 4, budget=400)
    assert context.fitted.new_pass
    found = facts(context, 4, budget=400)
    assert (found.all_standing, reason(found)) == (False, "historical_artifacts")


async def test_what_was_reduced_stands_as_it_was_reduced() -> None:
    """A pass reduces the result and leaves a frame: with it, the next turn has nothing to decide."""
    bodies = [*STEP, user("which berth is free?")]
    context = await built(bodies, 4, budget=500)
    assert context.fitted.new_pass
    asked = replace(material_of(context).messages[4], message_id="msg_4")
    before = ConversationHistory("conv_1", False, (), material_of(context).messages, stored=4)
    left = new_frame("gpt-4o", before, context, material_of(context), [asked])
    assert left is not None
    assert left.frame.decisions
    longer = [*bodies, assistant("berth 7"), user("thanks")]
    found = await built(longer, 6, budget=800, frame=left.frame)
    assert not found.fitted.new_pass
    assert reason(facts(found, 6)) == "standing"


async def test_what_a_pass_left_out_stands_as_left_out_until_something_has_to_leave() -> None:
    """The result left with its turn, the document by itself: both were decided on by the pass that began the window.
    Of a document that came since nothing is decided, and once more a pass has to decide, nothing of all."""
    bodies = [*STEP, user("thanks " * 100), assistant("welcome"), user("and now?")]
    gone = PromptFrame(first="msg_4", decided=frozenset({_paper().block_name}))
    found = facts(await built(bodies, 6, attachments=(_paper(),), frame=gone), 6)
    assert (found.artifacts, found.all_standing, reason(found)) == (2, True, "standing")
    other = replace(_paper(), artifact_id="art_2", content=f"{LOG} other")
    found = facts(await built(bodies, 6, attachments=(_paper(), other), frame=gone), 6)
    assert (found.all_standing, reason(found)) == (False, "historical_artifacts")
    longer = [*bodies[:-1], user("which berth is free? " + "so " * 300)]
    again = await built(longer, 6, budget=400, attachments=(_paper(),), frame=gone)
    assert again.fitted.new_pass
    assert reason(facts(again, 6, budget=400)) == "historical_artifacts"


async def test_what_left_is_nobodys_decision_where_no_pass_was() -> None:
    """Another model has no frame: it was sent nothing of it, so that nothing stands."""
    found = facts(await built([*STEP, user("and now?")], 4, attachments=(_paper(),)), 4)
    assert (found.all_standing, reason(found)) == (False, "historical_artifacts")


async def test_what_left_is_not_planned_again_in_each_step_of_a_turn() -> None:
    """It stands as left out; a new result is decided on."""
    asked = [*STEP, user("thanks"), assistant("welcome"), user("and now?")]
    gone = PromptFrame(first="msg_4")
    assert reason(facts(await built(asked, 6, frame=gone), 6)) == "standing"
    step = [*asked, assistant(None, "c2"), tool("c2", f"{LOG} again")]
    found = facts(await built(step, 8, frame=gone), 8)
    assert (found.all_standing, found.new_historical, reason(found)) == (False, False, "small_total")
    more = [*step, assistant(None, "c3"), tool("c3", "nothing")]
    assert reason(facts(await built(more, 11, frame=gone), 11)) == "standing"


@pytest.mark.parametrize(
    ("minutes", "expected"), [(-1, "historical_artifacts"), (0, "small_total"), (1, "small_total")]
)
async def test_what_came_with_the_turn_under_way_is_not_historical_in_its_later_steps(
    minutes: int, expected: str
) -> None:
    """§5: of the turns before the current one. It is stored by then, as those are."""
    bodies = [user("thanks"), assistant("welcome"), user("which berth?"), assistant(None, "c1"), tool("c1", LOG)]
    path = [replace(message, created_at=NOW) for message in stored(bodies[:4])]
    paper = replace(_paper(), timestamp=NOW + timedelta(minutes=minutes))
    new = [replace(m, sequence_number=None) for m in history(bodies[4:]).messages]
    made = ConversationHistory("conv_1", False, (), (*path, *new), stored=4, attachments=(paper,))
    manager = context_manager()
    context = await manager.build(chat(bodies), made, FACTS, PromptBudget(400, 128_000))
    assert context.fitted.new_pass
    assert reason(facts(context, 4, budget=400)) == expected


async def test_a_document_stands_in_the_block_that_holds_it() -> None:
    paper = await built([user("hello")], 0, attachments=(_paper(),))
    assert reason(facts(paper, 0)) == "historical_artifacts"
    rendered = paper.fitted.forwarded.rendered
    assert rendered is not None
    shown_in_full = paper.fitted.forwarded.shown_in_full
    asked = replace(stored([user("hello")])[0], rendered=rendered, shown_in_full=shown_in_full)
    path: list[ConversationMessage] = [asked, *stored([user("hello"), assistant("hi")])[1:]]
    made = ConversationHistory(
        "conv_1", False, (), (*path, *history([user("more")]).messages), stored=2, attachments=(_paper(),)
    )
    manager = context_manager(ContextSettings())
    again = await manager.build(chat([user("more")]), made, FACTS, PromptBudget(WIDE, 128_000))
    assert reason(facts(again, 2)) == "standing"


async def test_a_document_in_no_message_counts_by_the_time_at_which_it_came() -> None:
    bodies = [user("one"), assistant("1"), user("two"), assistant("2"), user("three")]
    path = [replace(m, created_at=NOW + timedelta(minutes=n)) for n, m in enumerate(stored(bodies[:4]))]
    for minutes, historical in ((0, False), (3, True)):
        paper = replace(_paper(), timestamp=NOW + timedelta(minutes=minutes))
        made = ConversationHistory(
            "conv_1", False, (), (*path, *history(bodies[4:]).messages), stored=4, attachments=(paper,)
        )
        manager = context_manager(ContextSettings())
        found = facts(await manager.build(chat(bodies[4:]), made, FACTS, PromptBudget(WIDE, 128_000)), 4, turns=1)
        assert (found.all_standing, found.new_historical) == (False, historical), minutes
