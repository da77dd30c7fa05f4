"""Upstreams that speak Responses are called in those words (guarantee §10.4)."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from tests.support.answers import Json, user
from tests.support.factory import SMALL_MODEL_INFO, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_responses import MockResponses, call, thought, words
from tests.support.mock_upstream import MockUpstream

BOTH = pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
TOOL: Json = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def entry(upstream: MockUpstream, name: str, **info: Any) -> Json:
    params = {"model": f"openai/{name}", "api_base": upstream.base_url, "api_key": "sk-upstream"}
    return {"model_name": name, "litellm_params": params, "model_info": {**SMALL_MODEL_INFO, **info}}


@pytest.fixture(scope="module")
def module_codex(module_start_gateway: GatewayFactory, module_upstream: MockUpstream) -> GatewayProcess:
    models = [entry(module_upstream, "codex", mode="responses"), entry(module_upstream, "chatty")]
    return module_start_gateway({"model_list": models})


@pytest.fixture
def codex(module_codex: GatewayProcess, upstream: MockUpstream) -> Iterator[GatewayProcess]:
    """A gateway with `codex`, which only Responses serve, and `chatty`, of which nobody says."""
    logged = len(module_codex.log_text())
    yield module_codex
    assert "Traceback" not in module_codex.log_text()[logged:]
    assert upstream.violations == []


@pytest.fixture
def mock(upstream: MockUpstream) -> MockResponses:
    return MockResponses(upstream)


@pytest.fixture
def client(codex: GatewayProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=codex.base_url, api_key="sk-test", max_retries=0, timeout=30) as made:
        yield made


def said(client: OpenAI, streamed: bool, **body: Any) -> tuple[Json, str]:
    """The message of an answer, and why it ended."""
    if not streamed:
        choice = client.chat.completions.create(**body).choices[0]
        return choice.message.to_dict(), str(choice.finish_reason)
    with client.chat.completions.stream(**body) as stream:
        final = stream.get_final_completion()
    return final.choices[0].message.to_dict(), str(final.choices[0].finish_reason)


@BOTH
def test_s10_4_a_chat_with_a_model_that_only_responses_serve(
    client: OpenAI, codex: GatewayProcess, mock: MockResponses, upstream: MockUpstream, streamed: bool
) -> None:
    mock.reply(thought("I see.", "sealed-1"), words("one two three"))
    found, reason = said(
        client, streamed, model="codex", messages=[{"role": "system", "content": "be brief"}, user("hi")]
    )
    assert (found["content"], found["reasoning_content"], reason) == ("one two three", "I see.", "stop")
    assert upstream.chats == []
    sent = mock.last
    assert sent["input"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert (sent["store"], sent["include"]) == (False, ["reasoning.encrypted_content"])


@BOTH
def test_s10_4_a_tool_loop_gets_its_thoughts_back(client: OpenAI, mock: MockResponses, streamed: bool) -> None:
    """Also where the client, as chat clients do, sends none of them."""
    sealed = thought("look it up", "sealed-1")
    mock.reply(sealed, call("look", {"at": 1}, "call_a"), call("look", {"at": 2}, "call_b"))
    asked: list[Any] = [user("what is there?")]
    found, reason = said(client, streamed, model="codex", messages=asked, tools=[TOOL])
    assert reason == "tool_calls"
    assert [each["id"] for each in found["tool_calls"]] == ["call_a", "call_b"]
    assert [each["function"]["arguments"] for each in found["tool_calls"]] == ['{"at": 1}', '{"at": 2}']
    answer = {"role": "assistant", "content": None, "tool_calls": [_bare(each) for each in found["tool_calls"]]}
    results = [{"role": "tool", "tool_call_id": f"call_{n}", "content": f"result {n}"} for n in "ab"]
    said(client, streamed, model="codex", messages=[*asked, answer, *results], tools=[TOOL])
    kinds = [item.get("type", item.get("role")) for item in mock.last["input"]]
    assert kinds == ["user", "reasoning", *["function_call"] * 2, *["function_call_output"] * 2]
    assert mock.last["input"][1] == sealed
    assert mock.last["tools"] == [
        {"type": "function", "name": "look", "parameters": TOOL["function"]["parameters"], "strict": False}
    ]


def _bare(each: Json) -> Json:
    return {"id": each["id"], "type": "function", "function": {k: each["function"][k] for k in ("name", "arguments")}}
