"""The example of docs/context.md and docs/audit.md comes out as the pages say: what became of each artifact, and what
that cost."""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.support import worked_example as example
from tests.support.answers import exact
from tests.support.documents import tokens
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream

PAGE, AUDIT = ((Path(__file__).parents[3] / "docs" / name).read_text() for name in ("context.md", "audit.md"))
(BILL,) = (
    json.loads(each, parse_float=Decimal) for each in re.findall(r"```json\n(\{\"model\".*?)```", PAGE, re.DOTALL)
)
SUMMED = (("usage", "prompt_tokens"), ("cost", "total_cost"))


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
    assert shown_of(bills[0], BILL) == BILL
    labels = re.findall(r"(?:from \S+: |shown=\"extract, )([\d,]+ (?:of|characters for) [\d,]+)", PAGE)
    forwarded = "".join(message["content"] or "" for message in sent)
    assert len(labels) == 3
    assert all(label in forwarded for label in labels)
    assert f"Forwarded, in {told['tokens_used']:,} tokens" in PAGE
    for text in (example.orders(), example.reports(), example.contract()):
        assert f"| {tokens(text):,} |" in PAGE
    prompts, total = (sum(bill[part][figure] for bill in bills) for part, figure in SUMMED)
    assert re.search(rf"^total +2 +0 +0 +{prompts} +72 +{total:.12f} ", AUDIT, re.MULTILINE)


def shown_of(value: Any, page: Any) -> Any:
    """The value without the members that the page leaves out."""
    if isinstance(page, dict):
        return {name: shown_of(value[name], page[name]) for name in page}
    if isinstance(page, list) and len(page) == len(value):
        return [shown_of(*pair) for pair in zip(value, page, strict=True)]
    return value


def test_the_pages_show_bills_that_add_up() -> None:
    """The bill of docs/context.md, and its calls in docs/audit.md."""
    cost, usage, used = BILL["cost"], BILL["usage"], BILL["context_utilization"]
    assert cost["total_cost"] == cost["prompt_cost"] + cost["completion_cost"] + cost["planning_cost"]
    parts = used["planning_cost"]
    assert cost["planning_cost"] == parts["total_cost"] == parts["planner_cost"] + parts["summarizer_cost"]
    assert cost["prompt_cost"] == usage["prompt_tokens"] * Decimal("0.0000025")
    assert f"**total {cost['total_cost']} USD**" in AUDIT
    calls = {"primary": (usage, cost["prompt_cost"], cost["completion_cost"])}
    for purpose, tokens_used in used["planning_usage"].items():
        prompt, completion = tokens_used["prompt_tokens"], tokens_used["completion_tokens"]
        calls[purpose] = (tokens_used, prompt * Decimal("1.5E-7"), completion * Decimal("6E-7"))
    for purpose, (tokens_used, prompt_cost, completion_cost) in calls.items():
        figures = f"{tokens_used['prompt_tokens']:,} + {tokens_used['completion_tokens']}"
        picodollars = f"{int(prompt_cost * 10**12):,} | {int(completion_cost * 10**12):,}"
        assert re.search(
            rf"^\| {purpose} \| .*\| {re.escape(figures)} \| .*\| {re.escape(picodollars)} \|$", AUDIT, re.M
        )
