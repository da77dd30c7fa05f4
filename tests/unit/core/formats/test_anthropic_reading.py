"""Requests of Anthropic's API in the inner form, and what of them other upstreams are sent (guarantee §10.7)."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.api.fields import renamed
from gateway.core.errors import ContextLengthExceeded, InvalidRequest, UpstreamRefused, overflow_text
from gateway.core.formats.anthropic.edits import edits_of, limit_of, thinking_turns, without_old_thoughts
from gateway.core.formats.anthropic.message_events import error_body
from gateway.core.formats.anthropic.plain_blocks import plain_messages
from gateway.core.formats.anthropic.request_parser import MessagesReading, read_request
from gateway.core.formats.anthropic.serializer import as_turns
from gateway.core.types.chat import CacheMark, ModelDeployment
from gateway.pipeline.payload import as_upstream_takes, with_marks, with_sent_marks
from tests.support.answers import assistant, text_part, tool_result
from tests.unit.making import chat

Json = dict[str, Any]
MARK = {"type": "ephemeral"}
ASKED: Json = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}
FOUND = {"type": "search_result", "source": "s", "title": "t"}
BAD: list[tuple[Json, str]] = [
    ({"max_tokens": None}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": ["hello"]}, "messages[0]"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": [{**FOUND, "content": 7}]}]}, "messages[0].content[0].content"),
    ({"system": 7}, "system"),
    ({"tools": "weather"}, "tools"),
    ({"tools": [{"type": "web_search_20250305", "name": []}]}, "tools[0].name"),
    ({"context_management": {"edits": 7}}, "context_management"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0].source"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages[0].content[0].tool_use_id"),
    ({"messages": [assistant([{"type": "tool_use"}])]}, "messages[0].content[0].id"),
    ({"system": [{"type": "image"}]}, "system[0].type"),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
    ({"tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "some"}}, "tool_choice.type"),
    ({"metadata": {"user_id": 7}}, "metadata.user_id"),
    ({"metadata": 7}, "metadata"),
    ({"thinking": True}, "thinking"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"output_config": []}, "output_config"),
    ({"context_management": {"edits": [{}]}}, "context_management.edits[0]"),
]


def read(**more: Any) -> MessagesReading:
    return read_request({**ASKED, **more}, {})


@pytest.mark.parametrize("name", ["look", ""])
@pytest.mark.parametrize("pinned", [{}, {"pinned": True}])
def test_a_lone_step_is_read_the_same_with_marks_and_without(name: str, pinned: Json) -> None:
    call = {"type": "tool_use", "id": "c1", "name": name, "input": {"a": [1, 10**30]}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "found"}
    steps = (("assistant", call), ("user", result))
    bare, marked = (
        read(messages=[{"role": role, "content": [{**block, **mark}], **pinned} for role, block in steps])
        for mark in ({}, {"cache_control": MARK})
    )
    assert (bare.chat, bare.places) == (marked.chat, marked.places)
    assert (len(bare.native.marks), len(marked.native.marks)) == (0, 2)


@pytest.mark.parametrize(("more", "param"), BAD)
def test_what_breaks_a_rule_is_named(more: Json, param: str) -> None:
    with pytest.raises(InvalidRequest) as failed:
        read(**more)
    assert failed.value.param == param
    assert failed.value.message.startswith(param)


def test_an_error_of_the_chat_names_the_field_that_was_sent() -> None:
    """One of Anthropic's messages may be several of a chat's."""
    turns = [
        assistant([{"type": "tool_use", "id": "a", "name": "f", "input": {}}]),
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "x"},
                {"type": "document", "source": {"type": "content", "content": "so"}},
            ],
        },
    ]
    reading = read(system="s", messages=turns)
    assert [message["role"] for message in reading.chat["messages"]] == ["system", "assistant", "tool", "user"]
    named = {
        "messages[2]": "messages[1].content[0]",
        "messages[3].content[0].file": "messages[1].content[1].source.content",
        "messages[1].tool_calls[0].id": "messages[0].tool_calls[0].id",
        "stop": "stop_sequences",
        "tools[3].function": "tools[3]",
        "temperature": "temperature",
    }
    for inner, wire in named.items():
        renamed(error := InvalidRequest(f"{inner} is wrong.", param=inner), reading.external_field_name)
        assert (error.param, error.message) == (wire, f"{wire} is wrong.")


@pytest.mark.parametrize(
    ("given", "user", "session"),
    [
        ("ada", "ada", None),
        ("user_1_account_2_session_12345678-aa", "user_1_account_2", "12345678-aa"),
        ('{"device_id":"d","session_id":"s-1"}', '{"device_id":"d"}', "s-1"),
        ("{no json", "{no json", None),
    ],
)
def test_who_asks_and_in_which_session(given: str, user: str, session: str | None) -> None:
    reading = read(metadata={"user_id": given})
    assert (reading.chat["user"], reading.session) == (user, session)
    assert reading.native.fields["metadata"] == {"user_id": given}
    assert len(read(metadata={"user_id": "x" * 200}).chat["user"]) <= 64


def test_marks_stand_beside_the_messages_and_are_set_where_they_are_taken() -> None:
    """They count from the end: what was restored or left out stands before them."""
    turns = [
        {"role": "user", "content": "old"},
        assistant("so"),
        {"role": "user", "content": [text_part("new", cache_control=MARK)]},
    ]
    reading = read(system=[text_part("s", cache_control=MARK)], messages=turns)
    sent = reading.chat["messages"]
    assert "cache_control" not in str(sent)
    assert reading.native.marks == (CacheMark(0, 0, MARK), CacheMark(3, 0, MARK))
    forwarded = [sent[0], {"role": "user", "content": "restored"}, *sent[1:]]
    marked = with_marks(forwarded, sent, reading.native.marks)
    assert marked[0]["content"] == [text_part("s", cache_control=MARK)]
    assert marked[-1]["content"] == [text_part("new", cache_control=MARK)]
    assert marked[1:-1] == forwarded[1:-1]
    shorter = with_marks([sent[0], sent[3]], sent, reading.native.marks)
    assert shorter[1] == marked[-1]


def test_s4_i7_routers_get_the_marks_of_results_on_their_texts() -> None:
    """They read none on a message, so that no step of an agent's was cached."""
    result = {"type": "tool_result", "tool_use_id": "c", "content": "sunny", "cache_control": MARK}
    call = assistant([{"type": "tool_use", "id": "c", "name": "f", "input": {}}])
    reading = read(messages=[{"role": "user", "content": "look"}, call, {"role": "user", "content": [result]}])
    assert reading.native is not None
    sent = reading.chat["messages"]
    marked = with_marks(sent, sent, reading.native.marks, whole=False)
    assert marked[-1] == {**sent[-1], "content": [text_part("sunny", cache_control=MARK)]}


def test_s4_i7_a_chats_marks_leave_room_for_those_of_messages() -> None:
    """§10: what a chat marked is stored with its marks, those of Messages stand beside its messages."""
    before = [{"role": "user", "content": [text_part(f"{n}", cache_control=MARK)]} for n in range(5)]
    said = read(
        system=[text_part("s", cache_control=MARK)],
        tools=[{"name": "f", "input_schema": {}, "cache_control": MARK}],
        messages=[{"role": "user", "content": [text_part("new", cache_control=MARK)]}],
    )
    assert said.native is not None
    asked = replace(chat(said.chat["messages"]), api="messages", native=said.native)
    system, *new = asked.messages
    shown = with_sent_marks([system, *before, *new], asked, said.chat)
    assert [at for at, each in enumerate(shown) if "cache_control" in str(each)] == [5]
    assert str(with_marks(shown, asked.messages, said.native.marks)).count("cache_control") == 3


def test_s4_i7_marks_of_system_blocks_stay_at_them_behind_another_system_message() -> None:
    """§11.7: as a prompt profile stands in front, and two blocks of the client's may be equal."""
    system = [text_part("s"), text_part("s", cache_control=MARK)]
    reading = read(system=system, messages=[{"role": "user", "content": "new"}])
    sent = reading.chat["messages"]
    profile = {"role": "system", "content": "Be kind."}
    marked = with_marks([profile, *sent], sent, reading.native.marks)
    assert marked == [profile, *with_marks(sent, sent, reading.native.marks)]
    assert str(marked).count("cache_control") == 1


SEARCHED: list[Json] = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    text_part("found"),
]
CALLED: list[Json] = [text_part("I look."), {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]
OTHER_CALL: Json = {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}}
RESULT: Json = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text_part("r")]}


def marked_at(block: Json) -> Json:
    return {**block, "cache_control": MARK}


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([[marked_at(CALLED[0]), CALLED[1]], [RESULT]], [[marked_at(CALLED[0]), CALLED[1]], [RESULT]]),
        ([list(map(marked_at, CALLED)), [RESULT]], [list(map(marked_at, CALLED)), [RESULT]]),
        (
            [[marked_at(CALLED[1]), OTHER_CALL], [RESULT, {**RESULT, "tool_use_id": "toolu_2"}]],
            [[CALLED[1], marked_at(OTHER_CALL)], [RESULT, {**RESULT, "tool_use_id": "toolu_2"}]],
        ),
        ([CALLED, [{**RESULT, "content": [marked_at(RESULT["content"][0])]}]], [CALLED, [marked_at(RESULT)]]),
        ([[SEARCHED[0], marked_at(SEARCHED[1]), SEARCHED[2]]], [[*SEARCHED[:2], marked_at(SEARCHED[2])]]),
        ([[*SEARCHED[:2], marked_at(SEARCHED[2])]], [[*SEARCHED[:2], marked_at(SEARCHED[2])]]),
    ],
    ids=[
        "text before a call",
        "text and call",
        "first of two calls",
        "inside a result",
        "a page found",
        "behind pages",
    ],
)
def test_s4_i7_marks_in_answers_and_in_results_go_up(turns: list[list[Json]], expected: list[list[Json]]) -> None:
    """At the end of the result, and of an answer that is kept verbatim; else where they stand."""
    roles = ("user", "assistant") * 2
    said = [{"role": role, "content": each} for role, each in zip(roles, [[CALLED[0]], *turns], strict=False)]
    reading = read(messages=said)
    sent = reading.chat["messages"]
    _, told = as_turns(with_marks(sent, sent, reading.native.marks))
    shown = [
        {**block, "content": [text_part(block["content"])]} if block["type"] == "tool_result" else block
        for turn in told[1:]
        for block in turn["content"]
    ]
    assert shown == [block for each in expected for block in each]


def test_what_each_upstream_is_sent() -> None:
    """Anthropic what was said in its own words, OpenAI's thinking models their own fields, others a plain chat."""
    said = read(thinking={"type": "enabled", "budget_tokens": 2048}, top_k=3)
    request = replace(chat(said.chat["messages"]), api="messages", native=said.native)
    at = ModelDeployment("m", "m", "openai/m", "http://x/v1", None, operator_key=False, provider="hosted_vllm")
    forward = {"max_tokens": 10}
    assert as_upstream_takes(said.chat["messages"], forward, request, at)[1:] == (forward, None, ())
    thinks = replace(at, provider="openai", provider_model="gpt-5-mini")
    fields = as_upstream_takes(said.chat["messages"], forward, request, thinks).forward
    assert fields == {"max_completion_tokens": 10, "reasoning_effort": "low"}
    native = replace(at, protocol="anthropic", provider="anthropic")
    told = as_upstream_takes(said.chat["messages"], forward, request, native).native
    assert told == {"thinking": {"type": "enabled", "budget_tokens": 2048}, "top_k": 3}


def test_what_edits_ask_of_the_window() -> None:
    tools = {"type": "clear_tool_uses_20250919"}
    compact = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 70_000}}
    thinking = {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}
    edits = edits_of({"edits": [thinking, tools, compact]})
    assert limit_of(edits) == 70_000
    assert limit_of([tools]) == 100_000
    assert limit_of([{**tools, "trigger": {"type": "tool_uses", "value": 3}}]) is None
    assert (thinking_turns(edits), thinking_turns([{**thinking, "keep": "all"}])) == (1, None)
    turn: list[Json] = [{"role": "user"}, {"role": "assistant", "reasoning_content": "r"}]
    step: list[Json] = [{"role": "assistant", "thinking_blocks": ["t"]}, {"role": "tool"}]
    kept = without_old_thoughts([*turn, {"role": "user"}, *step, turn[1]], 1)
    assert ["reasoning_content" in m or "thinking_blocks" in m for m in kept] == [
        False,
        False,
        False,
        True,
        False,
        True,
    ]


def test_errors_in_anthropics_words() -> None:
    """One of Anthropic's own is as it came."""
    own = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "req_theirs"}
    assert error_body(UpstreamRefused(529, own, {}), "req_1") == own
    for text in (overflow_text(100, 120), overflow_text(100, 90, 30)):
        told = error_body(ContextLengthExceeded(f"{text} More.", param="messages"), "req_1")
        assert told["error"]["message"] == "prompt is too long: 120 tokens > 100 maximum"
    assert told["request_id"] == "req_1"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("no such lamp", "Error: no such lamp"),
        ("", "Error"),
        ("Exit code 1", "Exit code 1"),
        ("<tool_use_error>File does not exist.</tool_use_error>", None),
        ("0 lamps\n" * 99 + "failed", "Error: " + "0 lamps\n" * 99 + "failed"),
        ([text_part("no such"), text_part("lamp")], "Error: no such\n\nlamp"),
        ([], "Error"),
    ],
)
def test_s10_7_a_chats_model_reads_that_a_tool_failed(content: Any, told: Any) -> None:
    result = {"type": "tool_result", "tool_use_id": "c", "content": content, "is_error": True}
    call = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    said = [*ASKED["messages"], assistant([call]), {"role": "user", "content": [result]}]
    read = read_request({**ASKED, "messages": said}, {}).chat["messages"]
    (*_, found) = plain_messages(read, thoughts=False)
    assert found == tool_result("c", content if told is None else told)
    assert read[-1]["is_error"]


def test_s2_a_conversation_that_metadata_name_is_the_gateways_own() -> None:
    """It is not sent to Anthropic, which takes no such field; what else names something is the client's affair."""
    found = read(metadata={"user_id": "ann", "conversation_id": "conv_1"})
    assert found.chat["metadata"] == {"conversation_id": "conv_1"}
    assert found.native.fields["metadata"] == {"user_id": "ann"}
    found = read(metadata={"conversation_id": "mine"})
    assert (found.chat.get("metadata"), found.native.fields["metadata"]) == (None, {"conversation_id": "mine"})
