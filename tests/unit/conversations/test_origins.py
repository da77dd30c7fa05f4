"""What is bound to one provider does not go to another (guarantee §1)."""

import pytest

from gateway.conversations.message_forms import for_origin
from gateway.core.jsons import Json
from gateway.core.types.conversation import ConversationHistory, ConversationMessage
from gateway.core.types.items import PROVIDER_FIELDS
from tests.support.answers import assistant, tool_call, tool_result, user

SIGNED = "call_1__thought__c2ln"
BOUND_VALUES: Json = dict.fromkeys(PROVIDER_FIELDS, "bound")


def message(body: Json, origin: str | None = None) -> ConversationMessage:
    return ConversationMessage(body["role"], body, origin=origin)


def calling(origin: str | None) -> ConversationMessage:
    function = {"name": "f", "arguments": "{}", "provider_specific_fields": {"thought_signature": "c2ln"}}
    call = {"id": SIGNED, "type": "function", "function": function, "provider_specific_fields": {"a": 1}}
    body = {"role": "assistant", "content": "x", "tool_calls": [call], **BOUND_VALUES}
    return message(body, origin)


RESULT = message(tool_result(SIGNED, "y"))
ASKED = message(user("q"))


def history(*messages: ConversationMessage, stored: int | None = None) -> ConversationHistory:
    count = len(messages) if stored is None else stored
    return ConversationHistory("conv_1", created=False, instructions=(), messages=messages, stored=count)


def bodies(found: ConversationHistory) -> list[Json]:
    return [m.body for m in found.messages]


@pytest.mark.parametrize("origin", ["gemini", None])
def test_what_the_provider_made_itself_stays_as_it_was(origin: str | None) -> None:
    whole = history(ASKED, calling(origin), RESULT, stored=3)
    assert for_origin(whole, "gemini") is whole


def test_another_providers_thoughts_stay_behind() -> None:
    """The text, the calls and their results remain, and still belong together."""
    before = history(ASKED, calling("gemini"), RESULT, stored=3)
    found = for_origin(before, "openai https://api.openai.com/v1")
    function = {"name": "f", "arguments": "{}"}
    assert bodies(found) == [
        ASKED.body,
        assistant("x", tool_calls=[{"id": "call_1", "type": "function", "function": function}]),
        tool_result("call_1", "y"),
    ]
    assert before.messages[1].body["thinking_blocks"] == "bound", "what is stored does not change"


def test_the_id_that_a_coming_result_names_stays() -> None:
    found = for_origin(history(ASKED, calling("gemini"), RESULT, stored=2), "openai")
    assert found.messages[1].body["tool_calls"][0]["id"] == RESULT.body["tool_call_id"] == SIGNED
    assert found.messages[2] is RESULT


def test_what_the_client_sends_is_its_own_affair() -> None:
    sent = message(assistant("x", reasoning_content="mine"))
    other = message(assistant("z", reasoning_content="theirs"), "deepseek")
    found = for_origin(history(other, sent, stored=1), "openai")
    assert bodies(found) == [assistant("z"), sent.body]


@pytest.mark.parametrize("said", ["x", None])
def test_what_only_answers_have_goes_back_to_their_maker_alone(said: str | None) -> None:
    """Another provider may refuse it, as it is in no request: pictures, annotations, the number of a call."""
    call: Json = tool_call("call_1", "f")
    more = {"images": [{"type": "image_url"}], "annotations": [], "refusal": None, "own": 1}
    for calls in ([], [call]):
        numbered = {"tool_calls": [{**each, "index": 0} for each in calls]} if calls else {}
        answer = message({"role": "assistant", "content": said, **numbered, **more}, "openai https://a")
        assert for_origin(history(ASKED, answer), "openai https://a").messages[1] is answer
        content = said if calls or said else ""
        meant = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
        assert bodies(for_origin(history(ASKED, answer), "openai https://b")) == [ASKED.body, meant]
    aloud = message(assistant(None, audio={"id": "audio_1", "transcript": "y"}), "a")
    assert bodies(for_origin(history(aloud), "b")) == [assistant("y")]


@pytest.mark.parametrize("origin", ["deepseek", None])
@pytest.mark.parametrize("said", [{"content": None}, {}])
def test_an_answer_without_a_text_goes_up_with_an_empty_one(origin: str | None, said: Json) -> None:
    """The model only thought, or what it said was deleted: no chat takes a message without content."""
    thought = {"role": "assistant", **said, "reasoning_content": "hm"}
    found = for_origin(history(ASKED, message(thought, origin)), "deepseek")
    assert bodies(found) == [ASKED.body, {**thought, "content": ""}]
