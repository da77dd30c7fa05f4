"""What is masked of a body, and what stays (guarantee §12.10)."""

import json
from typing import Any

import pytest

from gateway.core.errors import ContentRefused
from gateway.pipeline.guards.masking import BodyMasker
from tests.unit.pipeline.guards.values import vault

Json = dict[str, Any]
MAIL, CARD = "ann@example.org", "4111111111111111"


def masked(body: Json, *, refuse: bool = False) -> Json:
    return BodyMasker(vault(), refuse=refuse).masked(body)


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


EVERYWHERE: list[Json] = [
    {"messages": [user(f"I am {MAIL}.")]},
    {"messages": [{"role": "system", "content": f"He is {MAIL}."}]},
    {"messages": [user([{"type": "text", "text": f"I am {MAIL}."}])]},
    {"messages": [{"role": "tool", "tool_call_id": "c", "content": json.dumps({"to": MAIL})}]},
    {"messages": [{"role": "assistant", "content": None, "reasoning_content": f"Who is {MAIL}?"}]},
    {"messages": [user([{"type": "native_block", "native_block": {"type": "search_result", "title": MAIL}}])]},
    {"messages": [{"role": "assistant", "native_blocks": [{"type": "tool_use", "id": "t", "input": {"name": MAIL}}]}]},
    {"messages": [{"role": "assistant", "native_blocks": [{"type": "tool_use", "id": "t", "input": {MAIL: 1}}]}]},
    {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": f'{{"{MAIL}": 1}}'}}]}]},
    {"messages": [user([{"type": "document", "source": {"type": "text", "data": f"From {MAIL}"}}])]},
    {"input": [f"I am {MAIL}."]},
    {"input": f"I am {MAIL}."},
    {"prompt": [f"I am {MAIL}."]},
    {"prediction": {"type": "content", "content": f"Dear {MAIL}"}},
    {"instructions": f"He is {MAIL}."},
    {"thread": {"messages": [user(f"I am {MAIL}.")]}, "additional_instructions": f"He is {MAIL}."},  # of a relayed run
    {"additional_messages": [user(MAIL)], "tool_outputs": [{"tool_call_id": "c", "output": f"Sent to {MAIL}"}]},
    {"messages": [{"role": "assistant", "output_items": [{"type": "reasoning", "summary": [{"text": MAIL}]}]}]},
]


@pytest.mark.parametrize("body", EVERYWHERE)
def test_texts_are_masked_wherever_they_stand(body: Json) -> None:
    assert MAIL not in repr(masked(body))
    assert "<EMAIL_" in repr(masked(body))


def test_names_ids_and_schemas_stay() -> None:
    body = {
        "model": MAIL,
        "user": MAIL,
        "metadata": {"who": MAIL},
        "tools": [{"type": "function", "function": {"name": "send", "description": f"To {MAIL}"}}],
        "messages": [
            {"role": "assistant", "tool_calls": [{"id": MAIL, "function": {"name": MAIL, "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": MAIL, "content": "sent"},
            user([{"type": "image_url", "image_url": {"url": f"https://example.org/{MAIL}"}}]),
        ],
    }
    assert masked(body) == body


def test_what_holds_nothing_is_the_same_object() -> None:
    message = user([{"type": "text", "text": "Hello."}])
    assert masked({"messages": [message]})["messages"][0] is message


def test_arguments_stay_json() -> None:
    given = {"to": [MAIL], "card": int(CARD), "text": f'He said "{MAIL}"\nand left.', "n": 3}
    call = {"id": "c", "function": {"name": "send", "arguments": json.dumps(given)}}
    (message,) = masked({"messages": [{"role": "assistant", "tool_calls": [call]}]})["messages"]
    found = json.loads(message["tool_calls"][0]["function"]["arguments"])
    assert found["n"] == 3
    assert found["to"][0].startswith("<EMAIL_")
    assert found["card"].startswith("<CARD_")
    assert found["text"] == f'He said "{found["to"][0]}"\nand left.'


def test_arguments_that_are_no_json_are_masked_all_the_same() -> None:
    call = {"id": "c", "function": {"name": "send", "arguments": '{"to": "' + MAIL}}
    assert MAIL not in repr(masked({"messages": [{"role": "assistant", "tool_calls": [call]}]}))


def test_signed_thoughts_go_back_as_they_were_signed() -> None:
    """What was put back in them is masked, wherever it stands; what the model found itself stays."""
    held = vault()
    name = held.mask(MAIL)
    signed = f"Is x{name}y the one, or is it bob@example.net?"
    thought = {"type": "thinking", "thinking": held.unmask(signed), "signature": "s"}
    body = {"messages": [user(f"I am {MAIL}."), {"role": "assistant", "content": "", "thinking_blocks": [thought]}]}
    assert masked(body)["messages"][1]["thinking_blocks"][0]["thinking"] == signed


def test_what_a_model_was_told_is_masked_where_no_rule_finds_it() -> None:
    body = {"messages": [user(f"Card {CARD}"), {"role": "assistant", "content": f"It ends 99{CARD}00."}]}
    assert CARD not in repr(masked(body))


def test_a_message_is_masked_by_what_stands_before_it_alone() -> None:
    """§4 I7: what is appended changes nothing before it."""
    messages = [user(f"I am {MAIL}."), {"role": "assistant", "content": f"Hello, {MAIL}, at 99{CARD}."}, user(CARD)]
    whole = masked({"messages": messages})["messages"]
    for count in range(4):
        assert masked({"messages": messages[:count]})["messages"] == whole[:count]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "native_block", "native_block": {"type": "document", "source": {"type": "base64", "data": "AAAA"}}},
    ],
)
def test_what_cannot_be_read_passes_or_is_refused(part: Json) -> None:
    body = {"messages": [user([part])]}
    assert masked(body) == body
    with pytest.raises(ContentRefused):
        masked(body, refuse=True)


@pytest.mark.parametrize(
    "body", [{"input": [791, 8]}, {"input": [[791, 8], [5]]}, {"input": ["a", [791]]}, {"prompt": [791]}]
)
def test_token_numbers_pass_or_are_refused(body: Json) -> None:
    """They are a text in which no value is found."""
    assert masked(body) == body
    with pytest.raises(ContentRefused, match="token numbers") as refused:
        masked(body, refuse=True)
    assert refused.value.param in body


@pytest.mark.parametrize("body", [{"input": "a"}, {"input": ["a", "b"]}, {"input": [user("a")]}, {"prompt": ["a"]}])
def test_texts_are_not_refused(body: Json) -> None:
    assert masked(body, refuse=True) == body
