"""Tool steps as clients and operators see them: stored once, told again to a client that left them out (§3, ADR 19).
Token counts are stored with messages (guarantee §4 I1)."""

import json
import sqlite3
from typing import Any

from tests.chaos.audit import broken_rules, rows
from tests.support.answers import Json, assistant, chat, function_tool, tool_call, tool_result, user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres

CALLS = [tool_call("call_a", "search", '{"q": "first"}'), tool_call("call_b", "fetch", '{"q": "second"}')]
TOOLS = [function_tool(name, parameters={"type": "object"}) for name in ("search", "fetch")]
RESULTS = [tool_result(name, f"what {name} found") for name in ("call_b", "call_a")]


def ask(gateway: GatewayProcess, *messages: Json, **more: Any) -> Json:
    return chat(gateway, model="gpt-4o", messages=list(messages), tools=TOOLS, **more)


def loop(gateway: GatewayProcess, upstream: MockUpstream) -> Json:
    """A turn with two calls in one step, sent as deltas. Returns how the conversation is named."""
    upstream.reply(message=assistant(None, tool_calls=CALLS), finish_reason="tool_calls")
    named = {"conversation": ask(gateway, user("look twice"))["conversation"]["id"]}
    upstream.reply(text="found both")
    ask(gateway, *RESULTS, **named)
    return named


def steps(storage_url: str, named: Json) -> list[Json]:
    query = f"SELECT * FROM reasoning_events WHERE conversation_id = '{named['conversation']}' ORDER BY position"
    return rows(storage_url, query)


def execute(storage_url: str, sql: str) -> None:
    """Changes the database past the gateway."""
    if storage_url.startswith("sqlite"):
        with sqlite3.connect(storage_url.removeprefix("sqlite:///"), timeout=10) as connection:
            connection.execute(sql)
        connection.close()
    else:
        Postgres(storage_url).query(storage_url, sql)


def test_s3_each_step_is_one_row_and_comes_back(
    gateway: GatewayProcess, upstream: MockUpstream, module_storage_url: str
) -> None:
    """§3.4: whoever names the conversation later gets the calls with their results."""
    named = loop(gateway, upstream)
    upstream.reply(text="again")
    ask(gateway, user("and now?"), **named)
    told = upstream.last.body["messages"]
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert told[2:4] == RESULTS
    first, second = steps(module_storage_url, named)
    assert (first["tool"], first["tool_call_id"], first["arguments"]) == ("search", "call_a", '{"q": "first"}')
    assert json.loads(second["result"])["content"] == "what call_b found"
    assert first["called_at"] < first["answered_at"]
    answer = rows(module_storage_url, f"SELECT body FROM messages WHERE id = '{first['answer_id']}'")
    assert json.loads(answer[0]["body"])["content"] == "found both"
    assert broken_rules(module_storage_url) == {}


def test_s3_without_its_row_a_step_does_not_come_back(
    gateway: GatewayProcess, upstream: MockUpstream, module_storage_url: str
) -> None:
    """The table is the store of tool steps, not a copy of it; what is forwarded stays whole (§3.3)."""
    named = loop(gateway, upstream)
    execute(module_storage_url, f"DELETE FROM reasoning_events WHERE conversation_id = '{named['conversation']}'")
    upstream.reply(text="again")
    ask(gateway, user("and now?"), **named)
    assert upstream.last.body["messages"] == [user("look twice"), assistant("found both"), user("and now?")]


def test_s3_steps_that_a_client_brings_along_are_rows_too(
    gateway: GatewayProcess, upstream: MockUpstream, module_storage_url: str
) -> None:
    """§3.4: a history told at once; sent again with more behind it, nothing is stored anew."""
    called = assistant(None, tool_calls=CALLS)
    told = [user("look twice, once more"), called, *RESULTS]
    upstream.reply(text="found both")
    named = {"conversation": ask(gateway, *told)["conversation"]["id"]}
    assert len(steps(module_storage_url, named)) == 2
    upstream.reply(text="fine")
    again = ask(gateway, *told, assistant("found both"), user("thanks"))
    assert again["conversation"]["id"] == named["conversation"]
    assert len(steps(module_storage_url, named)) == 2


TEXT = "The river rose at the bridge near the old mill. "


def test_s4_i1_stored_counts_are_what_a_fresh_count_gives(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """§4 I1: by id with a delta, after a restart: the same figures as for the whole sent as a conversation of its own.
    The first turns are too small to be counted, later ones must be."""
    talk: list[Json] = []
    named: dict[str, Any] = {}
    for number in range(6):
        new = user(f"{number}: {TEXT * 20}")
        upstream.reply(text=f"Answer {number}. {TEXT * 20}")
        answer = chat(gateway, model="small", messages=[new], **named)
        named = {"conversation": answer["conversation"]["id"]}
        talk += [new, assistant(answer["choices"][0]["message"]["content"])]
    gateway.restart()
    found = [
        chat(gateway, model="small", messages=messages, **more)["response_metadata"]["context_utilization"]
        for messages, more in (([user("And?")], named), ([*talk, user("And?")], {"user": "somebody else"}))
    ]
    assert found[0]["tokens_used"] == found[1]["tokens_used"] > 1500
    assert found[0]["breakdown"] == found[1]["breakdown"]
    assert upstream.chats[-1].body["messages"] == upstream.chats[-2].body["messages"]
