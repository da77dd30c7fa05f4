"""`/v1/messages` by Anthropic's SDK, with nothing changed but the base URL (guarantee §10.7)."""

import base64
import re
from typing import Any

import anthropic
import pytest
from anthropic.types import ModelInfo

from tests.support.answers import Json, assistant, system, text_part, used, user
from tests.support.gateway_process import GatewayProcess
from tests.support.messages import TOOL, ask, asked, post, put_together, sdk, streamed, whole
from tests.support.mock_upstream import MockUpstream

PIXEL = "iVBORw0KGgo="


def test_s10_7_a_message(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """The plainest use: the model's answer as a message of Anthropic's, with its conversation and bill."""
    answer = whole(gateway, asked(system="Be brief."))
    assert answer["id"].startswith("msg_")
    assert answer["content"] == [text_part("echo: hello there")]
    assert (answer["role"], answer["stop_reason"], answer["model"]) == ("assistant", "end_turn", "gpt-4o")
    assert answer["usage"]["output_tokens"] == 3
    assert answer["usage"]["cost"] == answer["response_metadata"]["cost"]["total_cost"]
    assert answer["conversation"]["id"] == answer["response_metadata"]["conversation_id"]
    assert upstream.last.body["messages"] == [system("Be brief."), user("hello there")]


def test_s10_7_the_sdks_own_methods(one_gateway: GatewayProcess) -> None:
    """`create`, and `stream` with its helpers: both give the same message."""
    with sdk(one_gateway) as client:
        plain = client.messages.create(**asked())
        with client.messages.stream(**asked()) as stream:
            told = list(stream)
            final = stream.get_final_message()
    text = "".join(event.text for event in told if event.type == "text")
    assert text == "echo: hello there"
    assert [block.type for block in final.content] == [block.type for block in plain.content] == ["text"]
    assert final.stop_reason == plain.stop_reason == "end_turn"
    assert final.usage.input_tokens == plain.usage.input_tokens > 0
    (ended,) = [event for event in told if event.type == "message_delta"]
    bill: Any = (ended.model_extra or {})["response_metadata"]
    assert bill["cost"]["total_cost"] > 0
    stored = one_gateway.get(f"/chat/completions/{final.id}").json()
    assert (stored["id"], stored["response_metadata"]) == (f"chatcmpl-{final.id[4:]}", bill)
    assert final.usage.output_tokens == plain.usage.output_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_s10_7_a_tool_loop(one_gateway: GatewayProcess, upstream: MockUpstream, stream: bool) -> None:
    """Parallel calls, their results, and the answer: each step continues the conversation."""
    upstream.reply(text="Let me see.", tool_calls=[("weather", '{ "city":  "Ulm" }'), ("weather", {"city": "Bonn"})])
    body = asked("And the weather?", tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": False})
    first = ask(one_gateway, body, stream=stream)
    assert first["stop_reason"] == "tool_use"
    assert [block["type"] for block in first["content"]] == ["text", "tool_use", "tool_use"]
    assert [block["input"] for block in first["content"][1:]] == [{"city": "Ulm"}, {"city": "Bonn"}]
    calls = [block["id"] for block in first["content"][1:]]
    results: list[Json] = [
        {"type": "tool_result", "tool_use_id": calls[0], "content": "rain"},
        {"type": "tool_result", "tool_use_id": calls[1], "content": [text_part("sun")]},
        text_part("Go on."),
    ]
    turns = [*body["messages"], assistant(first["content"]), user(results)]
    second = ask(one_gateway, {**body, "messages": turns}, stream=stream)
    assert second["stop_reason"] == "end_turn"
    assert second["conversation"] == first["conversation"]
    sent = upstream.last.body["messages"]
    assert [each["role"] for each in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert [each["content"] for each in sent[2:]] == ["rain", "sun", "Go on."]
    assert upstream.last.body["tools"][0]["function"]["parameters"] == TOOL["input_schema"]
    items = one_gateway.get(f"/conversations/{first['conversation']['id']}/items", params={"order": "asc"}).json()
    kinds = [
        "message",
        "message",
        "function_call",
        "function_call",
        *["function_call_output"] * 2,
        "message",
        "message",
    ]
    assert [each["type"] for each in items["data"]] == kinds, "each message is stored once, as it was sent again"


def test_s10_8_other_paths_have_it_too(one_gateway: GatewayProcess) -> None:
    """What the gateway says before a request is read, and where nothing is."""
    told = [post(one_gateway, asked(), path).json() for path in ("messages/nowhere", "messages/batches/x")]
    told.append(one_gateway.get("/messages", key=None).json())
    assert [each["type"] for each in told] == ["error"] * 3
    assert [each["error"]["type"] for each in told] == ["not_found_error", "not_found_error", "invalid_request_error"]


def test_s10_7_what_a_chat_cannot_say(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """What only Anthropic knows is left out elsewhere: betas, marks for caches, knobs. A tool that Anthropic runs, and
    a block that it alone can read, are a 400 that names them."""
    mark = {"cache_control": {"type": "ephemeral"}}
    body = asked(
        system=[{"type": "text", "text": "Be brief.", **mark}],
        top_k=5,
        service_tier="auto",
        metadata={"user_id": "ada"},
        stop_sequences=["END"],
        tools=[{**TOOL, **mark, "input_examples": []}],
        messages=[user([{"type": "text", "text": "hello", **mark}])],
    )
    whole(one_gateway, body, anthropic_beta="some-beta-2026-01-01")
    sent = upstream.last.body
    assert sent["messages"] == [system("Be brief."), user("hello")]
    assert (sent["stop"], sent["user"], sent["max_tokens"]) == (["END"], "ada", 100)
    assert "cache_control" not in str(sent)
    assert not {"top_k", "service_tier", "metadata", "untranslated", "anthropic_beta"} & sent.keys()
    search = {"type": "web_search_20250305", "name": "web_search"}
    forced = asked(tools=[TOOL, search], tool_choice={"type": "tool", "name": "web_search"})
    refused = post(one_gateway, forced)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tool_choice")
    part = {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}
    refused = post(one_gateway, asked(messages=[user([part])]))
    assert refused.json()["error"]["param"] == "messages[0].content[0]"


def test_s1_12_tools_that_clients_run(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§1.10, §1.12: those are functions for other models; what Anthropic itself would run is left out."""
    search = {"type": "web_search_20250305", "name": "web_search"}
    typed = {
        "bash": "bash_20250124",
        "str_replace_based_edit_tool": "text_editor_20250728",
        "memory": "memory_20250818",
    }
    tools = [TOOL, search, *({"type": kind, "name": name} for name, kind in typed.items())]
    upstream.reply(tool_calls=[("bash", {"command": "ls"})])
    found = whole(one_gateway, asked(tools=tools))
    assert [each["function"]["name"] for each in upstream.last.body["tools"]] == [TOOL["name"], *typed]
    assert all(each["function"]["parameters"]["properties"]["command"] for each in upstream.last.body["tools"][1:])
    assert (found["content"][-1]["name"], found["content"][-1]["input"]) == ("bash", {"command": "ls"})
    told = found["response_metadata"]["context_utilization"]["warnings"]
    assert told == ["hosted_tool_left_out: web_search_20250305 (upstream.hosted_tools)"]


def test_s10_7_pictures_and_documents(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A picture of a tool is shown to models whose results are texts; a document's text is given; what a search has
    found is text."""
    data = base64.b64encode(b"Revenue was 12.").decode()
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    found = {"type": "search_result", "source": "s", "title": "T", "content": [text_part("found it")]}
    source = {"type": "base64", "media_type": "text/plain", "data": data}
    turns: list[Json] = [
        user([{"type": "document", "title": "q.txt", "source": source}, found]),
        assistant([{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]),
        user([{"type": "tool_result", "tool_use_id": "t1", "content": [picture]}]),
    ]
    whole(one_gateway, asked(messages=turns))
    first, call, result, shown = upstream.last.body["messages"]
    assert "Revenue was 12." in str(first["content"]) or data in str(first["content"])
    assert "found it" in str(first["content"])
    assert call["tool_calls"][0]["function"] == {"name": "look", "arguments": "{}"}
    assert isinstance(result["content"], str)
    assert shown["content"][0]["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"


def test_s10_7_a_conversation_goes_on_as_a_chat(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """What only Anthropic's API has words for is text to others, whoever goes on."""
    found = {"type": "search_result", "source": "s", "title": "T", "content": [text_part("found it")]}
    server = [{"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}, text_part("I have looked.")]
    turns: list[Json] = [user([found]), assistant(server), user("So?")]
    first = whole(one_gateway, asked(messages=turns))
    again = {"model": "gpt-4o", "messages": [user("And?")], "conversation": first["conversation"]["id"]}
    told = one_gateway.post("/chat/completions", json=again).json()
    assert told["conversation"] == first["conversation"]
    assert not upstream.violations
    sent = upstream.last.body["messages"]
    assert "found it" in sent[0]["content"][0]["text"]
    assert sent[1] == assistant("I have looked.")


@pytest.mark.parametrize("with_document", [False, True])
def test_s10_7_tokens_are_counted_as_the_budget_is(
    one_gateway: GatewayProcess, upstream: MockUpstream, with_document: bool
) -> None:
    """`count_tokens` says what the bill of the same request says, with the label of a document; no model is asked."""
    text = {"type": "text", "media_type": "text/plain", "data": "Lamps. " * 50}
    parts: list[Json] = [{"type": "document", "source": text, "title": "Lamps"}, {"type": "text", "text": "Which?"}]
    body = {**asked(system="Be brief.", tools=[TOOL]), **({"messages": [user(parts)]} if with_document else {})}
    with sdk(one_gateway) as client:
        counted = client.messages.count_tokens(**{k: v for k, v in body.items() if k != "max_tokens"})
    assert not upstream.chats
    assert counted.input_tokens == used(whole(one_gateway, body))["tokens_used"]
    failed = post(one_gateway, {"model": "gpt-4o", "messages": [{"role": "user"}]}, "messages/count_tokens")
    assert failed.json()["error"]["param"] == "messages[0].content"


def test_s10_7_a_session_of_claude_code(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Its header names the session, by which any API goes on. What else is said in that session is a conversation of
    its own, and is sent nothing of the first."""
    named = {"x_claude_code_session_id": "5d1f0a52-1111"}
    first = whole(one_gateway, asked("one"), **named)
    aside = whole(one_gateway, asked("a title, please"), **named)
    assert [m["content"] for m in upstream.last.body["messages"]] == ["a title, please"]
    assert aside["conversation"] != first["conversation"]
    turns = [*asked("one")["messages"], assistant(first["content"])]
    second = whole(one_gateway, asked(messages=[*turns, user("two")]), **named)
    assert second["conversation"] == first["conversation"]
    turns = [*asked("a title, please")["messages"], assistant(aside["content"])]
    again = whole(one_gateway, asked(messages=[*turns, user("more")]), **named)
    assert again["conversation"] == aside["conversation"]
    other = whole(one_gateway, asked("one", metadata={"user_id": "user_ab_account__session_5d1f0a52-2222"}))
    assert other["conversation"] != first["conversation"]
    assert upstream.last.body["user"] == "user_ab_account_"
    chat = {"model": "gpt-4o", "messages": [user("three")], "context": {"session": "5d1f0a52-1111"}}
    told = one_gateway.post("/chat/completions", json=chat).json()
    assert told["conversation"] == first["conversation"]
    assert [m["content"] for m in upstream.last.body["messages"]][::2] == ["one", "two", "three"]


def test_s10_8_a_prompt_that_is_too_long(one_gateway: GatewayProcess) -> None:
    """In Anthropic's words, by which clients know that it is time to compact."""
    told = post(one_gateway, asked(system="word " * 6000, model="small")).json()
    assert re.match(r"prompt is too long: \d+ tokens > 4096 maximum", told["error"]["message"])
    assert told["error"]["type"] == "invalid_request_error"


def test_s10_7_models_as_each_client_lists_them(one_gateway: GatewayProcess) -> None:
    """Anthropic's objects for its clients, OpenAI's for all others."""
    with sdk(one_gateway) as client:
        listed = list(client.models.list())
        paged = client.models.list(limit=1)
        assert ([each.id for each in paged.data], paged.has_more) == (["gpt-4o"], True)
        assert list(paged) == listed
        before = client.models.list(limit=1, before_id=listed[2].id)
        assert [each.id for each in before] == ["gpt-4o-mini", "gpt-4o"]
        for wrong in ({"limit": 0}, {"after_id": "gpt-5o"}, {"before_id": "gpt-4o", "after_id": "gpt-4o"}):
            with pytest.raises(anthropic.BadRequestError, match=next(iter(wrong))):
                client.models.list(**wrong)
        one = client.models.retrieve("gpt-4o")
    assert [each.id for each in listed][:2] == ["gpt-4o", "gpt-4o-mini"]
    assert (one.id, one.type) == ("gpt-4o", "model")
    ModelInfo.model_validate_json(one.to_json(), strict=True)
    assert one_gateway.get("/models").json()["object"] == "list"


def test_s10_7_a_message_is_answered_once(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """With an `Idempotency-Key`, the same message again, also as a stream."""
    named = {"idempotency_key": "messages-once"}
    body = asked()
    first = whole(one_gateway, body, **named)
    again = whole(one_gateway, body, **named)
    assert (again["id"], again["content"], again["usage"]) == (first["id"], first["content"], first["usage"])
    assert len(upstream.chats) == 1
    told = put_together(streamed(one_gateway, body, idempotency_key="messages-once-streamed"))
    same = put_together(streamed(one_gateway, body, idempotency_key="messages-once-streamed"))
    assert (same["id"], same["content"], same["usage"]) == (told["id"], told["content"], told["usage"])
    assert len(upstream.chats) == 2


def test_s10_10_what_thoughts_were_made_under_goes_to_no_model(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A conversation with signed thoughts goes on by another API, with a model that has none."""
    block = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    upstream.reply(message=assistant("so", thinking_blocks=[block]))
    first = gateway.post("/chat/completions", json={"model": "gpt-4o", "messages": [user("why?")]}, key=None).json()
    body = {
        "model": "gpt-4o",
        "max_tokens": 99,
        "conversation": first["conversation"]["id"],
        "messages": [user("and then?")],
    }
    assert gateway.post("/messages", json=body, key=None).status_code == 200
    sent = upstream.chats[-1].body["messages"]
    assert [message.get("content") for message in sent] == ["why?", "so", "and then?"]
    assert "thinking_bound" not in str(sent)
