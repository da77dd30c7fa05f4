"""One document by each road: chats, Responses, Messages, attachments; by two of them it stands once (§14.6)."""

import base64
from typing import Any

import pytest

from tests.support.answers import Json, chat, http, used, user
from tests.support.documents import docx, file_part, lamps, text_of
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
ASK = "Who keeps lamp 3?"
RAW = docx(lamps(5).split("\n\n"))
FACT = "The keeper of lamp 3 is called Name21x."
ENCODED = base64.b64encode(RAW).decode()
URL = f"data:{DOCX};base64,{ENCODED}"
PART = file_part("lamps.docx", RAW, DOCX)
ROADS: dict[str, tuple[str, Json]] = {
    "chat": ("/chat/completions", {"messages": [user([PART, {"type": "text", "text": ASK}])]}),
    "responses": (
        "/responses",
        {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_file", "filename": "lamps.docx", "file_data": URL},
                        {"type": "input_text", "text": ASK},
                    ],
                }
            ]
        },
    ),
    "messages": (
        "/messages",
        {
            "max_tokens": 100,
            "messages": [
                user(
                    [
                        {
                            "type": "document",
                            "source": {"type": "base64", "media_type": DOCX, "data": ENCODED},
                        },
                        {"type": "text", "text": ASK},
                    ]
                )
            ],
        },
    ),
    "attachment": (
        "/chat/completions",
        {"messages": [user(ASK)], "attachments": [{"file_data": ENCODED, "filename": "lamps.docx"}]},
    ),
}


@pytest.mark.parametrize("model", ["gpt-4o", "small"])
@pytest.mark.parametrize("road", ROADS)
def test_s14_6_a_document_that_no_provider_takes_is_read_on_each_road(
    one_gateway: GatewayProcess, upstream: MockUpstream, road: str, model: str
) -> None:
    """Also for a model that takes PDFs: its text goes up, and no byte of the file."""
    path, body = ROADS[road]
    with http(one_gateway) as client:
        answer = client.post(path, json={"model": model, **body})
    assert answer.status_code == 200, answer.text
    shown = text_of(upstream.last.body or {})
    assert FACT in shown
    assert ENCODED[:50] not in str(upstream.last.body)


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
