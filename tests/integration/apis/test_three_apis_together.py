"""§10, §13: what the three APIs share at their edges: paths, sums, and what is kept of whom."""

import time
from typing import Any

import httpx
import pytest

from gateway.core.types.content_parts import parts_of
from tests.support.answers import (
    Json,
    assistant,
    function_tool,
    image_part,
    ok,
    text_part,
    tool_call,
    tool_result,
    user,
)
from tests.support.edges import EDGES, common, said_by
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

SAID: Json = user("hello")


@pytest.fixture
def nobody(start_gateway: GatewayFactory, upstream: MockUpstream) -> GatewayProcess:
    """A gateway that keeps nobody's name."""
    del upstream
    return start_gateway({"accounting": {"users": "off"}})


def post(gateway: GatewayProcess, path: str, **body: Any) -> httpx.Response:
    return gateway.post(f"/{path}", json={"model": "gpt-4o", **body}, key=None)


def three(gateway: GatewayProcess) -> None:
    """The same asked by each API."""
    assert post(gateway, "chat/completions", messages=[SAID]).status_code == 200
    assert post(gateway, "responses", input="hello").status_code == 200
    assert post(gateway, "messages", messages=[SAID], max_tokens=9).status_code == 200


def test_s13_4_usage_counts_what_each_api_asked(gateway: GatewayProcess) -> None:
    three(gateway)
    query: Json = {"start_time": 1_700_000_000, "bucket_width": "1d", "limit": 31}
    page: Json = {"next_page": ""}
    counted = 0
    while page["next_page"] is not None:
        asked = query | ({"page": page["next_page"]} if page["next_page"] else {})
        page = gateway.get("/organization/usage/completions", params=asked, key=None).json()
        counted += sum(each["num_model_requests"] for bucket in page["data"] for each in bucket["results"])
    assert counted == 3


def test_s1_an_answer_without_its_frame_gets_one(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """SDKs raise where a model or a time is missing."""
    began = int(time.time())
    for path, asked in (("chat/completions", {"messages": [SAID]}), ("responses", {"input": "hello"})):
        upstream.reply(json={"choices": [{"message": {"content": "hi"}}]})
        made = post(gateway, path, **asked).json()
        assert (made["model"], made.get("created", made.get("created_at")) >= began) == ("gpt-4o", True)
        assert made["object"] in ("chat.completion", "response")


def test_s2_metadata_name_a_conversation_by_each_api(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    first = post(gateway, "chat/completions", messages=[SAID]).json()["conversation"]
    named = {"metadata": {"conversation_id": first["id"]}}
    for path, asked in (("responses", {"input": "more"}), ("messages", {"messages": [SAID], "max_tokens": 9})):
        assert post(gateway, path, **asked, **named).json()["conversation"] == first
        assert "metadata" not in upstream.last.body


@pytest.mark.parametrize("path", ["chat/completions/", "responses/", "messages/"])
def test_s10_a_slash_behind_a_path_sends_nobody_elsewhere(gateway: GatewayProcess, path: str) -> None:
    body = {"input": "hello"} if path == "responses/" else {"messages": [SAID], "max_tokens": 9}
    found = gateway.post(f"/{path}", json={"model": "gpt-4o", **body}, headers={"host": "elsewhere.local"}, key=None)
    assert (found.status_code, "location" in found.headers) == (200, False)


def test_s13_6_a_response_keeps_no_name_where_none_is_kept(nobody: GatewayProcess) -> None:
    made = post(nobody, "responses", input="hello", user="ann@example.org").json()
    found = nobody.get(f"/responses/{made['id']}", key=None).json()
    assert found["output"] == made["output"]
    assert "ann@example.org" not in str(found)


def test_s10_5_a_response_that_is_unknown_is_told_under_its_own_name(gateway: GatewayProcess) -> None:
    name = "resp_0123456789abcdef"
    found = gateway.get(f"/responses/{name}", key=None)
    assert (found.status_code, f"'{name}'" in found.json()["error"]["message"]) == (404, True)
    made = post(gateway, "responses", input="hello").json()
    stopped = gateway.post(f"/responses/{made['id']}/cancel", json={}, key=None)
    assert (stopped.status_code, "synchronous" in stopped.json()["error"]["message"]) == (400, True)


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
URL = f"data:image/png;base64,{PNG}"
PICTURE: Json = image_part(URL)
TOOLS: list[Json] = [function_tool("look", parameters={"type": "object"})]
RESULT = tool_result("call_1", [text_part("a boat"), PICTURE])
STEP = [assistant(None, tool_calls=[tool_call("call_1", "look")]), RESULT]
BEGUN: dict[str, Json] = {
    edge: said_by(edge, common({"messages": [SAID, *STEP], "tools": TOOLS})) for edge in EDGES if edge != "chat"
}


@pytest.mark.parametrize("edge", BEGUN)
def test_s10_a_picture_of_a_tool_reaches_a_chat_that_goes_on(
    one_gateway: GatewayProcess, upstream: MockUpstream, edge: str
) -> None:
    """§10, §4 I7: a chat's upstream takes texts alone as results: the picture stands behind them, as it did before."""
    began = ok(post(one_gateway, edge, **BEGUN[edge]))
    before = upstream.last.body["messages"]
    shown = [part for part in before[-1]["content"] if part["type"] == "image_url"]
    assert [part["image_url"]["url"] for part in shown] == [URL]
    more = {"conversation": began["conversation"], "tools": TOOLS}
    went_on = post(one_gateway, "chat/completions", messages=[user("sure?")], **more)
    assert went_on.status_code == 200, went_on.text
    assert upstream.last.body["messages"][: len(before)] == before
    assert upstream.violations == []


def test_s1_a_picture_in_a_result_that_a_chat_sends_goes_up_as_it_is(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """§1: what its upstream takes is the client's own affair, also where the conversation began elsewhere."""
    began = post(one_gateway, "messages", messages=[SAID], max_tokens=9).json()
    call = tool_call("call_1", "look")
    sent = [user("look"), assistant(None, tool_calls=[call]), tool_result("call_1", [PICTURE])]
    found = post(one_gateway, "chat/completions", messages=sent, conversation=began["conversation"], tools=TOOLS)
    assert (found.status_code, upstream.violations[0] in found.text) == (400, True)
    assert upstream.last.body["messages"] == sent
    upstream.violations.clear()


CITED_TEXT: Json = text_part(
    "It rains.",
    citations=[
        {"type": "web_search_result_location", "url": "https://a.example/", "title": "A", "cited_text": "rain"}
        | {"encrypted_index": "c2VhbGVk"}
    ],
)
NOTES: Json = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "Rain in Bern."},
    "title": "notes.txt",
    "context": "from the lake",
    "citations": {"enabled": True},
}


@pytest.mark.parametrize("edge", ["chat/completions", "responses"])
def test_s10_what_only_anthropics_blocks_have_stays_here(
    one_gateway: GatewayProcess, upstream: MockUpstream, edge: str
) -> None:
    """§10: citations and contexts are no fields of a chat's parts; the words and the document are."""
    said = [user([NOTES, text_part("Does it rain?")]), assistant([CITED_TEXT]), SAID]
    began = post(one_gateway, "messages", messages=said, max_tokens=9).json()
    asked: Json = {"messages": [SAID]} if edge == "chat/completions" else {"input": [SAID]}
    found = post(one_gateway, edge, conversation=began["conversation"], **asked)
    assert found.status_code == 200, found.text
    sent = upstream.last.body["messages"]
    assert all("citations" not in part and "context" not in part for each in sent for part in parts_of(each["content"]))
    assert "It rains." in str(sent[1])
    assert "Rain in Bern." in str(sent[0])


def test_s10_sealed_thoughts_that_a_client_of_messages_brought_stay_here(
    one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """§1, §10: they are Anthropic's, and no field of a chat's message; an answer of them alone is none."""
    sealed: Json = {"type": "redacted_thinking", "data": "c2VhbGVk"}
    said = [SAID, assistant([sealed, text_part("It rains.")]), SAID, assistant([sealed]), SAID]
    began = post(one_gateway, "messages", messages=said, max_tokens=9).json()
    found = post(one_gateway, "chat/completions", conversation=began["conversation"], messages=[SAID])
    assert found.status_code == 200, found.text
    sent = upstream.last.body["messages"]
    assert sent[1] == assistant("It rains.")
    assert [each["role"] for each in sent] == ["user", "assistant", "user", "user", "assistant", "user"]
