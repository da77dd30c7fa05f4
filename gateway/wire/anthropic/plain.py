"""What Anthropic's blocks are to an upstream that knows chat completions alone (ADR 27)."""

from collections.abc import Iterable
from typing import Any

from gateway.models.items import ANTHROPIC_BLOCK, ANTHROPIC_BLOCKS
from gateway.wire.anthropic.wording import blocks_in

Message = dict[str, Any]
PARTS = {
    "text": ("type", "text"),
    "image_url": ("type", "image_url"),
    "input_audio": ("type", "input_audio"),
    "file": ("type", "file"),
    "refusal": ("type", "refusal"),
}
"""Parts that a chat knows, with the fields that it knows of them."""
BY_TEXT = ("system", "assistant", "tool")
"""Roles whose texts many servers take as one string only."""
PICTURE = "(The picture that this tool returned is shown below.)"


def plain_messages(messages: Iterable[Message], *, thoughts: bool) -> list[Message]:
    """The messages in a chat's words: blocks that it does not know as text, without what says nothing to its model.

    Args:
        thoughts: whether signed thoughts go along, for a router to Anthropic's models.
    """
    found: list[Message] = []
    shown: list[dict[str, Any]] = []
    """Pictures of tools that a user's message has to show: a chat's results are texts."""
    for message in messages:
        if shown and message.get("role") != "tool":
            pictures, shown = shown, []
            if message.get("role") == "user":
                message = {**message, "content": [*pictures, *_as_parts(message.get("content"))]}
            else:
                found.append({"role": "user", "content": pictures})
        plain = without_blocks(message)
        if not thoughts and "thinking_blocks" in plain:
            plain = {name: value for name, value in plain.items() if name != "thinking_blocks"}
        if "is_error" in plain:
            plain = {name: value for name, value in plain.items() if name != "is_error"}
        content = plain.get("content")
        if isinstance(content, list):
            parts = [_known(part) for part in content]
            if plain.get("role") == "tool":
                shown += [part for part in parts if part.get("type") != "text"]
                parts = [part if part.get("type") == "text" else _text(PICTURE) for part in parts]
            joins = plain.get("role") in BY_TEXT and all(part.get("type") == "text" for part in parts)
            plain = {**plain, "content": "\n\n".join(part["text"] for part in parts) if joins else parts}
        found.append(plain)
    if shown:
        found.append({"role": "user", "content": shown})
    return found


def without_blocks(message: Message) -> Message:
    """A message without what only Anthropic's own API can be sent: blocks verbatim, and parts of kinds that no chat
    has. The same message where there is nothing of them."""
    if ANTHROPIC_BLOCKS in message:
        message = {name: value for name, value in message.items() if name != ANTHROPIC_BLOCKS}
    content = message.get("content")
    if not isinstance(content, list) or all(_is_known(part) for part in content):
        return message
    return {**message, "content": [part if _is_known(part) else _said(part) for part in content]}


def _is_known(part: Any) -> bool:
    return not isinstance(part, dict) or ANTHROPIC_BLOCK not in part


def _known(part: Any) -> dict[str, Any]:
    """A part with the fields that a chat has for it."""
    fields = PARTS.get(str(part.get("type")))
    return part if fields is None else {name: part[name] for name in fields if name in part}


def _said(part: dict[str, Any]) -> dict[str, Any]:
    """A block as text: what was found by a search, the name of a tool; of others, that there was one."""
    if part.get("type") != ANTHROPIC_BLOCK:
        return {name: value for name, value in part.items() if name != ANTHROPIC_BLOCK}
    block = part.get(ANTHROPIC_BLOCK)
    part = block if isinstance(block, dict) else {}
    kind = part.get("type")
    if kind == "search_result":
        texts = [str(each.get("text") or "") for each in blocks_in(part.get("content"))]
        return _text("\n\n".join([f"{part.get('title') or ''} ({part.get('source') or ''})".strip(), *texts]))
    if kind == "tool_reference":
        return _text(str(part.get("tool_name") or ""))
    return _text(f"({kind}: not readable here)")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _as_parts(content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    return [_text(content)] if isinstance(content, str) and content else []
