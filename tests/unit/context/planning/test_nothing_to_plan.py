"""Nobody is paid for a plan that can change nothing; one that changes nothing is not told as used (guarantee §5)."""

from typing import Any

import pytest

from tests.support.answers import Json, chat, used, user
from tests.support.documents import keeper, lamps, prose, text_of
from tests.support.factory import shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every, shown
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply

ALWAYS = {"planning": "always"}
PASTED = f"Please look at this:\n\n```\n{lamps(60)}\n```\n\nWho is the keeper of lamp 41?"
SHORT = {"title": "Note", "content": "Lamp 41 is green. Lamp 42 is red."}


planning = shared_gateway({"context": {"planning": "auto"}})
"""Planned by `gpt-4o-mini`, before `upstream`; `gpt-4o` holds everything."""


def ask(gateway: GatewayProcess, text: str, **more: Any) -> Json:
    return chat(gateway, **{"model": "gpt-4o", "messages": [user(text)], "context": ALWAYS, **more})


def is_free(answer: Json) -> bool:
    told = used(answer)
    assert (told["planning_reason"], told["fallback_reason"]) == ("forced", "nothing_to_plan")
    assert told["planning_usage"] == {"planner": {}, "summarizer": {}} or not told["planning_usage"]["planner"]
    return bool(told["llm_planning_used"] is False and told["planning_cost"]["total_cost"] == 0)


def test_s5_a_document_in_the_users_own_words_that_fits_is_not_planned(
    planning: GatewayProcess, upstream: MockUpstream
) -> None:
    """§4 I4: it is not touched while it fits, whatever a plan says."""
    upstream.handler = models = InternalModels(every("summarize"))
    assert is_free(ask(planning, PASTED))
    assert (models.planned, models.summarized) == ([], [])
    assert models.answered[0]["messages"] == [user(PASTED)]


def test_s5_what_a_plan_can_change_beside_it_is_planned(planning: GatewayProcess, upstream: MockUpstream) -> None:
    upstream.handler = models = InternalModels(every("rag_extract", extraction_query="keeper of lamp 41"))
    ask(planning, PASTED, attachments=[{"title": "Log", "content": prose(5, 3000)}])
    (body,) = models.planned
    assert [artifact.source for artifact in shown(body)] == ["attachment:0:Log"]


def test_s5_what_stands_in_full_is_not_planned_again_even_if_asked_for(
    planning: GatewayProcess, upstream: MockUpstream
) -> None:
    """§4 I7: it is frozen, and nothing is outside the window; a new result is planned by itself."""
    upstream.handler = models = InternalModels(every("include_full"))
    first = ask(planning, "Who keeps lamp 41?", attachments=[{"title": "Lamps", "content": lamps(60)}])
    assert used(first)["llm_planning_used"] is True
    more = {"conversation": first["conversation"]}
    assert is_free(ask(planning, "And lamp 3?", **more))
    models.primary = lambda body: Reply(tool_calls=[("list_lamps", {})])
    asked = ask(planning, "And all?", **more)
    assert is_free(asked)
    (call,) = asked["choices"][0]["message"]["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": lamps(20)}
    answer = chat(planning, model="gpt-4o", messages=[result], context=ALWAYS, **more)
    assert used(answer)["llm_planning_used"] is True
    assert len(models.planned) == 2
    assert [artifact.source for artifact in shown(models.planned[-1])] == ["step_1:list_lamps"]


def test_s5_what_is_outside_the_window_is_sought_by_a_plan_that_is_asked_for(
    planning: GatewayProcess, upstream: MockUpstream
) -> None:
    """What stands stays; the planner's queries find more of the rest, and no summary is paid that none could see."""
    upstream.handler = models = InternalModels(every("summarize"))
    documents = [{"title": "Lamps", "content": lamps(60)}, {"title": "Log", "content": prose(5, 3000)}]
    first = ask(planning, "Who is the keeper of lamp 41?", model="small", attachments=documents)
    made = len(models.summarized)
    hidden = max(number for number in range(60) if keeper(number) not in text_of(models.answered[0]))
    models.planner = every("summarize", queries=(f"the keeper of lamp {hidden} is called", keeper(hidden)))
    answer = ask(planning, "And who else keeps one?", model="small", conversation=first["conversation"])
    assert used(answer)["llm_planning_used"] is True
    assert (len(models.planned), len(models.summarized)) == (2, made)
    assert keeper(hidden) in text_of(models.answered[-1])


@pytest.mark.parametrize("strategy", ["summarize", "rag_extract", "exclude"])
def test_s5_a_plan_that_changes_nothing_is_not_told_as_used(
    planning: GatewayProcess, upstream: MockUpstream, strategy: str
) -> None:
    """It wanted less of what is too short to become less: it was paid for, and what is forwarded is as without it."""
    upstream.handler = models = InternalModels(every(strategy))
    answer = ask(planning, "Which colour has lamp 41?", attachments=[SHORT])
    told = used(answer)
    assert len(models.planned) == 1
    assert (told["llm_planning_used"], told["fallback_reason"]) == (False, "plan_changes_nothing")
    assert (told["economics"]["applied"], told["economics"]["saved_tokens"]) == (False, 0)
    assert told["strategy"] != "llm_planned"
    assert told["planning_cost"]["planner_cost"] > 0
    plain = ask(planning, "Which colour has lamp 41?", attachments=[SHORT], context={"planning": "never"})
    assert models.answered[0]["messages"] == models.answered[1]["messages"]
    assert told["strategy"] == used(plain)["strategy"]


def test_s5_a_plan_that_wants_everything_in_full_is_used(planning: GatewayProcess, upstream: MockUpstream) -> None:
    """It was followed to the letter, and saves nothing."""
    upstream.handler = InternalModels(every("include_full"))
    told = used(ask(planning, "Which colour has lamp 41?", attachments=[SHORT]))
    assert (told["llm_planning_used"], told["fallback_reason"], told["strategy"]) == (True, None, "llm_planned")
    assert (told["economics"]["applied"], told["economics"]["pays"]) == (True, False)
