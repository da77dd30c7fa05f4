"""What a model needs back goes to the provider that made it, and to no other (contract §1)."""

from dataclasses import replace
from typing import Any

from gateway.models.conversation import ConversationMessage, History

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
