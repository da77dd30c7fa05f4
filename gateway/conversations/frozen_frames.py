"""A conversation as its model was sent it before, and what of it another provider or client may get (ADR 12)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gateway.core.types.conversation import (
    ConversationHistory,
    ConversationMessage,
    Form,
    PromptFrame,
    StoredConversation,
    TokenCounts,
)
from gateway.core.types.items import PROVIDER_FIELDS

SIGNED_ID = "__thought__"
"""litellm appends the signature of Gemini's thought to the id of the tool call."""


def for_origin(history: ConversationHistory, origin: str) -> ConversationHistory:
    """The conversation for a model of the provider `origin`: stored answers of others lose their provider's fields.
    What the client sent with this request stays as it is."""
    stored = history.messages[: history.stored]
    foreign = [m.origin is not None and m.origin != origin for m in stored]
    if not any(foreign):
        return history
    answered_now = {str(m.body.get("tool_call_id")) for m in history.new_messages if m.role == "tool"}
    shortened: set[str] = set()
    messages: list[ConversationMessage] = []
    for message, strange in zip(stored, foreign, strict=True):
        body = message.body
        if strange:
            body = _without_provider_fields(body, answered_now, shortened)
        elif message.role == "tool" and body.get("tool_call_id") in shortened:
            body = {**body, "tool_call_id": _without_signature(str(body["tool_call_id"]))}
        messages.append(message if body is message.body else replace(message, body=body))
    return replace(history, messages=(*messages, *history.new_messages))


def without_provider_fields(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is forwarded, without what only the provider understands that made it, whoever sent it."""
    shortened: set[str] = set()
    found: list[dict[str, Any]] = []
    for message in messages:
        body = message
        if message["role"] == "assistant":
            body = _without_provider_fields(message, set(), shortened)
        elif message.get("tool_call_id") in shortened:
            body = {**message, "tool_call_id": _without_signature(str(message["tool_call_id"]))}
        found.append(body)
    return found


def _without_provider_fields(body: dict[str, Any], answered_now: set[str], shortened: set[str]) -> dict[str, Any]:
    """An assistant's message without provider fields. Ids of calls lose signatures that no new result names."""
    found = {k: v for k, v in body.items() if k not in PROVIDER_FIELDS}
    calls = body.get("tool_calls")
    if isinstance(calls, list):
        found["tool_calls"] = [_call(call, answered_now, shortened) for call in calls]
    return body if found == body else found


def _call(call: dict[str, Any], answered_now: set[str], shortened: set[str]) -> dict[str, Any]:
    found = {k: v for k, v in call.items() if k not in PROVIDER_FIELDS}
    if isinstance(found.get("function"), dict):
        found["function"] = {k: v for k, v in found["function"].items() if k not in PROVIDER_FIELDS}
    call_id = str(found.get("id"))
    if SIGNED_ID in call_id and call_id not in answered_now:
        shortened.add(call_id)
        found["id"] = _without_signature(call_id)
    return found


def _without_signature(call_id: str) -> str:
    return call_id.partition(SIGNED_ID)[0]


def as_frozen(history: ConversationHistory) -> ConversationHistory:
    """The conversation with its stored messages in the forms in which they were forwarded (guarantee §4 I7)."""
    frame = history.frame
    if frame is None or not frame.forms:
        return history
    stored = tuple(_as_frozen(message, frame) for message in history.messages[: history.stored])
    return replace(history, messages=(*stored, *history.new_messages))


def _as_frozen(message: ConversationMessage, frame: PromptFrame) -> ConversationMessage:
    name = message.message_id
    if name is None or name not in frame.forms:
        return message
    form = _paired(frame.forms[name], message.body)
    if form is message.body:
        return message
    counts = frame.counts.get(name)
    return replace(
        message,
        rendered=form,
        shown_in_full=frame.shown_in_full.get(name, ()),
        tokens=TokenCounts(message.body if form is None else form, counts) if counts else None,
    )


def _paired(form: Form, body: dict[str, Any]) -> Form:
    """The forwarded form, if its tool calls are still those of the message, else `body`: an unanswered call may have
    been taken out, or ids were shortened for another provider."""
    if form is None or form.get("tool_calls") != body.get("tool_calls"):
        return form if form is None else body
    if form.get("tool_call_id") != body.get("tool_call_id"):
        return {**form, "tool_call_id": body["tool_call_id"]}
    return form


def frame_for_unproven_sender(stored: StoredConversation) -> PromptFrame | None:
    """The part of a frame for a client that has sent all messages, but has not shown that the conversation is its own:
    without forms that hold anything it did not send, and without a memory message (guarantee §3.2)."""
    frame = stored.frame
    if frame is None or not (frame.unsent or frame.memory):
        return frame
    return replace(
        frame, memory=None, forms={key: form for key, form in frame.forms.items() if key not in frame.unsent}
    )


def with_stored_ids(
    messages: Sequence[ConversationMessage], stored: StoredConversation
) -> tuple[ConversationMessage, ...]:
    """The messages of a chain that was sent as it is stored, with stored ids, as far as it was read from its end."""
    kept = stored.resume_point.kept
    known = list(messages[:kept])
    for index, message in enumerate(reversed(stored.path[-kept:] if kept else ()), 1):
        own = known[kept - index]
        known[kept - index] = replace(own, message_id=message.message_id, pinned=own.pinned or message.pinned)
    return (*known, *messages[kept:])
