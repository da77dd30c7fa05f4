"""What a request in the words of Responses is as a chat."""

from typing import Any

import pytest

from gateway.api.fields import renamed
from gateway.core.errors import InvalidRequest
from gateway.core.formats.responses.request_parser import CompactedExtract, ResponsesReading, read_request
from gateway.upstream.routing.protocols import needs_no_pictures
from tests.support.answers import assistant, function_tool, text_part, tool_call, tool_result, user

Json = dict[str, Any]
CALL: Json = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
OTHER: Json = {**CALL, "call_id": "c2"}
OUTPUT: Json = {"type": "function_call_output", "call_id": "c1", "output": "x"}
THOUGHT: Json = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}]}
SEALED: Json = {**THOUGHT, "encrypted_content": "e"}
SEARCH: Json = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
SAID: Json = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "t"}]}


def read(items: Any, **fields: Any) -> ResponsesReading:
    return read_request({"model": "m", "input": items, **fields})


def messages(items: Any) -> list[Json]:
    found: list[Json] = read(items).chat["messages"]
    return found


def called(*names: str) -> list[Json]:
    return [tool_call(name, "f") for name in names]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("hi", [user("hi")]),
        ([CALL, OTHER], [assistant(None, tool_calls=called("c1", "c2"))]),
        (
            [SEALED, CALL, {**SEALED, "encrypted_content": "f"}, OTHER, OUTPUT],
            [
                assistant(
                    None,
                    reasoning_items=[SEALED, {**SEALED, "encrypted_content": "f"}],
                    tool_calls=called("c1", "c2"),
                    item_order=[
                        *({"type": "reasoning"}, {"type": "function_call", "call_id": "c1"}),
                        *({"type": "reasoning"}, {"type": "function_call", "call_id": "c2"}),
                    ],
                ),
                tool_result("c1", "x"),
            ],
        ),
        (
            [CALL, SAID],
            [assistant("t", tool_calls=called("c1"), item_order=[{"type": "function_call", "call_id": "c1"}, SAID])],
        ),
        ([SAID, SAID], [assistant("t")] * 2),
        (
            [THOUGHT, SEARCH, THOUGHT, SAID],
            [
                assistant(
                    "t",
                    reasoning_items=[THOUGHT, THOUGHT],
                    output_items=[SEARCH],
                    item_order=[*({"type": kind} for kind in ("reasoning", SEARCH["type"], "reasoning")), SAID],
                )
            ],
        ),
        ([SAID, THOUGHT], [assistant("t")]),
        (
            [SAID, SEALED, CALL],
            [
                assistant(
                    "t",
                    reasoning_items=[SEALED],
                    tool_calls=called("c1"),
                    item_order=[SAID, {"type": "reasoning"}, {"type": "function_call", "call_id": "c1"}],
                )
            ],
        ),
        ([{**SAID, "content": []}], [assistant("")]),
    ],
    ids=[
        *("text", "parallel", "thoughts between calls", "text behind a call", "two texts", "hosted", "led nowhere"),
        *("thoughts behind a text", "an empty answer"),
    ],
)
def test_items_are_messages(items: Any, expected: list[Json]) -> None:
    found = messages(items)
    if "output_items" in found[0]:
        found = [{k: v for k, v in found[0].items() if k != "reasoning_content"}]
    assert found == expected


@pytest.mark.parametrize("between", [{"role": "developer", "content": "a note"}, user("wait")])
def test_s1_results_behind_what_was_said_meanwhile_stand_behind_their_calls(between: Json) -> None:
    """OpenAI takes them anywhere behind the call; a chat's upstreams do not."""
    late = {**OUTPUT, "call_id": "c2", "output": "y"}
    again = {**CALL, "name": "g"}
    found = messages([CALL, OTHER, OUTPUT, between, late, again, between, OUTPUT])
    first, second = called("c1", "c2"), called("c1")
    second[0]["function"]["name"] = "g"
    assert found == [
        assistant(None, tool_calls=first),
        tool_result("c1", "x"),
        tool_result("c2", "y"),
        between,
        assistant(None, tool_calls=second),
        tool_result("c1", "x"),
        between,
    ]


def test_what_no_chat_has_is_kept_for_who_has_it() -> None:
    """`Native.fields` go up untouched; `needs` name what makes no sense elsewhere."""
    search = {"type": "web_search"}
    found = read(
        [user("x"), SEARCH],
        tools=[search, {"type": "function", "name": "f", "parameters": {}}],
        tool_choice=search,
        reasoning={"effort": "low", "summary": "auto"},
        text={"format": {"type": "text"}, "shape": 1},
        include=["reasoning.encrypted_content", "message.output_text.logprobs"],
        max_tool_calls=3,
        brand_new={"a": 1},
        prompt={"id": "p"},
    )
    assert found.native.fields == {
        "tools": [search],
        "tool_choice": search,
        "reasoning": {"summary": "auto"},
        "text": {"shape": 1},
        "include": ["reasoning.encrypted_content"],
        "max_tool_calls": 3,
        "brand_new": {"a": 1},
        "prompt": {"id": "p"},
    }
    assert set(found.native.needs) == {"prompt", "tool_choice"}
    assert found.native.hosted == (("input[1]", "web_search_call"), ("tools[0]", "web_search"))
    assert found.chat["tools"] == [function_tool("f", parameters={})]
    assert (found.chat["reasoning_effort"], found.chat["logprobs"]) == ("low", True)
    assert "tool_choice" not in found.chat


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"background": True}, "background"),
        ({"truncation": "some"}, "truncation"),
        ({"input": None}, "input"),
        ({"input": 3}, "input"),
        ({"input": [3]}, "input[0]"),
        ({"input": [{"type": "message", "role": "user"}]}, "input[0].content"),
        ({"input": [user([{"type": "output_audio"}])]}, "input[0].content[0].type"),
        ({"input": [CALL, {**OUTPUT, "output": None}]}, "input[1].output"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"type": "shell_call", "call_id": "c", "action": []}]}, "input[0].action"),
        ({"input": [{"type": "apply_patch_call", "call_id": "c"}]}, "input[0].operation"),
        ({"input": [{"type": "local_shell_call_output", "id": "c"}]}, "input[0].output"),
        ({"input": [{"type": "shell_call_output", "call_id": "c", "output": "x"}]}, "input[0].output"),
        ({"input": [{"type": "apply_patch_call_output", "call_id": "c", "status": "x"}]}, "input[0].status"),
        ({"input": [{"type": "apply_patch_call_output", "call_id": "c", "output": []}]}, "input[0].output"),
        ({"instructions": ["x"]}, "instructions"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": ["x"]}, {"type": "shell"}]}, "tools[0].name"),
        ({"tool_choice": "some"}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto"}}, "tool_choice.tools"),
        ({"text": "x"}, "text"),
        ({"text": {"format": "json"}}, "text.format"),
        ({"include": "x"}, "include"),
        ({"previous_response_id": "resp_1", "conversation": "conv_1"}, "previous_response_id"),
    ],
)
def test_bad_input_names_its_field(fields: Json, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_request({"model": "m", "input": "hi", **fields})
    assert caught.value.param == param
    assert param in caught.value.message


SHELL_CALL: Json = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}
DONE: Json = {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
ANSWER: Json = {"type": "shell_call_output", "call_id": "c", "output": [DONE]}


def test_s1_11_a_shell_that_its_answerer_runs_is_none_of_the_clients() -> None:
    """§1.11: such calls, and what came of them, are kept for whoever ran them."""
    container = {"environment": {"type": "container_reference", "container_id": "x"}}
    tool = {"type": "shell", "environment": {"type": "container_auto"}}
    found = read([user("x"), {**SHELL_CALL, **container}, ANSWER], tools=[tool])
    assert [kind for _, kind in found.native.hosted] == ["shell_call", "shell_call_output", "shell"]
    assert "tools" not in found.chat
    assert found.chat["messages"][1]["output_items"] == [{**SHELL_CALL, **container}, ANSWER]
    both = read("x", tools=[{"type": "shell"}, {"type": "function", "name": "shell", "parameters": {}}])
    assert [tool["function"]["name"] for tool in both.chat["tools"]] == ["shell"]
    assert both.native.hosted == (("tools[0]", "shell"),)


def test_s1_11_a_local_shells_result_names_its_call_by_any_of_its_ids() -> None:
    """§1.11: OpenAI's models name it `id`, its guides `call_id`."""
    action = {"type": "exec", "command": ["ls"], "env": {}}
    call = {"type": "local_shell_call", "id": "lsh_1", "call_id": "c", "action": action, "status": "completed"}
    for name, value in (("id", "c"), ("id", "lsh_1"), ("call_id", "c")):
        (_, result) = messages([call, {"type": "local_shell_call_output", name: value, "output": "a"}])
        assert result == tool_result("c", "a")


def test_s1_11_skills_of_a_local_shell_are_told() -> None:
    skill = {"name": "pdf", "description": "Reads PDFs.", "path": "/skills/pdf"}
    found = read("x", tools=[{"type": "shell", "environment": {"type": "local", "skills": [skill]}}])
    assert found.chat["tools"][0]["function"]["description"].endswith("pdf (/skills/pdf): Reads PDFs.")


def test_errors_of_a_chat_are_told_in_the_words_of_the_request() -> None:
    found = read([user("x"), CALL, OTHER, OUTPUT], instructions="Be brief.")
    for param, own in (
        ("messages[0].content", "instructions"),
        ("messages[1].content[2].text", "input[0].content[2].text"),
        ("messages[2]", "input[1]"),
        ("messages[3].content", "input[3].output"),
        ("messages[3].tool_call_id", "input[3].call_id"),
        ("messages", "input"),
        ("response_format", "text.format"),
        ("response_format.json_schema.schema", "text.format.schema"),
        ("model", "model"),
    ):
        error = InvalidRequest(f"{param} must be another.", param=param)
        renamed(error, found.external_field_name)
        assert (error.param, error.message) == (own, f"{own} must be another.")


def test_s7_errors_of_tools_name_them_as_they_were_sent() -> None:
    flat, nested = {"type": "function", "name": "a"}, function_tool("c")
    group = {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "b"}]}
    custom = {"type": "custom", "custom": {"name": "d"}}
    found = read("x", tools=[{"type": "web_search"}, flat, group, nested, custom])
    named = {
        "tools[0].function.parameters": "tools[1].parameters",
        "tools[0]": "tools[1]",
        "tools[1].function.name": "tools[2].tools[0].name",
        "tools[2].function.parameters": "tools[3].function.parameters",
        "tools[2].type": "tools[3].type",
        "tools[3].type": "tools[4].type",
    }
    assert {inner: found.external_field_name(inner) for inner in named} == named


def test_what_stands_for_something_else_is_named_alone() -> None:
    """Of a compaction item nothing is named that its client has not sent."""
    said = CompactedExtract("What was said.", user([{"type": "file", "file": {"file_id": "file-1"}}]))
    found = read([said, user([{"type": "input_file", "file_id": "file-2"}])])
    named = {
        "messages[1].content[0].file.file_id": "input[0]",
        "messages[2].content[0].file": "input[1].content[0].file_id",
    }
    assert {inner: found.external_field_name(inner) for inner in named} == named


def test_parts_that_name_what_only_such_an_upstream_can_get() -> None:
    """They are kept as they are, and named."""
    parts = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "file_id": "file-1", "detail": "low"},
        {"type": "input_file", "file_url": "https://example.com/a.pdf"},
        {"type": "input_file", "file_id": "file-2"},
    ]
    found = read([user(parts)])
    assert found.native.needs == ("input[0].content[1].file_id", "input[0].content[2].file_url")
    assert needs_no_pictures(found.native).needs == ("input[0].content[2].file_url",)
    text, image, url, file = found.chat["messages"][0]["content"]
    assert text == text_part("see")
    assert (image, url) == (parts[1], parts[2])
    assert file == {"type": "file", "file": {"file_id": "file-2"}}
