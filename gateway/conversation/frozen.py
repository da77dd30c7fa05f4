"""A conversation as its model was sent it before (contract §4 I7, ADR 12)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gateway.models.conversation import ConversationMessage, History, StoredConversation, TokenCounts
from gateway.models.frames import Form, Frame


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
    block, since something may stand there that they did not send (contract §3.2)."""
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
