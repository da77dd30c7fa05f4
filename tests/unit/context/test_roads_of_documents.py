"""One document by each road: chats, Responses, Messages, attachments, and tools' results of each API; by two of them it
stands once (§14.6)."""

import base64
import json
from typing import Any

import pytest

from tests.support.answers import Json, assistant, chat, function_tool, text_part, tool_call, tool_result, used, user
from tests.support.documents import docx, file_part, lamps, text_of
from tests.support.edges import EDGES, PATHS, Edge, common, said_by
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.office import docx_of, paragraph

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
ASK = "Who keeps lamp 3?"
RAW = docx(lamps(5).split("\n\n"))
FACT = "The keeper of lamp 3 is called Name21x."
ENCODED = base64.b64encode(RAW).decode()
PART = file_part("lamps.docx", RAW, DOCX)


def road(api: Edge, *messages: Json, **more: Any) -> tuple[str, Json]:
    """A request of an API, given as a chat's."""
    return f"/{PATHS[api]}", said_by(api, common({"messages": list(messages), **more}))


def result_of(api: Edge, *parts: Json) -> tuple[str, Json]:
    """One that ends with a tool's result: texts, pictures and documents."""
    step = [assistant(None, tool_calls=[tool_call("c1", "read")]), tool_result("c1", list(parts))]
    return road(api, user(ASK), *step, tools=[function_tool("read", parameters={"type": "object"})])


ROADS: dict[str, tuple[str, Json]] = {
    **{api: road(api, user([PART, text_part(ASK)])) for api in EDGES},
    **{f"result in {api}": result_of(api, PART) for api in EDGES},
    "attachment": (
        "/chat/completions",
        {
            "messages": [user(ASK)],
            "attachments": [{"file_data": ENCODED, "filename": "lamps.docx"}],
        },
    ),
}
IN_EACH_API = pytest.mark.parametrize("api", EDGES)


def results(upstream: MockUpstream) -> list[Any]:
    """What tools told the model, as it went up last."""
    return [message["content"] for message in upstream.last.body["messages"] if message["role"] == "tool"]


@pytest.mark.parametrize("model", ["gpt-4o", "small"])
@pytest.mark.parametrize("road", ROADS)
def test_s14_6_a_document_that_no_provider_takes_is_read_on_each_road(
    one_gateway: GatewayProcess, upstream: MockUpstream, road: str, model: str
) -> None:
    """Also for a model that takes PDFs: its text goes up, and no byte of the file."""
    path, body = ROADS[road]
    answer = one_gateway.post(path, json={"model": model, **body})
    assert answer.status_code == 200, answer.text
    shown = text_of(upstream.last.body or {})
    assert FACT in shown
    assert ENCODED[:50] not in str(upstream.last.body)


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("road", ROADS)
def test_s2_3_what_was_left_out_of_a_document_is_a_warning_in_each_api(
    one_gateway: GatewayProcess, road: str, *, store: bool
) -> None:
    """§2: a document that is whole has none."""
    path, body = ROADS[road]
    macros = docx_of(paragraph(FACT), {"word/vbaProject.bin": b"x"})
    part = json.loads(json.dumps(body).replace(ENCODED, base64.b64encode(macros).decode()))
    found = []
    for each in (body, part):
        answer = one_gateway.post(path, json={"model": "small", "store": store, **each})
        warnings = used(answer.json())["warnings"]
        found.append([each for each in warnings if each.startswith("document_incomplete: ")])
    assert found[0] == []
    assert [each.rpartition(": ")[2] for each in found[1]] == ["It holds macros, which were not read."]


@pytest.mark.parametrize("first", ["file_data", "content"])
def test_s14_6_a_document_sent_by_two_roads_stands_once(
    one_gateway: GatewayProcess, upstream: MockUpstream, first: str
) -> None:
    """As a file of the message and as an attachment: the message's own stands, in later turns as well."""
    raw = lamps(5).encode()
    encoded = base64.b64encode(raw).decode()
    attachment: Json = {"content": lamps(5)} if first == "content" else {"file_data": encoded, "filename": "a.md"}
    content = [file_part("lamps.md", raw, "text/markdown"), {"type": "text", "text": ASK}]
    answer = chat(one_gateway, model="gpt-4o", messages=[user(content)], attachments=[attachment])
    before = upstream.last.body["messages"]
    assert text_of(upstream.last.body).count(FACT) == 1
    assert len(used(answer)["artifacts_processed"]) == 1
    chat(
        one_gateway,
        model="gpt-4o",
        messages=[user("And lamp 4?")],
        attachments=[attachment],
        conversation=answer["conversation"],
    )
    assert upstream.last.body["messages"][: len(before)] == before
    assert text_of(upstream.last.body).count(FACT) == 1


def test_s14_6_a_message_with_one_file_twice_shows_it_once(one_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """The second says which one it is; neither may vanish."""
    content: list[Any] = [PART, {**PART, "file": {**PART["file"], "filename": "copy.docx"}}]
    answer = chat(one_gateway, model="gpt-4o", messages=[user([*content, {"type": "text", "text": ASK}])])
    shown = text_of(upstream.last.body or {})
    assert shown.count(FACT) == 1
    name = used(answer)["artifacts_processed"][0]["artifact_id"]
    assert f"(The same document as {name}.)" in shown


@IN_EACH_API
def test_s14_14_several_documents_of_one_result_stand_in_its_places(
    one_gateway: GatewayProcess, upstream: MockUpstream, api: Edge
) -> None:
    """Each below its name, beside texts; a picture, which no chat's result can hold, is shown behind it."""
    plain = file_part("fee.txt", b"The fee is 912.", "text/plain")
    picture: Json = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    beside = [picture] if api != "chat" else []
    path, body = result_of(api, {"type": "text", "text": "Two files:"}, PART, *beside, plain)
    answer = one_gateway.post(path, json={"model": "gpt-4o", **body})
    assert answer.status_code == 200, answer.text
    (told,) = results(upstream)
    begins = ["Two files:", "[file lamps.docx]", FACT, *(["(The picture that this"] if beside else [])]
    places = [told.index(each) for each in (*begins, "[file fee.txt]\nThe fee is 912.")]
    assert places == sorted(places)
    assert "document that this tool returned" not in told
    after = upstream.last.body["messages"][3:]
    assert after == ([user([picture])] if beside else [])


@IN_EACH_API
@pytest.mark.parametrize("stream", [False, True])
def test_s14_14_a_document_of_a_result_is_reduced_and_stays_so(
    one_gateway: GatewayProcess, upstream: MockUpstream, api: Edge, stream: bool
) -> None:
    """It is an artifact: an extract with the passage that is asked for; it stays as it was shown."""
    log = file_part("log.md", lamps(400).encode(), "text/markdown")
    path, body = result_of(api, {"type": "text", "text": "Read:"}, log)
    body |= {"model": "gpt-4o", "context": {"max_input_tokens": 3000}, "stream": stream}
    answer = one_gateway.post(path, json=body)
    (told,) = results(upstream)
    before = upstream.last.body["messages"]
    name = "input" if api == "responses" else "messages"
    roomier = {"context": {"max_input_tokens": 4500}}  # nothing has to leave
    more = {name: [user("Thanks.")], "conversation": answer.headers["x-conversation-id"], **roomier}
    assert one_gateway.post(path, json={**body, **more}).status_code == 200
    assert told.startswith('[Extract of tool result "read", id art_')
    assert FACT in told
    assert len(told) < 14_000
    assert upstream.last.body["messages"][: len(before)] == before


@pytest.mark.parametrize("other", EDGES)
@IN_EACH_API
def test_s14_14_a_document_of_a_result_is_restored_in_any_api(
    one_gateway: GatewayProcess, upstream: MockUpstream, api: Edge, other: Edge
) -> None:
    """With tools as the result that it was; without them its text stands in the block."""
    path, body = result_of(api, PART)
    answer = one_gateway.post(path, json={"model": "gpt-4o", **body})
    conversation = answer.json()["conversation"]["id"]
    again, form = result_of(other, PART)
    name = "input" if other == "responses" else "messages"
    for tools in ({"tools": form["tools"]}, {}):
        sent = {"model": "gpt-4o", **form, name: [user("Go on.")], "conversation": conversation}
        if not tools:
            sent.pop("tools")
        answer = one_gateway.post(again, json=sent)
        assert answer.status_code == 200, answer.text
        assert text_of(upstream.last.body or {}).count(FACT) == 1, tools
        assert ENCODED[:50] not in str(upstream.last.body)
        conversation = answer.json()["conversation"]["id"]


@IN_EACH_API
@pytest.mark.parametrize("store", [True, False])
def test_s14_14_an_unreadable_document_of_a_result_is_named(
    one_gateway: GatewayProcess, upstream: MockUpstream, api: Edge, store: bool
) -> None:
    path, body = result_of(api, file_part("a.docx", b"no document", DOCX))
    answer = one_gateway.post(path, json={"model": "small", **body, "store": store})
    assert answer.status_code == 400, answer.text
    where = {"chat": "messages[2].content[0]", "responses": "input[2].output[0]", "messages": "messages[2].content[0]"}
    assert answer.json()["error"]["message"].startswith(f"The document in {where[api]}")
    assert not upstream.chats
