"""Chat messages as Anthropic's: roles that take turns, results right behind their calls, thoughts first (ADR 27)."""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Any

from gateway.core.errors import InvalidRequest
from gateway.core.formats.anthropic.message_completion import arguments_of
from gateway.core.types.conversation import INSTRUCTION_ROLES
from gateway.core.types.items import ANTHROPIC_BLOCK, ANTHROPIC_BLOCKS, BREAKPOINT, named_picture

Json = dict[str, Any]
Block = dict[str, Any]
DATA = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)
NO_ID = re.compile(r"[^a-zA-Z0-9_-]")
"""What Anthropic takes in no id of a call."""
THOUGHTS = ("thinking", "redacted_thinking")
KEPT = (BREAKPOINT, "citations", "context")
"""What else is said of a picture or a document."""
UNTITLED = ("document.pdf", "document.txt", "document")


def as_turns(messages: Iterable[Json]) -> tuple[list[Block], list[Json]]:
    """The system's blocks, and the messages. Instructions before the first message of a user or model are the system's;
    others stay where they are.

    Raises:
        InvalidRequest: a message holds what no model of Anthropic's takes.
    """
    system: list[Block] = []
    turns: list[Json] = []
    ids = _CallIds()
    for message in messages:
        role = message.get("role")
        if role in INSTRUCTION_ROLES and not turns:
            system += _with_breakpoint(_said(message.get("content")), message)
            continue
        if role == "assistant":
            blocks = _answer(message, ids)
        elif role in ("tool", "function"):
            blocks = [_result(message, ids)]
        else:
            blocks = _with_breakpoint(_said(message.get("content")), message)
        speaker = "assistant" if role == "assistant" else "system" if role in INSTRUCTION_ROLES else "user"
        if not blocks and role == "assistant":
            continue
        if turns and turns[-1]["role"] == speaker:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": speaker, "content": blocks})
    return [block for block in system if not _is_blank(block)], [_without_blanks(turn) for turn in turns]


class _CallIds:
    """Ids of calls as Anthropic takes them: of few characters, and each for one call of all. A result belongs to the
    last call that had its id."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._by_id: dict[str, str] = {}

    def of_call(self, call_id: str) -> str:
        stem = NO_ID.sub("_", call_id) or "call"
        name, number = stem, 1
        while name in self._used:
            number += 1
            name = f"{stem}_{number}"
        self._used.add(name)
        self._by_id[call_id] = name
        return name

    def of_result(self, call_id: str) -> str:
        return self._by_id.get(call_id, NO_ID.sub("_", call_id))


def _answer(message: Json, ids: _CallIds) -> list[Block]:
    """An assistant's message: all of its blocks as they came, where they are kept, or thoughts, text and calls."""
    calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
    named = {str(call.get("id")) for call in calls}
    kept = message.get(ANTHROPIC_BLOCKS)
    if isinstance(kept, list) and kept:
        return [_as_it_came(block, ids) for block in kept if _still_said(block, named, message)]
    blocks = [b for b in message.get("thinking_blocks") or () if isinstance(b, dict) and _is_signed(b)]
    blocks += [block for block in _said(message.get("content")) if not _is_blank(block)]
    if isinstance(message.get("refusal"), str) and message["refusal"]:
        blocks.append({"type": "text", "text": message["refusal"]})
    blocks += [_call(call, ids) for call in calls]
    if isinstance(message.get("function_call"), dict):
        function = message["function_call"]
        blocks.append(_call({"id": str(function.get("name")), "function": function}, ids))
    return _with_breakpoint(blocks, message)


def _still_said(block: Any, named: set[str], message: Json) -> bool:
    """Whether a block is still part of the message: calls may have been taken out of it, and thoughts."""
    if not isinstance(block, dict):
        return False
    if block.get("type") == "tool_use":
        return str(block.get("id")) in named
    return block.get("type") not in THOUGHTS or bool(message.get("thinking_blocks"))


def _as_it_came(block: Block, ids: _CallIds) -> Block:
    if block.get("type") != "tool_use":
        return block
    name = ids.of_call(str(block.get("id")))
    return block if name == block.get("id") else {**block, "id": name}


def _is_signed(block: Block) -> bool:
    """Thoughts that nobody signed, Anthropic does not take."""
    return bool(block.get("signature")) if block.get("type") == "thinking" else block.get("type") in THOUGHTS


def _call(call: Json, ids: _CallIds) -> Block:
    custom, function = call.get("custom"), call.get("function") or {}
    if isinstance(custom, dict):  # which goes up as a function, and is read here for what thoughts are bound to
        name, given = custom.get("name"), {"input": custom.get("input") or ""}
    else:
        name, given = function.get("name"), arguments_of(function.get("arguments"))
    made = {"type": "tool_use", "id": ids.of_call(str(call.get("id"))), "name": name, "input": given}
    return {**made, BREAKPOINT: call[BREAKPOINT]} if call.get(BREAKPOINT) else made


def _result(message: Json, ids: _CallIds) -> Block:
    content = message.get("content")
    call_id = str(message.get("tool_call_id") or message.get("name"))
    block: Block = {"type": "tool_result", "tool_use_id": ids.of_result(call_id)}
    mark = message.get(BREAKPOINT)
    if isinstance(content, str):
        block["content"] = content
    else:
        parts = [part for part in _said(content) if not _is_blank(part)]
        mark = next((part[BREAKPOINT] for part in reversed(parts) if part.get(BREAKPOINT)), mark)
        block["content"] = [{k: v for k, v in part.items() if k != BREAKPOINT} for part in parts]
    if message.get("is_error"):
        block["is_error"] = True
    return {**block, BREAKPOINT: mark} if mark else block


def _said(content: Any) -> list[Block]:
    """A content as blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for part in content or () for block in _part(part)]


def _part(part: Any) -> Iterator[Block]:
    if not isinstance(part, dict):
        yield {"type": "text", "text": str(part)}
        return
    kind = part.get("type")
    kept = {name: part[name] for name in KEPT if part.get(name) is not None}
    if kind == "image_url":
        image = part["image_url"] if isinstance(part.get("image_url"), dict) else {"url": part.get("image_url")}
        yield {"type": "image", "source": _source(str(image.get("url") or "")), **kept}
    elif kind == "input_image" and named_picture(part) is not None:
        yield {"type": "image", "source": {"type": "file", "file_id": part["file_id"]}, **kept}
    elif kind == "file" and isinstance(part.get("file"), dict):
        yield {**_document(part["file"]), **(part.get(ANTHROPIC_BLOCK) or {}), **kept}
    elif kind == "refusal":
        yield {"type": "text", "text": str(part.get("refusal") or "")}
    elif kind == "input_audio":
        raise InvalidRequest("This model takes no sound.", param="messages", code="unsupported_parameter")
    elif kind == ANTHROPIC_BLOCK:
        yield from _block_as_it_came(part)
    elif kind == "text" and isinstance(part.get(ANTHROPIC_BLOCK), dict):  # a document that is shown whole
        yield from _part({**part[ANTHROPIC_BLOCK], **{name: part[name] for name in (BREAKPOINT,) if part.get(name)}})
    else:
        yield part


def _block_as_it_came(part: Json) -> Iterator[Block]:
    """A block that a chat has no words for, with the mark that its part may have."""
    block = part.get(ANTHROPIC_BLOCK)
    if isinstance(block, dict):
        yield {**block, BREAKPOINT: part[BREAKPOINT]} if part.get(BREAKPOINT) else block


def _source(url: str) -> Json:
    head = DATA.match(url[:200])
    if head is None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": head.group(1) or "image/png", "data": url[head.end() :]}


def _document(file: Json) -> Block:
    """A file as a document. What is text goes up as text."""
    title = file.get("filename")
    named = {"title": title} if isinstance(title, str) and title and title not in UNTITLED else {}
    if isinstance(file.get("file_id"), str):
        return {"type": "document", "source": {"type": "file", "file_id": file["file_id"]}, **named}
    source = _source(str(file.get("file_data") or ""))
    if source["type"] == "base64" and source["media_type"].lower().startswith("text/"):
        source = {"type": "text", "media_type": "text/plain", "data": _decoded(source["data"])}
    return {"type": "document", "source": source, **named}


def _decoded(data: str) -> str:
    try:
        return base64.b64decode(data).decode("utf-8", "replace")
    except binascii.Error:
        return data


def _with_breakpoint(blocks: list[Block], message: Json) -> list[Block]:
    """A mark on the message as one on its last block."""
    if not message.get(BREAKPOINT) or not blocks:
        return blocks
    return [*blocks[:-1], {**blocks[-1], BREAKPOINT: message[BREAKPOINT]}]


def _is_blank(block: Block) -> bool:
    """Anthropic refuses a text of nothing."""
    return block.get("type") == "text" and not str(block.get("text") or "").strip()


def _without_blanks(turn: Json) -> Json:
    """What is nothing but blank stays: its sender is to hear that it cannot be sent."""
    kept = [block for block in turn["content"] if not _is_blank(block)]
    return {**turn, "content": kept} if kept else turn
