"""Guarantee §5's table, row by row in its order: the first condition that holds decides, by whichever API (§10)."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import httpx
import pytest

from gateway.context.planning.decision import (
    DECISION_TABLE,
    OBJECTIONS,
    PlanEconomics,
    PlanningDecision,
    PlanningFacts,
    should_use_llm_planning,
    weighed,
)
from gateway.core.config.settings import ContextSettings
from tests.support.answers import Json, assistant, ok, user
from tests.support.documents import keeper, prose
from tests.support.edges import EDGES, PATHS, Edge, Heard, common, heard, said_by
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream

BARE = PlanningFacts(
    artifacts=1, planning="auto", mode="auto", has_planner=True, all_standing=False, new_historical=False,
    total_chars=6000, largest_chars=6000, tokens=80, budget=100, expensive_primary=False,
)  # fmt: skip
EVERYTHING: dict[str, Any] = {
    "all_standing": True, "new_historical": True, "total_chars": 10, "largest_chars": 90_000, "tokens": 99,
    "expensive_primary": True,
}  # fmt: skip
UNKNOWN: dict[str, Any] = {"all_standing": False, "unrecognised": True}

ROWS: list[tuple[str, dict[str, Any], bool, str]] = [
    ("no artifacts", {"artifacts": 0}, False, "no_artifacts"),
    ("no artifacts, though forced", {"artifacts": 0, "planning": "always"}, False, "no_artifacts"),
    ("never", {**EVERYTHING, "planning": "never"}, False, "disabled"),
    ("always", {**EVERYTHING, "planning": "always", "has_planner": False, "mode": "simple"}, True, "forced"),
    ("no planner", {**EVERYTHING, "has_planner": False}, False, "no_planner"),
    ("mode simple", {**EVERYTHING, "mode": "simple"}, False, "no_planner"),
    ("all standing", EVERYTHING, False, "standing"),
    ("not recognised", {**EVERYTHING, **UNKNOWN}, False, "not_recognised"),
    ("not recognised, and forced", {**EVERYTHING, **UNKNOWN, "planning": "always"}, True, "forced"),
    (
        "not recognised, and it does not fit",
        {**EVERYTHING, **UNKNOWN, "must_leave": True},
        True,
        "historical_artifacts",
    ),
    ("historical", {**EVERYTHING, "all_standing": False}, True, "historical_artifacts"),
    ("4,999 characters in all", {"total_chars": 4999, "tokens": 99, "expensive_primary": True}, False, "small_total"),
    ("70 % of the budget", {"tokens": 70, "largest_chars": 90_000}, False, "fits"),
    ("an unknown window", {"budget": None, "tokens": 10**9, "largest_chars": 90_000}, False, "fits"),
    ("90 % of the budget, 5,000 characters in all", {"tokens": 90, "total_chars": 5000}, True, "near_limit"),
    ("90 % of the budget of an expensive model", {"tokens": 90, "expensive_primary": True}, True, "near_limit"),
    ("over the budget", {"tokens": 500}, True, "near_limit"),
    ("70 % of the budget of an expensive model", {"tokens": 70, "expensive_primary": True}, True, "expensive_primary"),
    ("89 % of the budget of an expensive model", {"tokens": 89, "expensive_primary": True}, True, "expensive_primary"),
    ("an unknown window of an expensive model", {"budget": None, "expensive_primary": True}, True, "expensive_primary"),
    ("71 % of the budget, 10,001 characters in one", {"tokens": 71, "largest_chars": 10_001}, True, "large_artifact"),
    ("10,000 characters in one", {"largest_chars": 10_000}, False, "no_need"),
    ("89 % of the budget", {"tokens": 89}, False, "no_need"),
]


@pytest.mark.parametrize(("facts", "use", "reason"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_s5_the_first_row_that_holds_decides(facts: dict[str, Any], use: bool, reason: str) -> None:
    decision = should_use_llm_planning(replace(BARE, **facts), ContextSettings())
    assert (decision.use, decision.reason) == (use, reason)


def test_s5_these_are_all_rows_of_the_table_in_its_order() -> None:
    assert [row.reason for row in DECISION_TABLE] == list(dict.fromkeys(reason for *_, reason in ROWS))


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("small_total_chars", 6001, "small_total"),
        ("fits_share", 0.8, "fits"),
        ("near_limit_share", 0.8, "near_limit"),
        ("large_artifact_chars", 5999, "large_artifact"),
    ],
)
def test_every_number_is_configurable(setting: str, value: float, reason: str) -> None:
    assert should_use_llm_planning(BARE, ContextSettings()).reason == "no_need"
    configured = ContextSettings.model_validate({setting: value})
    assert should_use_llm_planning(BARE, configured).reason == reason


HOPEFUL = PlanEconomics(must_leave=False, asked_this_turn=False, can_last=True, price=Decimal(1), saving=Decimal(1))
HOPELESS: dict[str, Any] = {"asked_this_turn": True, "can_last": False, "price": Decimal(2), "resting": True}
WEIGHED: list[tuple[str, dict[str, Any], str, str]] = [
    ("it may pay", {}, "large_artifact", "large_artifact"),
    ("an unknown price", {"price": None}, "large_artifact", "large_artifact"),
    ("an unknown saving", {"price": Decimal(2), "saving": None}, "large_artifact", "large_artifact"),
    ("something has to leave", {**HOPELESS, "must_leave": True}, "near_limit", "near_limit"),
    ("asked already", HOPELESS, "near_limit", "asked_this_turn"),
    ("asked already, though forced", HOPELESS, "forced", "asked_this_turn"),
    ("forced", {**HOPELESS, "asked_this_turn": False}, "forced", "forced"),
    ("store: false", {**HOPELESS, "asked_this_turn": False}, "near_limit", "nothing_stands"),
    ("too dear", {"price": Decimal(2), "resting": True}, "expensive_primary", "cannot_pay"),
    ("resting", {"resting": True}, "expensive_primary", "planner_resting"),
]


@pytest.mark.parametrize(
    ("prospects", "wanted", "reason"), [row[1:] for row in WEIGHED], ids=[row[0] for row in WEIGHED]
)
def test_s5_what_the_table_wants_is_weighed(prospects: dict[str, Any], wanted: str, reason: str) -> None:
    found = weighed(PlanningDecision(True, wanted), replace(HOPEFUL, **prospects))
    assert found == PlanningDecision(reason == wanted, reason)


def test_s5_weighing_never_asks_where_the_table_does_not() -> None:
    refused = PlanningDecision(False, "fits")
    assert weighed(refused, HOPEFUL) == refused
    assert {each.reason for each in OBJECTIONS} == {reason for *_, wanted, reason in WEIGHED if reason != wanted}


QUESTION = user("Who is the keeper of lamp 41?")
NOTE = {"title": "Note", "content": keeper(41)}
REPORT = {"title": "Report", "content": f"{prose(1, 1000)} {keeper(41)}"}
ANNEX = {"title": "Annex", "content": prose(2, 1000)}
LARGE = {"title": "Large", "content": f"{prose(3, 2500)} {keeper(41)}"}
FULL = 0.8
"""Share of the budget that the documents of the middle rows take."""
DEAR = 0.00002
"""USD per input token: an expensive model."""
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
LOOKED: list[Json] = [
    user("What does the report say?"),
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": REPORT["content"]},
    assistant("Much."),
]
ROWS_ASKED: list[tuple[str, bool, Json]] = [
    ("no_artifacts", False, {}),
    ("disabled", False, {"attachments": [LARGE], "context": {"planning": "never"}}),
    ("forced", True, {"attachments": [NOTE], "context": {"planning": "always"}}),
    ("no_planner", False, {"attachments": [LARGE], "context": {"mode": "simple"}}),
    ("historical_artifacts", True, {"messages": [*LOOKED, QUESTION]}),
    ("small_total", False, {"attachments": [NOTE]}),
    ("fits", False, {"attachments": [LARGE]}),
    ("near_limit", True, {"attachments": [LARGE], "context": {"max_input_tokens": 1500}}),
    ("expensive_primary", True, {"attachments": [REPORT, ANNEX], "model": "dear", "share": FULL}),
    ("large_artifact", True, {"attachments": [LARGE], "share": FULL}),
    ("no_need", False, {"attachments": [REPORT, ANNEX], "share": FULL}),
]


@pytest.fixture(scope="module")
def module_planning(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    """`plain` has no price, `dear` is expensive, `gpt-4o-mini` plans."""
    params = {"api_base": module_upstream.base_url, "api_key": "sk-upstream"}
    info = {"max_input_tokens": 60_000, "max_output_tokens": 512, "tokenizer": "o200k_base"}
    prices = {"input_cost_per_token": DEAR, "output_cost_per_token": DEAR}
    listed = [
        {"model_name": "plain", "litellm_params": {"model": "openai/plain", **params}, "model_info": info},
        {"model_name": "dear", "litellm_params": {"model": "openai/dear", **params}, "model_info": info | prices},
        {"model_name": "gpt-4o-mini", "litellm_params": {"model": "openai/gpt-4o-mini", **params}},
    ]
    return module_start_gateway({"model_list": listed, "context": {"planning": "auto"}})


class Asker:
    """Sends a chat's request by one of the APIs, for a tenant of its own."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream) -> None:
        self._gateway = gateway
        upstream.handler = self.models = InternalModels(every("include_full"))

    def ask(self, edge: Edge, tenant: str, **body: Any) -> Heard:
        asked = common({"model": "plain", "messages": [QUESTION], **body})
        key = {"authorization": f"Bearer sk-{tenant}"}
        url = f"{self._gateway.base_url}/{PATHS[edge]}"
        answer = ok(httpx.post(url, json=said_by(edge, asked), headers=key, timeout=30, trust_env=False))
        return heard(edge, answer)

    def within(self, share: float | None, context: Json, **body: Any) -> Json:
        """The context of a request that takes that share of its budget."""
        if share is None:
            return context
        whole = self.ask("chat", "counted", **body, context={"planning": "never"}, store=False)
        return {"max_input_tokens": int(whole.bill["context_utilization"]["tokens_used"] / share)}


def decision(answer: Heard) -> tuple[str, bool]:
    used = answer.bill["context_utilization"]
    return used["planning_reason"], used["llm_planning_used"]


@pytest.mark.parametrize(("reason", "plans", "body"), ROWS_ASKED, ids=[row[0] for row in ROWS_ASKED])
def test_s5_a_row_of_the_table_decides_alike_at_each_api(
    module_planning: GatewayProcess, upstream: MockUpstream, reason: str, plans: bool, body: Json
) -> None:
    asker = Asker(module_planning, upstream)
    rest = {name: value for name, value in body.items() if name not in ("share", "context")}
    context = asker.within(body.get("share"), body.get("context", {}), **rest)
    asker.models.answered.clear()
    for edge in EDGES:
        assert decision(asker.ask(edge, f"{reason}-{edge}", **rest, context=context)) == (reason, plans), edge
    assert len(asker.models.planned) == (len(EDGES) if plans else 0)
    first, *others = [sent["messages"] for sent in asker.models.answered]
    assert others == [first] * (len(EDGES) - 1)


@pytest.mark.parametrize("first", EDGES)
def test_s5_what_was_decided_at_one_api_stands_at_the_others(
    module_planning: GatewayProcess, upstream: MockUpstream, first: Edge
) -> None:
    """The row `standing`; and whichever API is next, what was forwarded is forwarded as it was (§4 I7)."""
    asker, tenant = Asker(module_planning, upstream), f"standing-{first}"
    named: Json = {"session": "one"}
    planned = asker.ask(first, tenant, attachments=[LARGE], context={**named, "planning": "always"})
    assert decision(planned) == ("forced", True)
    for number, edge in enumerate(EDGES):
        answer = asker.ask(edge, tenant, messages=[user(f"And lamp {number}?")], context=named)
        assert decision(answer) == ("standing", False)
        assert answer.conversation == planned.conversation
        before, now = [sent["messages"] for sent in asker.models.answered[-2:]]
        assert now[: len(before)] == before
    assert len(asker.models.planned) == 1
