"""The bill of every answer: its shape, and where it can be read again (contract §6)."""

import json
from decimal import Decimal

from tests.acceptance.answers import chat, http, stored, stored_of, usage_of, user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

ASK = [user("hello there")]
SHAPE = {
    "request_id",
    "conversation_id",
    "upstream_id",
    "model",
    "routing_path",
    "usage",
    "cost",
    "context_utilization",
    "timings_ms",
}
UTILIZATION = {
    "model_name",
    "strategy",
    "goal",
    "context_window",
    "budget_tokens",
    "tokens_used",
    "utilization",
    "breakdown",
    "messages_included",
    "messages_excluded",
    "llm_planning_used",
    "planning_reason",
    "fallback_reason",
    "artifacts_processed",
    "planning_usage",
    "planning_cost",
    "cache_stats",
    "warnings",
}


def test_s6_the_shape_of_the_bill(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Every field of the contract's example, and no content."""
    answer = chat(one_gateway, model="gpt-4o", messages=[user("a word that nobody says: zyzzyva")])
    bill = answer["response_metadata"]
    assert set(bill) == SHAPE
    used = bill["context_utilization"]
    assert set(used) == UTILIZATION
    assert set(used["breakdown"]) == {"system", "tools", "history", "artifacts", "current"}
    assert sum(used["breakdown"].values()) == used["tokens_used"]
    assert set(used["planning_usage"]) == {"planner", "summarizer"}
    assert set(bill["timings_ms"]) == {"rebuild", "plan", "upstream", "total"}
    assert bill["timings_ms"]["total"] >= bill["timings_ms"]["upstream"] > 0
    assert bill["routing_path"] == ["gpt-4o", "openai/gpt-4o"]
    assert (bill["model"], used["model_name"], used["context_window"]) == ("gpt-4o", "gpt-4o", 128000)
    assert (used["planning_reason"], used["llm_planning_used"], used["fallback_reason"]) == (
        "no_artifacts",
        False,
        None,
    )
    assert (used["messages_included"], used["messages_excluded"], used["goal"]) == (1, 0, "synthesis")
    assert "zyzzyva" not in json.dumps(bill, default=str)


def test_s6_any_bill_can_be_checked_afterwards(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """By `chatcmpl-…`, by `req_…`, and by conversation: the same `response_metadata`."""
    first = chat(gateway, model="gpt-4o", messages=ASK)
    body = {"conversation": first["conversation"]}
    second = chat(gateway, model="small", messages=ASK, **body)
    upstream.reply(status=500, json={"error": {"message": "no", "type": "x", "param": None, "code": None}})
    with http(gateway) as client:
        failed = client.post("/chat/completions", json={"model": "gpt-4o", "messages": ASK, **body})
    for answer in (first, second):
        for name in (answer["id"], answer["response_metadata"]["request_id"]):
            found = stored(gateway, name)
            assert found["response_metadata"] == answer["response_metadata"]
            assert found["choices"][0]["message"]["content"] == "echo: hello there"
        assert answer["_headers"]["x-request-id"] == answer["response_metadata"]["request_id"]
    listed = stored_of(gateway, first["conversation"]["id"])
    assert [each["id"] for each in listed[:2]] == [first["id"], second["id"]]
    assert [each["response_metadata"] for each in listed[:2]] == [
        first["response_metadata"],
        second["response_metadata"],
    ]
    assert [each["status"] for each in listed] == ["complete", "complete", "failed"]
    assert listed[2]["response_metadata"]["request_id"] == failed.headers["x-request-id"]


def test_s6_mode_off_is_billed(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A plain proxy with a bill."""
    upstream.reply(text="x", usage=usage_of(10, 5))
    answer = chat(gateway, model="small", messages=ASK, context={"mode": "off"})
    assert answer["response_metadata"]["cost"]["total_cost"] == 10 * Decimal("1e-06") + 5 * Decimal("2e-06")
    assert stored(gateway, answer["id"])["response_metadata"] == answer["response_metadata"]
