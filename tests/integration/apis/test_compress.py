"""`POST /v1/compress`: fitted messages for another gateway, which asks the model itself (guarantee §13.11)."""

import importlib
import itertools
import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, assistant, exact, function_tool, stored, system, text_part, tool_result, user
from tests.support.documents import keeper, lamps, prompt_tokens, prose, text_of
from tests.support.factory import shared_gateway
from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream
from tests.support.process import free_port

OTHER, SPENT, NARROW = "gw-other-gateway", "gw-spent", "gw-narrow"
LEFT = "0.0006"
BUDGET = 4096 - 512
DOCS = REPOSITORY / "docs" / "compress.md"
MAIL = "ann.lee@mail.example.org"
TOOLS: list[Json] = [function_tool("read", parameters={"type": "object", "properties": {}})]
ANTHROPIC_TOOLS: list[Json] = [{"name": "read", "input_schema": {"type": "object", "properties": {}}}]
SYSTEM: Json = system("You keep the lamps.")
ADDED = {"messages", "tokens_before", "tokens_after", "response_metadata"}


def settings_of_house(upstream: MockUpstream) -> dict[str, Any]:
    keys = [
        {"key": OTHER, "tenant": "other"},
        {"key": SPENT, "tenant": "spent", "budgets": [{"usd": LEFT, "period": "total"}]},
        {"key": NARROW, "tenant": "narrow", "models": ["small"], "limits": {"rpm": 2}},
    ]
    served = {"api_base": upstream.base_url, "api_key": "sk-upstream"}
    facts = {"max_input_tokens": 4096, "max_output_tokens": 512, "tokenizer": "o200k_base"}
    small = {"model_name": "small", "litellm_params": {"model": "openai/small", **served}, "model_info": facts}
    claude = {"model": "anthropic/claude-sonnet-4-5", "api_base": upstream.url, "api_key": "sk-ant"}
    internal = [
        {"model_name": name, "litellm_params": {"model": f"openai/{name}", **served}}
        for name in ("gpt-4o", "gpt-4o-mini")
    ]
    models = [small, {"model_name": "claude", "litellm_params": claude, "model_info": facts}, *internal]
    settings = {"planning": "auto", "recall": True, "cite": True}
    return {
        "model_list": models,
        "auth": {"keys": keys},
        "context": settings,
        "masking": {"enabled": True},
        "routing": {"context_window_fallbacks": {"small": ["gpt-4o"]}},
    }


house = shared_gateway(settings_of_house)
"""A gateway with keys, planning, masking, and the defaults that add something to a prompt."""


def post(gateway: GatewayProcess, body: Json, key: str = OTHER, **headers: str) -> httpx.Response:
    return gateway.post("/compress", json=body, headers=headers, key=key)


def fitted(gateway: GatewayProcess, **body: Any) -> Json:
    answer = post(gateway, {"model": "small", **body})
    assert answer.status_code == 200, answer.text
    return dict(exact(answer.text))


def steps(number: int, words: int = 200) -> list[Json]:
    """A question and so many tool steps, in a chat's words."""
    said = [SYSTEM, user("Who keeps lamp 41?")]
    for n in range(number):
        function = {"name": "read", "arguments": json.dumps({"page": n})}
        said.append(assistant(None, tool_calls=[{"id": f"c{n}", "type": "function", "function": function}]))
        said.append(tool_result(f"c{n}", f"page {n}\n" + prose(n, words)))
    return said


def blocks(said: Sequence[Json]) -> list[Json]:
    """The same in Anthropic's words, without the system's."""
    found: list[Json] = []
    for message in said[1:]:
        if message["role"] == "tool":
            result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            found.append(user([result]))
        elif message["role"] == "assistant":
            call = message["tool_calls"][0]
            used = {
                "type": "tool_use",
                "id": call["id"],
                "name": "read",
                "input": json.loads(call["function"]["arguments"]),
            }
            found.append(assistant([used]))
        else:
            found.append(message)
    return found


def test_s13_11_what_fits_comes_back_as_it_was(house: GatewayProcess, upstream: MockUpstream) -> None:
    """No model is asked, no tool of ours stands in it, nothing is stored, and the figures are those of its bill."""
    said = steps(2)
    body: Json = {"model": "small", "messages": said, "tools": TOOLS}
    told = fitted(house, **body)
    assert told.keys() == ADDED
    assert told["messages"] == said
    assert told["tokens_before"] == told["tokens_after"] > prompt_tokens({"messages": said})
    used = told["response_metadata"]["context_utilization"]
    assert (used["strategy"], used["tokens_used"]) == ("passthrough", told["tokens_after"])
    assert told["response_metadata"]["cost"]["total_cost"] == 0
    assert told["response_metadata"]["conversation_id"] is None
    assert not upstream.chats
    assert house.get("/conversations", key=OTHER).json()["data"] == []
    assert house.get(f"/chat/completions/{told['response_metadata']['request_id']}", key=OTHER).status_code == 404


def test_s13_11_what_does_not_fit_is_reduced_and_said(house: GatewayProcess, upstream: MockUpstream) -> None:
    body: Json = {
        "messages": [user("Who is the keeper of lamp 41?\n\n" + lamps(120))],
        "context": {"planning": "never"},
    }
    told = fitted(house, **body)
    assert told["tokens_before"] == prompt_tokens({"messages": body["messages"]}) > BUDGET
    assert told["tokens_after"] == prompt_tokens(told) <= BUDGET
    assert keeper(41) in text_of(told)
    assert told["response_metadata"]["context_utilization"]["strategy"] == "heuristic"
    assert not upstream.chats
    narrower = fitted(house, **body | {"context": {"planning": "never", "max_input_tokens": 1000}})
    assert narrower["tokens_after"] <= 1000
    whole = fitted(house, **body | {"context": {"mode": "off"}})
    assert whole["messages"] == body["messages"]
    assert whole["tokens_before"] == whole["tokens_after"] == told["tokens_before"]


def test_s13_11_a_planner_is_billed_and_sees_no_secret(house: GatewayProcess, upstream: MockUpstream) -> None:
    """The bill of internal models is on the ledger and in the answer; the primary model is not asked."""
    upstream.handler = models = InternalModels(every("rag_extract", extraction_query="keeper of lamp 41"))
    told = fitted(
        house,
        messages=[user(f"Who is the keeper of lamp 41? Ask {MAIL}.")],
        attachments=[{"title": "Lamps", "content": lamps(120)}],
        context={"planning": "always"},
    )
    assert (len(models.planned), models.answered) == (1, [])
    assert MAIL not in json.dumps(models.planned)
    assert MAIL in text_of(told), "it is its sender's own"
    assert keeper(41) in text_of(told)
    bill = told["response_metadata"]
    assert bill["context_utilization"]["llm_planning_used"] is True
    assert bill["cost"]["total_cost"] > 0
    kept = stored(house, bill["request_id"], OTHER)
    assert kept["response_metadata"]["cost"] == bill["cost"]
    assert not kept["choices"]
    assert house.get("/conversations", key=OTHER).json()["data"] == []


@pytest.mark.parametrize("words", ["chat", "anthropic"])
def test_s4_i7_what_was_handed_out_is_kept_append_only(house: GatewayProcess, words: str) -> None:
    """The other gateway sends its client's own messages each time; what it gets begins with what it got, until
    something has to leave. Otherwise its provider's cache would be written anew with each step."""
    model = "small" if words == "chat" else "claude"
    passes, reduced = 0, 0
    before: list[Json] = []
    for number in range(1, 24):
        said = steps(number)
        body: Json = {"messages": said, "tools": TOOLS}
        if words == "anthropic":
            body = {"messages": blocks(said), "system": SYSTEM["content"], "tools": ANTHROPIC_TOOLS}
        told = fitted(house, model=model, **body)
        assert told["tokens_after"] <= min(BUDGET, told["tokens_before"])
        passes += told["messages"][: len(before)] != before
        before = told["messages"]
        reduced += told["messages"] != body["messages"]
    assert reduced > 8
    assert 0 < passes <= reduced // 2


def test_s13_11_anthropics_messages_come_back_in_their_words(house: GatewayProcess) -> None:
    """Signed thoughts, errors and marks for caches with them, where nothing has to leave; pairs are whole where
    something has."""
    thought = {"type": "thinking", "thinking": "Let me read.", "signature": "c2lnbmVk"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"page": 1}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no such page", "is_error": True}
    said: list[Json] = [
        user("Who keeps lamp 41?"),
        assistant([thought, call]),
        user([{**result, "cache_control": {"type": "ephemeral"}}]),
    ]
    for model in ("claude", "small"):
        told = fitted(house, model=model, messages=said)
        assert told["messages"] == said
        assert told.keys() == ADDED
    long = blocks(steps(30))
    told = fitted(house, model="claude", messages=long)
    assert told["tokens_after"] <= BUDGET < told["tokens_before"]
    assert [message["role"] for message in told["messages"]] == list(
        itertools.islice(itertools.cycle(("user", "assistant")), len(told["messages"]))
    )
    parts = [
        part for message in told["messages"] if isinstance(message["content"], list) for part in message["content"]
    ]
    calls = [part["id"] for part in parts if part["type"] == "tool_use"]
    assert calls == [part["tool_use_id"] for part in parts if part["type"] == "tool_result"]
    assert told["messages"][-1] == long[-1]
    assert told["messages"][0] == long[0]


def test_s13_11_thinking_is_disabled_where_its_thoughts_had_to_leave(house: GatewayProcess) -> None:
    """Anthropic refuses a loop whose last step begins with no thought while thinking is enabled."""
    thought = {"type": "thinking", "thinking": "Let me read.", "signature": "c2lnbmVk"}
    said = [
        {**each, "content": [thought, *each["content"]]} if each["role"] == "assistant" else each
        for each in blocks(steps(30))
    ]
    thinking = {"type": "enabled", "budget_tokens": 1024}
    for messages, is_disabled in ((said[:3], False), (said, True)):
        told = fitted(house, model="claude", messages=messages, thinking=thinking, max_tokens=2000)
        begins = [each["content"][0]["type"] for each in told["messages"] if each["role"] == "assistant"]
        assert (begins[-1] != "thinking") == is_disabled
        assert told.get("thinking") == ({"type": "disabled"} if is_disabled else None)


def test_s13_11_what_a_pass_leaves_stays_in_anthropics_words_for_any_model(house: GatewayProcess) -> None:
    """Whoever asks the model words it: errors, results of a search and marks for caches are in Anthropic's words, also
    where the gateway itself would ask that model by a chat."""
    mark = {"cache_control": {"type": "ephemeral"}}
    found: list[Json] = [text_part("Ann keeps it.")]
    results: list[Json] = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no such page", "is_error": True},
        {
            "type": "tool_result",
            "tool_use_id": "toolu_2",
            "content": [{"type": "search_result", "source": "https://e.org", "title": "Lamps", "content": found}],
            **mark,
        },
    ]
    calls = [
        {"type": "tool_use", "id": result["tool_use_id"], "name": "read", "input": {"page": 1}} for result in results
    ]
    said = [*blocks(steps(30)), assistant(calls), user(results)]
    told = fitted(house, messages=said, system=[{"type": "text", "text": "You keep the lamps.", **mark}])
    assert told["tokens_after"] <= BUDGET < told["tokens_before"]
    assert told["messages"][-2:] == said[-2:]
    assert told["system"] == [{"type": "text", "text": "You keep the lamps.", **mark}]


def test_s13_11_a_named_conversation_stands_in_front(house: GatewayProcess, upstream: MockUpstream) -> None:
    """It is read and not added to."""
    upstream.reply(text="Ann keeps it.")
    first = {"model": "small", "messages": [user("Who keeps lamp 7?")], "context": {"cite": False}}
    asked = house.post("/chat/completions", json=first, key=OTHER).json()
    named = asked["conversation"]["id"]
    told = [fitted(house, messages=[user("And lamp 8?")], conversation=named) for _ in range(2)]
    said = [user("Who keeps lamp 7?"), assistant("Ann keeps it."), user("And lamp 8?")]
    assert [each["messages"] for each in told] == [said, said]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 7}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [7]}, "messages[0]"),
        ({"messages": [tool_result("c", "x")]}, "messages[0]"),
        ({"messages": [user([{"type": "tool_result", "tool_use_id": 7}])]}, "messages[0].content[0].tool_use_id"),
        ({"tools": "read"}, "tools"),
        ({"context": 7}, "context"),
        ({"context": {"max_input_tokens": 0}}, "context.max_input_tokens"),
        ({"context": {"mode": "fast"}}, "context.mode"),
        ({"conversation": 7}, "conversation"),
    ],
    ids=lambda each: json.dumps(each),
)
def test_s7_a_bad_body_names_its_field(house: GatewayProcess, change: Json, param: str) -> None:
    answer = post(house, {"model": "small", "messages": [user("hi")], **change})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert re.fullmatch(re.escape(param) + r"(\..+)?", error["param"])


def test_s7_what_cannot_be_served_says_so(house: GatewayProcess, upstream: MockUpstream) -> None:
    body: Json = {"model": "small", "messages": [user("hi")]}
    assert post(house, body, "nobody").status_code == 401
    assert post(house, {**body, "model": "unknown"}).json()["error"]["code"] == "model_not_found"
    assert post(house, {**body, "conversation": "conv_none"}).status_code == 404
    long = post(house, {**body, "messages": [user("word " * 9000)], "context": {"max_input_tokens": 50}})
    assert long.json()["error"]["code"] == "context_length_exceeded"
    described = [function_tool("read", description="word " * 9000)]
    elsewhere = post(house, {**body, "tools": described})  # it is sent to `small`, whoever has room for it here
    assert elsewhere.json()["error"]["code"] == "context_length_exceeded"
    assert house.post("/compress", content=b"{", key=OTHER).status_code == 400
    assert house.get("/compress", key=OTHER).status_code == 405
    assert not upstream.chats


async def test_s13_11_litellms_guardrail_of_the_docs(house: GatewayProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands there: it fits what LiteLLM's proxy is about to send, and lets it go as it came where it cannot."""
    written = DOCS.read_text().partition("```python\n")[2].partition("```")[0]
    module: Json = {}
    importlib.import_module("litellm")  # all of it before a part: the gateway may be loading it in another thread
    exec(compile(written, str(DOCS), "exec"), module)
    monkeypatch.setenv("GATEWAY_URL", house.base_url.removesuffix("/v1"))
    monkeypatch.setenv("GATEWAY_KEY", OTHER)
    guardrail = module["FittedContext"](guardrail_name="fitted-context")

    async def hooked(**data: Any) -> Json:
        return dict(await guardrail.async_pre_call_hook(None, None, {"metadata": {}, **data}, "acompletion"))

    long = steps(30)
    told = await hooked(model="small", messages=long, tools=TOOLS)
    assert prompt_tokens(told) <= BUDGET < prompt_tokens({"messages": long})
    assert told["messages"][-1] == long[-1]
    assert (told["tools"], told["metadata"]) == (TOOLS, {})
    native = await hooked(model="claude", messages=blocks(long), system="Be brief.", tools=ANTHROPIC_TOOLS)
    assert native["system"] == [text_part("Be brief.")]
    assert native["messages"][-1] == blocks(long)[-1] != native["messages"][1]
    assert (await hooked(model="unknown", messages=long))["messages"] == long
    monkeypatch.setenv("GATEWAY_URL", f"http://127.0.0.1:{free_port()}")
    assert (await hooked(model="small", messages=long))["messages"] == long


def test_s12_keys_keep_their_models_limits_and_budgets(house: GatewayProcess, upstream: MockUpstream) -> None:
    upstream.handler = InternalModels(every("rag_extract", extraction_query="keeper"))
    body: Json = {"model": "small", "messages": [user("hi")]}
    assert post(house, {**body, "model": "claude"}, NARROW).json()["error"]["code"] == "model_not_allowed"
    planner = {"context": {"models": {"context_planner": "gpt-4o"}}}
    assert post(house, body | planner, NARROW).json()["error"]["code"] == "model_not_allowed"
    answers = [post(house, body, NARROW) for _ in range(3)]
    assert answers[-1].json()["error"]["code"] == "rate_limit_exceeded"
    assert "retry-after" in answers[-1].headers
    planned = {**body, "attachments": [{"title": "Lamps", "content": lamps(120)}], "context": {"planning": "always"}}
    costs = [Decimal(post(house, planned, SPENT).headers["x-gateway-response-cost"]) for _ in range(9)]
    assert costs[0] > 0
    assert costs[-1] == 0, "no planner is asked that could cost more than is left"
    assert sum(costs) <= Decimal(LEFT)
