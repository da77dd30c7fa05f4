"""What the edge refuses, and which field the error names (guarantee §2, §7)."""

from typing import Any

import pytest

from gateway.api.request.validation import RequestArrival, parse_chat_request
from gateway.core.config.settings import Settings
from gateway.core.errors import InvalidRequest
from gateway.core.types.chat import ChatRequest, RequestCaller
from tests.unit.making import NOW, assistant, tool, user

SETTINGS = Settings.model_validate(
    {"model_list": [{"model_name": "small", "litellm_params": {"model": "openai/small", "api_base": "http://x/v1"}}]}
)
HELLO = [user("hello")]


def parse(body: dict[str, Any], headers: dict[str, str] | None = None, settings: Settings = SETTINGS) -> ChatRequest:
    return parse_chat_request(body, headers or {}, RequestCaller("t"), settings, RequestArrival("req_1", NOW, 0.0, 0))


def refused(body: dict[str, Any], headers: dict[str, str] | None = None) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        parse(body, headers)
    assert raised.value.status == 400
    assert raised.value.message
    return raised.value


def part(**fields: Any) -> list[dict[str, Any]]:
    return [user([fields])]


FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "model"),
    ({"model": ""}, "model"),
    ({"model": 7}, "model"),
    ({"model": "a\x00b"}, "model"),
    ({"model": "m" * 513}, "model"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": {"role": "user"}}, "messages"),
    ({"stream": "yes"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"stream_options": []}, "stream_options"),
    ({"n": 0}, "n"),
    ({"n": True}, "n"),
    ({"n": 129}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "9"}, "max_tokens"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
    ({"tools": {}}, "tools"),
    ({"functions": "f"}, "functions"),
    ({"store": "no"}, "store"),
    ({"context": "off"}, "context"),
    ({"context": {"mod": "off"}}, "context.mod"),
    ({"context": {"mode": "fast"}}, "context.mode"),
    ({"context": {"mode": 1}}, "context.mode"),
    ({"context": {"mode": ["off"]}}, "context.mode"),
    ({"context": {"planning": "maybe"}}, "context.planning"),
    ({"context": {"goal": "fun"}}, "context.goal"),
    ({"context": {"max_input_tokens": 0}}, "context.max_input_tokens"),
    ({"context": {"max_input_tokens": "9"}}, "context.max_input_tokens"),
    ({"context": {"dry_run": "yes"}}, "context.dry_run"),
    ({"context": {"recall": "yes"}}, "context.recall"),
    ({"context": {"recall": 1}}, "context.recall"),
    ({"context": {"models": "small"}}, "context.models"),
    ({"context": {"models": {"judge": "small"}}}, "context.models.judge"),
    ({"context": {"models": {"summarizer": "unknown"}}}, "context.models.summarizer"),
    ({"context": {"models": {"context_planner": 7}}}, "context.models.context_planner"),
    ({"context": {"session": ""}}, "context.session"),
    ({"context": {"session": 7}}, "context.session"),
    ({"context": {"session": "a\nb"}}, "context.session"),
    ({"context": {"session": "s" * 257}}, "context.session"),
    ({"conversation": 7}, "conversation"),
    ({"conversation": {}}, "conversation.id"),
    ({"conversation": {"id": 7}}, "conversation.id"),
    ({"attachments": {}}, "attachments"),
    ({"attachments": [7]}, "attachments[0]"),
    ({"attachments": [{"content": "a"}, {}]}, "attachments[1]"),
    ({"attachments": [{"title": "t"}]}, "attachments[0]"),
    ({"attachments": [{"attachment_id": "f", "content": "a"}]}, "attachments[0]"),
    ({"attachments": [{"content": 7}]}, "attachments[0].content"),
    ({"attachments": [{"content": "a", "url": "x"}]}, "attachments[0].url"),
    ({"attachments": [{"content": "a", "title": 7}]}, "attachments[0].title"),
]
MESSAGES: list[tuple[list[Any], str]] = [
    (["hello"], "messages[0]"),
    ([{}], "messages[0].role"),
    ([{"role": "robot", "content": "x"}], "messages[0].role"),
    ([{"role": ["user"], "content": "x"}], "messages[0].role"),
    ([*HELLO, {"role": "user"}], "messages[1].content"),
    ([user(7)], "messages[0].content"),
    ([user({"type": "text"})], "messages[0].content"),
    ([user(["text"])], "messages[0].content[0]"),
    (part(text="x"), "messages[0].content[0]"),
    (part(type=7), "messages[0].content[0]"),
    (part(type="text"), "messages[0].content[0].text"),
    (part(type="text", text=7), "messages[0].content[0].text"),
    (part(type="file"), "messages[0].content[0].file"),
    ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id"),
    ([tool("c", None)], "messages[0].content"),
    ([{**user("x"), "tool_calls": []}], "messages[0].tool_calls"),
    ([{**assistant("x"), "tool_calls": {}}], "messages[0].tool_calls"),
    ([{**assistant("x"), "tool_calls": ["c"]}], "messages[0].tool_calls[0].id"),
    ([{**assistant("x"), "reasoning_items": -1}], "messages[0].reasoning_items"),
    ([{**assistant("x"), "output_items": {"type": "x"}}], "messages[0].output_items"),
    ([{**assistant("x", "c"), "native_blocks": [{"type": []}]}, tool("c", "y")], "messages[0].native_blocks[0].type"),
    ([{**assistant("x"), "thinking_blocks": [None]}], "messages[0].thinking_blocks[0]"),
    ([{**assistant("x"), "tool_calls": [{"function": {"name": "f"}}]}], "messages[0].tool_calls[0].id"),
    ([{**assistant("x"), "tool_calls": [{"id": "c", "function": {}}]}], "messages[0].tool_calls[0].function.name"),
    (
        [{**assistant("x"), "tool_calls": [{"id": "c", "type": "custom", "custom": "s"}]}],
        "messages[0].tool_calls[0].custom",
    ),
    ([assistant("x", "c", name=None)], "messages[0].tool_calls[0].function.name"),  # type: ignore[arg-type]
    ([assistant("x", "c", arguments={})], "messages[0].tool_calls[0].function.arguments"),  # type: ignore[arg-type]
]
HEADERS: list[tuple[dict[str, str], str]] = [
    ({"x-context-mode": "fast"}, "x-context-mode"),
    ({"x-context-planning": "maybe"}, "x-context-planning"),
    ({"x-context-max-input-tokens": "many"}, "x-context-max-input-tokens"),
    ({"x-context-max-input-tokens": "0"}, "x-context-max-input-tokens"),
    ({"x-context-max-input-tokens": "-5"}, "x-context-max-input-tokens"),
    ({"x-context-max-input-tokens": "٣"}, "x-context-max-input-tokens"),
    ({"x-context-max-input-tokens": "9" * 5000}, "x-context-max-input-tokens"),
    ({"x-context-session": "s" * 257}, "x-context-session"),
]


@pytest.mark.parametrize(("fields", "param"), FIELDS, ids=[f"{n}-{p}" for n, (_, p) in enumerate(FIELDS)])
def test_a_bad_field_is_named(fields: dict[str, Any], param: str) -> None:
    assert refused({"model": "m", "messages": HELLO, **fields}).param == param


@pytest.mark.parametrize(("messages", "param"), MESSAGES, ids=[f"{n}-{p}" for n, (_, p) in enumerate(MESSAGES)])
def test_a_bad_message_is_named_by_its_place(messages: list[Any], param: str) -> None:
    assert refused({"model": "m", "messages": messages}).param == param


@pytest.mark.parametrize(("headers", "param"), HEADERS, ids=[f"{n}-{p}" for n, (_, p) in enumerate(HEADERS)])
def test_a_bad_header_is_named(headers: dict[str, str], param: str) -> None:
    assert refused({"model": "m", "messages": HELLO}, headers).param == param


def test_an_empty_body_names_the_model() -> None:
    error = refused({})
    assert (error.param, error.code, error.type) == ("model", "missing_required_parameter", "invalid_request_error")
    assert refused({"model": "m"}).code == "missing_required_parameter"


def test_internal_models_may_be_served_by_a_star() -> None:
    """What `model_list` serves is of `model_list`, by its own name or by a wildcard's."""
    entry = {"model_name": "openai/*", "litellm_params": {"model": "openai/*", "api_base": "http://x/v1"}}
    settings = Settings.model_validate({"model_list": [entry]})
    body = {"model": "m", "messages": HELLO, "context": {"models": {"context_planner": "openai/gpt-4o-mini"}}}
    assert parse(body, settings=settings).options.models == {"context_planner": "openai/gpt-4o-mini"}
    body["context"] = {"models": {"context_planner": None, "summarizer": "openai/gpt-4o-mini"}}
    assert parse(body, settings=settings).options.models == {"summarizer": "openai/gpt-4o-mini"}, "null is not given"
    body["context"] = {"models": {"context_planner": "openai/"}}
    with pytest.raises(InvalidRequest):
        parse(body, settings=settings)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ("file-6F2ksmvXxt4VdoqmHRw6kL", "file_id"),
        (" file-abc\n", "file_id"),
        ("file_011CNha8iCJcU1wXNR6q4V8w", "file_id"),
        ("file-abc is the one that I mean", "content"),
        ("file_name", "content"),
        ("profile-abc", "content"),
    ],
)
def test_s2_a_string_is_a_content_or_the_id_of_a_file(said: str, field: str) -> None:
    (attachment,) = parse({"model": "small", "messages": HELLO, "attachments": [said]}).attachments
    assert attachment.model_dump(exclude_none=True, exclude={"attachment_type"}) == {
        field: said.strip() if field == "file_id" else said
    }
