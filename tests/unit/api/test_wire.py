"""What the edge refuses, and which field the error names (guarantee §2, §7); what a request says once it is valid."""

from typing import Any

import pytest

from gateway.api.request.validation import RequestArrival, parse_chat_request
from gateway.core.config.settings import Settings
from gateway.core.errors import InvalidRequest
from gateway.core.types.artifacts import ContextGoal, RequestAttachment
from gateway.core.types.chat import ChatRequest, RequestCaller
from gateway.core.types.conversation import ConversationRef
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
    ({"model": ["gpt-4o"]}, "model"),
    ({"model": "a\x00b"}, "model"),
    ({"model": "m" * 513}, "model"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
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
    ({"context": {"economy": "always"}}, "context.economy"),
    ({"context": {"memory": "always"}}, "context.memory"),
    ({"context": {"memory": ["summary"]}}, "context.memory"),
    ({"context": {"untouched_tools": "run"}}, "context.untouched_tools"),
    ({"context": {"untouched_tools": [3]}}, "context.untouched_tools[0]"),
    ({"context": {"untouched_tools": [""]}}, "context.untouched_tools[0]"),
    ({"context": {"untouched_tools": ["x"] * 101}}, "context.untouched_tools"),
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
    ([{**assistant("x"), "tool_calls": [{"id": "c", "type": "function"}]}], "messages[0].tool_calls[0].function"),
    ([{**assistant("x"), "tool_calls": [{"id": "c", "type": "custom"}]}], "messages[0].tool_calls[0].custom"),
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


def test_an_unknown_role_is_told_those_that_there_are() -> None:
    message = refused({"model": "m", "messages": [{"role": "robot", "content": "x"}]}).message
    assert all(role in message for role in ("system", "user", "assistant", "tool"))


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


BY_ID = ConversationRef("conv_a1")


def request(headers: dict[str, str] | None = None, settings: dict[str, Any] | None = None, **more: Any) -> ChatRequest:
    return parse({"model": "m", "messages": HELLO, **more}, headers, Settings.model_validate(settings or {}))


@pytest.mark.parametrize(
    ("fields", "headers", "ref"),
    [
        ({}, {}, ConversationRef()),
        ({"conversation": "conv_a1"}, {}, BY_ID),
        ({"conversation": {"id": "conv_a1"}}, {}, BY_ID),
        ({"conversation": {"id": "conv_a1", "metadata": {}}}, {}, BY_ID),
        ({}, {"x-conversation-id": "conv_a1"}, BY_ID),
        ({"conversation": "conv_a1"}, {"x-conversation-id": "conv_b2"}, BY_ID),
        ({"metadata": {"conversation_id": "conv_a1"}}, {}, BY_ID),
        ({"metadata": {"conversation_id": "conv_b2"}}, {"x-conversation-id": "conv_a1"}, BY_ID),
        ({"metadata": {"conversation_id": "ticket 7"}}, {}, ConversationRef()),
        ({"context": {"session": "work"}}, {}, ConversationRef(session="work")),
        ({}, {"x-context-session": "work"}, ConversationRef(session="work")),
        ({"context": {"session": "work"}}, {"x-context-session": "play"}, ConversationRef(session="work")),
        ({"conversation": "conv_a1", "context": {"session": "work"}}, {}, BY_ID),
        ({"conversation": None}, {}, ConversationRef()),
    ],
)
def test_the_first_name_of_a_conversation_that_is_present_counts(
    fields: dict[str, Any], headers: dict[str, str], ref: ConversationRef
) -> None:
    assert request(headers, **fields).conversation == ref


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_s2_a_session_has_one_name_in_body_and_header_however_the_client_encodes_it(encoding: str) -> None:
    """Servers hand headers on as Latin-1: in UTF-8 this name holds what is not printable, and was refused."""
    as_read = "Straße 3".encode(encoding).decode("latin-1")
    assert request({"x-context-session": as_read}).conversation == ConversationRef(session="Straße 3")


@pytest.mark.parametrize("odd", ["nonsense", "", "conv_", "conv_a/b", "conv_" + "a" * 500, "conv_a1\n"])
def test_an_id_that_no_client_was_given_names_no_conversation_rather_than_none(odd: str) -> None:
    """It must end in a 404, not in a new conversation."""
    assert request(conversation=odd).conversation == ConversationRef("conv_"), "an id that no conversation has"


def test_the_gateways_own_fields_do_not_go_up_and_all_others_do_untouched() -> None:
    own: dict[str, Any] = {"conversation": "conv_a1", "context": {"mode": "off"}, "store": True}
    own |= {"attachments": [{"content": "x"}], "metadata": {"a": "b"}}
    others: dict[str, Any] = {
        "temperature": 0.5,
        "x_unknown": {"deep": [1, None]},
        "user": "u",
        "prompt_cache_key": "k",
        "seed": 1,
    }
    parsed = request(**own, **others)
    assert parsed.forward == {"model": "m", **others}
    assert parsed.metadata == {"a": "b"}
    unset = dict.fromkeys(("conversation", "context", "attachments", "stream", "store", "metadata"))
    assert request(**unset).forward.keys() <= {"model", "stream"}


def test_s2_metadata_and_store_go_up_together_where_that_is_configured() -> None:
    sent: dict[str, Any] = {"store": True, "metadata": {"a": "b"}}
    parsed = request(settings={"upstream": {"forward_store": True}}, **sent)
    assert parsed.forward == {"model": "m", **sent}
    assert parsed.metadata == {"a": "b"}


@pytest.mark.parametrize(
    "metadata", [{"a": 7}, {"a" * 65: "b"}, {"a": "b" * 513}, {f"k{n}": "v" for n in range(17)}, ["a"], "text"]
)
def test_metadata_that_breaks_openais_rules_goes_up_and_is_not_stored(metadata: Any) -> None:
    parsed = request(metadata=metadata)
    assert parsed.metadata is None
    assert parsed.forward["metadata"] == metadata


def test_metadata_at_its_limits_is_stored() -> None:
    metadata = {f"{n:02}" + "k" * 62: "v" * 512 for n in range(16)}
    assert request(metadata=metadata).metadata == metadata


@pytest.mark.parametrize(("sent", "default", "store"), [(None, True, True), (None, False, False), (False, True, False),
                                                        (True, False, True)])  # fmt: skip
def test_store_is_the_requests_or_the_configured_default(sent: bool | None, default: bool, store: bool) -> None:
    assert request(settings={"conversation": {"store": default}}, store=sent).store is store


def test_the_body_outranks_headers_and_they_outrank_the_configuration() -> None:
    configured = {"context": {"mode": "simple", "planning": "never"}}
    headers = {"x-context-mode": "OFF", "x-context-planning": "always", "x-context-max-input-tokens": "500"}
    assert request(settings=configured).options.mode == "simple"
    assert request(headers, configured).options.mode == "off"
    assert request(headers, configured).options.planning == "always"
    assert request(headers, configured).options.max_input_tokens == 500
    blank = {name: f"{value} \t" for name, value in headers.items()}  # no part of a value, and left there by parsers
    assert request(blank, configured).options == request(headers, configured).options
    body = {"context": {"mode": "auto", "planning": "auto", "max_input_tokens": 7}}
    parsed = request(headers, configured, **body).options
    assert (parsed.mode, parsed.planning, parsed.max_input_tokens) == ("auto", "auto", 7)


@pytest.mark.parametrize(
    ("fields", "goal"),
    [
        ({}, ContextGoal.SYNTHESIS),
        ({"tools": []}, ContextGoal.SYNTHESIS),
        ({"tools": [{"type": "function"}]}, ContextGoal.REASONING),
        ({"functions": [{"name": "f"}]}, ContextGoal.REASONING),
        ({"tools": [{"type": "function"}], "context": {"goal": "synthesis"}}, ContextGoal.SYNTHESIS),
        ({"context": {"goal": "reasoning"}}, ContextGoal.REASONING),
    ],
)
def test_the_goal_is_reasoning_when_there_are_tools(fields: dict[str, Any], goal: ContextGoal) -> None:
    assert request(**fields).options.goal is goal


def test_usage_is_asked_for_only_by_a_stream() -> None:
    options: dict[str, Any] = {"stream_options": {"include_usage": True}}
    assert request(stream=True, **options).include_usage
    assert not request(stream=True).include_usage
    assert not request(stream=True, stream_options=None).include_usage
    assert not request(**options).include_usage


def test_attachments_are_taken_as_they_are() -> None:
    sent = [
        {"content": "c", "title": "t", "source": "https://x"},
        {"attachment_id": "file-1", "attachment_type": "data"},
    ]
    assert request(attachments=sent).attachments == (
        RequestAttachment(content="c", title="t", source="https://x"),
        RequestAttachment(attachment_id="file-1", attachment_type="data"),
    )


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "developer", "content": "x"}, *HELLO],
        [{"role": "system", "content": [{"type": "text", "text": "x"}]}, *HELLO],
        [*HELLO, {"role": "assistant"}],
        [*HELLO, {"role": "assistant", "content": None, "refusal": "no"}],
        [*HELLO, assistant(None, "c"), tool("c", [{"type": "text", "text": "x"}])],
        [*HELLO, {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "n"}}]}],
        [user([{"type": "x_new", "x_new": {}}])],
        [user([{"type": "image_url", "image_url": "https://x"}])],
        [user("")],
        [{**user("x"), "name": "bob", "cache_control": {"type": "ephemeral"}}],
        [{"role": "function", "name": "f", "content": "x"}],
    ],
)
def test_whatever_may_be_valid_upstream_is_let_through_as_it_is(messages: list[Any]) -> None:
    assert list(request(messages=messages).messages) == messages


def test_the_body_that_was_given_is_not_changed() -> None:
    body = {"model": "m", "messages": HELLO, "context": {"mode": "off"}, "metadata": {"a": "b"}, "store": True}
    parse(body)
    assert set(body) == {"model", "messages", "context", "metadata", "store"}
