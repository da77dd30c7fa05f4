"""Responses that are stored: gone on from, read, deleted, referred to (guarantee §10.5)."""

from typing import Any

import openai
import pytest

from tests.support.answers import chat, exact, stored, usage_of, user
from tests.support.factory import ClientFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_responses import MockResponses, words
from tests.support.mock_upstream import MockUpstream
from tests.support.strict_responses import check_event, check_response, create, events, read_events, refused

CALL: Any = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOL: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True, "description": "x"}


def said(upstream: MockUpstream) -> list[Any]:
    """What went up, as role and words."""
    return [(each["role"], each.get("content")) for each in upstream.last.body["messages"]]


def ask(gateway: GatewayProcess, upstream: MockUpstream, text: str, answer: str, **more: Any) -> Any:
    """A response to one text."""
    upstream.reply(text=answer)
    return create(gateway, {"model": "small", "input": text, **more})


def test_s10_5_a_response_is_gone_on_from(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Its history stands in front of what is sent; two from one response are siblings, each with its own history."""
    first = ask(gateway, upstream, "one", "first")
    second = ask(gateway, upstream, "two", "second", previous_response_id=first["id"])
    assert said(upstream) == [("user", "one"), ("assistant", "first"), ("user", "two")]
    assert (second["previous_response_id"], second["conversation"]) == (first["id"], first["conversation"])
    other = ask(gateway, upstream, "other", "third", previous_response_id=first["id"])
    assert said(upstream) == [("user", "one"), ("assistant", "first"), ("user", "other")]
    ask(gateway, upstream, "three", "fourth", previous_response_id=second["id"])
    assert [words for _, words in said(upstream)] == ["one", "first", "two", "second", "three"]
    ask(gateway, upstream, "four", "fifth", previous_response_id=other["id"], store=False)
    assert [words for _, words in said(upstream)] == ["one", "first", "other", "third", "four"]


@pytest.mark.parametrize("given", [{}, {"input": None}, {"input": []}])
def test_s10_5_a_response_without_input_answers_what_is_stored(
    one_gateway: GatewayProcess, upstream: MockUpstream, given: Any
) -> None:
    """OpenAI's SDK has `input` optional: the history that is named is answered as it stands."""
    asked = {"type": "message", "role": "user", "content": "stored"}
    conversation = one_gateway.post("/conversations", json={"items": [asked]}).json()["id"]
    upstream.reply(text="first")
    first = create(one_gateway, {"model": "small", "conversation": conversation, **given})
    assert said(upstream) == [("user", "stored")]
    upstream.reply(text="second")
    second = create(one_gateway, {"model": "small", "previous_response_id": first["id"], "stream": False, **given})
    assert said(upstream) == [("user", "stored"), ("assistant", "first")]
    ask(one_gateway, upstream, "three", "third", previous_response_id=second["id"])
    assert [words for _, words in said(upstream)] == ["stored", "first", "second", "three"]
    found = one_gateway.get(f"/responses/{first['id']}/input_items").json()
    assert found["data"] == []
    upstream.reply(text="other")
    again = {"model": "small", "previous_response_id": first["id"], "instructions": "Be brief.", "store": False}
    create(one_gateway, {**again, **given})
    assert [words for _, words in said(upstream)] == ["Be brief.", "stored", "first"]


@pytest.mark.parametrize("given", [{}, {"input": []}])
def test_s10_5_a_prompt_that_the_upstream_stores_needs_no_input(
    own_key_gateway: GatewayProcess, upstream: MockUpstream, given: Any
) -> None:
    """§1: as with OpenAI. The conversation begins with its answer; an upstream of chats has no prompts."""
    prompt = {"id": "pmpt_1", "variables": {"city": "Bern"}}
    asked = MockResponses(upstream)
    asked.reply(words("first"))
    body = {"model": "gpt-4o", "prompt": prompt, **given}
    first = create(own_key_gateway, body)
    assert (asked.last["prompt"], asked.last.get("input")) == (prompt, None)
    asked.reply(words("second"))
    create(own_key_gateway, {"model": "gpt-4o", "input": "two", "previous_response_id": first["id"]})
    assert [(each["role"], "prompt" in asked.last) for each in asked.last["input"]] == [
        ("assistant", False),
        ("user", False),
    ]


def test_s10_5_a_prompt_of_a_chats_upstream_is_named(one_gateway: GatewayProcess) -> None:
    error = refused(one_gateway, {"model": "small", "prompt": {"id": "pmpt_1"}})
    assert (error["code"], error["param"]) == ("unsupported_parameter", "prompt")


@pytest.mark.parametrize("given", [{}, {"input": None}, {"input": []}])
def test_s10_5_without_input_and_history_there_is_nothing_to_answer(
    one_gateway: GatewayProcess, upstream: MockUpstream, given: Any
) -> None:
    assert refused(one_gateway, {"model": "small", **given})["param"] == "input"
    empty = one_gateway.post("/conversations", json={}).json()["id"]
    assert refused(one_gateway, {"model": "small", "conversation": empty, **given})["param"] == "input"
    assert upstream.requests == []


def test_s10_5_instructions_hold_for_one_response_and_system_messages_stay(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """As OpenAI has it: `instructions` do not carry over, system messages of the input do."""
    system = {"role": "developer", "content": "kept"}
    asked: Any = [system, {"role": "user", "content": "one"}]
    first = ask(one_gateway, upstream, asked, "first", instructions="Be brief.")
    assert said(upstream)[:2] == [("system", "Be brief."), ("developer", "kept")]
    ask(one_gateway, upstream, "two", "second", previous_response_id=first["id"])
    assert said(upstream)[:2] == [("developer", "kept"), ("user", "one")]
    ask(one_gateway, upstream, "two", "x", previous_response_id=first["id"], instructions="Be long.")
    assert said(upstream)[:3] == [("system", "Be long."), ("developer", "kept"), ("user", "one")]
    asked = [{"role": "system", "content": "new"}, {"role": "user", "content": "two"}]
    ask(one_gateway, upstream, asked, "y", previous_response_id=first["id"], store=False)
    assert said(upstream)[:2] == [("system", "new"), ("user", "one")]
    asked = [{"role": "user", "content": "two"}, {"role": "developer", "content": "amid"}]
    amid = ask(one_gateway, upstream, asked, "z", previous_response_id=first["id"], instructions="Be long.")
    ask(one_gateway, upstream, "three", "w", previous_response_id=amid["id"], instructions="Be short.")
    assert [words for _, words in said(upstream)] == ["Be short.", "kept", "one", "first", "two", "amid", "z", "three"]


def test_s10_5_a_chat_is_gone_on_from_and_the_other_way_round(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """A completion is the response of the same id."""
    upstream.reply(text="first")
    system, user = {"role": "system", "content": "s"}, {"role": "user", "content": "one"}
    began = chat(one_gateway, model="small", messages=[system, user])
    name = began["id"].replace("chatcmpl-", "resp_")
    second = ask(one_gateway, upstream, "two", "second", previous_response_id=name)
    assert said(upstream) == [("system", "s"), ("user", "one"), ("assistant", "first"), ("user", "two")]
    assert second["conversation"] == began["conversation"]
    found = one_gateway.get(f"/responses/{name}").json()
    check_response(found)
    assert found["output"][0]["content"][0]["text"] == "first"
    assert stored(one_gateway, second["id"])["choices"][0]["message"]["content"] == "second"
    assert "asked" not in stored(one_gateway, second["id"])


def test_s10_5_what_a_response_ends_with_is_not_doubled_by_sending_it_again(
    gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """A client that names a response and sends its output, too, or all that was said: nothing is doubled (§3.1)."""
    first = ask(gateway, upstream, "one", "first")
    new: Any = {"role": "user", "content": "two"}
    named = {"type": "item_reference", "id": first["output"][0]["id"]}
    plain = {"role": "assistant", "content": "first"}
    resends: Any = ([*first["output"], new], [named, new], [{"role": "user", "content": "one"}, plain, new])
    for sent in resends:
        ask(gateway, upstream, sent, "second", previous_response_id=first["id"])
        assert said(upstream) == [("user", "one"), ("assistant", "first"), ("user", "two")]
    others: Any = [{**plain, "content": "other"}, new]
    ask(gateway, upstream, others, "third", previous_response_id=first["id"])
    assert [words for _, words in said(upstream)] == ["one", "first", "other", "two"]
    upstream.reply(text="I look.", tool_calls=[CALL])
    asked = {"model": "small", "tools": [TOOL]}
    called = create(gateway, {**asked, "input": "three"})
    result = {"type": "function_call_output", "call_id": "call_1", "output": "a boat"}
    upstream.reply(text="seen")
    again = {**asked, "input": [*called["output"], result], "previous_response_id": called["id"]}
    create(gateway, again)
    assert [role for role, _ in said(upstream)] == ["user", "assistant", "tool"]
    upstream.reply(text="never")
    again["input"] = [*called["output"], {**result, "call_id": "call_9"}]
    assert refused(gateway, again)["param"] == "input[2]"
    kept = gateway.get(f"/conversations/{called['conversation']['id']}/items", params={"order": "asc"}).json()
    kinds = [item["type"] for item in kept["data"]]
    assert kinds == ["message", "message", "function_call", "function_call_output", "message"]


def test_s10_5_a_response_is_read_again(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """As it was answered, whole and in events; what was brought is listed."""
    upstream.reply(text="first", usage=usage_of(11, 7))
    asked = {"model": "small", "input": "one", "instructions": "Be brief.", "metadata": {"a": "b"}, "temperature": 0.5}
    first = create(gateway, {**asked, "tools": [TOOL]})
    found = gateway.get(f"/responses/{first['id']}")
    check_response(found.json())
    assert exact(found.text) == first
    wire = gateway.get(f"/responses/{first['id']}", params={"stream": "true"})
    replayed = read_events(wire.text)
    assert replayed[-1]["type"] == "response.completed"
    assert replayed[-1]["response"] == first
    rest = gateway.get(f"/responses/{first['id']}", params={"stream": "true", "starting_after": 4}).text
    assert rest == wire.text[wire.text.index(rest) :]
    assert rest.startswith("event:")
    wrong = gateway.get(f"/responses/{first['id']}", params={"starting_after": "x"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "starting_after")
    assert '"sequence_number":5' in rest.split("\n\n")[0]
    live = events(gateway, {**asked, "input": "two", "previous_response_id": first["id"]})
    again = read_events(gateway.get(f"/responses/{live[-1]['response']['id']}?stream=true").text)
    assert [event["type"] for event in again] == list(dict.fromkeys(event["type"] for event in live))
    assert again[-1] == {**live[-1], "sequence_number": again[-1]["sequence_number"]}
    check_event(again[-1])


def test_s10_5_input_items_are_what_a_request_brought(
    one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """Newest first, in pages, under the ids of the Conversations API; not the instructions, not the history."""
    client = make_client(one_gateway)
    first = ask(one_gateway, upstream, "one", "first", instructions="Be brief.")
    asked: Any = [{"role": "user", "content": "two"}, {"role": "user", "content": "three"}]
    second = ask(one_gateway, upstream, asked, "second", previous_response_id=first["id"])
    (only,) = client.responses.input_items.list(first["id"]).data
    assert (only.type, only.content[0].text) == ("message", "one")  # type: ignore[union-attr, index]
    page = client.responses.input_items.list(second["id"], limit=1)
    assert (page.has_more, len(page.data)) == (True, 1)
    texts = [item.content[0].text for item in page]  # type: ignore[union-attr, index]
    assert texts == ["three", "two"]
    assert [i.content[0].text for i in client.responses.input_items.list(second["id"], order="asc")] == ["two", "three"]  # type: ignore[union-attr, index]
    items = client.conversations.items.list(second["conversation"]["id"], order="asc", limit=100).data
    assert [item.id for item in items][-3:-1] == [item.id for item in reversed(list(page))]
    assert items[-1].id == second["output"][0]["id"]


def test_s10_5_input_items_tell_a_clients_screenshot(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """It begins the answer that is stored, as a chat has no message for it."""
    first = ask(one_gateway, upstream, "Look.", "first")
    picture = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}
    shot: Any = {"type": "computer_call_output", "call_id": "call_1", "output": picture}
    brought: Any = [shot]
    second = ask(one_gateway, upstream, brought, "second", previous_response_id=first["id"])
    (only,) = one_gateway.get(f"/responses/{second['id']}/input_items").json()["data"]
    assert {name: only[name] for name in shot} == shot
    kept = one_gateway.get(f"/conversations/{second['conversation']['id']}/items", params={"order": "asc"}).json()
    assert [each["id"] for each in kept["data"]][2] == only["id"]
    call = {"type": "computer_call", "id": "cu_1", "call_id": "call_1", "action": {"type": "wait"}}
    brought = [user("Look."), {**call, "pending_safety_checks": []}, shot]
    whole = ask(one_gateway, upstream, brought, "alone")
    found = one_gateway.get(f"/responses/{whole['id']}/input_items", params={"order": "asc"}).json()["data"]
    assert [each["type"] for each in found] == ["message", "computer_call", "computer_call_output"]
    assert [each["type"] for each in one_gateway.get(f"/responses/{whole['id']}").json()["output"]] == ["message"]


def test_s10_5_input_items_without_a_deleted_one(
    one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """Those that stay of what the request brought; nothing of the history takes the place of one that went."""
    client = make_client(one_gateway)
    first = ask(one_gateway, upstream, "one", "first")
    asked: Any = [{"role": "user", "content": "two"}, {"role": "user", "content": "three"}]
    second = ask(one_gateway, upstream, asked, "second", previous_response_id=first["id"])
    for gone, left in (("two", ["three"]), ("three", [])):
        brought = client.responses.input_items.list(second["id"], order="asc").data
        item = next(each for each in brought if each.content[0].text == gone)  # type: ignore[union-attr, index]
        client.conversations.items.delete(str(item.id), conversation_id=second["conversation"]["id"])
        brought = client.responses.input_items.list(second["id"], order="asc").data
        assert [each.content[0].text for each in brought] == left  # type: ignore[union-attr, index]


def test_s10_5_a_deleted_or_strange_response_is_not_there(
    gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """404 for its own path, OpenAI's 400 for what goes on from it; nothing goes up."""
    client = make_client(gateway)
    first = ask(gateway, upstream, "one", "first")
    unkept = ask(gateway, upstream, "one", "first", store=False)
    client.responses.delete(first["id"])
    calls = len(upstream.chats)
    stranger = make_client(gateway, api_key="sk-other")
    kept = ask(gateway, upstream, "two", "second")
    for name, who in ((first["id"], client), (unkept["id"], client), (kept["id"], stranger), ("resp_x\x00", client)):
        with pytest.raises(openai.BadRequestError) as refusal:
            who.responses.create(model="small", input="on", previous_response_id=name)
        assert (refusal.value.code, refusal.value.param) == ("previous_response_not_found", "previous_response_id")
        with pytest.raises(openai.NotFoundError):
            who.responses.retrieve(name.replace("\x00", "%00"))
    with pytest.raises(openai.NotFoundError):
        stranger.responses.input_items.list(kept["id"])
    with pytest.raises(openai.NotFoundError):
        stranger.responses.cancel(kept["id"])
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(kept["id"])
    nameless = refused(gateway, {"model": "small", "input": "x", "previous_response_id": ""})
    assert nameless["message"] == "Previous response with id '' not found."
    both = {"model": "small", "input": "x", "previous_response_id": kept["id"], "conversation": "conv_x"}
    assert refused(gateway, both)["param"] == "previous_response_id"
    assert len(upstream.chats) == calls + 1


def test_s10_5_an_item_is_referred_to(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A stored item may be named in the place of itself; whoever resends so goes on with the conversation."""
    upstream.reply(tool_calls=[CALL])
    first = create(one_gateway, {"model": "small", "input": "look", "tools": [TOOL]})
    asked: Any = [
        {"role": "user", "content": "look"},
        *({"type": "item_reference", "id": item["id"]} for item in first["output"]),
        {"type": "function_call_output", "call_id": "call_1", "output": "a boat"},
    ]
    second = ask(one_gateway, upstream, asked, "seen", tools=[TOOL])
    assert second["conversation"] == first["conversation"]
    assert upstream.last.body["messages"][1] == {"role": "assistant", "content": None, "tool_calls": [CALL]}
    wanted = [{"id": second["output"][0]["id"]}, {"role": "user", "content": "x"}]
    stranger = one_gateway.post("/responses", json={"model": "small", "input": wanted}, key="sk-other")
    assert (stranger.status_code, stranger.json()["error"]["param"]) == (404, "input[0].id")
    upstream.reply(text="y")
    create(one_gateway, {"model": "small", "input": wanted})
    assert said(upstream) == [("assistant", "seen"), ("user", "x")]
    for nameless in ({}, {"id": None}, {"id": 5}):
        error = refused(one_gateway, {"model": "small", "input": [{"type": "item_reference", **nameless}]})
        assert error["param"] == "input[0].id"


HOSTED_CALLS: Any = [
    {"type": "web_search_call", "id": "ws_0a1b", "status": "completed", "action": {"type": "search", "query": "Bern"}},
    {"type": "image_generation_call", "id": "ig_68f0", "status": "completed", "result": "AAAA"},
]


@pytest.mark.parametrize("named_by", ["items", "response", "conversation"])
def test_s10_5_a_hosted_call_is_referred_to(one_gateway: GatewayProcess, upstream: MockUpstream, named_by: str) -> None:
    """§10.5: its id is its maker's: the items named beside it lead to it, or the history that is named."""
    said = [{"role": "user", "content": "look"}, *HOSTED_CALLS, {"role": "assistant", "content": "found"}]
    upstream.reply(text="so it is")
    first = create(one_gateway, {"model": "small", "input": [*said, {"role": "user", "content": "really?"}]})
    listed = one_gateway.get(f"/conversations/{first['conversation']['id']}/items?order=asc").json()["data"]
    answer = [each["id"] for each in listed[1:4]]
    assert answer[:2] == ["ws_0a1b", "ig_68f0"]
    wanted = answer if named_by == "items" else answer[:2]
    asked: Any = [{"type": "item_reference", "id": item_id} for item_id in wanted]
    more = {"response": {"previous_response_id": first["id"]}, "conversation": {"conversation": first["conversation"]}}
    upstream.reply(text="y")
    create(
        one_gateway, {"model": "small", "input": [*asked, {"role": "user", "content": "x"}], **more.get(named_by, {})}
    )
    assert "query: Bern" in str(upstream.last.body["messages"])
    stranger = refused(one_gateway, {"model": "small", "input": [{"type": "item_reference", "id": "ws_0a1b"}]}, 404)
    assert stranger["param"] == "input[0].id"
