"""`context.mode: off`: a plain proxy with a bill, whatever becomes of the answer (guarantee §1, §6, §7)."""

from typing import Any

import httpx
import pytest

from tests.support.answers import user, wait_for_bill
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import PATIENCE

OFF: Any = {"context": {"mode": "off"}}
MARK = "zebra-crossing-4711"


def on_disk(gateway: GatewayProcess) -> bytes:
    """Everything that the gateway's directory holds: database, journal, log, configuration."""
    return b"".join(path.read_bytes() for path in gateway.directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("ends", ["well", "cut", "refused"])
def test_s1_nothing_is_stored_but_the_bill(
    one_gateway: GatewayProcess, upstream: MockUpstream, ends: str, streamed: bool
) -> None:
    """Neither what the user wrote nor what the model did, in no file; the ledger has its row."""
    how: dict[str, Any] = {"well": {}, "cut": {"cut_after": 3}, "refused": {"status": 400}}
    upstream.reply(text=f"{MARK} down and some more words", **how[ends])
    tools = [{"type": "function", "function": {"name": "f", "description": MARK}}]
    body = {"model": "gpt-4o", "messages": [user(f"{MARK} up")], "tools": tools, "stream": streamed, **OFF}
    answer = one_gateway.post("/chat/completions", json=body)
    assert MARK in upstream.last.raw.decode()
    bill = wait_for_bill(one_gateway, answer.headers["x-request-id"])
    assert bill["choices"] == []
    assert bill["status"] == ("complete" if ends == "well" else "partial" if ends == "cut" and streamed else "failed")
    assert MARK.encode() not in on_disk(one_gateway)


def test_s6_a_stream_that_the_client_leaves(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """The upstream is cancelled within two seconds, and what came until then is billed as an estimate."""
    upstream.reply(text="one two three four five", stall_after=4)
    body = {"model": "small", "messages": [user("hi there")], "stream": True, **OFF}
    with one_gateway.http() as client, client.stream("POST", "/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        while "two" not in next(lines):
            pass
    assert upstream.last.disconnected.wait(PATIENCE)
    bill = wait_for_bill(one_gateway, answer.headers["x-request-id"])
    assert bill["status"] == "partial"
    assert bill["response_metadata"]["cost"]["estimated"] is True
    assert bill["response_metadata"]["cost"]["total_cost"] > 0


LOOK = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


@pytest.mark.parametrize("how", ["id", "header", "metadata", "session", "session header"])
def test_s1_a_conversation_that_is_named_goes_on(one_gateway: GatewayProcess, upstream: MockUpstream, how: str) -> None:
    """§1, §3.1: what is stored of it is put in front, tool steps and all, and the turn is stored: a later one has it.
    Whoever names nothing is not recognised."""
    steps = [{"role": "assistant", "content": None, "tool_calls": [LOOK]}]
    steps.append({"role": "tool", "tool_call_id": "t1", "content": "found"})
    begun = [user(f"first {how}"), *steps, {"role": "assistant", "content": "done"}]
    session = {"x-context-session": how} if "session" in how else {}
    ask = {"model": "gpt-4o", "tools": TOOLS}
    with one_gateway.http() as client:

        def say(*messages: Any, **more: Any) -> httpx.Response:
            body = {**ask, "messages": list(messages), **more.pop("body", {})}
            answer = client.post("/chat/completions", json=body, **more)
            assert answer.status_code == 200, answer.text
            return answer

        upstream.reply(message=steps[0])
        said = say(begun[0], headers=session).json()["conversation"]["id"]
        named: dict[str, Any] = {
            "id": {"body": {"conversation": said}},
            "header": {"headers": {"x-conversation-id": said}},
            "metadata": {"body": {"metadata": {"conversation_id": said}}},
            "session": {"body": {"context": {"mode": "off", "session": how}}},
            "session header": {"headers": session},
        }[how]
        off = {**named, "body": {**OFF, **named.get("body", {})}}
        upstream.reply(message=begun[-1])
        answer = say(steps[1], **off)
        assert answer.json()["conversation"]["id"] == answer.headers["x-conversation-id"] == said
        assert upstream.last.body["messages"] == begun[:-1]
        upstream.reply(text="second")
        used = say(user("second"), **off).json()["response_metadata"]["context_utilization"]
        assert (used["planning_reason"], used["budget_tokens"], used["warnings"]) == (None, None, [])
        assert upstream.last.body["messages"] == [*begun, user("second")]
        say(user("third"), body={"conversation": said})
        whole = [*begun, user("second"), {"role": "assistant", "content": "second"}, user("third")]
        assert upstream.last.body["messages"] == whole
        resent = [begun[0], begun[-1], user("again")]
        answer = say(*resent, body=OFF)
        assert "conversation" not in answer.json()
        assert upstream.last.body["messages"] == resent


def test_s1_a_session_that_begins_in_mode_off(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§2.2: a name is a name: created at first use, and continued; with `store: false` nothing is left of a turn."""
    headers = {"x-context-session": "begun in mode off", "x-context-mode": "off"}

    def say(text: str, **more: Any) -> Any:
        upstream.reply(text=f"re {text}")
        body = {"model": "gpt-4o", "messages": [user(text)], **more}
        return one_gateway.post("/chat/completions", json=body, headers=headers).json()

    begun = say("one")["conversation"]
    said = [user("one"), {"role": "assistant", "content": "re one"}]
    assert "conversation" not in say("two", store=False)
    assert upstream.last.body["messages"] == [*said, user("two")]
    assert say("three")["conversation"] == begun
    assert upstream.last.body["messages"] == [*said, user("three")]


def test_s1_it_is_put_in_front_whole(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """§1: nothing is managed: however small the window that is configured, the upstream gets all and judges itself."""
    entry = {"model_name": "tiny", "litellm_params": {"model": "openai/tiny", "api_base": upstream.base_url}}
    facts = {"max_input_tokens": 400, "max_output_tokens": 50}
    gateway = start_gateway({"model_list": [{**entry, "model_info": facts}]})
    long = "a long story of many words " * 60
    ask: Any = {"model": "tiny", "context": {"mode": "off", "session": "long"}}
    for number in range(4):
        body = {**ask, "messages": [user(f"{number} {long}")]}
        answer = gateway.post("/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
    assert [m["content"] for m in upstream.last.body["messages"][::2]] == [f"{n} {long}" for n in range(4)]


def test_s2_what_needs_a_conversation(one_gateway: GatewayProcess) -> None:
    """One that does not exist is a 404; attachments have nowhere to stand."""
    ask = {"model": "gpt-4o", "messages": [user("hi")]}
    answer = one_gateway.post("/chat/completions", json={**ask, **OFF, "conversation": "conv_none"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "conversation_not_found")
    answer = one_gateway.post("/chat/completions", json={**ask, **OFF, "attachments": [{"content": "x"}]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "attachments")
