"""The example of docs/context.md comes out as the page tells it: what became of each artifact, and what that cost."""

import json
import re
from decimal import Decimal
from pathlib import Path

from tests.support import worked_example as example
from tests.support.answers import exact
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream

PAGE = (Path(__file__).parents[2] / "docs/context.md").read_text()


def test_the_example_of_the_page(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """§6.2, §6.3: a summary, an extract and an artifact that a plan could not leave out, each with its source; the next
    question finds all of it decided."""
    scripted = example.models()
    upstream.handler = example.counted(scripted)
    gateway = start_gateway({"context": {"planning": "auto"}})
    first = example.ask(gateway.url, example.request())
    second = example.ask(gateway.url, example.follow_up(first.json()))

    bills = [exact(answer.text)["response_metadata"] for answer in (first, second)]
    told, later = (bill["context_utilization"] for bill in bills)
    shown = {r["source"]: (r["strategy"], r.get("guarded", False)) for r in told["artifacts_processed"]}
    assert shown == {
        "step_1:list_orders": ("rag_extract", False),
        "step_1:depot_reports": ("summarize", False),
        "attachment:0:Framework contract": ("rag_extract", True),
    }
    assert told["strategy"] == "llm_planned"
    assert (told["planning_reason"], told["llm_planning_used"], told["fallback_reason"]) == ("near_limit", True, None)
    assert (later["planning_reason"], later["llm_planning_used"]) == ("standing", False)
    assert later["planning_cost"]["total_cost"] == 0
    sent, again = (body["messages"] for body in scripted.answered)
    assert again[: len(sent)] == sent
    assert example.SUMMARY in sent[3]["content"]
    assert "2 % of its price" in sent[0]["content"]
    cost = bills[0]["cost"]
    assert cost["total_cost"] == cost["prompt_cost"] + cost["completion_cost"] + cost["planning_cost"]


def test_the_page_shows_such_a_bill() -> None:
    """The figures on the page add up, and name the artifacts and strategies of the example."""
    (bill,) = (json.loads(block, parse_float=Decimal) for block in re.findall(r"```json\n(\{.*?)```", PAGE, re.DOTALL))
    cost, used = bill["cost"], bill["context_utilization"]
    assert cost["total_cost"] == cost["prompt_cost"] + cost["completion_cost"] + cost["planning_cost"]
    parts = used["planning_cost"]
    assert cost["planning_cost"] == parts["total_cost"] == parts["planner_cost"] + parts["summarizer_cost"]
    assert cost["prompt_cost"] == bill["usage"]["prompt_tokens"] * Decimal("0.0000025")
    strategies = [record["strategy"] for record in used["artifacts_processed"]]
    assert strategies == ["rag_extract", "summarize", "rag_extract"]
