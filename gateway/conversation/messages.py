"""Messages: what makes two of them the same, and the reasoning that belongs to an assistant's."""

import hashlib
from collections.abc import Mapping
from typing import Any

from gateway import jsons
from gateway.models.conversation import ConversationMessage

INSTRUCTION_ROLES = ("system", "developer")


def content_text(content: Any) -> str | None:
    """The text of a content that is nothing but text, else None; a string equals its text parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(p, dict) and p.get("type") == "text" for p in content):
        return "".join(str(p.get("text", "")) for p in content)
    return None


def message_digest(message: Mapping[str, Any]) -> str:
    """Equal for messages that count as the same: outer white space is ignored (contract §3.1)."""
    text = content_text(message.get("content"))
    content = text.strip() if text is not None else message.get("content")
    identity: list[Any] = [message.get("role"), content or ""]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        identity.append([call.get("id"), function.get("name"), function.get("arguments")])
    if message.get("tool_call_id") is not None:
        identity.append(message["tool_call_id"])
    return hashlib.sha256(jsons.canonical(identity)).hexdigest()[:40]


def new_message(body: dict[str, Any]) -> ConversationMessage:
    """A message as it arrived, not stored yet."""
    return ConversationMessage(role=body["role"], body=body, digest=message_digest(body))


def is_tool_step(message: ConversationMessage) -> bool:
    """Whether it belongs to the working of a turn rather than to what was said in it."""
    return message.role == "tool" or bool(message.body.get("tool_calls"))


def is_unanswerable(message: ConversationMessage) -> bool:
    """A partial answer that left no text: nothing of it can be forwarded."""
    return message.role == "assistant" and not message.content and not message.body.get("tool_calls")
