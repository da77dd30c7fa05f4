"""Requests of Responses on their way through the pipeline: in their own words, or as a chat (guarantee §10.4)."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.core.config.settings import Settings
from gateway.core.errors import InvalidRequest, UpstreamRefused
from gateway.core.formats.responses.request_parser import read_request
from gateway.core.jsons import Json
from gateway.core.types.chat import NativeRequest
from gateway.upstream.http.answers import HttpUpstream
from gateway.upstream.http.responses_adapter import ResponsesUpstream
from gateway.upstream.http_client import ConnectionPool
from gateway.upstream.routing.router import FreeformUpstream, ProtocolUpstream
from tests.support.answers import user
from tests.support.factory import small_entry
from tests.support.in_process import InProcess
from tests.support.mock_responses import TYPED, MockResponses, call, look, thought, typed_call, web_search, words
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply
from tests.support.schemas import sqlite_url

PLAIN = NativeRequest("responses", {"include": ["reasoning.encrypted_content"], "max_tool_calls": 3})
SEARCH = {"type": "web_search", "search_context_size": "low"}
HOSTED = NativeRequest("responses", {"tools": [SEARCH]}, ("tools[0]",))
PATH = "/v1/responses"


@pytest.fixture
async def house(upstream: MockUpstream, tmp_path: Path) -> AsyncIterator[InProcess]:
    """A pipeline with the models `speaks` and `unknown`."""
    models = [small_entry(upstream, "speaks", mode="responses"), small_entry(upstream, "unknown")]
    for mode in ("chat", "responses"):
        base = upstream.base_url.replace("/v1", "/openai/v1")
        params = {"model": f"azure/{mode}", "api_base": base, "api_key": "sk-upstream"}
        models.append({**small_entry(upstream, f"azure-{mode}", mode=mode), "litellm_params": params})
    settings = Settings.model_validate({"model_list": models, "storage": {"url": sqlite_url(tmp_path)}})
    pool = ConnectionPool(10)
    over_http = HttpUpstream(pool)
    upstreams = ProtocolUpstream(openai=over_http, responses=ResponsesUpstream(over_http))
    made = await InProcess(settings, {}, lambda body: {}, upstream=FreeformUpstream(upstreams)).prepare()
    yield made
    await made.close()
    await pool.aclose()
    assert upstream.violations == []


def paths(upstream: MockUpstream) -> list[str]:
    return [record.path.removeprefix("/v1/") for record in upstream.requests if record.method == "POST"]


async def test_s10_4_in_its_own_words(house: InProcess, upstream: MockUpstream) -> None:
    """What a chat cannot say goes up as it is; thoughts come back only where they were made."""
    mock = MockResponses(upstream)
    mock.reply(sealed := thought("hm", "sealed-1"), words("one"))
    first = await house.ask({"model": "unknown", "messages": [user("a")], "temperature": 0.5}, native=PLAIN)
    assert (mock.last["max_tool_calls"], mock.last["temperature"], mock.last["store"]) == (3, 0.5, False)
    assert first["choices"][0]["message"]["reasoning_items"] == [sealed]
    conversation = first["conversation"]["id"]
    await house.ask({"model": "unknown", "messages": [user("b")], "conversation": conversation}, native=PLAIN)
    assert [item.get("type", item.get("role")) for item in mock.last["input"]] == [
        "user",
        "reasoning",
        "assistant",
        "user",
    ]
    assert paths(upstream) == ["responses"] * 2
    await house.ask({"model": "unknown", "messages": [user("c")], "conversation": conversation})
    assert paths(upstream)[-1] == "chat/completions"
    assert all("reasoning_items" not in message for message in upstream.last.body["messages"])


async def test_s10_4_an_upstream_without_it_gets_a_chat(house: InProcess, upstream: MockUpstream) -> None:
    """It is asked once; items that no chat knows stay behind, and a hosted search is told in words."""
    sent = {"role": "assistant", "content": "x", "reasoning_items": [thought("", "s")], "phase": "final_answer"}
    for number in range(2):
        silent = {"role": "assistant", "content": None, "output_items": [web_search("x")]}
        body = {"model": "unknown", "messages": [user("a"), sent, user("b"), silent, user(f"b{number}")]}
        answer = await house.ask(body, native=PLAIN)
        assert answer["choices"][0]["message"]["content"] == f"echo: b{number}"
    assert paths(upstream) == ["responses", "chat/completions", "chat/completions"]
    answers = [message for message in upstream.last.body["messages"] if message["role"] == "assistant"]
    assert [each["content"].splitlines()[0] for each in answers] == ["x", "[web_search]"]
    assert all(each.keys() == {"role", "content"} for each in answers)
    assert "max_tool_calls" not in upstream.last.body


async def test_s10_4_hosted_tools_are_a_400_where_nobody_runs_them(house: InProcess, upstream: MockUpstream) -> None:
    for calls in (1, 1):  # the second is not asked any more
        with pytest.raises(InvalidRequest) as told:
            await house.ask({"model": "unknown", "messages": [user("a")]}, native=HOSTED)
        assert (told.value.status, told.value.param) == (400, "tools[0]")
        assert paths(upstream) == ["responses"] * calls


async def test_s10_4_hosted_calls_go_back_where_they_stood(house: InProcess, upstream: MockUpstream) -> None:
    mock = MockResponses(upstream)
    made = [thought("t", "s1"), web_search("x"), thought("", "s2")]
    mock.reply(*made, words("found"))
    first = await house.ask({"model": "unknown", "messages": [user("a")]}, native=HOSTED)
    assert mock.last["tools"] == [SEARCH]
    answer = first["choices"][0]["message"]
    assert (answer["reasoning_items"], answer["output_items"]) == ([made[0], made[2]], [made[1]])
    body = {"model": "unknown", "messages": [user("b")], "conversation": first["conversation"]["id"]}
    await house.ask(body, native=HOSTED)
    assert mock.last["input"][1:4] == made
    assert mock.last["input"][4]["content"] == [{"type": "output_text", "text": "found", "annotations": []}]


@pytest.mark.parametrize("beside", [[], [user("go on")]])
async def test_s1_14_a_result_that_a_chat_has_no_message_for_stays_behind_its_call(
    house: InProcess, upstream: MockUpstream, beside: list[Json]
) -> None:
    """§1.14: a client's screenshot or approval alone, or with words, is no repetition of the call, and is stored with
    what the model says to it; thoughts that have no seal leave the others in their places."""
    mock = MockResponses(upstream)
    made = [thought("", "s1"), look("c1")]
    mock.reply(*made)
    first = await house.ask({"model": "speaks", "messages": [user("a")]}, native=PLAIN)
    named = {"model": "speaks", "conversation": first["conversation"]["id"]}
    shot = {"type": "computer_call_output", "call_id": "c1", "output": {"type": "computer_screenshot", "file_id": "f"}}
    unsealed = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    answered = read_request({"model": "m", "input": [unsealed, shot, *beside]})
    mock.reply(more := thought("", "s2"), words("done"))
    await house.ask({**answered.chat, **named}, native=answered.native)
    assert mock.last["input"][1:] == [*made, shot, *beside]
    await house.ask({"messages": [user("and?")], **named}, native=PLAIN)
    assert mock.last["input"][1:-2] == [*made, shot, *beside, more]


@pytest.mark.parametrize("kind", TYPED)
async def test_s1_11_shells_and_patches_stay_what_they_are_where_they_are_known(
    house: InProcess, upstream: MockUpstream, kind: str
) -> None:
    """Tool, choice, call and result; an upstream that speaks Responses and is not known to have them gets functions, of
    which the same conversation's earlier calls are, too."""
    mock, tool = MockResponses(upstream), {"type": kind.removesuffix("_call")}
    made = typed_call(kind, call_id="c")
    exited = {"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 1}}
    output = {"shell_call": [exited]}.get(kind, "a")
    failed = {"status": "failed"} if kind == "apply_patch_call" else {}
    limit = {"max_output_length": 99} if kind == "shell_call" else {}
    result = {"type": f"{kind}_output", "call_id": "c", "output": output, **failed}
    asked = read_request({"model": "m", "input": "q", "tools": [tool], "tool_choice": tool})
    mock.reply(thought("", "sealed"), made)
    first = await house.ask({**asked.chat, "model": "speaks"}, native=asked.native)
    assert (mock.last["tools"], mock.last["tool_choice"]) == ([tool], tool)
    assert first["choices"][0]["finish_reason"] == "tool_calls"
    again = read_request({"model": "m", "input": [result], "tools": [tool]})
    body = {**again.chat, "conversation": first["conversation"]["id"]}
    mock.reply(words("done"))
    await house.ask({**body, "model": "speaks"}, native=again.native)
    _, _, sent, answer = mock.last["input"]
    assert {**sent, "id": made["id"]} == made
    named = {"id": "c"} if kind == "local_shell_call" else {"call_id": "c"}
    assert answer == {**{k: v for k, v in result.items() if k != "call_id"}, **named, **limit}
    mock.reply(words("done"))
    more = read_request({"model": "m", "input": "and?", "tools": [tool]})
    await house.ask({**body, **more.chat, "model": "unknown"}, native=more.native)
    assert [each["type"] for each in mock.last["tools"]] == ["function"]
    kinds = [item.get("type") for item in mock.last["input"]]
    assert kinds[-4:-1] == ["function_call", "function_call_output", None]
    assert "typed_tool" not in str(mock.last)


async def test_s10_4_an_upstream_that_is_known_to_speak_it_is_asked_again(
    house: InProcess, upstream: MockUpstream
) -> None:
    upstream.routes[f"POST {PATH}"] = Reply(status=404)
    for _ in range(2):
        with pytest.raises(UpstreamRefused) as told:
            await house.ask({"model": "speaks", "messages": [user("a")]}, native=PLAIN)
        assert told.value.status == 404
    assert paths(upstream) == ["responses"] * 2


async def test_s10_4_a_model_without_thoughts_is_asked_for_none(house: InProcess, upstream: MockUpstream) -> None:
    """It refuses to seal what it does not have; that is remembered. A client that asks for it itself is told."""
    mock = MockResponses(upstream)
    mock.refuses_seals = True
    body = {"model": "speaks", "messages": [user("a")]}
    for requests in (2, 3):
        assert (await house.ask(body))["choices"][0]["message"]["content"] == "echo: a"
        assert (len(mock.requests), "include" in mock.last) == (requests, False)
    with pytest.raises(UpstreamRefused, match="Encrypted content"):
        await house.ask(body, native=PLAIN)


async def test_s10_4_what_says_nothing_of_thoughts_is_no_reason_to_leave_them_out(
    house: InProcess, upstream: MockUpstream
) -> None:
    told = {"error": {"message": "The input must include the word json.", "param": "input", "code": None}}
    upstream.routes[f"POST {PATH}"] = Reply(status=400, json=told)
    with pytest.raises(UpstreamRefused, match="json"):
        await house.ask({"model": "speaks", "messages": [user("a")]})
    assert paths(upstream) == ["responses"]
    mock = MockResponses(upstream)
    await house.ask({"model": "speaks", "messages": [user("a")]})
    assert mock.last["include"] == ["reasoning.encrypted_content"]


async def test_s10_4_thoughts_that_cannot_be_read_are_left_out(house: InProcess, upstream: MockUpstream) -> None:
    """Sealed with another account's key: it costs the thoughts, not the answer."""
    mock = MockResponses(upstream)
    mock.reply(thought("", "s1"), call("look", {}, "call_1"))
    tools = [{"type": "function", "function": {"name": "look"}}]
    first = await house.ask({"model": "speaks", "messages": [user("a")], "tools": tools})
    mock.foreign_seals = {"s1"}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "seen"}
    body = {"model": "speaks", "messages": [result], "conversation": first["conversation"]["id"], "tools": tools}
    await house.ask(body)
    kinds = [item.get("type", item.get("role")) for item in mock.last["input"]]
    assert kinds == ["user", "function_call", "function_call_output"]
    assert mock.last["include"] == ["reasoning.encrypted_content"]


@pytest.mark.parametrize("model", ["azure-chat", "azure-responses", "unknown"])
async def test_s1_9_an_id_that_openai_refuses_as_too_long_goes_up_short(
    house: InProcess, upstream: MockUpstream, model: str
) -> None:
    """§1.9: Gemini's signature stands in it. Others may have made such an id themselves, and want it back."""
    MockResponses(upstream)
    for each in ("chat/completions", "responses"):
        upstream.routes[f"POST /openai/v1/{each}"] = upstream.routes.get(f"POST /v1/{each}", Reply(text="seen"))
    names = ["call_1__thought__" + "a+/=" * 99, "call_2"]
    calls = [{"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}} for name in names]
    results = [{"role": "tool", "tool_call_id": name, "content": "seen"} for name in names]
    said = {"role": "assistant", "content": None, "tool_calls": calls}
    tools = [{"type": "function", "function": {"name": "look"}}]
    await house.ask({"model": model, "messages": [user("a"), said, *results], "tools": tools, "store": False})
    sent = json.dumps(upstream.requests[-1].body)
    found = re.findall(r'"(?:id|call_id|tool_call_id)": "(call_[^"]*)"', sent)
    assert (found[:2], found[1]) == (found[2:], "call_2")
    assert (len(found[0]) <= 64, found[0] == names[0]) == ((False, True) if model == "unknown" else (True, False))
