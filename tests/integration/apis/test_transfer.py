"""Conversations leave as documents and come back, over HTTP and on the command line (guarantee §3)."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.exports import bare, user_message, without_ids
from tests.support.answers import Json, assistant, ok, user
from tests.support.command import gateway_command
from tests.support.documents import file_part
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

CALL = {"id": "call_7", "type": "function", "function": {"name": "look_up", "arguments": '{"q": 1}'}}
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}]


def ask(client: httpx.Client, *messages: Json, **more: Any) -> Json:
    """One chat's answer."""
    return ok(client.post("/chat/completions", json={"model": "gpt-4o", "messages": messages, **more}))


def start(client: httpx.Client, upstream: MockUpstream) -> str:
    """A conversation with system message, attachment, tool step, session, two answers and a branch."""
    upstream.reply(tool_calls=[CALL])
    first = ask(client, {"role": "system", "content": "Be brief."}, user("Find it."), tools=TOOLS,
                attachments=[{"content": "the paper says 42", "title": "paper"}], metadata={"team": "a"})  # fmt: skip
    found = str(first["conversation"]["id"])
    result = {"role": "tool", "tool_call_id": "call_7", "content": "42 it is"}
    upstream.reply(text="It is 42.")
    ask(client, result, conversation=found, tools=TOOLS)
    upstream.reply(text="You are welcome.")
    ask(client, user("Thanks."), conversation=found, tools=TOOLS)
    upstream.reply(text="Goodbye.")
    ask(client, user("Find it."), assistant("It is 42."), user("Bye."), conversation=found, tools=TOOLS)
    return found


def export(client: httpx.Client, conversation: str) -> httpx.Response:
    """The document's answer."""
    return client.get(f"/conversations/{conversation}/export")


def copied(client: httpx.Client, document: bytes) -> Json:
    """The answer to an import."""
    answer = client.post("/conversations/import", content=document)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    assert answer.headers["x-conversation-id"] == found["id"]
    return found


def test_a_conversation_comes_back_as_it_was_and_goes_on(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§3.1, §3.3: the copy continues by id with a delta, and with a resend that dropped the tool step."""
    with gateway.http() as client:
        conversation = start(client, upstream)
        first = export(client, conversation)
        assert first.status_code == 200
        assert (first.json()["object"], first.json()["version"]) == ("conversation.export", 1)
        copy = copied(client, first.content)
        assert (copy["object"], copy["warnings"], copy["metadata"]) == ("conversation", [], {})
        assert without_ids(export(client, copy["id"]).json()) == without_ids(first.json())

        def sent_for(conversation: str, *messages: Json) -> list[Json]:
            upstream.reply(text="Indeed.")
            answer = ask(client, *messages, conversation=conversation, tools=TOOLS)
            assert answer["conversation"]["id"] == conversation
            sent: list[Json] = upstream.requests[-1].body["messages"]
            return sent

        delta = sent_for(copy["id"], user("Sure?"))
        assert [message["content"] for message in delta if message["role"] == "tool"] == ["42 it is"]
        assert delta == sent_for(conversation, user("Sure?"))
        other = copied(client, first.content)["id"]
        again = [user("Find it."), assistant("It is 42."), user("Thanks."), assistant("You are welcome."), user("And?")]
        resent = sent_for(other, *again)
        assert [message["role"] for message in resent].count("tool") == 1
        assert resent == sent_for(conversation, *again)
        messages = export(client, other).json()["messages"]
        assert len(messages) == len(first.json()["messages"]) + 2, "what was shared is not stored again"


def test_a_hostile_million_is_refused_soon(gateway: GatewayProcess) -> None:
    """§7: a 400, whatever it is a million of."""
    for member in ("{}", "[]", json.dumps(user_message(0, None))[:60] + '"}'):
        raw = json.dumps(bare([])).replace('"messages": []', f'"messages": [{",".join([member] * 10**5)},{{}}]')
        answer = gateway.post("/conversations/import", content=raw)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.chaos
def test_files_leave_and_come_on_the_command_line(
    gateway: GatewayProcess, upstream: MockUpstream, tmp_path: Path
) -> None:
    """§9: beside a running server."""

    def run(*arguments: str) -> tuple[int, str, str]:
        done = gateway_command(*arguments, "--config", str(gateway.config_path), directory=gateway.directory)
        return done.returncode, done.stdout, done.stderr

    with gateway.http(None) as client:
        conversation = start(client, upstream)
        file = tmp_path / "kept.json"
        assert run("export", conversation, "-o", str(file)) == (0, "", "")
        assert json.loads(file.read_bytes()) == export(client, conversation).json()
        code, text, _ = run("export", conversation, "--tenant", "anonymous")
        assert (code, json.loads(text)) == (0, json.loads(file.read_bytes()))
        assert run("export", conversation, "--tenant", "nobody") == (1, "", "No such conversation.\n")
        code, copy, errors = run("import", str(file), "--tenant", "anonymous")
        assert (code, errors) == (0, "")
        assert without_ids(export(client, copy.strip()).json()) == without_ids(json.loads(file.read_bytes()))
        file.write_text('{"object": "conversation.export"}')
        assert run("import", str(file)) == (
            1,
            "",
            f"{file}: version must be 1, which this version of the gateway reads.\n",
        )
        assert run("import", str(tmp_path / "none.json"))[0] == 1


def test_an_import_is_for_the_only_tenant_or_for_one_that_is_named(
    gateway: GatewayProcess, upstream: MockUpstream, tmp_path: Path
) -> None:
    """§8: without keys a client's own token makes its tenant, who else could not find what was imported."""
    file = tmp_path / "kept.json"

    def run(*arguments: str) -> Any:
        return gateway_command("import", str(file), *arguments, "--config", str(gateway.config_path),
                               directory=gateway.directory)  # fmt: skip

    with gateway.http("sk-its-own") as client, gateway.http(None) as other:
        file.write_bytes(export(client, start(client, upstream)).content)
        copy = run().stdout.strip()
        assert client.get(f"/conversations/{copy}").status_code == 200
        start(other, upstream)
        refused = run()
        assert (refused.returncode, "--tenant is needed" in refused.stderr) == (2, True)
        assert "anonymous" in refused.stderr
        copy = run("--tenant", "anonymous").stdout.strip()
        assert other.get(f"/conversations/{copy}").status_code == 200


@pytest.mark.parametrize("forwarded", [[{"type": "text", "text": "short"}], "a text"])
def test_a_form_that_does_not_fit_its_message_is_no_fault(
    one_gateway: GatewayProcess, upstream: MockUpstream, forwarded: Any
) -> None:
    """§7, §14.6: an import may say that a message went up with fewer parts than it has."""
    part = file_part("a.csv", b"name,lamp\n" + b"Ada,7\n" * 100, "text/csv")
    with one_gateway.http() as client:
        first = ask(client, user([part, {"type": "text", "text": "Read"}, {"type": "text", "text": "this."}]))
        document = export(client, first["conversation"]["id"]).json()
        for message in document["messages"]:
            if message["role"] == "user":
                message["rendered"] = {"role": "user", "content": forwarded}
        copy = copied(client, json.dumps(document).encode())["id"]
        ask(client, user([part, {"type": "text", "text": "And who?"}]), conversation=copy)
    assert "Ada,7" in json.dumps(upstream.last.body["messages"])
