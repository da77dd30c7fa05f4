"""Prepares chats for litellm's translation to the APIs of Anthropic and Gemini, which drops, merges or invents what
those lack."""

import re
from collections.abc import Iterable
from typing import Any

from gateway.core import errors
from gateway.core.formats.anthropic.serializer import CallPairs
from gateway.core.formats.tool_calls import is_silent
from gateway.core.types.conversation import dicts_of

Json = dict[str, Any]
NOT_TAKEN = {"input_audio": "sound", "video_url": "video"}
"""Parts that no model of Anthropic's takes."""


ANY_ID = re.compile("(?!)")
"""Gemini never sees an id: litellm may keep a signature in it, and finds the name of a result's tool by it."""


def sound_chat(messages: Iterable[Json], *, is_claude: bool) -> list[Json]:
    """Returns the messages with a distinct id for each call, refusals as text, and without blank texts beside others.
    Raises InvalidRequest: no model of Anthropic's takes a part."""
    ids = CallPairs() if is_claude else CallPairs(ANY_ID)
    found: list[Json] = []
    for message in messages:
        if message.get("role") == "assistant":
            message = _answer(message, ids)
            if is_silent(message):
                continue
        elif message.get("tool_call_id"):
            message = {**message, "tool_call_id": ids.of_result(str(message["tool_call_id"]))}
        elif isinstance(message.get("content"), list):
            if is_claude:
                _check(message["content"])
            message = {**message, "content": _parts(message["content"]) or message["content"]}
        found.append(message)
    return found


def _answer(message: Json, ids: CallPairs) -> Json:
    said = {name: value for name, value in message.items() if name != "refusal"}
    parts = _parts(message.get("content")) + _parts(message.get("refusal"))
    if not isinstance(message.get("content"), str) or message.get("refusal") or not parts:
        said["content"] = parts or None
    if calls := message.get("tool_calls"):
        said["tool_calls"] = [{**call, "id": ids.of_call(str(call.get("id")))} for call in calls]
    return said


def _parts(content: Any) -> list[Json]:
    """Returns what is said as parts, refusals as texts, without blank texts."""
    told = [{"type": "text", "text": content}] if isinstance(content, str) else dicts_of(content)
    parts = [{"type": "text", "text": part.get("refusal")} if part.get("type") == "refusal" else part for part in told]
    return [part for part in parts if part.get("type") != "text" or str(part.get("text") or "").strip()]


def _check(parts: list[Any]) -> None:
    for part in dicts_of(parts):
        if (kind := NOT_TAKEN.get(str(part.get("type")))) is not None:
            raise errors.InvalidRequest(f"This model takes no {kind}.", param="messages", code="unsupported_parameter")
