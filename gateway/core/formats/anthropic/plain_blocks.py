"""Renders Anthropic's blocks for an upstream that knows only chat completions (ADR 27), and digests what signed
thoughts are bound to (guarantee §10.10): Anthropic refuses a request if system, tools or messages before a thought
differ from those under which it was made. Cache marks are no part of that."""

import hashlib
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from gateway.core import errors, jsons
from gateway.core.formats.anthropic.edits import EDITS
from gateway.core.formats.anthropic.serializer import THOUGHT_BLOCKS, as_turns
from gateway.core.formats.tool_calls import is_silent, told_blocks, with_told
from gateway.core.jsons import Json
from gateway.core.types.content_parts import as_parts, dicts_of, map_parts, parts_of
from gateway.core.types.items import (
    ANTHROPIC_BLOCK,
    ANTHROPIC_BLOCKS,
    BOUND,
    BREAKPOINT,
    SIGNED,
    search_result_text,
)

Message = dict[str, Any]
CHAT_PART_FIELDS = {
    "text": ("type", "text"),
    "image_url": ("type", "image_url"),
    "input_audio": ("type", "input_audio"),
    "file": ("type", "file"),
    "refusal": ("type", "refusal"),
}
"""Content parts that a chat knows, and the fields that it knows of them."""
BY_TEXT = ("system", "assistant", "tool")
"""Roles whose content many servers accept only as one string."""
TEXT_FIELDS = {"type", "text"}
UNSAID = ("is_error",)
FAILURE_WORD = "Error"
SAYS_FAILED = re.compile(r"error|fail|exception|traceback|exit (?:code|status) -?[1-9]", re.IGNORECASE)
FAILURE_CHARS = 200
"""The beginning of a result, in which one that failed usually says so."""
UNSAID_PARTS = ("citations", "context")
"""Fields of parts that a chat's upstream does not know: those that Anthropic's blocks have beside their content."""
UNTHOUGHT = (*UNSAID, "thinking_blocks")
"""Fields that a chat's upstream does not know."""
PLAIN_BLOCK_NAMES = {"image_url": "picture", "input_image": "picture", "input_audio": "sound", "file": "document"}
"""Names of non-text parts where a tool's result refers to them."""


def plain_messages(messages: Iterable[Message], *, thoughts: bool) -> list[Message]:
    """Reduces messages to what a chat knows: unknown blocks become text; unknown fields and empty answers are dropped.
    `thoughts`: whether to send signed thoughts along, for a router to Anthropic's models."""
    found: list[Message] = []
    unsaid = UNSAID if thoughts else UNTHOUGHT
    for message in with_shown_apart(map(without_blocks, messages)):
        plain = {**_with_failure(message)}
        for name in unsaid:
            plain.pop(name, None)
        content = plain.get("content")
        if not isinstance(content, str | None):
            parts = list(map(_known, content))
            plain["content"] = _joined(parts) if plain.get("role") in BY_TEXT else parts
        if not is_silent(plain):
            found.append(plain)
    return found


def without_unsaid(messages: Iterable[Message], sent: Sequence[Message], *, thoughts: bool) -> list[Message]:
    """Returns the messages, in which stored ones lack what a chat has no field for: marks of failed results, citations.
    What the client `sent` stays as it is; so do the thoughts of answers that were made here, as their maker needs them
    back (guarantee §1). `thoughts`: as for `plain_messages`."""
    own = results_of(sent)
    found = []
    for message in messages:
        unsaid = UNSAID if thoughts or BOUND in message else UNTHOUGHT
        foreign = {*unsaid, *UNSAID_PARTS}
        content = message.get("content")
        fields = message if type(content) is str else set(message).union(*dicts_of(content))
        has_unsaid = not foreign.isdisjoint(fields)
        if has_unsaid and not (message.get("tool_call_id") in own if _is_result(message) else message in sent):
            told = _with_failure(message)
            message = {name: value for name, value in told.items() if name not in unsaid}
            message = map_parts(message, lambda part: {k: v for k, v in part.items() if k not in UNSAID_PARTS})
        found.append(message)
    return found


def _with_failure(message: Message) -> Message:
    """Returns a failed result whose text says that it failed: a chat has no field for it."""
    if not message.get("is_error"):
        return message
    content = message.get("content") or ""
    parts = as_parts(content)
    first = next((part for part in parts if part.get("type") == "text"), _text(""))
    text = str(first.get("text") or "")
    if SAYS_FAILED.search(text, 0, FAILURE_CHARS):
        return message
    told = {**first, "text": f"{FAILURE_WORD}: {text}" if text else FAILURE_WORD}
    rest = [part for part in parts if part is not first]
    return {**message, "content": told["text"] if isinstance(content, str) else [told, *rest]}


def results_of(sent: Iterable[Message]) -> set[Any]:
    """Returns the ids of the calls whose results are among these messages."""
    return {message.get("tool_call_id") for message in sent if _is_result(message)}


def _is_result(message: Message) -> bool:
    return message.get("role") == "tool"


def with_shown_apart(messages: Iterable[Message], own: Container[Any] = ()) -> Iterator[Message]:
    """Yields messages with the non-text parts of tool results moved to a user message: a chat's results are text.
    `own`: ids of calls whose results stay as they are, since the client of a chat itself sent them so."""
    shown: list[dict[str, Any]] = []
    for message in messages:
        if shown and not _is_result(message):
            others, shown = shown, []
            if message.get("role") == "user":
                content = message.get("content")
                message = {**message, "content": [*others, *(as_parts(content) if content else ())]}
            else:
                yield {"role": "user", "content": others}
        if is_shown(message) and message.get("tool_call_id") not in own:
            parts = as_parts(message["content"])
            shown += [part for part in parts if part.get("type") != "text"]
            told = [part if part.get("type") == "text" else _told_of(part) for part in parts]
            message = {**message, "content": _joined(told)}
        yield message
    if shown:
        yield {"role": "user", "content": shown}


def is_shown(message: Message) -> bool:
    """Returns whether a message is a tool's result with other parts than text."""
    content = message.get("content")
    is_list = type(content) is list and _is_result(message)  # mostly not
    return is_list and any(part.get("type") != "text" for part in dicts_of(content))


def _told_of(part: dict[str, Any]) -> dict[str, Any]:
    kind = PLAIN_BLOCK_NAMES.get(str(part.get("type")), "part")
    return _text(f"(The {kind} that this tool returned is shown below.)")


def _joined(parts: list[dict[str, Any]]) -> Any:
    """Joins parts to one string if all are plain texts."""
    is_text = all(part.keys() == TEXT_FIELDS for part in parts)
    return "\n\n".join(part["text"] for part in parts) if is_text else parts


def without_blocks(message: Message) -> Message:
    """Replaces what only Anthropic's own API accepts: verbatim blocks, and parts of kinds that no chat has. Renders
    tools that ran there as text (guarantee §1.14). Returns the same message if there is nothing to replace."""
    if ANTHROPIC_BLOCKS in message:
        told = told_blocks(message[ANTHROPIC_BLOCKS])
        message = with_told({name: value for name, value in message.items() if name != ANTHROPIC_BLOCKS}, told)
    parts = parts_of(message.get("content"))
    if not parts or all(map(_is_known, parts)):
        return message
    said = [part if _is_known(part) else _said(part) for part in parts]
    return {**message, "content": _joined(said) if message.get("role") == "tool" else said}


def _is_known(part: Any) -> bool:
    return not isinstance(part, dict) or ANTHROPIC_BLOCK not in part


def _known(part: Any) -> dict[str, Any]:
    """Reduces a part to the fields that a chat has for it."""
    fields = CHAT_PART_FIELDS.get(str(part.get("type")))
    return part if fields is None else {name: part[name] for name in fields if name in part}


def _said(part: dict[str, Any]) -> dict[str, Any]:
    """Renders a block as text: search results, a tool's name; for other kinds, that there was such a block."""
    if part.get("type") != ANTHROPIC_BLOCK:
        return {name: value for name, value in part.items() if name != ANTHROPIC_BLOCK}
    if (found := search_result_text(part)) is not None:
        return _text(found)
    block = part.get(ANTHROPIC_BLOCK)
    part = block if isinstance(block, dict) else {}
    kind = part.get("type")
    if kind == "tool_reference":
        return _text(str(part.get("tool_name") or ""))
    return _text(f"({kind}: not readable here)")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


THINKING_EDITS = "clear_thinking"
PLAIN_BLOCK_DIGEST_CHARS = 32


class PromptDigest:
    """The digest of a prompt as it grows, message by message. The same prompt is sent in other words by another
    protocol."""

    def __init__(self, model: str, tools: Iterable[Any], protocol: str) -> None:
        self._protocol = protocol
        self._hash = hashlib.sha256(jsons.canonical([model, *map(_unmarked, tools)]))

    def add(self, message: Json) -> None:
        """Adds the next message, in the form that is sent upstream."""
        try:
            said: Any = as_turns([message])
        except errors.InvalidRequest:  # another provider of signed thoughts may accept it
            said = message
        self._hash.update(b"\n" + jsons.canonical(_unmarked(said)))

    @property
    def digest(self) -> str:
        """Digest of all that was added so far."""
        return f"{self._protocol}:{self._hash.copy().hexdigest()[:PLAIN_BLOCK_DIGEST_CHARS]}"

    def fits(self, bound: Any) -> bool:
        """Returns whether thoughts that are bound to this digest may stand here. An older version named no protocol."""
        return bound in (self.digest, self.digest.partition(":")[2])


def is_signed(message: Json) -> bool:
    """Returns whether a message has signed thoughts."""
    return bool(message.get(SIGNED))


def signatures(message: Json) -> tuple[str, ...]:
    """Returns the signatures of a message's thoughts; of a redacted one its data."""
    blocks = message.get(SIGNED)
    found = blocks if isinstance(blocks, list) else ()
    return tuple(str(each.get("signature") or each.get("data")) for each in found if isinstance(each, dict))


def with_whole_thoughts(message: Json) -> Json:
    """Joins the pieces of signed thoughts, which clients of streams may send back as they came: a signature is that of
    the pieces before it. Removes the `index` by which these are merged."""
    blocks, whole = message.get(SIGNED), list[Json]()
    for each in dicts_of(blocks):
        block = {name: value for name, value in each.items() if name != "index"}
        if block.get("signature") and not block.get("thinking"):
            pieces = list(takewhile(_is_piece, reversed(whole)))[::-1]
            del whole[len(whole) - len(pieces) :]
            block["thinking"] = "".join(str(piece.get("thinking") or "") for piece in pieces)
        whole.append(block)
    return message if whole == blocks else {**message, SIGNED: whole}


def _is_piece(block: Json) -> bool:
    return block.get("type") == "thinking" and not block.get("signature")


def without_thoughts(message: Json) -> Json:
    """Removes a message's signed thoughts, and `reasoning_content`, which holds the same text."""
    found = {name: value for name, value in message.items() if name not in (SIGNED, "reasoning_content")}
    blocks = found.get(ANTHROPIC_BLOCKS)
    if isinstance(blocks, list):
        found[ANTHROPIC_BLOCKS] = [b for b in blocks if not isinstance(b, dict) or b.get("type") not in THOUGHT_BLOCKS]
    return found


def lacks_thoughts(messages: list[Json]) -> bool:
    """Returns whether the last step of a tool loop does not begin with a thought. If thinking was enabled by hand,
    Anthropic then answers only with it switched off."""
    last = next((i for i in reversed(range(len(messages))) if messages[i].get("role") == "assistant"), None)
    if last is None or last + 1 == len(messages) or messages[last + 1].get("role") != "tool":
        return False
    _, turns = as_turns([messages[last]])
    first = turns[0]["content"][0]["type"] if turns and turns[0]["content"] else None
    return first not in THOUGHT_BLOCKS


def is_enabled(thinking: Any) -> bool:
    """Returns whether thinking is enabled by hand, rather than left to the model."""
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"


def without_thinking(fields: Mapping[str, Any]) -> Json:
    """Removes `thinking` from a request's fields, and the edits that make sense only with it."""
    found = {name: value for name, value in fields.items() if name != "thinking"}
    edits = found.get(EDITS)
    if isinstance(edits, dict) and isinstance(edits.get("edits"), list):
        given = edits["edits"]
        kept = [e for e in given if not (isinstance(e, dict) and str(e.get("type")).startswith(THINKING_EDITS))]
        found[EDITS] = {**edits, "edits": kept}
        if not kept:
            del found[EDITS]
    return found


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unmarked(each) for name, each in value.items() if name != BREAKPOINT}
    return [_unmarked(each) for each in value] if isinstance(value, list | tuple) else value
