"""Pictures and cited pages in the answer of a chat upstream reach clients of Responses and Messages, who may send the
answer again (guarantee §1)."""

import json
from typing import Any

import pytest

from gateway.core.formats.anthropic.message_events import MessageEvents
from gateway.core.formats.anthropic.request_parser import PICTURES_NOTE, assistant_message
from gateway.core.formats.anthropic.serializer import as_message
from gateway.core.formats.responses.response_completion import echo, response_of
from gateway.core.formats.responses.response_events import ResponseEvents
from gateway.core.formats.stream_record import StreamRecord
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.items import items_of, message_id_of, without
from tests.support.answers import assistant, image_part, text_part
from tests.support.messages import MESSAGE
from tests.support.strict_responses import check_event, check_response

Json = dict[str, Any]
PNG = "iVBORw0KGgo="
IMAGES = [image_part(f"data:image/png;base64,{PNG}"), image_part("https://pictures.example/2.png")]
PAGE = {"url": "https://pages.example/a", "title": "A page", "start_index": 4, "end_index": 7}
SAID = assistant("See tea.", annotations=[{"type": "url_citation", "url_citation": PAGE}])
CITED = {
    "type": "web_search_result_location",
    "url": "https://pages.example/a",
    "title": "A page",
    "cited_text": "tea",
    "encrypted_index": "",
}


def completion(message: Json, **more: Any) -> Json:
    choice = {"index": 0, "message": message, "finish_reason": "stop", **more}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def chunks(*deltas: Json) -> list[Json]:
    choices: list[Json] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    return [{**completion({}), "object": "chat.completion.chunk", "choices": [choice]} for choice in choices]


def test_pictures_are_items_of_a_response_as_of_the_stored_answer() -> None:
    body = assistant("Two.", images=IMAGES)
    response = response_of(completion(body), echo({}, store=True))
    check_response(response)
    said, drawn, named = response["output"]
    assert said["content"][0]["text"] == "Two."
    assert (drawn["type"], drawn["result"]) == ("image_generation_call", PNG)
    assert (named["result"], named["image_url"]) == (None, "https://pictures.example/2.png")
    kept = items_of(ConversationMessage("assistant", body, message_id=said["id"]))
    assert kept[1:] == [drawn, named]


def test_a_picture_whose_data_url_is_in_capitals_is_its_data() -> None:
    body = assistant(None, images=[{**IMAGES[0], "image_url": {"url": f"DATA:image/png;base64,{PNG}"}}])
    (drawn,) = response_of(completion(body), echo({}, store=True))["output"]
    assert (drawn["result"], "image_url" in drawn) == (PNG, False)


@pytest.mark.parametrize("field", ["images", "content"])
def test_s10_1_each_picture_of_an_answer_is_found_and_leaves_by_its_id(field: str) -> None:
    """It was listed under an id that no request could name, and stayed when it was to be deleted."""
    text = text_part("Two.")
    body = {"content": "Two.", "images": IMAGES} if field == "images" else {"content": [IMAGES[0], text, IMAGES[1]]}
    answer = ConversationMessage("assistant", {"role": "assistant", **body}, message_id="msg_5a")
    listed = items_of(answer)
    drawn = [item["id"] for item in listed if item["type"] == "image_generation_call"]
    assert [message_id_of(item_id) for item_id in drawn] == ["msg_5a", "msg_5a"]
    for gone, url in ((drawn[1], IMAGES[1]), (drawn[0], IMAGES[0])):
        left = without(answer, gone)
        assert left is not None
        assert str(url["image_url"]) not in str(left.body)
        assert len(items_of(left)) == len(listed) - 1
        assert "Two." in str(left.body)


def test_a_picture_without_words_is_all_of_a_response() -> None:
    response = response_of(completion(assistant("", images=IMAGES[:1])), echo({}, store=True))
    assert [item["type"] for item in response["output"]] == ["image_generation_call"]


def test_streamed_pictures_are_the_same_items() -> None:
    body = assistant("Two.", images=IMAGES)
    events = ResponseEvents(echo({}, store=True))
    deltas = (assistant("Two."), {"images": IMAGES[:1]}, {"images": IMAGES[1:]})
    told = [*events.of(chunks(*deltas)), *events.end()]
    for event in told:
        check_event(event)
    whole = response_of(completion(body), echo({}, store=True))
    assert told[-1]["response"]["output"] == whole["output"]


def test_a_client_of_messages_is_told_of_pictures() -> None:
    message = as_message(completion(assistant("Two.", images=IMAGES)), "m")
    MESSAGE.validate_json(json.dumps(message), strict=True)
    assert [block["text"] for block in message["content"]] == ["Two.", PICTURES_NOTE]
    assert message["images"] == IMAGES
    assert assistant_message(message["content"], "messages[1].content") == assistant("Two.")


def test_a_stream_of_messages_tells_of_pictures_once() -> None:
    events = MessageEvents("m")
    deltas = (assistant("Two."), {"images": IMAGES[:1]}, {"images": IMAGES[1:]})
    told = [*events.of(chunks(*deltas)), *events.end()]
    texts = [event["delta"]["text"] for event in told if event["type"] == "content_block_delta"]
    assert texts == ["Two.", PICTURES_NOTE]
    assert next(event for event in told if event["type"] == "message_delta")["images"] == IMAGES


def test_pages_that_a_chat_cites_are_citations_of_a_message() -> None:
    message = as_message(completion(SAID), "m")
    MESSAGE.validate_json(json.dumps(message), strict=True)
    assert message["content"] == [text_part("See tea.", citations=[CITED])]
    assert assistant_message(message["content"], "messages[1].content") == SAID


def test_streamed_citations_belong_to_the_text_before_them() -> None:
    events = MessageEvents("m")
    told = [
        *events.of(chunks(assistant("See "), {"content": "tea."}, {"annotations": SAID["annotations"]})),
        *events.end(),
    ]
    deltas = [event["delta"] for event in told if event["type"] == "content_block_delta"]
    assert deltas[-1] == {"type": "citations_delta", "citation": CITED}
    assert sum(event["type"] == "content_block_start" for event in told) == 1


def test_sealed_citations_go_back_to_their_maker_as_they_came() -> None:
    sealed = {**CITED, "encrypted_index": "Eo8B"}
    block = text_part("See tea.", citations=[sealed, CITED])
    message = assistant_message([block], "messages[1].content")
    assert message["content"] == [text_part("See tea.", citations=[sealed])]
    assert [each["url_citation"]["url"] for each in message["annotations"]] == ["https://pages.example/a"]


def test_places_of_cited_pages_count_from_the_first_text_of_an_answer() -> None:
    """A chat's annotations have the place in all that was said."""
    blocks: list[Json] = [text_part("Rain. "), text_part("See tea.", citations=[CITED])]
    message = assistant_message(blocks, "messages[1].content")
    place = message["annotations"][0]["url_citation"]
    said = "".join(part["text"] for part in message["content"])
    assert said[place["start_index"] : place["end_index"]] == "tea"
    assert place["start_index"] == said.rindex("tea")


PARTS = [text_part("Here."), {"type": "refusal", "refusal": "No more."}, IMAGES[0]]


def test_parts_of_a_content_reach_a_client_of_messages() -> None:
    message = as_message(completion(assistant(PARTS)), "m")
    MESSAGE.validate_json(json.dumps(message), strict=True)
    assert [block["text"] for block in message["content"]] == ["Here.", "No more.", PICTURES_NOTE]
    assert (message["stop_reason"], message["images"]) == ("refusal", IMAGES[:1])
    events = MessageEvents("m")
    told = [*events.of(chunks(assistant(PARTS))), *events.end()]
    texts = [event["delta"]["text"] for event in told if event["type"] == "content_block_delta"]
    assert texts == ["Here.", "No more.", PICTURES_NOTE]


def test_pictures_among_the_parts_of_a_content_are_items_of_their_own() -> None:
    body = assistant(PARTS)
    response = response_of(completion(body), echo({}, store=True))
    check_response(response)
    assert [item["type"] for item in response["output"]] == ["message", "image_generation_call"]
    events = ResponseEvents(echo({}, store=True))
    last = [*events.of(chunks(body)), *events.end()][-1]["response"]
    assert [item["type"] for item in last["output"]] == ["message", "image_generation_call"]


def test_what_is_said_aloud_is_the_text_of_an_answer() -> None:
    aloud = assistant(None, audio={"id": "audio_1", "transcript": "Tea?", "data": "AAAA"})
    (block,) = as_message(completion(aloud), "m")["content"]
    assert block == text_part("Tea?")
    pieces = chunks({"role": "assistant", "audio": {"transcript": "Te"}}, {"audio": {"transcript": "a?"}})
    messages = MessageEvents("m")
    told = [*messages.of(pieces), *messages.end()]
    assert [event["delta"]["text"] for event in told if event["type"] == "content_block_delta"] == ["Te", "a?"]
    responses = ResponseEvents(echo({}, store=True))
    last = [*responses.of(pieces), *responses.end()][-1]["response"]
    assert last["output"][0]["content"][0]["text"] == "Tea?"


def test_a_stream_of_texts_and_parts_is_kept_whole() -> None:
    record = StreamRecord(1)
    for chunk in chunks({"content": "One, "}, {"content": [text_part("two, ")]}, {"content": "three"}):
        record.add(chunk)
    content = record.completion()["choices"][0]["message"]["content"]
    assert [part["text"] for part in content] == ["One, ", "two, ", "three"]
