"""Items that are added become chat messages, and chat messages items (guarantee §3)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.conversations.endpoint import parse_items
from gateway.core.errors import InvalidRequest
from gateway.core.formats.anthropic.serializer import message_of as anthropic_message
from gateway.core.formats.responses.response_completion import message_of
from gateway.core.formats.responses.response_request import input_items
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.items import RESPONSES_ALONE, call_kinds, items_of, without

Json = dict[str, Any]
OWN = ("id", "status")
TEXTS = st.text(max_size=8)
NAMES = st.text(min_size=1, max_size=8)


def of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(fields)


def kind(name: str, /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return of(type=st.just(name), **fields)


TEXT_PARTS = kind("input_text", text=TEXTS)
CITATIONS = kind("url_citation", url=TEXTS, title=TEXTS, start_index=st.integers(0, 9), end_index=st.integers(0, 9))
PARTS = st.one_of(
    TEXT_PARTS,
    kind("input_text", text=TEXTS, prompt_cache_breakpoint=st.just({"mode": "explicit"})),
    kind("input_image", image_url=TEXTS, detail=st.sampled_from(["auto", "low", "high"])),
    kind("input_file", file_id=TEXTS),
    kind("input_file", file_data=TEXTS, filename=TEXTS),
    kind("input_audio", input_audio=of(data=TEXTS, format=st.just("wav"))),
)
SPOKEN = kind("output_text", text=NAMES, annotations=st.just([]), logprobs=st.just([]))
REFUSALS = kind("refusal", refusal=NAMES).map(lambda part: [part])
LONE_TEXT = kind(
    "output_text", text=NAMES, annotations=st.lists(CITATIONS, min_size=1, max_size=2), logprobs=st.just([])
)
SAID = kind(
    "message", role=st.sampled_from(["user", "system", "developer"]), content=st.lists(PARTS, min_size=1, max_size=3)
)
ANSWERED = kind(
    "message",
    role=st.just("assistant"),
    # a chat's answer has one refusal, behind its texts
    content=st.lists(SPOKEN, min_size=1, max_size=3)
    | LONE_TEXT.map(lambda part: [part])
    | st.tuples(st.lists(SPOKEN, max_size=2), REFUSALS).map(lambda found: [*found[0], *found[1]]),
)
CALLS = kind("function_call", call_id=NAMES, name=NAMES, arguments=TEXTS) | kind(
    "custom_tool_call", call_id=NAMES, name=NAMES, input=TEXTS
)
THOUGHTS = kind("reasoning", summary=st.just([]), content=kind("reasoning_text", text=NAMES).map(lambda part: [part]))
OUTPUTS = kind("function_call_output", call_id=NAMES, output=TEXTS | st.lists(PARTS, min_size=1, max_size=2))
STEPS = st.one_of(
    SAID.map(lambda item: [item]),
    OUTPUTS.map(lambda item: [item]),
    st.tuples(st.lists(THOUGHTS, max_size=1), ANSWERED, st.lists(CALLS, max_size=3)).map(
        lambda found: [*found[0], found[1], *found[2]]
    ),
    st.tuples(THOUGHTS, st.lists(CALLS, min_size=1, max_size=3)).map(lambda found: [found[0], *found[1]]),
)


def read(*items: Json) -> list[ConversationMessage]:
    return list(parse_items(list(items)))


def shown(messages: list[ConversationMessage]) -> list[Json]:
    """The items of messages that follow each other, without the fields that are the gateway's own."""
    found: list[Json] = []
    calls: dict[str, str] = {}
    for message in messages:
        calls = calls if message.role == "tool" else call_kinds(message)
        found += items_of(message, calls)
    return [{name: value for name, value in item.items() if name not in OWN} for item in found]


@given(st.lists(STEPS, max_size=4).map(lambda steps: [item for step in steps for item in step][:20]))
def test_s3_items_come_back_as_they_were(items: list[Json]) -> None:
    """§3: item to message to item, and the messages of those items are the same messages."""
    if items and items[-1]["type"] == "reasoning":
        items = items[:-1]
    messages = read(*items)
    found = shown(messages)
    renamed = [
        {**item, "type": item["type"].replace("custom_tool_call_output", "function_call_output")} for item in found
    ]
    assert renamed == items
    assert [message.body for message in read(*found)] == [message.body for message in messages]


@given(ANSWERED, st.lists(CALLS, min_size=1, max_size=3, unique_by=lambda call: str(call["call_id"])), THOUGHTS)
def test_s3_without_one_item_the_others_keep_their_ids(answer: Json, calls: list[Json], thought: Json) -> None:
    """§3: whatever is deleted first, and to the last one."""
    (message,) = read(thought, answer, *calls)
    left: ConversationMessage | None = replace(message, message_id="msg_1")
    while left is not None:
        items = items_of(left)
        doomed = items[len(items) // 2]["id"]
        assert len({item["id"] for item in items}) == len(items)
        left = without(left, doomed)
        assert items_of(left) == [item for item in items if item["id"] != doomed] if left else len(items) == 1


SEARCH: Json = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "Bern"}}
PICTURED: Json = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}


def thought(text: str, **more: Any) -> Json:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}], **more}


def spoken(text: str) -> Json:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


CALL_ITEM: Json = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
OUTPUTS_OF_AN_ANSWER = (
    [thought("first"), SEARCH, thought("second"), spoken("so"), thought("third"), spoken("and so"), CALL_ITEM],
    [SEARCH, thought("first"), {**SEARCH, "id": "ws_2"}, spoken("so"), spoken("and so"), spoken("at last")],
    [thought("first", encrypted_content="c2Vh"), thought("second", encrypted_content="bGVk"), spoken("so")],
)


@pytest.mark.parametrize("output", OUTPUTS_OF_AN_ANSWER, ids=["all", "several texts", "sealed"])
@pytest.mark.parametrize("backwards", [False, True])
def test_s3_what_is_deleted_is_that_item_alone_and_ids_stay(output: list[Json], backwards: bool) -> None:
    """§3: of several alike, too, in any order: a client's next DELETE meets the item that it means."""
    left: ConversationMessage | None = ConversationMessage("assistant", message_of(output), message_id="msg_5a")
    assert left is not None
    whole = items_of(left)
    assert [each["type"] for each in whole] == [each["type"] for each in output]
    doomed = [each["id"] for each in whole]
    for item_id in doomed[::-1] if backwards else doomed:
        whole = [each for each in whole if each["id"] != item_id]
        left = without(left, item_id) if left else None
        assert (items_of(left) if left else []) == whole
        if left is not None:
            sent = [each for each in input_items([left.body]) if each.get("type") == "reasoning"]
            assert len(sent) <= sum(each["type"] == "reasoning" for each in whole)
            said = [part["text"] for each in whole if each["type"] == "reasoning" for part in each["content"]]
            assert left.body.get("reasoning_content") == ("\n\n".join(said) or None)


@pytest.mark.parametrize("field", ["images", "content"])
def test_s3_ids_of_pictures_stay_when_another_one_is_deleted(field: str) -> None:
    pictures = [{**PICTURED, "image_url": {"url": f"https://pictures.example/{n}.png"}} for n in range(3)]
    body = {"role": "assistant", "content": "Three.", field: pictures}
    left: ConversationMessage | None = ConversationMessage("assistant", body, message_id="msg_5a")
    assert left is not None
    whole = items_of(left)
    for item_id in [each["id"] for each in whole if each["type"] != "message"][:2]:
        whole = [each for each in whole if each["id"] != item_id]
        assert left is not None
        left = without(left, item_id)
        assert left is not None
        assert items_of(left) == whole
    assert left is not None
    assert left.body[field] == pictures[2:], "what a chat's upstream is sent of them is as it came"
    assert left.body.keys() - body.keys() <= RESPONSES_ALONE


def test_s3_a_deleted_item_of_a_claude_answer_is_in_no_block() -> None:
    """§3: its blocks are kept beside its text and calls, and are sent again as they are."""
    query: Json = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Bern"}}
    use: Json = {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "the lake"}}
    texts = [{"type": "text", "text": "I search."}, {"type": "text", "text": "It rains."}]
    blocks: list[Json] = [
        {"type": "thinking", "thinking": "Rain?", "signature": "c2Vh"},
        texts[0],
        query,
        texts[1],
        use,
    ]
    answer = ConversationMessage("assistant", anthropic_message(blocks), message_id="msg_5a")
    gone = {"reasoning": "Rain?", "message": "rains", "function_call": "the lake"}
    for item in items_of(answer):
        left = without(answer, item["id"])
        assert left is not None
        assert gone[item["type"]] not in str(left.body)
        others = [words for kind, words in gone.items() if kind != item["type"]]
        assert all(words in str(left.body) for words in (*others, "Bern"))


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["type", "role", "content", "call_id", "name", "arguments", "output", "input", "status", "text", "image_url"]
TYPES = ["message", "function_call", "function_call_output", "reasoning", "custom_tool_call", "input_text", "refusal"]
ODD = st.dictionaries(st.sampled_from(FIELDS), JSONS | st.sampled_from([*TYPES, "user", "assistant"]), max_size=6)


@given(JSONS | st.lists(JSONS | ODD | ODD.map(lambda odd: {"role": "user", "content": [odd]}), max_size=4))
def test_s7_whatever_is_sent_is_read_or_refused(items: Any) -> None:
    """§7: bad input is a 4xx that names the field, never anything else; what is read can be shown."""
    try:
        messages = parse_items(items)
    except InvalidRequest as error:
        named = str(error.param)
    else:
        named = "items"
        assert sum(len(items_of(message)) for message in messages) <= len(items)
    assert named.startswith("items")


@given(st.lists(JSONS | ODD, max_size=3), JSONS, st.sampled_from(["user", "assistant", "tool", "function"]))
def test_s1_whatever_is_stored_can_be_shown(parts: list[Any], extra: Any, role: str) -> None:
    """§1: messages of any upstream and client have items; each has an id and a type."""
    for content in (parts, extra if isinstance(extra, str) else None):
        body = {"role": role, "content": content, "tool_calls": None, "annotations": extra, "audio": extra}
        items = items_of(ConversationMessage(role=role, body=body, message_id="msg_1"))
        assert items
        assert all(item["id"].endswith("1") and item["type"] for item in items)


def test_s3_calls_in_a_row_are_one_message() -> None:
    call = {"type": "function_call", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "output": "x"}
    items = [
        {**call, "call_id": "a"},
        {**call, "call_id": "b"},
        {**output, "call_id": "b"},
        {**output, "call_id": "a"},
        {**call, "call_id": "c"},
        {"role": "assistant", "content": "done"},
        {**call, "call_id": "d"},
    ]
    found = [(m.role, [c["id"] for c in m.body.get("tool_calls", ())]) for m in read(*items)]
    assert found == [("assistant", ["a", "b"]), ("tool", []), ("tool", []), ("assistant", ["c"]), ("assistant", ["d"])]


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ({"content": None, "audio": {"id": "a", "transcript": "spoken"}}, ["spoken"]),
        ({"content": "", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}, []),
        ({"content": None}, []),
        ({"content": "x", "refusal": "no"}, ["x", "no"]),
    ],
)
def test_s3_what_an_assistant_said_in_other_ways(body: Json, texts: list[str]) -> None:
    items = items_of(ConversationMessage(role="assistant", body=body, message_id="msg_1"))
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    assert [part.get("text") or part.get("refusal") for part in parts] == texts


def test_s3_calls_from_before_there_were_tools_are_items() -> None:
    asked = ConversationMessage(
        role="assistant", body={"content": None, "function_call": {"name": "f", "arguments": "{}"}}, message_id="msg_1"
    )
    told = ConversationMessage(role="function", body={"name": "f", "content": "x"}, message_id="msg_2")
    call, output = items_of(asked)[0], items_of(told)[0]
    assert (call["type"], call["call_id"], call["name"]) == ("function_call", "f", "f")
    assert (output["type"], output["call_id"], output["output"]) == ("function_call_output", "f", "x")


def test_s3_calls_that_share_an_id_are_items_of_their_own() -> None:
    """§3.3: local servers repeat ids."""
    call = {"id": "0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = ConversationMessage(role="assistant", body={"tool_calls": [call, call]}, message_id="msg_1")
    first, second = items_of(message)
    assert first["id"] != second["id"]
