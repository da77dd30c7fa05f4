"""What users and models wrote, as `gen_ai.input.messages` and `gen_ai.output.messages`; only with `telemetry.content`.

Roles with parts, as the conventions have them. Images, sounds and files are named, never exported. A call's texts are
exported up to `MAX_CHARS` together: the last messages first, as they are what was asked.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.core import jsons
from gateway.core.types.chat import dicts_of

Json = dict[str, Any]
MAX_CHARS = 200_000
"""Of one call, in either direction."""
LEFT_OUT = "[left out: too long to export]"


def of_input(body: Mapping[str, Any]) -> Json:
    """The attributes of what was asked."""
    messages = [each for each in body.get("messages") or () if isinstance(each, Mapping)]
    return {"gen_ai.input.messages": _written([(each, None) for each in messages])} if messages else {}


def of_output(answer: Mapping[str, Any]) -> Json:
    """The attributes of what was answered."""
    choices = [each for each in answer.get("choices") or () if isinstance(each, Mapping)]
    said = [(each.get("message"), each.get("finish_reason") or "error") for each in choices]
    found = [(message, reason) for message, reason in said if isinstance(message, Mapping)]
    return {"gen_ai.output.messages": _written(found)} if found else {}


def _written(messages: Sequence[tuple[Mapping[str, Any], str | None]]) -> str:
    left, written = MAX_CHARS, []
    for message, reason in reversed(messages):
        parts = _parts(message)
        size = sum(len(text) for part in parts for text in part.values() if isinstance(text, str))
        if size > left:
            parts = [{"type": "text", "content": LEFT_OUT}]
        left -= min(size, left)
        said: Json = {"role": str(message.get("role") or "assistant"), "parts": parts}
        written.append(said if reason is None else {**said, "finish_reason": reason})
    return jsons.dumps_text(written[::-1])


def _parts(message: Mapping[str, Any]) -> list[Json]:
    content = message.get("content")
    if message.get("role") == "tool":
        return [{"type": "tool_call_response", "id": message.get("tool_call_id"), "response": _text(content)}]
    parts: list[Json] = []
    if isinstance(content, str):
        parts.append({"type": "text", "content": content})
    for part in dicts_of(content):
        text = part.get("text")
        is_text = isinstance(text, str)
        parts.append({"type": "text", "content": text} if is_text else {"type": str(part.get("type"))})
    for call in message.get("tool_calls") or ():
        asked = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(asked, Mapping):
            named = {"id": call.get("id"), "name": asked.get("name"), "arguments": asked.get("arguments")}
            parts.append({"type": "tool_call", **named})
    return parts


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in dicts_of(content) if "text" in part)
