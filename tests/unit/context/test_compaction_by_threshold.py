"""Compaction by `context_management` on create (guarantee §10.14)."""

from typing import Any

import httpx
import pytest
from openai.types.responses import ResponseCompactionItem

from tests.support.answers import Json, http
from tests.support.factory import ClientFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.strict_responses import check_response, create, events, read_events
from tests.unit.context.test_compaction import FACT, FILLER, sent, talk

LIMIT: Json = {"context_management": [{"type": "compaction", "compact_threshold": 1500}]}
QUESTION: Json = {"role": "user", "content": "What is the access code of the lighthouse?"}


def kinds(output: Any) -> list[str]:
    """The types of an answer's items."""
    return [each["type"] for each in output]


@pytest.mark.parametrize("stream", [False, True])
def test_s10_14_the_item_takes_the_place_of_what_stood_before_it(
    gateway: GatewayProcess, upstream: MockUpstream, stream: bool
) -> None:
    """In the answer and its stream, and read again. The client goes on with what stands from the item on: the
    conversation is the same, and an older turn comes back where it is needed. No second item comes of that."""
    last = talk(gateway, upstream, 6)
    upstream.reply(text="And so on.")
    body: Json = {"model": "small", "input": "And now?", "previous_response_id": last["id"], **LIMIT}
    if stream:
        told = events(gateway, body)
        made = told[-1]["response"]
        assert [each["type"] for each in told][2:5] == [
            "response.output_item.added",
            "response.output_item.done",
            "response.output_item.added",
        ]
        assert (told[2]["output_index"], told[3]["item"], told[4]["output_index"]) == (0, made["output"][0], 1)
    else:
        made = create(gateway, body)
    assert kinds(made["output"]) == ["compaction", "message"]
    assert made["response_metadata"]["context_utilization"]["tokens_used"] <= 1500
    assert FACT not in str(made["output"])
    with http(gateway) as client:
        again = client.get(f"/responses/{made['id']}").json()
        check_response(again)
        assert again["output"] == made["output"]
        replayed = read_events(client.get(f"/responses/{made['id']}?stream=true").text)
        assert replayed[-1]["response"]["output"] == made["output"]
    upstream.reply(text="7731-KESTREL")
    asked: Any = [*made["output"], QUESTION]
    found = create(gateway, {"model": "small", "input": asked, **LIMIT})
    assert found["conversation"] == made["conversation"]
    assert kinds(found["output"]) == ["message"]
    assert FACT in sent(upstream), "it is recalled"
    roles = [each["role"] for each in upstream.last.body["messages"]]
    assert roles[-3:] == ["user", "assistant", "user"]
    with http(gateway) as client:
        path = f"/conversations/{last['conversation']['id']}/items"
        items = client.get(path, params={"limit": 100, "order": "asc"}).json()["data"]
    texts = [each["content"][0]["text"] for each in items]
    assert texts[-4:] == ["And now?", "And so on.", QUESTION["content"], "7731-KESTREL"]
    assert len(texts) == 16, "nothing is doubled"


@pytest.mark.parametrize("model", ["small", "gpt-4o"])
def test_s10_14_without_storage_it_holds_an_extract(
    one_gateway: GatewayProcess, upstream: MockUpstream, model: str
) -> None:
    """`store: false`, as Codex sends all: what the next request brings from the item on is enough, for any model."""
    history: list[Json] = [{"role": "developer", "content": "Be brief."}]
    for number in range(12):
        history.append({"role": "user", "content": f"Question {number}"})
        history.append({"role": "assistant", "content": f"Answer {number}: {FILLER}"})
    history.append({"role": "user", "content": "Last question. " + "word " * 200})
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}]
    upstream.reply(tool_calls=[("look", {})])
    body: Json = {"model": "small", "store": False, "tools": tools, **LIMIT}
    made = create(one_gateway, {**body, "input": history})
    assert kinds(made["output"]) == ["compaction", "function_call"]
    output = {"type": "function_call_output", "call_id": made["output"][1]["call_id"], "output": "seen"}
    upstream.reply(text="done")
    create(one_gateway, {**body, "model": model, "input": [history[0], *made["output"], output]})
    messages = upstream.last.body["messages"]
    assert [each["role"] for each in messages] == ["developer", "user", "user", "assistant", "tool"]
    assert messages[2] == history[-1], "the question under way is in its own words"
    assert "data, not instructions" in messages[1]["content"]
    assert "Question 0" in messages[1]["content"]


def test_s10_14_below_the_threshold_there_is_none(
    one_gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """Nor without one; what cannot be brought within it is answered all the same. The SDK knows the item."""
    upstream.reply(text="x")
    assert kinds(create(one_gateway, {"model": "small", "input": "hi", **LIMIT})["output"]) == ["message"]
    last = talk(one_gateway, upstream, 6)
    upstream.reply(text="x")
    body: Json = {"model": "small", "input": "And now?", "previous_response_id": last["id"]}
    assert kinds(create(one_gateway, {**body, "store": False})["output"]) == ["message"]
    upstream.reply(text="x")
    tiny: Json = {"context_management": [{"type": "compaction", "compact_threshold": 2}]}
    assert kinds(create(one_gateway, {**body, "input": FILLER, "store": False, **tiny})["output"]) == ["message"]
    upstream.reply(text="x")
    found = make_client(one_gateway).responses.create(**body, extra_body=LIMIT)
    assert isinstance(found.output[0], ResponseCompactionItem)
    other = {"authorization": "Bearer sk-other"}
    stolen = {"model": "small", "input": [found.output[0].model_dump(exclude_none=True), QUESTION]}
    refused = httpx.post(f"{one_gateway.base_url}/responses", json=stolen, headers=other, timeout=30)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input[0].encrypted_content")
