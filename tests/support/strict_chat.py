"""Whether a chat request is one that a strict provider would take.

The gateway rewrites histories; what it may never do is send something that only a lenient provider accepts.
"""

import re
from collections.abc import Iterator
from typing import Any

GATEWAY_FIELDS = ("conversation", "attachments", "context")
"""Guarantee §2: taken out before forwarding."""

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_PARTS = {
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal", "thinking", "redacted_thinking"),
}
_ARGUMENTS = {"function": "arguments", "custom": "input"}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


def violations(body: Any) -> list[str]:
    """Everything that is wrong with the body of `POST /v1/chat/completions`, in order."""
    if not isinstance(body, dict):
        return ["the body is not a JSON object"]
    return [*_top_level(body), *_messages(body.get("messages"))]


def _top_level(body: dict[str, Any]) -> Iterator[str]:
    for name in GATEWAY_FIELDS:
        if name in body:
            yield f"Unrecognized request argument supplied: {name}"
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "'model' must be a non-empty string"
    if not isinstance(body.get("stream", False), bool | None):
        yield "'stream' must be a boolean"
    if body.get("stream_options") is not None and not body.get("stream"):
        yield "The 'stream_options' parameter is only allowed when 'stream' is enabled."
    if not isinstance(body.get("stream_options"), dict | None):
        yield "'stream_options' must be an object"
    for name in ("n", "max_tokens", "max_completion_tokens"):
        value = body.get(name)
        if value is not None and (type(value) is not int or value < 1):
            yield f"'{name}' must be a positive integer"
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        yield "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
    tools = body.get("tools")
    if tools is not None and (not isinstance(tools, list) or not tools):
        yield "'tools' must be a non-empty array"
    if body.get("tool_choice") is not None and not tools:
        yield "'tool_choice' is only allowed when 'tools' are specified."
    if _lone_surrogate(body):
        yield "the body is not valid Unicode: it holds half a surrogate pair"


def _messages(messages: Any) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "'messages' must be a non-empty array"
        return
    pending: dict[str, str] = {}
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, dict):
            yield f"{where} is not an object"
            continue
        role = message.get("role")
        if role not in _ROLES:
            yield f"{where}: unknown role {role!r}"
            continue
        for name in GATEWAY_FIELDS:
            if name in message:
                yield f"{where}: unknown field '{name}'"
        if role == "tool":
            call_id = message.get("tool_call_id")
            if not isinstance(call_id, str) or pending.pop(call_id, None) is None:
                yield f"{where}: messages with role 'tool' must follow the assistant message with their call"
        elif pending:
            yield f"{where}: calls without an answer before it: {', '.join(pending.values())}"
            pending = {}
        yield from _content(message, role, where)
        if role == "assistant":
            yield from _calls(message, where)
            if isinstance(spoken := message.get("audio"), dict) and spoken.keys() != {"id"}:
                yield f"{where}.audio: a request names an audio by its 'id' alone"
            calls = message.get("tool_calls") or []
            pending = {str(c.get("id")): f"{where} {c.get('id')}" for c in calls if isinstance(c, dict)}
    if pending:
        yield f"calls without an answer at the end: {', '.join(pending.values())}"


def _content(message: dict[str, Any], role: str, where: str) -> Iterator[str]:
    content = message.get("content")
    if content is None:
        stands_in = ("tool_calls", "function_call", "refusal", "audio")
        if role != "assistant" or not any(message.get(name) for name in stands_in):
            yield f"{where}: 'content' is missing"
    elif isinstance(content, list):
        if not content:
            yield f"{where}: 'content' is an empty array"
        for number, part in enumerate(content):
            yield from _part(part, _PARTS.get(role, ("text",)), f"{where}.content[{number}]")
    elif not isinstance(content, str):
        yield f"{where}: 'content' must be a string or an array of parts"


def _part(part: Any, kinds: tuple[str, ...], where: str) -> Iterator[str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in kinds:
        yield f"{where}: type {kind!r} is not one of {', '.join(kinds)}"
    elif kind == "text" and not isinstance(part.get("text"), str):
        yield f"{where}: 'text' must be a string"
    elif kind in ("image_url", "input_audio", "file") and not isinstance(part.get(kind), dict):
        yield f"{where}: '{kind}' must be an object"


def _calls(message: dict[str, Any], where: str) -> Iterator[str]:
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, list) or not calls:
        yield f"{where}: 'tool_calls' must be a non-empty array"
        return
    seen: set[str] = set()
    for number, call in enumerate(calls):
        at = f"{where}.tool_calls[{number}]"
        kind = str(call.get("type")) if isinstance(call, dict) else ""
        function = call.get(kind) if kind in _ARGUMENTS else None
        if not isinstance(function, dict):
            yield f"{at}: neither a function call nor a custom tool's"
            continue
        if not isinstance(call.get("id"), str) or not call["id"] or call["id"] in seen:
            yield f"{at}: 'id' must be a non-empty string, unique in its message"
        seen.add(str(call.get("id")))
        if not isinstance(function.get("name"), str) or not _NAME.match(function["name"]):
            yield f"{at}: function name {function.get('name')!r} does not match {_NAME.pattern}"
        if not isinstance(function.get(_ARGUMENTS[kind]), str):
            yield f"{at}: '{_ARGUMENTS[kind]}' must be a string"


def _lone_surrogate(value: Any) -> bool:
    if isinstance(value, str):
        return not value.isascii() and _unencodable(value)
    if isinstance(value, dict):
        return any(_lone_surrogate(key) or _lone_surrogate(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_lone_surrogate, value))


def _unencodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
