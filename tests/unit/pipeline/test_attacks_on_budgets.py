"""Ways around a budget or a limit (guarantee §12.3, §12.4): by whom a request says it is of, by the name, API or form
in which it asks, by leaving, and by the clock. A budget that is used up is used up in all of them.
"""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from tests.support.answers import Json, ok
from tests.support.attacked_budgets import ALONE, CHAT, DRY, NARROW, SPENT, TIGHT, ask, is_refused, metered
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.process import wait_until, within_a_minute

__all__ = ["metered"]

NOT_LEFT = "planner_over_cost_ceiling"
PLANNED = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
DEAR, CHEAP = ({"prompt_tokens": n, "completion_tokens": 2, "total_tokens": n + 2} for n in (200, 1))


EVIL_HEADERS: Json = {
    "date": "Thu, 01 Jan 1970 00:00:00 GMT",
    "x-request-start": "t=1",
    "x-request-id": "req_mine",
    "x-stainless-retry-count": "1",
    "idempotency-key": "new",
    "x-forwarded-for": "10.0.0.9",
    "x-api-key": "gw-key-other",
    "x-gateway-fallbacks": "off",
    "x-litellm-tags": "free",
    "openai-project": "another",
    "openai-organization": "another",
}
WAYS: list[tuple[str, Json]] = [
    ("chat/completions", {**CHAT, "stream": True}),
    ("chat/completions", {**CHAT, "model": "alias"}),
    ("chat/completions", {**CHAT, "model": "lone"}),
    ("chat/completions", {**CHAT, "user": "somebody-else", "safety_identifier": "x", "project": "x"}),
    ("chat/completions", {**CHAT, "store": False, "context": {"mode": "off"}}),
    ("chat/completions", {**CHAT, "n": 128}),
    ("chat/completions", {**CHAT, "max_tokens": 1, "service_tier": "flex"}),
    (
        "chat/completions",
        {**CHAT, "created": 0, "max_budget": 1e9, "metadata": {"user_api_key_spend": "0", "max_budget": "9"}},
    ),
    ("chat/completions", {**CHAT, "context": {"dry_run": True, "planning": "always"}}),
    ("chat/completions", {**CHAT, "context": {"planning": "always", "recall": True, "session": "x"}}),
    ("chat/completions/", CHAT),
    ("responses", {"model": "small", "input": "hi"}),
    ("responses", {"model": "small", "input": "hi", "stream": True, "background": False}),
    ("messages", CHAT),
    ("messages/", {**CHAT, "stream": True}),
    ("embeddings", {"model": "small", "input": "hi"}),
    ("retrieval/embeddings/", {"model": "small", "input": "hi"}),
    ("completions", {"model": "small", "prompt": "hi"}),
    ("images/generations", {"model": "small", "prompt": "hi"}),
    ("audio/speech", {"model": "small", "input": "hi", "voice": "x"}),
    ("moderations", {"model": "small", "input": "hi"}),
]


def test_s12_3_a_budget_that_is_used_up_is_so_in_every_way(metered: GatewayProcess, upstream: MockUpstream) -> None:
    """Budget bypass by a `user` or project field, by an alias, a fallback, another API or a relayed path, by streams,
    choices, dry runs, plans, recall, slashes, retries, and the client's clock: nothing goes up."""
    upstream.reply(usage=DEAR)
    first = ok(ask(metered, SPENT))
    wait_until(lambda: is_refused(ask(metered, SPENT)), "the bill counts")
    asked = len(upstream.requests)
    for path, body in WAYS:
        answer = ask(metered, SPENT, path, body)
        assert answer.status_code in (429, 404), (path, body, answer.text)
        assert answer.status_code == 429 or path == "retrieval/embeddings/", path
    for name, value in EVIL_HEADERS.items():
        assert is_refused(ask(metered, SPENT, body=CHAT, **{name: value})), name
    assert is_refused(metered.post("/chat/completions", json=CHAT, headers={"x-api-key": SPENT}, key=None))
    conversation = first["conversation"]["id"]
    replayed = ask(metered, SPENT, f"conversations/{conversation}/replay", {"from_turn": 1})
    assert "budget_exceeded" in replayed.text
    assert len(upstream.requests) == asked


def test_s12_3_a_dry_run_pays_for_its_planner(metered: GatewayProcess, upstream: MockUpstream) -> None:
    """Internal models are paid out of the same budget, also where no primary model is asked: what one may cost is
    reserved before it is asked, and it is not asked where less is left."""
    document = {"content": "the lamp is red. " * 900, "title": "lamps"}
    body = {**CHAT, "attachments": [document], "context": {"dry_run": True, "planning": "always"}}
    upstream.handler = lambda record: Reply(usage=PLANNED)
    bills: list[Json] = []
    while len(bills) < 20 and not (bills and bills[-1]["context_utilization"]["fallback_reason"] == NOT_LEFT):
        bills.append(ask(metered, DRY, body=body).json()["response_metadata"])
    costs = [bill["cost"]["planning_cost"] for bill in bills]
    assert (len(upstream.requests), costs[0], costs[-1]) == (len(bills) - 1, 0.002, 0)
    assert sum(costs) <= 0.019


def test_s12_3_a_planner_leaves_enough_for_its_request(metered: GatewayProcess, upstream: MockUpstream) -> None:
    """It would have been paid, and its request refused for what was left."""
    upstream.handler = lambda record: Reply(usage=PLANNED)
    document = {"content": " ".join(f"Lamp {n} is red." for n in range(4000)), "title": "lamps"}
    answer = ok(ask(metered, TIGHT, body={**CHAT, "attachments": [document], "context": {"planning": "always"}}))
    assert answer["response_metadata"]["context_utilization"]["fallback_reason"] == NOT_LEFT
    assert [record.body["model"] for record in upstream.chats if record.body] == ["small"]


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 128, "max_tokens": 9},
        {"max_completion_tokens": 1, "max_tokens": 2000},
        {"max_completion_tokens": 2000, "max_tokens": 1},
        {"max_tokens": 2000, "context": {"mode": "off"}},
        {"max_tokens": 200, "n": 10, "stream": True},
    ],
)
def test_s12_4_tokens_are_those_that_may_be_written_in_all(
    metered: GatewayProcess, upstream: MockUpstream, fields: Json
) -> None:
    """Limits bypassed by many choices, or by two limits of the output of which the gateway and the upstream read
    another."""
    assert is_refused(ask(metered, NARROW, body={**CHAT, "model": "alias", **fields}), "rate_limit_exceeded")
    assert not upstream.requests
    assert ask(metered, NARROW, body={**CHAT, "max_tokens": 1}).status_code == 200


def test_s12_4_limits_of_models_and_users_hold_for_relayed_calls(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """A limit bypassed by a path that is relayed: models that nothing lists are limited by the name that is asked, and
    users by theirs."""
    once: Json = {"limits": {"rpm": 1}}
    only: Json = {
        "models": {"text-embedding-3-small": once},
        "users": {"busy": once},
        "each_user": {"limits": {"rpm": 9}},
    }
    gateway = start_gateway(
        {
            "model_list": [],
            "upstream": {"api_base": upstream.base_url, "api_key": "sk-upstream"},
            "auth": {"keys": [{"key": SPENT, "tenant": "mallory"}]},
            "limits": only,
        }
    )
    within_a_minute()
    body: Any = {"model": "text-embedding-3-small", "input": "hi"}
    assert ask(gateway, SPENT, "embeddings", body).status_code == 200
    assert is_refused(ask(gateway, SPENT, "embeddings", body), "rate_limit_exceeded")
    assert is_refused(ask(gateway, SPENT, "embeddings", {**body, "input": ["a"], "user": "x"}), "rate_limit_exceeded")
    other = {**body, "model": "text-embedding-3-large", "user": "busy"}
    assert ask(gateway, SPENT, "embeddings", other).status_code == 200
    assert is_refused(ask(gateway, SPENT, "embeddings", other), "rate_limit_exceeded")
    assert len(upstream.requests) == 2


TOO_DEAR: list[tuple[str, Json]] = [
    ("chat/completions", {**CHAT, "max_tokens": 512, "n": 128}),
    ("chat/completions", {**CHAT, "max_tokens": 512, "n": 128, "stream": True, "context": {"mode": "off"}}),
    ("chat/completions", {**CHAT, "model": "spoken", "max_tokens": 512, "modalities": ["text", "audio"]}),
    ("embeddings", {"model": "small", "input": "hi there " * 10**5}),
    ("moderations", {"model": "small", "input": ["hi there " * 10**5]}),
    ("completions", {"model": "small", "prompt": "hi", "max_tokens": 10**6}),
    ("completions", {"model": "small", "prompt": "hi", "max_tokens": 10**4, "best_of": 20}),
    ("images/generations", {"model": "small", "prompt": "hi", "n": 10}),
    ("audio/speech", {"model": "small", "input": "x" * 10**5, "voice": "x"}),
]


@pytest.mark.parametrize(("path", "body"), TOO_DEAR)
def test_s12_3_a_request_that_alone_exceeds_what_is_left(
    metered: GatewayProcess, upstream: MockUpstream, path: str, body: Json
) -> None:
    """It is told so before anything goes up, and holds nothing: what is cheap enough still goes."""
    refused = ask(metered, ALONE, path, body)
    assert is_refused(refused), refused.text
    assert "this request alone may cost" in refused.json()["error"]["message"]
    assert refused.headers["x-should-retry"] == "false"
    assert not upstream.requests
    assert ask(metered, ALONE, "embeddings", {"model": "small", "input": "hi"}).status_code == 200


def test_s12_3_relayed_calls_hold_what_they_may_cost(metered: GatewayProcess, upstream: MockUpstream) -> None:
    """Two at once that would exceed a budget together: the second is refused while the first runs, also a form; a call
    that upstream refuses gives back what it held."""
    upstream.routes["POST /v1/completions"] = Reply(status=400)
    body = {"model": "small", "prompt": "hi", "max_tokens": 30_000}
    for _ in range(5):
        assert ask(metered, ALONE, "completions", body).status_code == 400
    gate = Event()
    upstream.routes["POST /v1/completions"] = Reply(json={"choices": [], "usage": CHEAP}, gate=gate)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(ask, metered, ALONE, "completions", body)
        wait_until(lambda: upstream.in_flight == 1, "the first is out")
        second = ask(metered, ALONE, "completions", body)
        form: Any = {"model": (None, "small"), "prompt": (None, "hi"), "n": (None, "8"), "image": ("a.png", b"x")}
        edit = metered.post("/images/edits", files=form, key=ALONE)
        gate.set()
        assert first.result().status_code == 200
    assert [is_refused(second), is_refused(edit)] == [True, True], (second.text, edit.text)
    assert "while others are running" in second.json()["error"]["message"]
    wait_until(lambda: ask(metered, ALONE, "completions", body).status_code == 200, "what it held is free again")
