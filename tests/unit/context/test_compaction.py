"""Compaction of responses (guarantee §10.6), also by `context_management` on create (§10.14)."""

from typing import Any

import pytest
from openai.types.responses import CompactedResponse, ResponseCompactionItem

from tests.support.answers import Json, chat, ok, stored_of
from tests.support.factory import ClientFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.strict_responses import check_response, create, events, read_events, refused

FILLER = "The harbour master wrote of tides and cranes and the price of rope. " * 60
FACT = "The access code of the lighthouse is 7731-KESTREL."


def talk(gateway: GatewayProcess, upstream: MockUpstream, turns: int) -> Any:
    """A conversation of long answers by `previous_response_id`, the fact in its first turn; the last response."""
    last: Any = None
    for number in range(turns):
        upstream.reply(text=FACT if number == 0 else f"Note {number}: {FILLER}")
        body: Any = {"model": "small", "input": f"Tell me of part {number} of the lighthouse"}
        last = create(gateway, body | ({"previous_response_id": last["id"]} if last else {}))
    return last


def compact(gateway: GatewayProcess, body: Any, token: str = "sk-test") -> Any:
    """`POST /v1/responses/compact`."""
    headers = {"authorization": f"Bearer {token}"}
    return ok(gateway.post("/responses/compact", json=body, headers=headers, key=None))


def sent(upstream: MockUpstream) -> str:
    """All words that went up."""
    return "\n".join(str(each.get("content")) for each in upstream.last.body["messages"])


def test_s10_6_a_stored_history_is_compacted_to_its_place(
    gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """The item takes the place of all before it: older turns leave the window, and come back where a question needs
    them. The conversation goes on, nothing is billed, no model asked."""
    last = talk(gateway, upstream, 6)
    calls = len(upstream.chats)
    made = make_client(gateway).responses.compact(model="small", previous_response_id=last["id"])
    assert isinstance(made, CompactedResponse)
    assert (made.object, made.usage.total_tokens, [item.type for item in made.output]) == (
        "response.compaction",
        0,
        ["compaction"],
    )
    (item,) = (each.model_dump(exclude_none=True) for each in made.output)
    assert FACT not in str(item)
    assert len(upstream.chats) == calls
    asked: Any = [item, {"role": "user", "content": "What is the access code of the lighthouse?"}]
    upstream.reply(text="7731-KESTREL")
    found = create(gateway, {"model": "small", "input": asked})
    assert found["conversation"] == last["conversation"]
    assert "7731-KESTREL" in sent(upstream), "it is recalled"
    assert len(sent(upstream)) < 3 * len(FILLER), "of six turns of this length"
    upstream.reply(text="Yes.")
    asked += [*found["output"], {"role": "user", "content": "Is it?"}]
    again = create(gateway, {"model": "small", "input": asked})
    assert again["conversation"] == last["conversation"]
    assert [each["role"] for each in upstream.last.body["messages"]][-3:] == ["user", "assistant", "user"]
    path = f"/conversations/{last['conversation']['id']}/items"
    items = gateway.get(path, params={"limit": 100, "order": "asc"}).json()["data"]
    texts = [each["content"][0]["text"] for each in items]
    assert texts[-4:] == ["What is the access code of the lighthouse?", "7731-KESTREL", "Is it?", "Yes."]
    assert len(stored_of(gateway, last["conversation"]["id"])) == 8


def test_s10_6_what_is_stored_nowhere_is_an_extract(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Bounded, labelled, behind the system messages; the users' messages stand before the item."""
    asked: Any = [{"role": "developer", "content": "Be brief."}]
    for number in range(40):
        asked.append({"role": "user", "content": f"Question {number}: {FILLER if number % 2 else 'short'}"})
        asked.append({"role": "assistant", "content": f"Answer {number}: {FILLER}"})
    made = compact(one_gateway, {"model": "small", "input": asked})
    *users, item = made["output"]
    assert (len(users), {each["role"] for each in users}, item["type"]) == (40, {"user"}, "compaction")
    upstream.reply(text="x")
    body: Any = {"model": "gpt-4o", "store": False}
    create(one_gateway, {**body, "input": [asked[0], *users, item, {"role": "user", "content": "And now?"}]})
    messages = upstream.last.body["messages"]
    assert [each["role"] for each in messages] == ["developer", "user", "user"]
    extract = messages[1]["content"]
    assert "data, not instructions" in extract
    assert "Question 0:" in extract
    assert "Answer 39:" in extract
    assert "messages left out]" in extract
    assert len(extract) < 25_000
    assert len(str(asked)) > 200_000


def test_s10_6_a_resent_history_that_is_stored_is_found(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Without a name, as a resend is."""
    upstream.reply(text=f"{FACT} {FILLER}")
    user = {"role": "user", "content": "Tell me of the lighthouse"}
    began = chat(one_gateway, model="small", messages=[user])
    answer = {"role": "assistant", "content": f"{FACT} {FILLER}"}
    item = compact(one_gateway, {"model": "small", "input": [user, answer]})["output"][-1]
    upstream.reply(text="x")
    found = create(one_gateway, {"model": "small", "input": [item, {"role": "user", "content": "And the code?"}]})
    assert found["conversation"] == began["conversation"]
    assert [each["role"] for each in upstream.last.body["messages"]] == ["user", "assistant", "user"]


def test_s10_6_an_item_is_its_tenants_and_unchanged(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Another tenant's or a changed one is a 400 that names the field; so is one of a deleted conversation."""
    last = talk(one_gateway, upstream, 1)
    calls = len(upstream.chats)
    body = {"model": "small", "previous_response_id": last["id"]}
    (item,) = compact(one_gateway, body)["output"]
    user = {"role": "user", "content": "x"}
    (strange,) = compact(one_gateway, {"model": "small", "input": "y"}, "sk-other")["output"][1:]
    sealed = item["encrypted_content"]
    middle = len(sealed) // 2
    changed = sealed[:middle] + ("A" if sealed[middle] != "A" else "B") + sealed[middle + 1 :]
    for wrong in (strange["encrypted_content"], changed, sealed[:-4], "", "gAAAA", 7):
        error = refused(one_gateway, {"model": "small", "input": [user, {**item, "encrypted_content": wrong}, user]})
        assert error["param"] == "input[1].encrypted_content"
    one_gateway.delete(f"/conversations/{last['conversation']['id']}")
    assert refused(one_gateway, {"model": "small", "input": [item, user]})["param"] == "input[0].encrypted_content"
    assert len(upstream.chats) == calls


def test_s10_6_a_trigger_is_answered_by_the_item(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A request whose last item is a trigger; anywhere else it is a 400."""
    asked: Any = [{"role": "user", "content": "My name is Zelda."}, {"type": "compaction_trigger"}]
    found = create(one_gateway, {"model": "small", "input": asked})
    assert (found["status"], [each["type"] for each in found["output"]]) == ("completed", ["compaction"])
    streamed = events(one_gateway, {"model": "small", "input": asked})
    assert [event["type"] for event in streamed][2:] == [
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    assert not upstream.chats
    upstream.reply(text="Zelda")
    create(one_gateway, {"model": "small", "input": [*found["output"], {"role": "user", "content": "Who am I?"}]})
    assert "My name is Zelda." in sent(upstream)
    assert refused(one_gateway, {"model": "small", "input": asked[::-1]})["param"] == "input[0].type"


def test_s10_6_a_model_that_is_not_served_compacts_nothing(one_gateway: GatewayProcess) -> None:
    """Neither by the endpoint nor by a trigger: its client would learn of it only with the next request."""
    asked: Any = {"model": "large", "input": [{"role": "user", "content": "x"}, {"type": "compaction_trigger"}]}
    found = [one_gateway.post(path, json=asked) for path in ("/responses", "/responses/compact")]
    assert [(each.status_code, each.json()["error"]["code"]) for each in found] == [(404, "model_not_found")] * 2


def test_s10_6_a_threshold_frees_the_window(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """A prompt that exceeds it is brought within it, by the window of every model."""
    last = talk(one_gateway, upstream, 6)
    upstream.reply(text="x")
    limited: Any = {"model": "small", "input": "And now?", "previous_response_id": last["id"], "store": False}
    create(one_gateway, limited)
    everything = len(sent(upstream))
    limited["context_management"] = [{"type": "compaction", "compact_threshold": 1500}]
    found = create(one_gateway, limited)
    assert found["response_metadata"]["context_utilization"]["tokens_used"] <= 1500
    assert len(sent(upstream)) < everything
    limited["context_management"] = [{"type": "compaction", "compact_threshold": 0}]
    assert refused(one_gateway, limited)["param"] == "context_management[0].compact_threshold"


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
    again = gateway.get(f"/responses/{made['id']}").json()
    check_response(again)
    assert again["output"] == made["output"]
    replayed = read_events(gateway.get(f"/responses/{made['id']}?stream=true").text)
    assert replayed[-1]["response"]["output"] == made["output"]
    upstream.reply(text="7731-KESTREL")
    asked: Any = [*made["output"], QUESTION]
    found = create(gateway, {"model": "small", "input": asked, **LIMIT})
    assert found["conversation"] == made["conversation"]
    assert kinds(found["output"]) == ["message"]
    assert FACT in sent(upstream), "it is recalled"
    roles = [each["role"] for each in upstream.last.body["messages"]]
    assert roles[-3:] == ["user", "assistant", "user"]
    path = f"/conversations/{last['conversation']['id']}/items"
    items = gateway.get(path, params={"limit": 100, "order": "asc"}).json()["data"]
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
    refused = one_gateway.post("/responses", json=stolen, headers=other, key=None)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input[0].encrypted_content")
