"""A planner decides what enters the window, visibly, on the bill, never at the cost of the answer (guarantee §5)."""

from decimal import Decimal
from typing import Any

import pytest

from tests.support.answers import Json, assistant, chat, exact, read_stream, stored, used, user
from tests.support.documents import keeper, lamps, prompt_tokens, prose, text_of
from tests.support.factory import GatewayFactory, default_config, shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, decision, every, plan_of, shown
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply

BUDGET = 4096 - 512
QUESTION = user("Who is the keeper of lamp 41?")
LONG = {"title": "Lamps", "content": lamps(60)}
TIDES = {"title": "Tides", "content": prose(3, 2500)}


planning = shared_gateway({"context": {"planning": "auto"}, "upstream": {"unlisted": "relay"}})
"""A gateway that plans, before `upstream`."""


def ask(gateway: GatewayProcess, *attachments: Json, **body: Any) -> Json:
    """The answer to the question about these documents, with a window that cannot hold them."""
    return chat(gateway, **{"model": "small", "messages": [QUESTION], "attachments": list(attachments), **body})


def test_s5_a_plan_is_followed_and_told(planning: GatewayProcess, upstream: MockUpstream) -> None:
    """One call of the planner, its plan used, within the budget, told by strategy, reason, usage and cost."""
    upstream.handler = models = InternalModels(every("rag_extract", extraction_query="keeper of lamp 41"))
    answer = ask(planning, LONG, TIDES)
    assert (len(models.planned), len(models.summarized), len(models.answered)) == (1, 0, 1)
    told = used(answer)
    assert (told["strategy"], told["llm_planning_used"]) == ("llm_planned", True)
    assert (told["planning_reason"], told["fallback_reason"]) == ("near_limit", None)
    assert told["planning_usage"]["planner"]["calls"] == 1
    assert told["planning_usage"]["summarizer"] == {}
    assert keeper(41) in text_of(models.answered[0])
    assert prompt_tokens(models.answered[0]) <= BUDGET


def test_s5_a_summary_with_its_focus_stands_in_the_context(planning: GatewayProcess, upstream: MockUpstream) -> None:
    """It says in its own text that it is one; a summary that was paid for once costs nothing again (§5)."""
    summary = "Sixty lamps are kept, each by a keeper of its own; lamp 41 is green."
    upstream.handler = models = InternalModels(
        every("summarize", summarization_focus="colours of lamps"), lambda text: Reply(text=summary)
    )
    first = ask(planning, LONG)
    assert "colours of lamps" in models.summarized[0]["messages"][1]["content"]
    assert summary in text_of(models.answered[0])
    (record,) = used(first)["artifacts_processed"]
    assert (record["strategy"], record["cache_hit"]) == ("summarize", False)
    assert used(first)["cache_stats"] == {"hits": 0, "misses": 1}
    again = ask(planning, LONG)
    assert len(models.summarized) == 1
    assert summary in text_of(models.answered[1])
    assert used(again)["artifacts_processed"][0]["cache_hit"] is True
    assert used(again)["cache_stats"] == {"hits": 1, "misses": 0}
    assert used(again)["planning_usage"]["summarizer"] == {}


RUBBISH: list[tuple[Reply, str]] = [
    (Reply(status=500), "planner_failed"),
    (Reply(status=429, headers={"retry-after": "1"}), "planner_over_quota"),
    (Reply(status=404, body=b"<html>Nothing here yet</html>", content_type="text/html"), "planner_refused"),
    (Reply(cut_after=10), "planner_"),
    (Reply(text="I would include everything."), "planner_answer_no_json"),
    (Reply(json=[1, 2]), "planner_"),
    (Reply(json={"choices": [{"message": {"content": {"artifacts": 7}}}]}), "planner_answer_rubbish"),
    (Reply(text='{"artifacts": "all", "search_queries": 7}'), "planner_answer_rubbish"),
    (plan_of(decision("art_invented", "exclude")), "planner_answer_rubbish"),
    (Reply(text='{"artifacts": [' + '{"artifact_id": "a"},' * 500_000), "planner_answer_too_long"),
    (Reply(text='{"artifacts": [' + '{"artifact_id": "a"},' * 15_000), "planner_answer_too_long"),
    (Reply(text=""), "planner_answer_no_json"),
]


@pytest.mark.parametrize(("reply", "reason"), RUBBISH, ids=[f"{n}-{reason}" for n, (_, reason) in enumerate(RUBBISH)])
def test_s5_a_planner_that_fails_costs_quality_and_never_the_answer(
    planning: GatewayProcess, upstream: MockUpstream, reply: Reply, reason: str
) -> None:
    """The heuristic plan is used, `fallback_reason` says why, and the failed call is on the bill."""
    upstream.handler = models = InternalModels(lambda artifacts: reply)
    answer = ask(planning, LONG, TIDES)
    told = used(answer)
    assert answer["choices"][0]["message"]["content"].startswith("echo")
    assert (told["strategy"], told["llm_planning_used"]) == ("heuristic", False)
    assert told["fallback_reason"].startswith(reason)
    assert told["planning_usage"]["planner"]["calls"] == 1
    assert keeper(41) in text_of(models.answered[0])


def test_s2_mode_off_plans_nothing(planning: GatewayProcess, upstream: MockUpstream) -> None:
    upstream.handler = models = InternalModels(every("include_full"))
    chat(planning, model="small", messages=[QUESTION], context={"mode": "off", "planning": "always"})
    assert (len(models.planned), len(models.answered)) == (0, 1)


def test_s5_a_forced_plan_without_a_planner_falls_back(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """Content goes to no provider that nobody chose: no internal model is listed, and the primary's upstream is not the
    default one."""
    config = {"upstream": {"api_base": "http://127.0.0.1:9/v1"}, "context": {"planning": "auto"}}
    listed = [entry for entry in default_config(upstream, "")["model_list"] if entry["model_name"] == "small"]
    gateway = start_gateway({**config, "model_list": listed})
    upstream.handler = models = InternalModels(every("include_full"))
    answer = ask(gateway, LONG, context={"planning": "always"})
    assert (used(answer)["planning_reason"], used(answer)["fallback_reason"]) == ("forced", "no_planner")
    assert used(ask(gateway, LONG))["planning_reason"] == "no_planner"
    assert models.planned == []


def test_s4_nobody_is_paid_to_plan_a_window_of_unknown_size(planning: GatewayProcess, upstream: MockUpstream) -> None:
    """Such a model is not managed (§4 I1): whatever a plan said, it would get everything."""
    upstream.handler = models = InternalModels(every("summarize"))
    answer = ask(planning, LONG, TIDES, model="bench", context={"planning": "always"})
    assert models.planned == []
    told = used(answer)
    assert (told["planning_reason"], told["fallback_reason"]) == ("forced", "nothing_to_plan")
    assert told["llm_planning_used"] is False
    assert LONG["content"] in text_of(models.answered[0])


def test_s2_a_request_names_its_internal_models(planning: GatewayProcess, upstream: MockUpstream) -> None:
    """`context.models`, out of `model_list`."""
    upstream.handler = models = InternalModels(every("summarize", summarization_focus="whom it names"))
    answer = ask(planning, LONG, context={"models": {"context_planner": "gpt-4o", "summarizer": "small"}})
    assert models.planned[0]["model"] == "gpt-4o"
    assert models.summarized[0]["model"] == "small"
    calls = stored(planning, answer["id"])["response_metadata"]["context_utilization"]["planning_usage"]
    assert calls["planner"]["calls"] == 1
    assert calls["summarizer"]["calls"] == len(models.summarized)


def test_s5_without_a_model_list_a_request_names_any_planner(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """At the primary's own upstream, with the same key."""
    gateway = start_gateway({"model_list": [], "context": {"planning": "auto"}})
    upstream.handler = models = InternalModels(every("summarize", summarization_focus="whom it names"))
    chosen = {"models": {"context_planner": "gpt-4.1-nano", "summarizer": "gpt-4.1-mini"}, "max_input_tokens": 3000}
    answer = ask(gateway, LONG, model="gpt-4o", context={**chosen, "planning": "always"})
    assert used(answer)["llm_planning_used"] is True
    assert [call["model"] for call in models.planned] == ["gpt-4.1-nano"]
    assert {call["model"] for call in models.summarized} == {"gpt-4.1-mini"}
    assert {record.headers["authorization"] for record in upstream.chats} == {upstream.last.headers["authorization"]}


def test_s5_a_dry_run_asks_the_planner_and_stores_its_bill_alone(
    planning: GatewayProcess, upstream: MockUpstream
) -> None:
    """No call of the primary model, nothing stored but the bill of internal calls, no summary kept."""
    focus = "what a dry run keeps"
    upstream.handler = models = InternalModels(every("summarize", summarization_focus=focus))
    body = {"model": "small", "messages": [QUESTION], "attachments": [LONG], "context": {"dry_run": True}}
    answered = planning.post("/chat/completions", json=body)
    dry = exact(answered.text)
    assert (len(models.planned), len(models.summarized), models.answered) == (1, 1, [])
    assert dry["object"] == "context.dry_run"
    assert "conversation" not in dry
    told = used(dry)
    assert told["llm_planning_used"] is True
    assert "A short summary." in text_of(dry)
    assert told["planning_cost"]["total_cost"] > 0
    kept = stored(planning, dry["response_metadata"]["request_id"])["response_metadata"]
    assert kept["cost"]["planning_cost"] == kept["cost"]["total_cost"] == told["planning_cost"]["total_cost"]
    assert dry["response_metadata"]["cost"] == kept["cost"], "the client is told the same bill"
    assert Decimal(answered.headers["x-gateway-response-cost"]) == kept["cost"]["total_cost"]
    assert dry["response_metadata"]["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    why = ("planning_reason", "llm_planning_used", "fallback_reason", "strategy", "planning_usage")
    assert [used({"response_metadata": kept})[name] for name in why] == [told[name] for name in why]
    assert "Lamps" in str(told["artifacts_processed"])
    assert "Lamps" not in str(kept), "a title is what somebody wrote"
    real = ask(planning, LONG)
    assert used(real)["cache_stats"] == {"hits": 0, "misses": 1}, "the dry run's summary is nowhere"


def test_s5_a_refit_is_made_by_the_same_plan(planning: GatewayProcess, upstream: MockUpstream) -> None:
    """Upstream says overflow: fitted once more, and nobody is asked twice."""
    refused: list[Json] = []

    def primary(body: Json) -> Reply | None:
        if refused:
            return None
        refused.append(body)
        error = {
            "message": "This model's maximum context length is 2000 tokens. However, your messages resulted in "
            "3000 tokens.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        }
        return Reply(status=400, json={"error": error})

    upstream.handler = models = InternalModels(every("rag_extract"), primary=primary)
    answer = ask(planning, LONG, TIDES)
    assert (len(models.planned), len(models.answered)) == (1, 2)
    told = used(answer)
    assert "refitted_after_upstream_overflow" in told["warnings"]
    assert told["llm_planning_used"] is True
    assert prompt_tokens(models.answered[1]) < prompt_tokens(models.answered[0])


def test_s6_a_stream_tells_its_plan_at_the_beginning_and_its_bill_at_the_end(
    planning: GatewayProcess, upstream: MockUpstream
) -> None:
    upstream.handler = InternalModels(every("rag_extract"))
    body = {"model": "small", "messages": [QUESTION], "attachments": [LONG, TIDES]}
    wire = read_stream(planning, {**body, "stream_options": {"include_usage": True}})
    first, last = used(wire.chunks[0]), used(wire.finish)
    for told in (first, last):
        assert (told["strategy"], told["llm_planning_used"], told["planning_reason"]) == (
            "llm_planned",
            True,
            "near_limit",
        )
        assert told["planning_usage"]["planner"]["calls"] == 1
        assert told["planning_cost"]["planner_cost"] > 0
    assert "cost" not in wire.chunks[0]["response_metadata"]
    usage = wire.chunks[-1]["usage"]
    details = usage["cost_details"]
    assert usage["cost"] == details["upstream_inference_cost"] + details["planner_cost"] + details["summarizer_cost"]


def test_s6_the_cost_of_a_plan_is_in_every_figure(planning: GatewayProcess, upstream: MockUpstream) -> None:
    upstream.handler = InternalModels(every("summarize", summarization_focus="costs"))
    answer = ask(planning, LONG, TIDES)
    bill, told = answer["response_metadata"], used(answer)
    cost, parts, details = bill["cost"], told["planning_cost"], answer["usage"]["cost_details"]
    assert parts["planner_cost"] > 0
    assert parts["summarizer_cost"] > 0
    assert parts["total_cost"] == parts["planner_cost"] + parts["summarizer_cost"] == cost["planning_cost"]
    assert cost["total_cost"] == cost["prompt_cost"] + cost["completion_cost"] + cost["planning_cost"]
    assert answer["usage"]["cost"] == cost["total_cost"] == sum(details.values())
    assert (details["planner_cost"], details["summarizer_cost"]) == (parts["planner_cost"], parts["summarizer_cost"])
    assert Decimal(answer["_headers"]["x-gateway-response-cost"]) == cost["total_cost"]
    kept = stored(planning, answer["id"])["response_metadata"]
    del kept["context_utilization"]["plan"]
    assert kept == bill


def test_s6_planning_is_paid_for_also_where_the_answer_fails(planning: GatewayProcess, upstream: MockUpstream) -> None:
    upstream.handler = InternalModels(every("rag_extract"), primary=lambda body: Reply(status=500))
    failed = planning.post("/chat/completions", json={"model": "small", "messages": [QUESTION], "attachments": [LONG]})
    assert failed.status_code == 500
    row = stored(planning, failed.headers["x-request-id"])
    cost = row["response_metadata"]["cost"]
    assert row["status"] == "failed"
    assert cost["planning_cost"] == cost["total_cost"] > 0


def test_s5_old_turns_of_a_plain_chat_are_an_artifact_where_planning_is_asked_for(
    planning: GatewayProcess, upstream: MockUpstream
) -> None:
    """What leaves the window is sought by the planner's imagined passages, too: it says otherwise what is asked."""
    upstream.handler = models = InternalModels(every("summarize", queries=("a Petromax lantern with a mantle",)))
    told = f"By the way: ours is a Petromax with a mantle. {prose(99, 300)}"
    turns = [user(prose(1, 400)), assistant(prose(2, 400)), user(told), assistant("Oh dear.")]
    turns += [message for n in range(3, 30) for message in (user(prose(n, 500)), assistant(prose(n + 40, 500)))]
    asked: Json = {"model": "small", "messages": [*turns, user("Why was it so bright?")]}
    without = chat(planning, **asked)
    assert (used(without)["planning_reason"], models.planned) == ("no_artifacts", [])
    assert "Petromax" not in text_of(models.answered[0])
    answer = chat(planning, **asked, context={"planning": "always"})
    assert (used(answer)["planning_reason"], used(answer)["llm_planning_used"]) == ("forced", True)
    assert (len(models.planned), len(models.summarized)) == (1, 0)
    assert shown(models.planned[0])[0].source.startswith("turns:1-")
    assert "Petromax" in text_of(models.answered[1])
    assert prompt_tokens(models.answered[1]) <= BUDGET
    short = chat(planning, model="small", messages=[user("Well?")], context={"planning": "always"})
    assert used(short)["planning_reason"] == "no_artifacts"


def why(answer: Json) -> tuple[str, str | None]:
    told = answer["response_metadata"]["context_utilization"]
    return told["planning_reason"], told["fallback_reason"]
