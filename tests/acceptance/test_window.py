"""The budget and the window: never over, contiguous, whole pairs (guarantee §4 I1-I3), and what is not managed."""

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from tests.support.answers import Json, conversation_of, exact, http, stored_of, used, user
from tests.support.documents import keeper, lamps, prompt_tokens, prose, text_of, tokens
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

BUDGET = 4096 - 512
DOCUMENT = lamps(300)


@pytest.fixture
def client(one_gateway: GatewayProcess, make_client: ClientFactory) -> OpenAI:
    return make_client(one_gateway)


def ask(client: OpenAI, *messages: Any, model: str = "small", **body: Any) -> Any:
    known = {name: body.pop(name) for name in ("tools", "max_tokens", "stream") if name in body}
    return client.chat.completions.create(model=model, messages=list(messages), extra_body=body, **known)


@pytest.mark.parametrize("limit", [400, 700, 1000, 2000, 3584, 10_000])
def test_s4_i1_never_over_the_budget(
    start_gateway: GatewayFactory, make_client: ClientFactory, upstream: MockUpstream, limit: int
) -> None:
    """budget = min(model's maximum input, window - reserved output, max_input_tokens), by exact count."""
    client = make_client(start_gateway())
    tools: Any = [{"type": "function", "function": {"name": "f", "description": prose(1, 40), "parameters": {}}}]
    answer = ask(
        client,
        {"role": "system", "content": prose(2, 30)},
        user("Who is the keeper of lamp 5?"),
        attachments=[{"content": DOCUMENT}],
        tools=tools,
        context={"max_input_tokens": limit},
        store=False,
    )
    budget = min(limit, BUDGET)
    assert used(answer)["budget_tokens"] == budget
    assert prompt_tokens(upstream.last.body) <= used(answer)["tokens_used"] <= budget
    assert used(answer)["tokens_used"] >= 0.8 * budget, "and it is made use of"
    assert keeper(5) in text_of(upstream.last.body)
    assert sum(used(answer)["breakdown"].values()) == used(answer)["tokens_used"]
    assert abs(used(answer)["utilization"] - used(answer)["tokens_used"] / budget) < 0.001
    assert "context_window_above_80_percent" in used(answer)["warnings"] or used(answer)["utilization"] <= 0.8


def test_s4_i1_the_answers_room_is_reserved(client: OpenAI, upstream: MockUpstream) -> None:
    """What `max_tokens` reserves is not for the prompt."""
    answer = ask(client, user("Who is the keeper of lamp 5?"), attachments=[{"content": DOCUMENT}], max_tokens=2096)
    assert used(answer)["budget_tokens"] == 2000
    assert prompt_tokens(upstream.last.body) <= 2000


def test_s2_the_header_limits_the_prompt(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """`X-Context-Max-Input-Tokens`."""
    body = {"model": "small", "messages": [user("keeper of lamp 5?")], "attachments": [{"content": DOCUMENT}]}
    with http(one_gateway) as plain:
        answer = plain.post("/chat/completions", json=body, headers={"X-Context-Max-Input-Tokens": "900"})
    assert answer.json()["response_metadata"]["context_utilization"]["budget_tokens"] == 900
    assert prompt_tokens(upstream.last.body) <= 900


def test_s4_i2_the_greedy_fit_bug(client: OpenAI, upstream: MockUpstream) -> None:
    """A turn that does not fit ends the run: no older one is taken in its place, however small."""
    sizes = [20, 20, 600, 20, 20, 30]
    body: Json = {}
    for number, size in enumerate(sizes):
        upstream.reply(text=f"answer {number} {prose(number, 5)}")
        answer = ask(client, user(f"question {number} {prose(number + 10, size)}"), **body)
        body = {"conversation": conversation_of(answer)}
    answer = ask(client, user("last question"), context={"max_input_tokens": 500}, store=False, **body)
    messages = upstream.last.body["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant"] * 3 + ["user"]
    assert [m["content"].split()[1] for m in messages[:-1]] == ["3", "3", "4", "4", "5", "5"]
    assert prompt_tokens(upstream.last.body) <= 500
    assert (used(answer)["messages_included"], used(answer)["messages_excluded"]) == (7, 6)
    assert used(answer)["strategy"] == "simple"


@pytest.mark.parametrize("resend", [False, True])
def test_s4_i2_i3_long_conversations(client: OpenAI, upstream: MockUpstream, resend: bool) -> None:
    """Twenty-four turns, some with tool steps: always one unbroken run that ends with the current, pairs whole."""
    said: list[Json] = [{"role": "system", "content": "Be brief."}]
    body: Json = {}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    limit: Json = {"context": {"max_input_tokens": 1200}, "tools": tools}
    for number in range(24):
        asked = user(f"question {number} {prose(number, 10 + 37 * number % 90)}")
        turn: list[Json] = [asked]
        if number % 3 == 0:
            function = {"name": "f", "arguments": json.dumps({"n": number})}
            calls = [{"id": f"c{number}{x}", "type": "function", "function": function} for x in "ab"]
            turn.append({"role": "assistant", "content": None, "tool_calls": calls})
            turn += [{"role": "tool", "tool_call_id": c["id"], "content": prose(number, 50)} for c in calls]
        sent = [*said, *turn]
        if not resend:
            sent = turn[2:] or turn
            if len(turn) > 1:
                upstream.reply(message=turn[1])
                first = [*said, asked] if number == 0 else [asked]
                body = {"conversation": conversation_of(ask(client, *first, **body, **limit))}
        upstream.reply(text=f"answer {number}")
        answer = ask(client, *sent, **body, **limit)
        body = {"conversation": conversation_of(answer)}
        said += [*turn, {"role": "assistant", "content": f"answer {number}"}]
        messages = upstream.last.body["messages"]
        assert prompt_tokens(upstream.last.body) <= 1200
        assert messages[0] == said[0]
        assert messages[1]["role"] == "user", "the run begins with a whole turn"
        assert messages[-len(turn)]["content"].endswith(asked["content"])
        expected = said[1:-1][-(len(messages) - 1) :]
        shape = [(m["role"], m.get("tool_call_id")) for m in messages[1:]]
        assert shape == [(m["role"], m.get("tool_call_id")) for m in expected]
        questions = ([m["content"] for m in run if m["role"] == "user"] for run in (messages[1:], expected))
        assert all(got.endswith(wanted) for got, wanted in zip(*questions, strict=True))
        if used(answer)["messages_excluded"] == 0:
            assert messages == said[:-1]
    assert not upstream.violations
    assert len(upstream.last.body["messages"]) < len(said) / 2


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


def test_s4_i1_tools_count(client: OpenAI, upstream: MockUpstream) -> None:
    """Prompt, tools and schema fit the budget together."""
    tools: Any = [
        {"type": "function", "function": {"name": f"f{i}", "description": prose(i, 60), "parameters": {}}}
        for i in range(30)
    ]
    answer = ask(client, user("keeper of lamp 5?"), tools=tools, attachments=[{"content": DOCUMENT}])
    assert upstream.last.body["tools"] == tools
    assert prompt_tokens(upstream.last.body) <= BUDGET
    assert used(answer)["breakdown"]["tools"] >= sum(tokens(tool["function"]["description"]) for tool in tools)


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
    with http(one_gateway) as plain:
        raw = plain.post("/chat/completions", json={**body, "context": {"dry_run": True}, "stream": True})
        assert raw.status_code == 200
        assert raw.headers["content-type"] == "application/json"
        dry = exact(raw.text)
        assert raw.headers["x-conversation-id"] == conversation == dry["response_metadata"]["conversation_id"]
        assert Decimal(raw.headers["x-gateway-response-cost"]) == dry["response_metadata"]["cost"]["total_cost"] == 0
        assert len(upstream.chats) == 1
        assert len(stored_of(one_gateway, conversation)) == 1
        plain.post("/chat/completions", json=body)
    assert {"object", "model", "messages", "response_metadata", "estimated_cost"} <= set(dry)
    assert (dry["object"], dry["model"]) == ("context.dry_run", "small")
    assert dry["messages"] == upstream.last.body["messages"]
    prompt = dry["response_metadata"]["context_utilization"]["tokens_used"]
    assert dry["estimated_cost"]["min"] == prompt * Decimal("1e-06")
    assert dry["estimated_cost"]["max"] == prompt * Decimal("1e-06") + 100 * Decimal("2e-06")


@pytest.mark.parametrize("way", ["body", "header", "configuration"])
def test_s1_mode_off(
    one_gateway: GatewayProcess, start_gateway: GatewayFactory, upstream: MockUpstream, way: str
) -> None:
    """A plain proxy: nothing is reduced, whatever its size; nothing is remembered."""
    gateway = start_gateway({"context": {"mode": "off"}}) if way == "configuration" else one_gateway
    body: Json = {"model": "small", "messages": [user(DOCUMENT)]}
    headers = {"X-Context-Mode": "off"} if way == "header" else {}
    if way == "body":
        body["context"] = {"mode": "off"}
    with http(gateway) as plain:
        answer = plain.post("/chat/completions", json=body, headers=headers)
    assert upstream.last.body["messages"] == [user(DOCUMENT)]
    assert answer.json()["response_metadata"]["cost"]["priced"] is True
    assert "conversation" not in answer.json()


def test_s2_mode_simple(client: OpenAI, upstream: MockUpstream) -> None:
    """Heuristic only: no internal model is called, also when a plan is asked for."""
    simple = {"mode": "simple", "planning": "auto"}
    answer = ask(client, user("Who is the keeper of lamp 5?"), attachments=[{"content": DOCUMENT}], context=simple)
    assert len(upstream.chats) == 1
    assert keeper(5) in text_of(upstream.last.body)
    assert used(answer)["llm_planning_used"] is False
    assert used(answer)["planning_reason"] == "no_planner"
