"""What a request says once it is valid (guarantee §1, §2)."""

from typing import Any

import pytest

from gateway.core.config.settings import Settings
from gateway.core.types.artifacts import ContextGoal, RequestAttachment
from gateway.core.types.chat import ChatRequest
from gateway.core.types.conversation import ConversationRef
from tests.unit.api.test_wire import HELLO, parse
from tests.unit.making import assistant, tool, user

BY_ID, OTHER = ConversationRef("conv_a1"), ConversationRef("conv_b2")


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


def test_metadata_and_store_go_up_together_where_that_is_configured() -> None:
    sent: dict[str, Any] = {"store": True, "metadata": {"a": "b"}}
    parsed = request(settings={"upstream": {"forward_store": True}}, **sent)
    assert parsed.forward == {"model": "m", **sent}
    assert parsed.metadata == {"a": "b"}


@pytest.mark.parametrize(
    "metadata",
    [{"a": 7}, {"a" * 65: "b"}, {"a": "b" * 513}, {f"k{n}": "v" for n in range(17)}, ["a"], "text"],
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
