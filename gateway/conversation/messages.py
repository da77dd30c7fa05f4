"""Messages: what makes two of them the same, and the reasoning that belongs to an assistant's."""

import hashlib
from collections.abc import Mapping
from typing import Any

from gateway import jsons
from gateway.models.conversation import ConversationMessage

SAID_FIELDS = ("tool_call_id", "name", "refusal", "function_call")
ANSWER_FIELDS = ("content", "tool_calls", "refusal", "audio", "function_call")


def content_text(content: Any) -> str | None:
    """The text of a content that is nothing but text, else None; a string equals its text parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(p, dict) and p.get("type") == "text" for p in content):
        return "".join(str(p.get("text", "")) for p in content)
    return None


def message_digest(message: Mapping[str, Any]) -> str:
    """Equal for messages that count as the same (contract §3.1): outer white space is ignored, and so is what clients
    drop: reasoning, annotations, empty fields."""
    words = message.get("content")
    if (
        type(words) is str and len(message) == 2 and "role" in message
    ):  # a role and a text, as most are: the same, said shorter
        return hashlib.sha256(jsons.canonical([message["role"], words.strip(), {}])).hexdigest()[:40]
    text = content_text(words)
    content = text.strip() if text is not None else words
    identity: list[Any] = [message.get("role"), content or ""]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        identity.append([call.get("id"), function.get("name"), function.get("arguments"), call.get("custom")])
    audio = message.get("audio")
    said = {name: message[name] for name in SAID_FIELDS if message.get(name)}
    if isinstance(audio, dict) and audio.get("id"):
        said["audio"] = audio["id"]
    identity.append(said)
    return hashlib.sha256(jsons.canonical(identity)).hexdigest()[:40]


def new_message(body: dict[str, Any], number: int | None = None) -> ConversationMessage:
    """A message as it arrived, not stored yet; `number` is its place in the conversation, where that is known."""
    return ConversationMessage(role=body["role"], body=body, sequence_number=number, digest=message_digest(body))


def is_tool_step(message: ConversationMessage) -> bool:
    """Whether it belongs to the working of a turn rather than to what was said in it."""
    return message.role == "tool" or bool(message.body.get("tool_calls"))


def is_unanswerable(message: ConversationMessage) -> bool:
    """A partial answer that left nothing: there is nothing of it to forward."""
    return message.status == "partial" and not any(message.body.get(name) for name in ANSWER_FIELDS)
