"""What clients are told of the budget and the window (guarantee §4 I1), and what is not managed."""

import re
from decimal import Decimal
from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from tests.support.answers import conversation_of, exact, stored_of, used, user
from tests.support.documents import keeper, lamps, prompt_tokens, prose, text_of
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

DOCUMENT = lamps(300)


@pytest.fixture
def client(one_gateway: GatewayProcess, make_client: ClientFactory) -> OpenAI:
    return make_client(one_gateway)


def ask(client: OpenAI, *messages: Any, model: str = "small", **body: Any) -> Any:
    known = {name: body.pop(name) for name in ("tools", "max_tokens", "stream") if name in body}
    return client.chat.completions.create(model=model, messages=list(messages), extra_body=body, **known)


def test_s4_i1_what_cannot_fit_is_refused(client: OpenAI, upstream: MockUpstream) -> None:
    """A 400 `context_length_exceeded`, never a silent cut; nothing goes up."""
    cases: list[tuple[int, Any]] = [
        (5, {"messages": [user("one two three four five six")], "context": {"max_input_tokens": 5}}),
        (500, {"messages": [user(prose(1, 1200))], "context": {"max_input_tokens": 500}}),
        (4096, {"messages": [{"role": "system", "content": prose(1, 4000)}, user("hi")]}),
        (4096, {"messages": [{"role": "system", "content": prose(1, 400)}, user("hi")], "max_tokens": 4000}),
        (4096, {"messages": [user("hi")], "max_tokens": 5000}),
    ]
    for limit, case in cases:
        messages = case.pop("messages")
        with pytest.raises(BadRequestError) as caught:
            ask(client, *messages, **case)
        assert caught.value.code == "context_length_exceeded"
        assert caught.value.type == "invalid_request_error"
        words = r"This model's maximum context length is (\d+) tokens\. However, you[a-z ]+ (\d+) tokens"
        told = re.match(words, caught.value.body["message"])  # type: ignore[index]  # clients look for it
        assert told is not None
        assert int(told[1]) == limit < int(told[2])
    assert not upstream.chats


def test_s4_i1_upstream_says_overflow_all_the_same(client: OpenAI, upstream: MockUpstream) -> None:
    """One refit: the second try is smaller and still holds the fact; it is said in the warnings."""
    upstream.context_limit = 1000
    answer = ask(client, user("Who is the keeper of lamp 5?"), attachments=[{"content": DOCUMENT}])
    assert len(upstream.chats) == 2
    first, second = (prompt_tokens(chat.body) for chat in upstream.chats)
    assert second < first
    assert keeper(5) in text_of(upstream.last.body)
    assert any("refit" in warning for warning in used(answer)["warnings"])
    upstream.clear()
    upstream.context_limit = 3
    with pytest.raises(BadRequestError) as caught:
        ask(client, user("Who is the keeper of lamp 5?"), attachments=[{"content": DOCUMENT}])
    assert caught.value.code == "context_length_exceeded"
    assert str(caught.value.body).count("This model's maximum context length is") == 1
    assert len(upstream.chats) <= 2, "one refit, no more"


def test_s4_i1_an_unknown_window(
    start_gateway: GatewayFactory, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """§6.8: a model of unknown window is not managed, with a warning; a limit of the client's own manages it."""
    params = {"model": "openai/house-brand", "api_base": upstream.base_url, "api_key": "sk-upstream"}
    client = make_client(start_gateway({"model_list": [{"model_name": "own", "litellm_params": params}]}))
    answer = ask(client, user("keeper of lamp 5?"), model="own", attachments=[{"content": DOCUMENT}])
    assert DOCUMENT in text_of(upstream.last.body)
    assert used(answer)["context_window"] is None
    assert used(answer)["budget_tokens"] is None
    assert "context_window_unknown" in used(answer)["warnings"]
    limited = {"max_input_tokens": 1500}
    answer = ask(client, user("keeper of lamp 5?"), model="own", attachments=[{"content": DOCUMENT}], context=limited)
    assert prompt_tokens(upstream.last.body) <= 1500
    assert used(answer)["budget_tokens"] == 1500


def test_s5_dry_run(one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory) -> None:
    """What would be forwarded and what it would cost; no call, never a stream, nothing stored."""
    client = make_client(one_gateway)
    conversation = conversation_of(ask(client, user("first")))
    body = {
        "model": "small",
        "messages": [user("Who is the keeper of lamp 5?")],
        "attachments": [{"content": DOCUMENT}],
        "conversation": conversation,
        "max_tokens": 100,
    }
    raw = one_gateway.post("/chat/completions", json={**body, "context": {"dry_run": True}, "stream": True})
    assert raw.status_code == 200
    assert raw.headers["content-type"] == "application/json"
    dry = exact(raw.text)
    assert raw.headers["x-conversation-id"] == conversation == dry["response_metadata"]["conversation_id"]
    assert Decimal(raw.headers["x-gateway-response-cost"]) == dry["response_metadata"]["cost"]["total_cost"] == 0
    assert len(upstream.chats) == 1
    assert len(stored_of(one_gateway, conversation)) == 1
    one_gateway.post("/chat/completions", json=body)
    assert {"object", "model", "messages", "response_metadata", "estimated_cost"} <= set(dry)
    assert (dry["object"], dry["model"]) == ("context.dry_run", "small")
    assert dry["messages"] == upstream.last.body["messages"]
    prompt = dry["response_metadata"]["context_utilization"]["tokens_used"]
    assert dry["estimated_cost"]["min"] == prompt * Decimal("1e-06")
    assert dry["estimated_cost"]["max"] == prompt * Decimal("1e-06") + 100 * Decimal("2e-06")


def test_s2_mode_simple(client: OpenAI, upstream: MockUpstream) -> None:
    """Heuristic only: no internal model is called, also when a plan is asked for."""
    simple = {"mode": "simple", "planning": "auto"}
    answer = ask(client, user("Who is the keeper of lamp 5?"), attachments=[{"content": DOCUMENT}], context=simple)
    assert len(upstream.chats) == 1
    assert keeper(5) in text_of(upstream.last.body)
    assert used(answer)["llm_planning_used"] is False
    assert used(answer)["planning_reason"] == "no_planner"
