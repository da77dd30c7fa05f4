"""Agents that share a conversation (guarantee §11): who speaks, what each of them reads, and what it cost."""

import base64
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, assistant, function_tool, read_stream, text_part, tool_call, tool_result, user
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream, Reply
from tests.support.team import Team, claude

TASK = "Ship the lamp by Friday."
LATEST = ["max: answer 2", "user: question 3 " + "word " * 30, "max: answer 3"]


def test_s11_1_an_agent_is_named_by_what_it_said(team: Team) -> None:
    """§11: on the answer, the bill, the items, the stored completion, the conversation's totals."""
    first = team.ask("max", user("Hi"), answer="Hello!")
    assert first["agent"] == first["response_metadata"]["agent"] == {"id": "max", "type": "chat"}
    assert "agent" not in team.upstream.requests[-1].body
    assert team.sent == [user("Hi")]
    team.ask(claude("sarah"), user("And you?"), answer="Good day.")
    assert [item.get("agent") for item in team.items()] == [None, "max", None, "sarah"]
    stored = team.client.get(f"/chat/completions/{first['id']}").json()
    assert stored["agent"] == stored["response_metadata"]["agent"] == {"id": "max", "type": "chat"}
    of_sarah = team.client.get(f"/chat/completions?conversation={team.conversation}&agent=sarah").json()["data"]
    assert [each["agent"]["id"] for each in of_sarah] == ["sarah"]
    team.ask("max", user("Bye"))
    agents = team.client.get(f"/conversations/{team.conversation}").json()["totals"]["agents"]
    assert [(each["agent"], each["requests"]) for each in agents] == [("max", 2), ("sarah", 1)]
    assert all(each["cost"]["total_cost"] > 0 for each in agents)


def test_s11_1_who_names_no_agent_gets_what_it_got(team: Team) -> None:
    """§11: nothing of agents is in answers, items or totals of others."""
    body = {"model": "gpt-4o", "messages": [user("Hi")]}
    answer = team.post("/chat/completions", body).json()
    team.conversation = answer["conversation"]["id"]
    assert "agent" not in answer
    assert "agent" not in answer["response_metadata"]
    assert all("agent" not in item for item in team.items())
    found = team.client.get(f"/conversations/{team.conversation}").json()
    assert "team_task" not in found
    assert "agents" not in found["totals"]


def test_s11_1_items_that_are_added_name_their_agents(team: Team) -> None:
    """§11: what a client read of one conversation it may add to another, and its agents read who said it."""
    team.ask("max", user("Hi"), answer="Hello!")
    added = [{key: value for key, value in item.items() if key != "id"} for item in team.items()]
    team.begin(items=added)
    more = {"type": "message", "role": "assistant", "content": "Good day.", "agent": "carol"}
    made = team.post(f"/conversations/{team.conversation}/items", {"items": [more]}).json()["data"]
    assert [item.get("agent") for item in team.items()] == [None, "max", "carol"]
    assert made[0]["agent"] == "carol"
    team.ask({"id": "sarah", "type": "openai-codex"})
    assert team.sent == [user("[CONTEXT]\nuser: Hi\nmax: Hello!\n\n[MESSAGE]\nGood day.")]
    refused = team.post(f"/conversations/{team.conversation}/items", {"items": [{**more, "agent": 7}]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "items[0].agent")


def test_s11_2_the_latest_message_is_delivered(team: Team) -> None:
    """§11: an agent with a conversation and no messages is given the latest stored one; each of several in turn."""
    team.begin(team_task=TASK)
    team.ask(claude("max"), user("[NEXT:max] [NEXT:sarah] Hi"), answer="My advice: oil. [NEXT:sarah]")
    assert team.sent == [user(f"[TEAM_TASK]\n{TASK}\n\n[MESSAGE]\nHi")]
    team.ask({"id": "sarah", "type": "openai-codex"}, answer="Agreed.")
    assert team.sent == [user(f"[TEAM_TASK]\n{TASK}\n\n[CONTEXT]\nuser: Hi\n\n[MESSAGE]\nMy advice: oil.")]
    team.ask({"id": "carol", "type": "google-gemini"})
    assert team.sent == [
        user(f"Team task:\n{TASK}\n\nConversation so far:\nuser: Hi\nmax: My advice: oil.\n\nUser message:\nAgreed.")
    ]
    assert [item["content"][0]["text"] for item in team.items()] == [
        "[NEXT:max] [NEXT:sarah] Hi",
        "My advice: oil. [NEXT:sarah]",
        "Agreed.",
        "I see.",
    ]


def test_s11_2_a_delivery_to_an_agent_of_type_chat_keeps_the_messages(team: Team) -> None:
    """§11: nothing is assembled for it."""
    team.ask("max", user("Hi [NEXT:sarah]"), answer="Hello!")
    team.ask("sarah", answer="Hello, too.")
    assert team.sent == [user("Hi [NEXT:sarah]"), assistant("Hello!")]
    assert [item.get("agent") for item in team.items()] == [None, "max", "sarah"]


def test_s11_2_the_instruction_is_claudes_system_message(team: Team) -> None:
    """§11: its own and its file's, with a blank line between; behind the client's own system messages."""
    system = {"role": "system", "content": "House rules."}
    agent = claude("max", instruction=" Be brief. ", instruction_file_text="You know lamps.\n")
    team.ask(agent, system, {**user("Hi"), "name": "ann"})
    own = {"role": "system", "content": "Be brief.\n\nYou know lamps."}
    assert team.sent == [system, own, user("[MESSAGE]\nHi")]
    team.ask({**agent, "type": "openai-codex"}, user("Again"))
    begin = "[SYSTEM]\nBe brief.\n\nYou know lamps.\n\n"
    assert team.sent == [system, user(f"{begin}[CONTEXT]\nann: Hi\nmax: I see.\n\n[MESSAGE]\nAgain")]
    team.ask({"id": "max", "instruction": "Be kind."}, user("Once more"))
    assert team.sent[:2] == [system, {"role": "system", "content": "Be kind."}]
    assert team.sent[2:4] == [{**user("Hi"), "name": "ann"}, assistant("I see.")]


@pytest.mark.parametrize(("window", "shown"), [(None, 5), (2, 2), (0, 0)])
def test_s11_3_the_window_is_of_messages(team: Team, window: int | None, shown: int) -> None:
    """§11: five before the current one, or as many as the request says."""
    for number in range(4):
        team.ask("max", user(f"question {number}"), answer=f"answer {number}")
    answer = team.ask(claude("max", **({} if window is None else {"window": window})), user("now"))
    said = [f"{who} {number}" for number in range(4) for who in ("user: question", "max: answer")]
    context = "\n".join(said[len(said) - shown :])
    assert team.sent == [user((f"[CONTEXT]\n{context}\n\n" if shown else "") + "[MESSAGE]\nnow")]
    used = answer["response_metadata"]["context_utilization"]
    assert (used["strategy"], used["messages_excluded"]) == ("simple", 8 - shown)


def test_s11_3_the_oldest_context_leaves_first(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """§11: where the sections exceed their bytes; where they exceed the model's budget, too."""
    with start_gateway({"context": {"agent_max_bytes": 390}}).http("sk-small") as client:
        assert said_to_small(client, upstream, {}) == LATEST
    with start_gateway({}).http("sk-budget") as client:
        assert said_to_small(client, upstream, {"max_input_tokens": 95}) == LATEST


def said_to_small(client: httpx.Client, upstream: MockUpstream, context: Json) -> list[str]:
    """The context that an agent is sent of four long turns."""
    session = {"session": "team"}
    for number in range(4):
        upstream.handler = lambda _, n=number: Reply(text=f"answer {n}")
        message = user(f"question {number} " + "word " * 30)
        body = {"model": "gpt-4o", "messages": [message], "context": session, "agent": "max"}
        assert client.post("/chat/completions", json=body).status_code == 200
    agent = claude("max", instruction="Be brief.", window=10)
    body = {"model": "gpt-4o", "messages": [user("now")], "context": {**session, **context}, "agent": agent}
    assert client.post("/chat/completions", json=body).status_code == 200
    prompt: str = upstream.requests[-1].body["messages"][-1]["content"]
    found = prompt.removeprefix("[CONTEXT]\n").partition("\n\n[MESSAGE]\n")
    assert found[2] == "now"
    return found[0].split("\n")


def test_s11_3_only_what_is_said_now_may_be_taken_for_a_document(team: Team) -> None:
    """§4 I4, §11.12: not the instruction, nor the context, which may be pinned; the message's own edges stay."""
    rows = "\n\n".join(f"Row {number} of the register: {'lamp ' * 20}" for number in range(100))
    team.ask("max", {**user(f"Keep this.\n\n{rows}\n\nAll of it."), "pinned": True})
    document: Json = {"content": "The ferry leaves at nine. " * 300}
    codex = {"id": "sarah", "type": "openai-codex", "instruction": "Be brief."}
    team.ask(codex, user("When?"), attachments=[document], context={"max_input_tokens": 3500})
    assert rows in team.sent[0]["content"]
    register: Json = {"file_data": "data:text/plain;base64," + base64.b64encode(rows.encode() * 2).decode()}
    attached = {"type": "file", "file": {**register, "filename": "register.txt"}}
    said: Json = user([attached, text_part("Which row?")])
    team.ask(codex, said, context={"max_input_tokens": 4000})
    assert rows in team.sent[0]["content"][0]["text"]
    team.begin()
    team.ask(codex, user(f"What is it?\n\n{rows}\n\nTell me."), context={"max_input_tokens": 600})
    assert "[MESSAGE]\nWhat is it?\n\n" in team.sent[0]["content"]
    assert "Row 50" not in team.sent[0]["content"]
    assert team.sent[0]["content"].endswith("\n\nTell me.")


def test_s11_3_a_tool_loop_goes_on_behind_its_prompt(team: Team) -> None:
    """§11, §4 I7: each step begins with what the step before was sent, and every result follows its call."""
    tools = [function_tool("look", parameters={"type": "object"})]
    call = tool_call("call_1", "look")
    team.ask("max", user("Hi"))
    team.upstream.handler = lambda _: Reply(message=assistant(None, tool_calls=[call]))
    body: Json = {"model": "gpt-4o", "agent": claude("sarah"), "conversation": team.conversation, "tools": tools}
    assert team.post("/chat/completions", {**body, "messages": [user("Look.")]}).status_code == 200
    first = team.sent
    team.ask(claude("sarah"), tool_result("call_1", "A lamp."), tools=tools)
    assert first == [user("[CONTEXT]\nuser: Hi\nmax: I see.\n\n[MESSAGE]\nLook.")]
    assert team.sent[:1] == first
    assert [message["role"] for message in team.sent] == ["user", "assistant", "tool"]
    team.ask(claude("max"), user("Well?"))
    assert team.sent == [user("[CONTEXT]\nuser: Hi\nmax: I see.\nuser: Look.\nsarah: I see.\n\n[MESSAGE]\nWell?")]


def test_s11_4_agents_at_once_see_the_same_and_are_appended_whole(team: Team) -> None:
    """§11, §3.7: four writers in parallel; nothing is lost, nothing doubled."""
    team.begin(items=[{"type": "message", "role": "user", "content": "Write four mails."}])
    names, gate = [f"writer-{number}" for number in range(4)], threading.Event()
    team.upstream.handler = lambda _: Reply(text="A mail.", gate=gate)
    before = len(team.upstream.requests)

    def write(name: str) -> int:
        body: Json = {"model": "gpt-4o", "agent": claude(name), "conversation": team.conversation, "messages": []}
        return team.post("/chat/completions", body).status_code

    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(write, names)
        team.upstream.wait_for_chats(4)
        gate.set()
        assert list(answers) == [200] * 4
    sent = [request.body["messages"] for request in team.upstream.requests[before:]]
    assert sent == [[user("[MESSAGE]\nWrite four mails.")]] * 4
    assert sorted(str(item.get("agent")) for item in team.items()) == ["None", *names]


def test_s11_3_documents_stand_at_the_head_of_the_prompt(team: Team) -> None:
    """§11, §4 I6."""
    team.ask(claude("max"), user("Who keeps the lamp?"), attachments=[{"content": "Ann keeps the lamp.", "title": "L"}])
    (prompt,) = team.sent
    assert prompt["content"].startswith("<context_data")
    assert prompt["content"].endswith("[MESSAGE]\nWho keeps the lamp?")
    team.ask(claude("sarah"), user("And who cleans it?"))
    assert "Ann keeps the lamp." in team.sent[0]["content"]


def test_s11_1_streams_name_the_agent(team: Team) -> None:
    """§11: on the first and on the finish chunk."""
    body = {"model": "gpt-4o", "agent": claude("max"), "messages": [user("Hi")], "stream": True}
    chunks = read_stream(team.gateway, body).chunks
    assert [chunk.get("agent") for chunk in chunks if "agent" in chunk] == [{"id": "max", "type": "claude-code"}] * 2


def test_s11_2_what_gemini_repeats_of_its_question_is_left_out(team: Team) -> None:
    """§11.2: messages of the role `user` in its answers, streamed or not; those of other types stay."""
    choices = [{"message": user("Hi")}, {"message": assistant("Hello!")}]
    gemini = {"id": "carol", "type": "google-gemini"}
    body: Json = {"model": "gpt-4o", "agent": gemini, "messages": [user("Hi")]}
    team.upstream.handler = lambda _: Reply(choices=choices)
    found = team.post("/chat/completions", body).json()["choices"]
    assert [choice["message"]["content"] for choice in found] == ["Hello!"]
    found = team.post("/chat/completions", {**body, "agent": "carol"}).json()["choices"]
    assert [choice["message"]["content"] for choice in found] == ["Hi", "Hello!"]
    said: tuple[Json, ...] = (user("Hi"), {"content": " there"}, assistant("Hello!"), {})
    chunks: list[Json] = [
        {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in said
    ]
    chunks[-1]["choices"][0]["finish_reason"] = "stop"
    team.upstream.handler = lambda _: Reply(chunks=chunks, chunk_delay=0.01)
    wire = read_stream(team.gateway, {**body, "stream": True})
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in wire.chunks if c["choices"]) == "Hello!"


def test_s11_5_a_team_task_is_kept_and_cut(team: Team) -> None:
    """§11: 5 KiB, cut at a character with a warning; it can be changed, and taken away."""
    made = team.begin(team_task="é" * 3000)
    assert made["team_task"] == "é" * 2560
    assert made["warnings"] == ["team_task_cut_at_5120_bytes"]
    path = f"/conversations/{team.conversation}"
    assert team.client.get(path).json()["team_task"] == "é" * 2560
    changed = team.post(path, {"team_task": "x" * 5120}).json()
    assert (changed["team_task"], changed.get("warnings")) == ("x" * 5120, None)
    team.post(path, {"metadata": {"a": "b"}})
    found = team.client.get(path).json()
    assert (found["team_task"], found["metadata"]) == ("x" * 5120, {"a": "b"})
    exported = team.client.get(f"{path}/export").json()
    copy = team.post("/conversations/import", exported).json()
    assert team.client.get(f"/conversations/{copy['id']}").json()["team_task"] == "x" * 5120
    assert not [none for none in (None, "") if "team_task" in team.post(path, {"team_task": none}).json()]
    assert team.post(path, {"team_task": "again"}).json()["team_task"] == "again"
    assert "team_task" not in team.client.delete(f"{path}/items").json()


def test_s11_1_an_export_keeps_who_spoke(team: Team) -> None:
    """§11: a copy of the conversation names its agents."""
    team.ask("max", user("Hi"))
    exported = team.client.get(f"/conversations/{team.conversation}/export").json()
    team.conversation = team.post("/conversations/import", exported).json()["id"]
    assert [item.get("agent") for item in team.items()] == [None, "max"]


@pytest.mark.parametrize(
    ("agent", "param"),
    [
        (7, "agent"),
        ("", "agent"),
        ("x" * 129, "agent"),
        ({}, "agent.id"),
        ({"id": 7}, "agent.id"),
        ({"id": "max", "type": ""}, "agent.type"),
        ({"id": "max", "role": "x"}, "agent.role"),
        ({"id": "max", "type": "plain", "window": -1}, "agent.window"),
        ({"id": "max", "window": 2}, "agent.window"),
        ({"id": "max", "type": "plain", "prefill": "yes"}, "agent.prefill"),
        ({"id": "max", "prefill": False}, "agent.prefill"),
        ({"id": "max", "instruction": 7}, "agent.instruction"),
    ],
)
def test_s11_1_a_wrong_agent_is_named(team: Team, agent: Any, param: str) -> None:
    """§7, §11."""
    response = team.post("/chat/completions", {"model": "gpt-4o", "agent": agent, "messages": [user("Hi")]})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("named", [{}, {"name": "max"}])
@pytest.mark.parametrize("stored", [True, False])
def test_s11_3_an_agents_message_is_delivered_and_stands_once(team: Team, named: Json, *, stored: bool) -> None:
    """§11: whoever said it, the last message is the current one; said before or not, with its speaker's name or
    without, it is in the history once, and in the next agent's context."""
    team.ask(claude("max"), user("Hi"), answer="Hello! [NEXT:sarah]")
    said: Json = {"role": "assistant", "content": "Hello!" if named else "Hello! [NEXT:sarah]", **named}
    team.ask(claude("sarah"), said, store=stored, answer="Good day.")
    assert team.sent == [user("[CONTEXT]\nuser: Hi\n\n[MESSAGE]\nHello!")]
    if stored:
        team.ask(claude("carol"), assistant("Oil it.", name="bob"), answer="Done.")
        context = "user: Hi\nmax: Hello!\nsarah: Good day."
        assert team.sent == [user(f"[CONTEXT]\n{context}\n\n[MESSAGE]\nOil it.")]
        team.ask(claude("max"), user("And now?"))
        assert team.sent == [user(f"[CONTEXT]\n{context}\nbob: Oil it.\ncarol: Done.\n\n[MESSAGE]\nAnd now?")]
    shown = [text for item in team.items() for text in [item["content"][0]["text"]]]
    later = ["Good day.", "Oil it.", "Done.", "And now?", "I see."] if stored else []
    assert shown == ["Hi", "Hello! [NEXT:sarah]", *later]


def test_s11_3_a_delivered_resend_goes_on_where_it_was(team: Team) -> None:
    """§11, §3.1: all that was said, an agent's message at its end; another than the stored one is a branch."""
    said: list[Json] = [user("Hi"), assistant("Hello!")]
    team.ask(claude("sarah"), *said, answer="Good day.")
    assert team.sent == [user("[CONTEXT]\nuser: Hi\n\n[MESSAGE]\nHello!")]
    said.append(assistant("Good day."))
    team.ask(claude("carol"), *said, answer="Fine.")
    assert team.sent == [user("[CONTEXT]\nuser: Hi\nassistant: Hello!\n\n[MESSAGE]\nGood day.")]
    team.ask("max", *said, assistant("Fine."), user("Well?"))
    assert len(team.items()) == 6


def test_s11_3_all_three_apis_deliver_an_agents_message(team: Team) -> None:
    """§11, §10: it is what the request brought, and stands once whichever API goes on."""
    team.ask("max", user("Hi"), answer="Hello!")
    hello: Json = assistant("Hello!")
    body: Json = {"model": "gpt-4o", "agent": claude("sarah"), "max_tokens": 9, "conversation": team.conversation}
    assert team.post("/messages", {**body, "messages": [hello]}).status_code == 200
    assert team.sent == [user("[CONTEXT]\nuser: Hi\n\n[MESSAGE]\nHello!")]
    del body["max_tokens"]
    said: Json = assistant("Oil it.")
    answer = team.post("/responses", {**body, "agent": claude("carol"), "input": [said]}).json()
    assert team.sent == [user("[CONTEXT]\nuser: Hi\nmax: Hello!\nsarah: Hello!\n\n[MESSAGE]\nOil it.")]
    (brought,) = team.client.get(f"/responses/{answer['id']}/input_items").json()["data"]
    assert brought["content"][0]["text"] == "Oil it."
    assert [item.get("agent") for item in team.items()] == [None, "max", "sarah", None, "carol"]


@pytest.mark.parametrize("streamed", [True, False])
def test_s11_3_a_prefill_is_asked_for(team: Team, *, streamed: bool) -> None:
    """§11, §3.4: `agent.prefill`; stored is prefill plus completion."""
    team.begin()
    agent = {**claude("max"), "prefill": True}
    begun: Json = assistant("Well,")
    team.upstream.handler = lambda _: Reply(text=" hello.")
    body: Json = {"model": "gpt-4o", "agent": agent, "conversation": team.conversation, "stream": streamed}
    response = team.post("/chat/completions", {**body, "messages": [user("Hi"), begun]})
    assert response.status_code == 200
    assert team.sent == [user("[MESSAGE]\nHi"), begun]
    assert [item["content"][0]["text"] for item in team.items()] == ["Hi", "Well, hello."]


def test_s11_3_one_long_message_is_cut_to_the_bytes(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """§11: with a label that says how much, and a warning; what is stored is whole, and its beginning and end stay."""
    team = Team(start_gateway({"context": {"agent_max_bytes": 2000}}), upstream)
    text = f"First. {'é' * 2000} Last."
    with team.client:
        team.ask("max", user("Hi"))
        answer = team.ask({"id": "sarah", "type": "openai-codex", "instruction": "Be brief."}, user(text))
        (prompt,) = [message["content"] for message in team.sent]
        assert 1900 < len(prompt.encode()) <= 2000
        assert prompt.startswith("[SYSTEM]\nBe brief.\n\n[MESSAGE]\nFirst. é")
        assert "bytes of this message left out" in prompt
        assert prompt.endswith("é Last.")
        assert "agent_message_cut" in answer["response_metadata"]["context_utilization"]["warnings"]
        assert team.items()[2]["content"][0]["text"] == text
        body: Json = {"model": "gpt-4o", "messages": [user("Hi")], "agent": claude("max", instruction="x" * 2000)}
        response = team.post("/chat/completions", body)
        assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")
        told = response.json()["error"]["message"]
        found = re.match(r"This model's maximum context length is (\d+) tokens\. .* resulted in (\d+) tokens\.", told)
        assert found is not None, told
        assert 0 < int(found[1]) < int(found[2]), "the limit that was broken, in tokens of these words"
        assert "pinned messages 0" in told
        assert "2000 bytes" in told


def test_s11_4_there_must_be_something_to_deliver(team: Team) -> None:
    """§11: no messages without a conversation, or in an empty one."""
    body: Json = {"model": "gpt-4o", "agent": claude("max"), "messages": []}
    assert team.post("/chat/completions", body).json()["error"]["param"] == "messages"
    team.begin()
    body["conversation"] = team.conversation
    response = team.post("/chat/completions", body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")
    for agent in ("max", None):
        response = team.post("/chat/completions", {**body, "agent": agent})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")


@pytest.mark.parametrize(("path", "name"), [("/responses", "input"), ("/messages", "messages")])
def test_s11_4_each_api_delivers_what_is_stored(team: Team, path: str, name: str) -> None:
    """§10, §11.4: no messages, with a conversation; in Messages the field is named where nothing can be delivered."""
    team.ask(claude("max"), user("Which oil?"), answer="Olive oil.")
    asked: Json = {"model": "gpt-4o", "agent": claude("sarah"), "conversation": team.conversation}
    asked |= {"max_tokens": 9} if path == "/messages" else {}
    nothing: list[Json] = [{}, {name: []}]
    for given in nothing:
        answer = team.post(path, {**asked, **given})
        assert answer.status_code == 200, answer.text
        assert team.sent[-1]["content"].endswith("[MESSAGE]\nOlive oil.")
    for without in ("conversation", "agent") if path == "/messages" else ():
        refused = team.post(path, {**{key: value for key, value in asked.items() if key != without}, name: []})
        assert refused.status_code == 400, refused.text
        assert refused.json()["error"]["param"] == name
