"""Tool results that are shaped as they arrive, by each API, streamed and not (guarantee §4 I8)."""

import json
from itertools import pairwise
from typing import Any

import httpx
import pytest

from gateway.core.ids import artifact_id
from tests.support.answers import Json
from tests.support.edges import EDGES, PATHS, Edge
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

pytestmark = pytest.mark.in_turn("stream")

TEXT = "\n".join(
    f"crane {number} carries {number * 13} crates to the quay of lamp {number * 7}" for number in range(60)
)
MARK = f"[Unchanged: lines 1-60 are as in {artifact_id(TEXT)}:run "
TOOLS: dict[str, list[Json]] = {
    "chat": [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}],
    "responses": [
        {"type": "function", "name": "run", "parameters": {"type": "object"}},
        {"type": "custom", "name": "say"},
    ],
    "messages": [{"name": "run", "input_schema": {"type": "object"}}],
}


def said_to(edge: Edge, contents: list[Any]) -> Json:
    """A request in which a tool was called once for each of these contents."""
    if edge == "chat":
        messages: list[Json] = [{"role": "user", "content": "Look after the cranes."}]
        for number, content in enumerate(contents):
            call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": content})
        return {"messages": messages}
    if edge == "responses":
        items: list[Json] = [{"role": "user", "content": "Look after the cranes."}]
        for number, content in enumerate(contents):
            if number % 2:
                items.append({"type": "custom_tool_call", "call_id": f"c{number}", "name": "say", "input": "cranes"})
                items.append({"type": "custom_tool_call_output", "call_id": f"c{number}", "output": content})
            else:
                items.append({"type": "function_call", "call_id": f"c{number}", "name": "run", "arguments": "{}"})
                items.append({"type": "function_call_output", "call_id": f"c{number}", "output": content})
        return {"input": items}
    messages = [{"role": "user", "content": "Look after the cranes."}]
    for number, content in enumerate(contents):
        use = {"type": "tool_use", "id": f"c{number}", "name": "run", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": content, "is_error": number == 1}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return {"messages": messages, "max_tokens": 500}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])
@pytest.mark.parametrize("edge", EDGES)
def test_s4_i8_results_are_shaped_by_each_api(
    gateway: GatewayProcess, upstream: MockUpstream, edge: Edge, store: bool, stream: bool
) -> None:
    """Strings, lists of texts, outputs of custom tools and failures alike; what was shaped stays so."""
    kind = "input_text" if edge == "responses" else "text"
    contents: list[Any] = [TEXT, TEXT, [{"type": kind, "text": TEXT}], "all is well"]
    forwarded: list[list[Json]] = []
    for count in range(1, len(contents) + 1):
        is_custom = edge == "responses" and count % 2
        function = (
            {"name": "say", "arguments": '{"input":"cranes"}'} if is_custom else {"name": "run", "arguments": "{}"}
        )
        call = {"id": f"c{count}", "type": "function", "function": function}
        upstream.reply(message={"role": "assistant", "content": None, "tool_calls": [call]})
        asked = {
            "model": "gpt-4o",
            "tools": TOOLS[edge],
            "store": store,
            "stream": stream,
            "context": {"economy": "auto"},
        }
        headers = {"authorization": f"Bearer sk-{edge}-{store}-{stream}"}
        at = f"{gateway.base_url}/{PATHS[edge]}"
        body = {**asked, **said_to(edge, contents[:count])}
        told = httpx.post(at, json=body, headers=headers, timeout=30, trust_env=False)
        assert told.status_code == 200, told.text
        forwarded.append(upstream.last.body["messages"])
    results = [each for each in forwarded[-1] if each["role"] == "tool"]
    assert results[0]["content"] == TEXT
    assert all(
        json.dumps(each["content"]).count(MARK) == 1 and len(str(each["content"])) < 200 for each in results[1:3]
    )
    assert results[3]["content"] == "all is well"
    for before, after in pairwise(forwarded):
        assert after[: len(before)] == before


def test_s4_i8_what_was_shaped_is_whole_to_who_wants_nothing_left_out(
    gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """A client that says `truncation: disabled` from some request on."""
    for count, more in ((1, {}), (2, {}), (3, {"truncation": "disabled"})):
        function = (
            {"name": "say", "arguments": '{"input":"cranes"}'} if count % 2 else {"name": "run", "arguments": "{}"}
        )
        call = {"id": f"c{count}", "type": "function", "function": function}
        upstream.reply(message={"role": "assistant", "content": None, "tool_calls": [call]})
        body = {"model": "gpt-4o", "tools": TOOLS["responses"], "context": {"economy": "auto"}, **more}
        body |= said_to("responses", [TEXT] * count)
        told = gateway.post("/responses", json=body, key=None)
        assert told.status_code == 200, told.text
    results = [each["content"] for each in upstream.last.body["messages"] if each["role"] == "tool"]
    assert [MARK in json.dumps(each) for each in results] == [False, True, False]


@pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])
@pytest.mark.parametrize("since", [1, 2, 3])
def test_s4_i8_what_the_client_has_cleared_to_the_letter_is_referred_to_by_nothing(
    gateway: GatewayProcess, upstream: MockUpstream, store: bool, since: int
) -> None:
    """That is done once the window is made, from whatever request on a client asks for it."""
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "tool_uses", "value": 2},
        "keep": {"type": "tool_uses", "value": 2},
    }
    run_of_lines = "\n".join(["waiting for the tide to turn"] * 60)
    contents = [TEXT, TEXT, run_of_lines]
    for count in range(1, 4):
        call = {"id": f"c{count}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        upstream.reply(message={"role": "assistant", "content": None, "tool_calls": [call]})
        body = {"model": "gpt-4o", "tools": TOOLS["messages"], "store": store, "context": {"economy": "auto"}}
        body |= said_to("messages", contents[:count])
        body |= {"context_management": {"edits": [edit]}} if count >= since else {}
        headers = {"authorization": f"Bearer sk-exact-{store}-{since}"}
        told = gateway.post("/messages", json=body, headers=headers, key=None)
        assert told.status_code == 200, told.text
    results = [each["content"] for each in upstream.last.body["messages"] if each["role"] == "tool"]
    assert results[0].startswith("[Cleared")
    assert TEXT in json.dumps(results[1]).replace("\\n", "\n")
    assert "Unchanged: the line above" in results[2]


def test_s4_i8_the_configuration_names_untouched_tools(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    gateway = start_gateway({"context": {"economy": "auto", "untouched_tools": ["r*"]}})
    upstream.reply(text="So it is.")
    body = {"model": "gpt-4o", "tools": TOOLS["chat"], **said_to("chat", [TEXT, TEXT])}
    told = gateway.post("/chat/completions", json=body, key=None)
    assert told.status_code == 200, told.text
    assert upstream.last.body["messages"] == body["messages"]
