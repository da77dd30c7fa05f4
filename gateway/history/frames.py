"""A conversation as its model was sent it before (guarantee §4 I7, ADR 12)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gateway.models.conversation import ConversationMessage, History, StoredConversation, TokenCounts
from gateway.models.frames import Form, Frame

# What a model needs back goes to the provider that made it, and to no other (guarantee §1).


BOUND = frozenset(
    {
        *("reasoning_content", "reasoning", "reasoning_details", "reasoning_items", "thinking_blocks"),
        *("thought_signature", "provider_specific_fields", "extra_content", "encrypted_content"),
    }
)
"""Fields of an assistant's message, and of its calls, that only their maker understands."""
SIGNED_ID = "__thought__"
"""litellm keeps the signature of Gemini's thought in the id of the call that it led to."""


def for_origin(history: History, origin: str) -> History:
    """The same conversation for a model of `origin`: stored answers of others are without what is bound to those.

    What the client sent with this request is its own affair and stays as it is.
    """
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
            body = _unbound(body, answered_now, shortened)
        elif message.role == "tool" and body.get("tool_call_id") in shortened:
            body = {**body, "tool_call_id": _short(str(body["tool_call_id"]))}
        messages.append(message if body is message.body else replace(message, body=body))
    return replace(history, messages=(*messages, *history.new_messages))


def _unbound(body: dict[str, Any], answered_now: set[str], shortened: set[str]) -> dict[str, Any]:
    """An assistant's message without bound fields; ids of its calls lose their signature unless a result to come
    names them."""
    found = {k: v for k, v in body.items() if k not in BOUND}
    calls = body.get("tool_calls")
    if isinstance(calls, list):
        found["tool_calls"] = [_call(call, answered_now, shortened) for call in calls]
    return body if found == body else found


def _call(call: dict[str, Any], answered_now: set[str], shortened: set[str]) -> dict[str, Any]:
    found = {k: v for k, v in call.items() if k not in BOUND}
    if isinstance(found.get("function"), dict):
        found["function"] = {k: v for k, v in found["function"].items() if k not in BOUND}
    call_id = str(found.get("id"))
    if SIGNED_ID in call_id and call_id not in answered_now:
        shortened.add(call_id)
        found["id"] = _short(call_id)
    return found


def _short(call_id: str) -> str:
    return call_id.partition(SIGNED_ID)[0]


def as_frozen(history: History) -> History:
    """The same conversation with stored messages in the forms in which they were forwarded."""
    frame = history.frame
    if frame is None or not frame.forms:
        return history
    stored = tuple(_as_frozen(message, frame) for message in history.messages[: history.stored])
    return replace(history, messages=(*stored, *history.new_messages))


def _as_frozen(message: ConversationMessage, frame: Frame) -> ConversationMessage:
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
        standing=frame.standing.get(name, ()),
        tokens=TokenCounts(message.body if form is None else form, counts) if counts else None,
    )


def _paired(form: Form, body: dict[str, Any]) -> Form:
    """A form whose calls are those of the message now: a call that nobody answered has left it, or ids are others for
    another provider. `body` itself where there is no such form."""
    if form is None or form.get("tool_calls") != body.get("tool_calls"):
        return form if form is None else body
    if form.get("tool_call_id") != body.get("tool_call_id"):
        return {**form, "tool_call_id": body["tool_call_id"]}
    return form


def of_sender(stored: StoredConversation) -> Frame | None:
    """What of a frame may go to somebody who sent all messages, but has not shown that the conversation is theirs: no
    block, since something may stand there that they did not send (guarantee §3.2)."""
    frame = stored.frame
    if frame is None or not frame.foreign:
        return frame
    return replace(frame, forms={key: form for key, form in frame.forms.items() if key not in frame.foreign})


def named(messages: Sequence[ConversationMessage], stored: StoredConversation) -> tuple[ConversationMessage, ...]:
    """The messages of a client that sent a chain as it is stored, under the ids that they are stored under: those that
    were read of the chain, from its end."""
    kept = stored.place.kept
    known = list(messages[:kept])
    for index, message in enumerate(reversed(stored.path[-kept:] if kept else ()), 1):
        known[kept - index] = replace(known[kept - index], message_id=message.message_id)
    return (*known, *messages[kept:])
