"""The classic API below `/api/v1/`: other names for what `/v1/` serves (guarantee §11.10)."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, ok, refusal, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply

CALL = {"id": "call_1", "type": "function", "function": {"name": "create_workflow", "arguments": '{"a": 1}'}}
TOOLS = [{"type": "function", "function": {"name": "create_workflow", "parameters": {"type": "object"}}}]
_numbers = itertools.count()


@pytest.fixture
def client(gateway: GatewayProcess, upstream: MockUpstream) -> Iterator[httpx.Client]:
    """A client of a tenant of its own."""
    upstream.handler = lambda _: Reply(text="I see.")
    with classic(gateway, f"sk-classic-{next(_numbers)}") as found:
        yield found


def classic(gateway: GatewayProcess, key: str | None) -> httpx.Client:
    found = gateway.http(key)
    found.base_url = httpx.URL(f"{gateway.url}/api/v1")
    return found


def say(client: httpx.Client, message: str, **fields: Any) -> Json:
    return ok(client.post("/chat", json={"message": message, **fields}))


def sent(upstream: MockUpstream) -> list[Json]:
    found: list[Json] = upstream.chats[-1].body["messages"]
    return found


def events(answer: httpx.Response) -> list[Any]:
    """The data of a stream's events; `[DONE]` as it is."""
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_s11_10_a_message_begins_a_conversation_and_the_next_goes_on(
    client: httpx.Client, upstream: MockUpstream
) -> None:
    """§11.10: by the id that the answer names, with the first model of `model_list`."""
    first = say(client, "Hello")
    assert (first["response"], first["tools_used"]) == ("I see.", [])
    assert upstream.chats[-1].body["model"] == first["response_metadata"]["model"] == "gpt-4o"
    assert first["conversation_id"] == first["response_metadata"]["conversation_id"]
    assert first["context"]["tokens"] == first["response_metadata"]["context_utilization"]["tokens_used"] > 0
    second = say(client, "And now?", conversation_id=first["conversation_id"], model="small", user="ann")
    assert second["conversation_id"] == first["conversation_id"]
    assert sent(upstream) == [user("Hello"), {"role": "assistant", "content": "I see."}, user("And now?")]
    assert (upstream.chats[-1].body["model"], upstream.chats[-1].body["user"]) == ("small", "ann")


def test_s11_10_a_conversation_may_have_a_name_of_the_clients_own(client: httpx.Client, upstream: MockUpstream) -> None:
    """§11.10: as in `conv-123`; it is a session's, so both APIs know it."""
    for message in ("Hello", "Again"):
        assert say(client, message, conversation_id="conv-123")["conversation_id"] == "conv-123"
    assert [message["content"] for message in sent(upstream)] == ["Hello", "I see.", "Again"]
    history = client.get("/conversations/conv-123/history").json()
    assert (history["conversation_id"], history["turn_count"]) == ("conv-123", 2)
    (listed,) = client.get("/conversations").json()["conversations"]
    assert (listed["conversation_id"], listed["id"]) == ("conv-123", history["id"])
    named = {"conversation_id": "conv-123", "id": history["id"]}
    assert client.delete("/conversations/conv-123/permanent").json() == {**named, "deleted": True}
    assert client.get("/conversations/conv-123/history").status_code == 404


def test_s11_10_the_header_has_the_gateways_id_where_the_path_has_a_name(client: httpx.Client) -> None:
    """§3.5: what `X-Conversation-Id` says can be sent back as such."""
    said = say(client, "Hello", conversation_id="conv-123")
    asked = {"/history": "GET", "/workflows": "GET", "": "DELETE", "/permanent": "DELETE"}
    answers = [client.request(method, f"/conversations/conv-123{path}") for path, method in asked.items()]
    own = said["response_metadata"]["conversation_id"]
    assert {(each.headers["x-conversation-id"], each.json()["id"]) for each in answers} == {(own, own)}
    assert {each.json()["conversation_id"] for each in answers} == {"conv-123"}


def test_s11_10_a_stream_ends_with_the_whole_answer(client: httpx.Client, upstream: MockUpstream) -> None:
    """§11.10: deltas of text, then what `/chat` answers, then `[DONE]`; the turn is stored."""
    upstream.handler = lambda _: Reply(text="one two three")
    answer = client.post("/chat/stream", json={"message": "Count"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *deltas, last, done = events(answer)
    assert "".join(each["delta"] for each in deltas) == last["response"] == "one two three"
    assert len(deltas) > 1
    assert done == "[DONE]"
    assert last["conversation_id"] == answer.headers["x-conversation-id"]
    assert last["response_metadata"]["cost"]["total_cost"] > 0
    assert set(last) == set(say(client, "Hello"))
    history = client.get(f"/conversations/{last['conversation_id']}/history").json()
    assert [turn["agent_response"] for turn in history["turns"]] == ["one two three"]


def test_s11_10_a_stream_that_breaks_ends_with_an_error(client: httpx.Client, upstream: MockUpstream) -> None:
    """§7, §11.10: an error event, and no `[DONE]`."""
    upstream.handler = lambda _: Reply(text="one two three", cut_after=3)
    found = events(client.post("/chat/stream", json={"message": "Count"}))
    assert found[-1]["error"]["code"] == "upstream_interrupted"
    assert all("delta" in each for each in found[:-1])


def test_s11_10_a_client_that_leaves_a_stream_leaves_a_partial_turn(
    client: httpx.Client, upstream: MockUpstream
) -> None:
    """§3.6, §11.10: what was delivered stays, with its bill."""
    upstream.handler = lambda _: Reply(text="one two three", stall_after=2)
    said = {"message": "Count", "conversation_id": "left"}
    with client.stream("POST", "/chat/stream", json=said) as stream:
        assert json.loads(next(stream.iter_lines()).removeprefix("data: "))["delta"]
    upstream.handler = lambda _: Reply(text="I see.")
    say(client, "Go on", conversation_id="left")
    first, second = client.get("/conversations/left/history").json()["turns"]
    assert (first["user_message"], second["user_message"]) == ("Count", "Go on")
    assert "one two three".startswith(first["agent_response"])
    assert first["agent_response"]
    openai = httpx.URL(str(client.base_url).replace("/api/", "/"))
    listed = client.get(f"{openai}chat/completions").json()["data"]
    assert [each["status"] for each in listed] == ["partial", "complete"]


def test_s11_10_the_history_has_turns_with_their_tools(client: httpx.Client, upstream: MockUpstream) -> None:
    """§11.10: as the classic files have them; also what was said by way of `/v1/`."""
    upstream.handler = lambda _: Reply(message={"role": "assistant", "content": None, "tool_calls": [CALL]})
    first = say(client, "Create a workflow", tools=TOOLS)
    assert (first["tools_used"], first["tool_calls"]) == (["create_workflow"], [CALL])
    upstream.handler = lambda _: Reply(text="Done.")
    results = [{"role": "tool", "tool_call_id": "call_1", "content": "ok"}]
    body = {"model": "gpt-4o", "messages": results, "tools": TOOLS, "conversation": first["conversation_id"]}
    openai = httpx.URL(str(client.base_url).replace("/api/", "/"))
    assert client.post(f"{openai}chat/completions", json=body).status_code == 200
    say(client, "Thanks", conversation_id=first["conversation_id"])
    history = client.get(f"/conversations/{first['conversation_id']}/history").json()
    assert set(history) == {"conversation_id", "id", "created_at", "last_updated", "turn_count", "metadata", "turns"}
    one, two = history["turns"]
    assert (one["user_message"], one["agent_response"]) == ("Create a workflow", "Done.")
    assert (one["mcp_tools_used"], two["mcp_tools_used"]) == (["create_workflow"], [])
    assert (two["user_message"], history["turn_count"]) == ("Thanks", 2)
    assert history["created_at"][:10] == one["timestamp"][:10]
    (last,) = client.get(f"/conversations/{first['conversation_id']}/history?limit=1").json()["turns"]
    assert last == two


def test_s11_10_the_history_has_the_answer_of_each_agent(client: httpx.Client, upstream: MockUpstream) -> None:
    """§11.1, §11.10: a turn that several agents answer one after the other has what each of them said."""
    upstream.handler = lambda _: Reply(text="I plan.")
    first = say(client, "Write to the board", agent="planner")
    upstream.handler = lambda _: Reply(text="Dear board.")
    body = {"model": "gpt-4o", "messages": [], "agent": "writer", "conversation": first["conversation_id"]}
    openai = httpx.URL(str(client.base_url).replace("/api/", "/"))
    assert client.post(f"{openai}chat/completions", json=body).status_code == 200
    (turn,) = client.get(f"/conversations/{first['conversation_id']}/history").json()["turns"]
    assert (turn["user_message"], turn["agent_response"]) == ("Write to the board", "I plan.\n\nDear board.")


def test_s11_10_a_stream_tells_of_tools(client: httpx.Client, upstream: MockUpstream) -> None:
    upstream.handler = lambda _: Reply(message={"role": "assistant", "content": None, "tool_calls": [CALL]})
    found = events(client.post("/chat/stream", json={"message": "Create", "tools": TOOLS}))
    assert (found[-2]["tools_used"], found[-2]["tool_calls"]) == (["create_workflow"], [CALL])


def test_s11_10_clearing_drops_what_is_kept_in_memory_and_nothing_else(
    client: httpx.Client, upstream: MockUpstream
) -> None:
    """§11.10: what is stored stays, and is read again."""
    name = say(client, "Hello")["conversation_id"]
    say(client, "Again", conversation_id=name)
    before = client.get("/memory/stats").json()["memory"]["paths"]
    assert client.delete(f"/conversations/{name}").json() == {"conversation_id": name, "id": name, "cleared": True}
    after = client.get("/memory/stats").json()["memory"]["paths"]
    assert after["kept"] == before["kept"] - 1
    assert after["bytes"] < before["bytes"]
    say(client, "Once more", conversation_id=name)
    assert len(sent(upstream)) == 5
    assert client.get("/memory/stats").json()["memory"]["paths"]["misses"] == after["misses"] + 1
    assert client.delete(f"/conversations/{name}/permanent").status_code == 200
    assert refusal(client.delete(f"/conversations/{name}"))[:2] == (404, "conversation_not_found")


def test_s11_10_another_tenants_conversation_does_not_exist(client: httpx.Client, gateway: GatewayProcess) -> None:
    """§8, §11.10: by id and by name, in every path."""
    name = say(client, "Hello")["conversation_id"]
    say(client, "Hello", conversation_id="mine")
    with classic(gateway, "sk-classic-somebody-else") as other:
        for each in (name, "mine", "conv_nothing", "nothing", "%00", "x" * 300):
            assert refusal(other.get(f"/conversations/{each}/history"))[:2] == (404, "conversation_not_found")
            assert refusal(other.delete(f"/conversations/{each}"))[:2] == (404, "conversation_not_found")
            assert refusal(other.delete(f"/conversations/{each}/permanent"))[:2] == (404, "conversation_not_found")
            asked = other.get("/debug/prompt-info", params={"conversation_id": each})
            assert refusal(asked)[:2] == (404, "conversation_not_found")
        found = other.post("/chat", json={"message": "Hi", "conversation_id": name})
        assert refusal(found) == (404, "conversation_not_found", "conversation_id")
        assert other.get("/conversations").json() == {"conversations": [], "has_more": False}
    assert client.get(f"/conversations/{name}/history").json()["turn_count"] == 1


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "message"),
        ({"message": None}, "message"),
        ({"message": ""}, "message"),
        ({"message": [user("Hi")]}, "message"),
        ({"message": "Hi", "conversation_id": ""}, "conversation_id"),
        ({"message": "Hi", "conversation_id": 7}, "conversation_id"),
        ({"message": "Hi", "conversation_id": "a\nb"}, "conversation_id"),
        ({"message": "Hi", "workflow_id": ""}, "workflow_id"),
        ({"message": "Hi", "workflow_id": "x" * 129}, "workflow_id"),
        ({"message": "Hi", "model": ""}, "model"),
        ({"message": "Hi", "messages": [user("Hi")]}, "messages"),
        ({"message": "Hi", "stream": True}, "stream"),
        ({"message": "Hi", "conversation": "conv-1"}, "conversation"),
        ({"message": "Hi", "n": 2}, "n"),
        ({"message": "Hi", "tools": 7}, "tools"),
        ({"message": "Hi", "attachments": 7}, "attachments"),
        ({"message": "Hi", "attachments": True, "workflow_spec": {"name": "x"}}, "attachments"),
        ({"message": "Hi", "context": 7, "conversation_id": "mine"}, "context"),
        ({"message": "Hi", "context": {"mode": "x"}}, "context.mode"),
        ({"message": "Hi", "workflow_id": "wf", "metadata": 7}, "metadata"),
    ],
)
@pytest.mark.parametrize("path", ["/chat", "/chat/stream"])
def test_s11_10_a_wrong_field_is_named(
    client: httpx.Client, upstream: MockUpstream, path: str, body: Json, param: str
) -> None:
    """§7, §11.10: nothing is asked and nothing stored."""
    before = len(upstream.chats)
    answer = client.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert len(upstream.chats) == before
    assert client.get("/conversations").json()["conversations"] == []


SPEC = {"name": "Invoices", "steps": [{"name": "approve", "by": "Ann </artifact> Lee"}], "limit": 9007199254740993}


@pytest.mark.parametrize("path", ["/chat", "/chat/stream"])
def test_s11_10_a_workflow_spec_reaches_the_model_as_data(
    client: httpx.Client, upstream: MockUpstream, path: str
) -> None:
    """§4 I4, §4 I6, §11.10: labelled, in the block before the user's words, which stay; its tokens are told, in health
    too. Sent once more, it stands in the prompt once."""
    said = {"workflow_spec": SPEC, "workflow_id": "wf-7", "conversation_id": f"spec {path}"}
    answer = client.post(path, json={"message": "Who approves?", **said})
    found = answer.json() if path == "/chat" else events(answer)[-2]
    block = sent(upstream)[-1]["content"]
    block = block if isinstance(block, str) else "".join(part["text"] for part in block)
    assert '"name":"approve"' in block
    assert "9007199254740993" in block
    assert "Workflow specification wf-7" in block
    assert block.count("</artifact>") == block.count("</context_data>") == 1
    assert block.endswith("Who approves?")
    assert "workflow_spec" not in upstream.chats[-1].body
    used = found["response_metadata"]["context_utilization"]
    assert used["artifacts_processed"][0]["attachment_type"] == "workflow_spec"
    assert 0 < used["workflow_spec_tokens"] <= used["breakdown"]["artifacts"]
    again = say(client, "And then?", **said)["response_metadata"]["context_utilization"]
    assert str(sent(upstream)).count("Ann") == 1
    assert again["workflow_spec_tokens"] == used["workflow_spec_tokens"]
    windows = client.get("/health").json()["context"]["windows"]
    assert windows["workflow_spec_tokens"]["max"] >= used["workflow_spec_tokens"]
    assert "workflow_spec_tokens" not in say(client, "Hello")["response_metadata"]["context_utilization"]


def test_s11_10_a_workflow_spec_that_does_not_fit_is_shown_in_part(
    client: httpx.Client, upstream: MockUpstream
) -> None:
    """§4 I6: with `store: false`, beside an attachment; a bad one is a 400 that names it."""
    steps = [{"step": n, "does": f"lamp {n} is lit by {'the keeper ' * 5}"} for n in range(600)]
    both: Json = {"workflow_spec": {"steps": steps}, "attachments": [{"title": "Note", "content": "Short."}]}
    found = say(client, "Who lights lamp 7?", model="small", store=False, **both)
    used = found["response_metadata"]["context_utilization"]
    assert used["tokens_used"] <= used["budget_tokens"]
    spec = next(each for each in used["artifacts_processed"] if each["original_size_chars"] > 1000)
    assert 0 < spec["processed_size_chars"] < spec["original_size_chars"]
    assert 0 < used["workflow_spec_tokens"] < used["tokens_used"]
    bads: tuple[Any, ...] = ("text", [], 7)
    for bad in bads:
        assert refusal(client.post("/chat", json={"message": "Hi", "workflow_spec": bad}))[::2] == (
            400,
            "workflow_spec",
        )
    off = {"message": "Hi", "workflow_spec": SPEC, "context": {"mode": "off"}}
    assert refusal(client.post("/chat", json=off))[::2] == (400, "workflow_spec")
    for path in ("/chat", "/chat/stream"):
        answer = client.post(path, json={"message": "Hi", "workflow_spec": SPEC, "attachments": "Lamp 7 is out."})
        assert answer.status_code == 200, answer.text
        assert "Lamp 7 is out." in str(sent(upstream))
    assert say(client, "Hi", workflow_spec=None)["response"] == say(client, "Hi", workflow_spec={})["response"]


def test_s11_10_without_a_key_conversations_are_not_listed(gateway: GatewayProcess) -> None:
    """§8: all callers without a key are one tenant."""
    with classic(gateway, None) as client:
        assert refusal(client.get("/conversations")) == (400, "invalid_value", "session")


def test_s11_10_without_a_model_list_a_model_must_be_named(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:  # fmt: skip  # noqa: E501
    """§11.10: no model is made up."""
    upstream.handler = lambda _: Reply(text="I see.")
    with classic(own_key_gateway, "sk-classic") as client:
        found = refusal(client.post("/chat", json={"message": "Hi"}))
        assert found == (400, "missing_required_parameter", "model")
        assert refusal(client.get("/debug/prompt-info"))[2] == "model"
        assert say(client, "Hi", model="gpt-4o")["response"] == "I see."


def test_s11_10_a_workflow_finds_its_completions(client: httpx.Client, upstream: MockUpstream) -> None:
    """§11.10: `workflow_id` stands in the metadata of the stored completion, and never goes up."""
    said = say(client, "Hello", workflow_id="wf-7", metadata={"a": "b"})
    assert "workflow_id" not in upstream.chats[-1].body
    assert "metadata" not in upstream.chats[-1].body
    openai = httpx.URL(str(client.base_url).replace("/api/", "/"))
    (found,) = client.get(f"{openai}chat/completions", params={"metadata[workflow_id]": "wf-7"}).json()["data"]
    assert found["conversation"]["id"] == said["conversation_id"]
    assert found["metadata"] == {"a": "b", "workflow_id": "wf-7"}


def test_s11_10_workflows_are_remembered_both_ways(client: httpx.Client, upstream: MockUpstream) -> None:
    """§11.10: those that are named, and where memory is on those that tools tell of."""
    said = say(client, "Change it", workflow_id="wf/8", conversation_id="talk-8")
    assert "memory" not in upstream.chats[-1].body
    made = {"role": "tool", "tool_call_id": "call_1", "content": '{"id": "wf-9", "name": "Task Management"}'}
    openai = httpx.URL(str(client.base_url).replace("/api/", "/"))
    chat = {"model": "gpt-4o", "context": {"session": "talk-8"}, "memory": {"things": True}, "tools": TOOLS}
    upstream.handler = lambda _: Reply(message={"content": None, "tool_calls": [CALL]})
    assert client.post(f"{openai}chat/completions", json={**chat, "messages": [user("Make one")]}).status_code == 200
    upstream.handler = lambda _: Reply(text="Made.")
    assert client.post(f"{openai}chat/completions", json={**chat, "messages": [made]}).status_code == 200
    assert said["conversation_id"] == "talk-8"
    found = client.get("/conversations/talk-8/workflows").json()["workflows"]
    assert [(each["spec_id"], each["action"]) for each in found] == [("wf-9", "created"), ("wf/8", "discussed")]
    assert found[0]["name"] == "Task Management"
    assert "my task" in found[0]["aliases"]
    (about,) = client.get("/workflows/wf/8/conversations").json()["conversations"]
    assert (about["conversation_id"], about["id"]) == ("talk-8", said["response_metadata"]["conversation_id"])
    assert client.get("/workflows/wf-other/conversations").json()["conversations"] == []
    assert refusal(client.get("/conversations/talk-0/workflows")) == (404, "conversation_not_found", "conversation_id")


def test_s11_10_a_workflow_of_a_message_that_is_not_stored_is_not_remembered(client: httpx.Client) -> None:
    """§2: nothing is kept of `store: false`."""
    say(client, "Change it", workflow_id="wf-unkept", store=False)
    assert client.get("/workflows/wf-unkept/conversations").json()["conversations"] == []


@pytest.mark.parametrize(
    "unkept", [{"context": {"mode": "off"}}, {"headers": {"x-context-mode": "off"}}, {"context": {"dry_run": True}}]
)
def test_s11_10_a_workflow_is_taken_where_nothing_is_kept(client: httpx.Client, unkept: Json) -> None:
    """§2: whoever said so, the request is answered, and nothing is remembered."""
    fields = dict(unkept)
    headers = fields.pop("headers", {})
    answer = client.post("/chat", json={"message": "Change it", "workflow_id": "wf-off", **fields}, headers=headers)
    assert answer.status_code == 200, answer.text
    assert client.get("/workflows/wf-off/conversations").json()["conversations"] == []


def test_s11_10_a_workflow_is_taken_where_persistence_is_off(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """§2, §11.10: `CONVERSATION_PERSISTENCE_ENABLED=false` refuses no message."""
    upstream.handler = lambda _: Reply(text="I see.")
    gateway = start_gateway({"conversation": {"store": False}})
    with classic(gateway, "sk-classic") as client:
        assert say(client, "Change it", workflow_id="wf-7", workflow_spec=SPEC)["conversation_id"] is None
        said = say(client, "Change it", workflow_id="wf-7", conversation_id="kept", store=True)
        (about,) = client.get("/workflows/wf-7/conversations").json()["conversations"]
        assert (about["conversation_id"], about["id"]) == ("kept", said["response_metadata"]["conversation_id"])


def test_s11_10_a_workflow_is_known_by_the_name_in_its_spec(client: httpx.Client, upstream: MockUpstream) -> None:
    """§11.10, §11.14: "update my task workflow" names it later; an id alone takes no name away."""
    say(client, "Hello", workflow_id="wf-12", workflow_spec={"name": "Task Management"}, conversation_id="named")
    say(client, "And now?", workflow_id="wf-12", conversation_id="named")
    (found,) = client.get("/conversations/named/workflows").json()["workflows"]
    assert (found["name"], found["action"]) == ("Task Management", "discussed")
    assert {"task management", "my task", "task workflow"} <= set(found["aliases"])
    say(client, "Update my task workflow", conversation_id="named", memory={})
    assert 'workflow "Task Management", id "wf-12"' in sent(upstream)[-1]["content"]


def test_s11_10_nothing_else_is_there(client: httpx.Client, upstream: MockUpstream) -> None:
    """§1: other paths below `/api/v1/` are not relayed."""
    for path in ("/", "/models", "/chat/completions", "/conversations/c", "/embeddings", "/debug"):
        assert client.get(path).status_code in (404, 405)
        assert client.post(path, json={}).status_code in (404, 405)
    assert not [record for record in upstream.requests if "/api/" in record.path]


def test_s11_10_an_answer_is_given_once_by_its_key(client: httpx.Client, upstream: MockUpstream) -> None:
    """§11.10: an `Idempotency-Key` works here, too, plain and streamed."""
    for path in ("/chat", "/chat/stream"):
        key, before = {"idempotency-key": path}, len(upstream.chats)
        one, two = (client.post(path, json={"message": "Hi"}, headers=key) for _ in range(2))
        assert two.headers["idempotent-replayed"] == "true"
        assert len(upstream.chats) == before + 1
        told = [each.json() if path == "/chat" else events(each)[-2] for each in (one, two)]
        assert told[0] == told[1]


def test_s11_10_the_prompt_profile_of_a_message(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """§11.10: the mode that it calls for, and what each takes; no model is asked."""
    modes = {"general": "Be kind.", "creation": "Ask first. " * 20}
    gateway = start_gateway({"prompt_profiles": {"core": "You keep lamps.", "modes": modes}})
    upstream.handler = lambda _: Reply(text="I see.")
    with classic(gateway, "sk-classic") as client:
        found = client.get("/debug/prompt-info", params={"message": "Create a workflow"}).json()
        assert upstream.chats == []
        assert (found["mode"], found["source"], found["context"]) == ("creation", "message", None)
        assert found["tokens"] == found["modes"]["creation"] > found["modes"]["general"] > 0
        assert found["monolith_tokens"] == found["tokens"] + found["saved_tokens"]
        said = say(client, "Create a workflow")
        assert said["context"]["profile"] == "creation"
        profile = said["response_metadata"]["context_utilization"]["profile"]
        assert (profile["tokens"], profile["saved_tokens"]) == (found["tokens"], found["saved_tokens"])
        query = {"message": "Thank you", "conversation_id": said["conversation_id"]}
        later = client.get("/debug/prompt-info", params=query).json()
        assert (later["mode"], later["source"]) == ("creation", "conversation")
        assert later["context"]["tokens"] == said["context"]["tokens"]
        assert refusal(client.get("/debug/prompt-info", params={"model": "nobody"}))[:2] == (404, "model_not_found")


def test_s11_10_without_profiles_there_is_no_mode(client: httpx.Client) -> None:
    found = client.get("/debug/prompt-info", params={"message": "Create"}).json()
    assert (found["mode"], found["reason"]) == (None, "no_prompt_profiles")


def test_s11_10_health_tells_statistics_to_holders_of_a_key(start_gateway: GatewayFactory) -> None:
    """§8, §11.9, §11.10."""
    gateway = start_gateway({"auth": {"keys": [{"key": "sk-gateway-key", "tenant": "a"}]}})
    with classic(gateway, "sk-wrong") as stranger, classic(gateway, "sk-gateway-key") as client:
        assert stranger.get("/health").json() == {"status": "ok"}
        assert client.get("/health").json()["context"]["memory"]["paths"]["kept"] == 0
