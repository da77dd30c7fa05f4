"""Each row of the decision table, asked by each of the three APIs: the same decision, and the same is forwarded
(guarantee §5, §10)."""

from typing import Any

import httpx
import pytest

from tests.support.answers import Json, assistant, user
from tests.support.documents import keeper, prose
from tests.support.edges import EDGES, PATHS, Edge, Heard, common, heard, said_by
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream

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
ROWS: list[tuple[str, bool, Json]] = [
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
        answer = httpx.post(url, json=said_by(edge, asked), headers=key, timeout=30, trust_env=False)
        assert answer.status_code == 200, answer.text
        return heard(edge, answer.json())

    def within(self, share: float | None, context: Json, **body: Any) -> Json:
        """The context of a request that takes that share of its budget."""
        if share is None:
            return context
        whole = self.ask("chat", "counted", **body, context={"planning": "never"}, store=False)
        return {"max_input_tokens": int(whole.bill["context_utilization"]["tokens_used"] / share)}


def decision(answer: Heard) -> tuple[str, bool]:
    used = answer.bill["context_utilization"]
    return used["planning_reason"], used["llm_planning_used"]


@pytest.mark.parametrize(("reason", "plans", "body"), ROWS, ids=[row[0] for row in ROWS])
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
