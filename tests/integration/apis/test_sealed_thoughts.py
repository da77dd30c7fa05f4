"""Thoughts of models that do not speak Responses, sealed for a client of Responses that stores nothing (guarantee
§1.3): it sends back what it got, without ids and readable thoughts, as Codex does."""

import json
from typing import Any

import httpx
import pytest

from tests.support import anthropic_wire as wire
from tests.support.answers import Json
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.messages import events_of
from tests.support.mock_provider import MockProvider
from tests.support.mock_upstream import MockUpstream
from tests.support.signing_anthropic import SigningAnthropic

SEALS = ["reasoning.encrypted_content"]
TOOLS = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}]
USER = {"type": "message", "role": "user", "content": "Which keeper signed the ledger?"}
SIGNED = {"google": {"thought_signature": "c2ln"}}
ONE, TWO = "sk-sealing-1", "sk-sealing-2"
KEYS = [{"key": ONE, "tenant": "one"}, {"key": TWO, "tenant": "two"}]


@pytest.fixture(scope="module")
def house(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    claude = {"model": "anthropic/claude-sonnet-4-5", "api_base": module_upstream.url, "api_key": "sk-ant"}
    plain = {"model": "openai/plain", "api_base": module_upstream.base_url, "api_key": "sk-up"}
    models = [
        {"model_name": "claude", "litellm_params": claude},
        *({"model_name": name, "litellm_params": plain} for name in ("plain", "other")),
    ]
    return module_start_gateway({"model_list": models, "auth": {"keys": KEYS}})


def ask(client: httpx.Client, given: list[Json], *, streamed: bool, **body: Any) -> list[Json]:
    """Returns the output's items; of a stream, as its events report them one by one."""
    asked = {"input": given, "tools": TOOLS, "include": SEALS, "store": False, "stream": streamed, **body}
    answer = client.post("/responses", json={**asked, "max_output_tokens": 4000}, timeout=60)
    assert answer.status_code == 200, answer.text
    if not streamed:
        found: list[Json] = answer.json()["output"]
        return found
    events = events_of(answer.text)
    output = [each["item"] for each in events if each["type"] == "response.output_item.done"]
    assert sorted(map(str, output)) == sorted(map(str, events[-1]["response"]["output"]))
    return output


def given_back(output: list[Json]) -> list[Json]:
    return [
        {k: v for k, v in item.items() if k not in ("id", "status", "content")}
        for item in output
        if item["type"] != "message"
    ]


def outcome(step: int) -> Json:
    return {"type": "function_call_output", "call_id": f"call_{step}", "output": f"Page {step}: nothing."}


@pytest.mark.in_turn("streamed")
@pytest.mark.parametrize("streamed", [False, True])
def test_s1_3_signed_thoughts_go_back_without_being_stored(
    house: GatewayProcess, provider: MockProvider, streamed: bool
) -> None:
    """Each step of a tool loop brings the signed thoughts of all steps before; the model refuses none of them."""
    model, told = SigningAnthropic(), list[Json]()
    provider.claude = lambda body: model.answer(body, *told)
    said: list[Json] = [USER]
    with house.http(ONE) as client:
        for step in range(3):
            told[:] = [wire.text("Let me look."), wire.tool_use(f"call_{step}", "look", page=step)]
            output = ask(client, said, streamed=streamed, model="claude", reasoning={"effort": "low"})
            assert [item["type"] for item in output] == ["reasoning", "message", "function_call"]
            said += [*given_back(output), outcome(step)]
        told[:] = [wire.text("Keeper 12.")]
        ask(client, said, streamed=streamed, model="claude", reasoning={"effort": "low"})
    assert (model.refused, model.thoughts) == ([], [0, 1, 2, 3])


@pytest.mark.in_turn("streamed")
@pytest.mark.parametrize("streamed", [False, True])
def test_s1_3_signatures_of_calls_and_open_thoughts_go_back(
    house: GatewayProcess, upstream: MockUpstream, streamed: bool
) -> None:
    """A call's signature, which Gemini refuses to miss; and thoughts that some models want back within a tool loop."""
    function = {"name": "look", "arguments": "{}"}
    calls = [{"id": f"call_{n}", "type": "function", "function": function} for n in range(2)]
    calls[0]["extra_content"] = SIGNED
    for thought in ("", "Where is it?"):
        made: Json = {"content": None, "tool_calls": calls, **({"reasoning_content": thought} if thought else {})}
        upstream.reply(message=made)
        with house.http(ONE) as client:
            output = ask(client, [USER], streamed=streamed, model="plain")
            assert [item["type"] for item in output if item["type"] != "reasoning"] == ["function_call"] * 2
            said = [USER, *given_back(output), outcome(0), outcome(1)]
            ask(client, said, streamed=streamed, model="plain")
        sent = upstream.last.body["messages"][1]
        assert [call.get("extra_content") for call in sent["tool_calls"]] == [SIGNED, None]
        assert sent.get("reasoning_content", "") == thought
        assert "gw." not in json.dumps(upstream.last.body)


@pytest.mark.parametrize("changed", ["tenant", "model", "content"])
def test_s1_3_sealed_thoughts_are_one_tenants_and_one_models(
    house: GatewayProcess, upstream: MockUpstream, changed: str
) -> None:
    """Elsewhere they are left out, and the request is answered."""
    upstream.reply(message={"content": "Keeper 12.", "reasoning_content": "A secret."})
    with house.http(ONE) as client:
        (thought, words) = ask(client, [USER], streamed=False, model="plain")
    thought = {name: value for name, value in thought.items() if name != "content"}
    assert thought["summary"] == []
    if changed == "content":
        thought["encrypted_content"] = thought["encrypted_content"][:-6] + "AAAAAA"
    with house.http(TWO if changed == "tenant" else ONE) as client:
        ask(client, [USER, thought, words, USER], streamed=False, model="other" if changed == "model" else "plain")
    assert [each["role"] for each in upstream.last.body["messages"]] == ["user", "assistant", "user"]
    assert "gw." not in json.dumps(upstream.last.body)
    assert "secret" not in json.dumps(upstream.last.body)


@pytest.mark.in_turn("streamed")
@pytest.mark.parametrize("streamed", [False, True])
def test_s1_3_a_stored_response_is_shown_as_it_was_answered(
    house: GatewayProcess, upstream: MockUpstream, streamed: bool
) -> None:
    upstream.reply(message={"content": "Keeper 12.", "reasoning_content": "A thought."})
    body = {"model": "plain", "input": [USER], "include": SEALS}
    first = house.post("/responses", json=body, key=ONE).json()
    path, query = f"/responses/{first['id']}", {"include[]": SEALS[0], "stream": str(streamed).lower()}
    shown = house.get(path, params=query, key=ONE)
    found = events_of(shown.text)[-1]["response"] if streamed else shown.json()
    assert found["output"] == first["output"]


def test_s1_3_nothing_is_sealed_unasked(house: GatewayProcess, upstream: MockUpstream) -> None:
    upstream.reply(message={"content": "Keeper 12.", "reasoning_content": "A thought."})
    with house.http(ONE) as client:
        assert "encrypted_content" not in json.dumps(ask(client, [USER], streamed=False, model="plain", include=[]))
