"""What a wrong field is told: its rule in plain words, the allowed ones, and nothing of Python (guarantee §7)."""

import re
from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_core._pydantic_core import list_all_errors

from gateway.api.conversations.import_check import EXPORT
from gateway.api.fields import read, renamed, rule_of
from gateway.api.request.validation import CHAT, LIMIT, MODE
from gateway.core.errors import ContextLengthExceeded, ConversationNotFound, InvalidRequest, UpstreamRefused, invalid

PYTHON = re.compile(
    r"Input|validation|dictionary|instance|valid |None|RequestAttachment|[a-z]_type|Field|\bint\b|\bstr\b"
)
CHATS: list[tuple[Any, str]] = [
    ({"context": {"mood": 1}}, "context.mood is not known; known are mode, planning, goal, max_input_tokens, models, "
     "session, dry_run, memory, recall, economy, untouched_tools, cite, profile."),
    ({"context": {"models": {"cook": "x"}}}, "context.models.cook is not known; known are context_planner, "
     "summarizer."),
    ({"attachments": [{"content": "x"}, {"text": "x"}]}, "attachments[1].text is not known; known are attachment_id, "
     "file_id, content, file_data, filename, title, source, attachment_type."),
    ({"attachments": [7]}, "attachments[0] must be an object."),
    ({"attachments": 7}, "attachments must be a list."),
    ({"attachments": [{"content": 7}]}, "attachments[0].content must be a string."),
    ({"context": {"mode": "fast"}}, "context.mode must be 'auto', 'simple' or 'off'."),
    ({"context": {"goal": "fun"}}, "context.goal must be 'reasoning' or 'synthesis'."),
    ({"context": 7}, "context must be an object."),
    ({"context": {"max_input_tokens": 1.5}}, "context.max_input_tokens must be a whole number."),
    ({"n": 0}, "n must be at least 1."),
    ({"n": 1000}, "n must be at most 128."),
    ({"stream": "yes"}, "stream must be true or false."),
    ({"model": "x" * 600}, "model must have at most 512 characters."),
    ({"model": "\n"}, "model must be 1 to 512 printable characters."),
    ({"model": None}, "model is required."),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), CHATS, ids=[message.partition(" ")[0] for _, message in CHATS])
def test_s7_a_wrong_field_is_told_its_rule(change: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(CHAT, {"model": "m", **change})
    assert caught.value.message == message


@pytest.mark.parametrize(("adapter", "value"), [(MODE, "fast"), (LIMIT, -5), (LIMIT, "lots")])
def test_s7_a_wrong_header_is_told_its_rule(adapter: TypeAdapter[Any], value: Any) -> None:
    with pytest.raises(
        InvalidRequest, match=r"^x-one must be ('auto', 'simple' or 'off'|at least 1|a whole number)\.$"
    ):
        read(adapter, value, "x-one")


@pytest.mark.parametrize("value", [None, 7, {}, {"object": 1}, {"messages": {}}, {"unknown": 1}])
def test_s7_nor_does_an_import_hear_of_python(value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(EXPORT, value)
    assert not PYTHON.search(caught.value.message), caught.value.message


@pytest.mark.parametrize("error", list_all_errors(), ids=lambda error: error["type"])
def test_s7_no_error_of_pydantics_speaks_of_python(error: Any) -> None:
    """Of whatever kind: also those that no field of today can have."""
    if error["type"] in ("value_error", "assertion_error"):
        return  # the words are ours
    rule = rule_of({"type": error["type"], "ctx": error["example_context"] or {}})
    assert not PYTHON.search(rule), rule


def test_errors_name_fields_as_their_client_knows_them() -> None:
    def external_field_name(path: str) -> str:
        return path.replace("messages[", "input[") if "[" in path else f"own_{path}"

    wrong = invalid("conversation", "must be a string")
    renamed(wrong, external_field_name)
    assert (wrong.param, wrong.message) == ("own_conversation", "own_conversation must be a string.")
    pair = InvalidRequest("messages[2].tool_call_id is not that of messages[1].", param="messages[2].tool_call_id")
    renamed(pair, external_field_name)
    assert (pair.param, pair.message) == ("input[2].tool_call_id", "input[2].tool_call_id is not that of input[1].")
    for said, told in (
        ("messages must be a list.", "own_messages must be a list."),
        ("Your messages took more. System messages stay.", "Your messages took more. System messages stay."),
    ):
        renamed(listed := InvalidRequest(said, param="messages"), external_field_name)
        assert (listed.param, listed.message) == ("own_messages", told)
    length = ContextLengthExceeded("It is too long (max_tokens), as max_tokens_2 says.", param="max_tokens")
    renamed(length, external_field_name)
    assert length.message == "It is too long (own_max_tokens), as max_tokens_2 says."
    gone = ConversationNotFound("No such conversation.", param="conversation")
    renamed(gone, external_field_name)
    assert (gone.param, gone.message) == ("own_conversation", "No such conversation.")
    refused = UpstreamRefused(400, {"error": {"message": "messages[0]"}}, {}, "messages[0] is wrong.")
    renamed(refused, external_field_name)
    assert (refused.param, refused.message) == (None, "messages[0] is wrong.")
