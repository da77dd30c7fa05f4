"""The bill of every answer: its shape, and where it can be read again (guarantee §6)."""

import json
from decimal import Decimal

from tests.support.answers import chat, stored, stored_of, usage_of, user, wait_for_bill
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
    "tokens_estimated",
    "utilization",
    "breakdown",
    "messages_included",
    "messages_excluded",
    "llm_planning_used",
    "planning_reason",
    "fallback_reason",
    "artifacts_processed",
    "artifacts_standing",
    "planning_usage",
    "planning_cost",
    "cache_stats",
    "warnings",
}


def test_s6_the_shape_of_the_bill(one_gateway: GatewayProcess) -> None:
    """Every field of the guarantee's example, and no content."""
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
    failed = gateway.post("/chat/completions", json={"model": "gpt-4o", "messages": ASK, **body})
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


def test_s6_an_aborted_stream_is_estimated_whatever_was_reported_on_the_way(
    gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """A stream aborted: its answer is counted by the gateway, `estimated` true. Figures of its first chunk are none of
    the rest; its prompt costs what upstream says, read from its cache or not."""
    delta = {"index": 0, "delta": {"role": "assistant", "content": "alpha beta gamma delta"}, "finish_reason": None}
    chunk = {"id": "up", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [delta]}
    usage = {**usage_of(8, 1), "prompt_tokens_details": {"cached_tokens": 6}}
    upstream.reply(chunks=[{**chunk, "usage": usage}], stall_after=1)
    body = {"model": "gpt-4o", "messages": ASK, "stream": True}
    with gateway.http() as client, client.stream("POST", "/chat/completions", json=body) as answer:
        first = json.loads(next(answer.iter_lines()).removeprefix("data: "))
    kept = wait_for_bill(gateway, first["id"])
    assert kept["status"] == "partial"
    assert kept["response_metadata"]["cost"]["estimated"] is True
    assert kept["response_metadata"]["usage"] == usage_of(8, 4)
    assert kept["usage"]["prompt_tokens_details"] == {"cached_tokens": 6}


def test_s6_a_stored_completion_shows_the_usage_that_its_client_was_told(
    gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """Also where upstream reported none, and where nothing but the bill is kept."""
    for reported in (None, {"prompt_tokens": None, "completion_tokens": 5}, usage_of(3, 4)):
        upstream.reply(text="a b", usage=reported)
        answer = chat(gateway, model="gpt-4o", messages=ASK)
        assert stored(gateway, answer["id"])["usage"] == answer["usage"]
    answer = chat(gateway, model="gpt-4o", messages=ASK, store=False)
    assert stored(gateway, answer["id"])["usage"] == answer["usage"]


def test_s6_every_answer_in_a_conversation_names_it(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """`x-conversation-id` where there is one: on errors too, and on what is read again."""
    conversation = chat(gateway, model="gpt-4o", messages=ASK)["conversation"]["id"]
    upstream.reply(status=500)
    upstream.reply(status=429)
    for streamed in (False, True):
        body = {"model": "gpt-4o", "messages": ASK, "conversation": conversation, "stream": streamed}
        failed = gateway.post("/chat/completions", json=body)
        assert failed.status_code >= 400
        assert failed.headers["x-conversation-id"] == conversation
        again = gateway.get(f"/chat/completions/{failed.headers['x-request-id']}")
        assert (again.json()["status"], again.headers["x-conversation-id"]) == ("failed", conversation)
    listed = gateway.get("/chat/completions", params={"conversation": conversation})
    assert (len(listed.json()["data"]), listed.headers["x-conversation-id"]) == (3, conversation)
    assert (
        "x-conversation-id" not in gateway.post("/chat/completions", json={**body, "conversation": "conv_no"}).headers
    )
