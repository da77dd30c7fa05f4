"""Items of a conversation, as OpenAI's Conversations API shows stored chat messages.

A message of the assistant can be several items: its thoughts, its text, its tool calls. Their ids are made of the
message's own, so that they stay the same, whatever else of the message is deleted.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from gateway.base import jsons
from gateway.base.ids import content_digest
from gateway.errors import InvalidRequest
from gateway.models.conversation import ConversationMessage

# Parts of a message's content: as chat completions have them, and as conversation items have them.


Part = dict[str, Any]
TEXT_TYPES = ("input_text", "text")
OUTPUT_TYPES = ("output_text", *TEXT_TYPES)


def refused(where: str, rule: str) -> InvalidRequest:
    """A 400 that names the field and its rule."""
    return InvalidRequest(f"{where} {rule}.", param=where, code="invalid_value")


def input_parts(content: Any) -> list[Part]:
    """What a user, system message or tool said, as parts of an item."""
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}]
    return [_input_part(part) for part in content or ()]


def output_parts(body: dict[str, Any]) -> list[Part]:
    """What an assistant's message says: its text with annotations, its refusal."""
    content = body.get("content")
    audio = body.get("audio")
    if not content and isinstance(audio, dict) and isinstance(audio.get("transcript"), str):
        content = audio["transcript"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    parts = [_output_part(part) for part in content or ()]
    if isinstance(body.get("refusal"), str):
        parts.append({"type": "refusal", "refusal": body["refusal"]})
    said = next((part for part in parts if part.get("type") == "output_text"), None)
    if said is not None and isinstance(body.get("annotations"), list):
        said["annotations"] = [_flat(annotation) for annotation in body["annotations"]]
    return parts


def chat_said(content: Any, where: str) -> str | list[Part]:
    """The content of a user's or system message; one text that is nothing else becomes a string, which every provider
    takes.

    Raises:
        InvalidRequest: as `chat_content`.
    """
    found = chat_content(content, where)
    if len(found) == 1 and isinstance(found[0], dict) and found[0].keys() == {"type", "text"}:
        return str(found[0]["text"])
    return found


def chat_content(content: Any, where: str) -> str | list[Part]:
    """The content of an item that is no assistant's, as a chat message has it.

    Raises:
        InvalidRequest: it is none, or holds what no chat message can; names the field.
    """
    if isinstance(content, str):
        return content
    return [_chat_part(part, f"{where}[{index}]") for index, part in _listed(content, where)]


def chat_answer(content: Any, where: str, *, may_be_empty: bool) -> dict[str, Any]:
    """The content of an assistant's item: `content`, `refusal` and `annotations` of a chat message.

    One text becomes a string, which every provider takes; so does a lone refusal its own field.

    Raises:
        InvalidRequest: it is none; names the field.
    """
    if isinstance(content, str):
        return {"content": content}
    if content == [] and may_be_empty:
        return {"content": None}
    parts: list[Part] = []
    annotations: list[Any] = []
    for index, part in _listed(content, where):
        name = f"{where}[{index}]"
        kind = _kind(part, name)
        if kind == "refusal":
            parts.append({"type": "refusal", "refusal": _text(part, "refusal", name)})
        elif kind in OUTPUT_TYPES:
            annotations += _annotations(part, name)
            parts.append(_chat_text(part, name, ("annotations", "logprobs")))
        else:
            raise refused(f"{name}.type", f"must be one of {', '.join((*OUTPUT_TYPES, 'refusal'))}")
    body: dict[str, Any] = {"content": parts}
    if len(parts) == 1:
        only = parts[0]
        if only["type"] == "refusal":
            body = {"content": None, "refusal": only["refusal"]}
        elif len(only) == 2:
            body = {"content": only["text"]}
    return {**body, "annotations": annotations} if annotations else body


def _input_part(part: Any) -> Part:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        return {**part, "type": "input_text"}
    if kind == "image_url":
        image = part["image_url"] if isinstance(part.get("image_url"), dict) else {"url": part.get("image_url")}
        shown = {"type": "input_image", "image_url": image.get("url"), "detail": image.get("detail") or "auto"}
        return {**shown, **_rest(part, "type", "image_url")}
    if kind == "file" and isinstance(part.get("file"), dict):
        return {"type": "input_file", **part["file"], **_rest(part, "type", "file")}
    return part if isinstance(part, dict) else {"type": "input_text", "text": str(part)}


def _output_part(part: Any) -> Part:
    if isinstance(part, dict) and part.get("type") == "text":
        return {"annotations": [], "logprobs": [], **part, "type": "output_text"}
    return part if isinstance(part, dict) else {"type": "output_text", "text": str(part), "annotations": []}


def _chat_part(part: Any, where: str) -> Part:
    kind = _kind(part, where)
    if kind not in _PARTS:
        raise refused(f"{where}.type", f"must be one of {', '.join(_PARTS)}")
    return _PARTS[kind](part, where)


def _chat_text(part: Part, where: str, dropped: tuple[str, ...] = ()) -> Part:
    return {"type": "text", "text": _text(part, "text", where), **_rest(part, "type", "text", *dropped)}


def _chat_image(part: Part, where: str) -> Part:
    if part.get("image_url") is None and part.get("file_id") is not None:
        raise refused(f"{where}.file_id", "is not supported: chat completions take images by URL or as data URLs")
    image = {"url": _text(part, "image_url", where)}
    if part.get("detail") is not None:
        image["detail"] = _text(part, "detail", where)
    return {"type": "image_url", "image_url": image, **_rest(part, "type", "image_url", "file_id", "detail")}


def _chat_file(part: Part, where: str) -> Part:
    if part.get("file_url") is not None:
        raise refused(f"{where}.file_url", "is not supported: no URL is fetched; send file_id or file_data")
    names = ("file_id", "file_data", "filename", "detail")
    file = {name: _text(part, name, where) for name in names if part.get(name) is not None}
    if "file_id" not in file and "file_data" not in file:
        raise refused(where, "needs file_id or file_data")
    return {"type": "file", "file": file, **_rest(part, "type", "file_url", *names)}


def _chat_audio(part: Part, where: str) -> Part:
    if not isinstance(part.get("input_audio"), dict):
        raise refused(f"{where}.input_audio", "must be an object")
    return part


_PARTS: dict[str, Callable[[Part, str], Part]] = {
    **dict.fromkeys(TEXT_TYPES, _chat_text),
    "input_image": _chat_image,
    "input_file": _chat_file,
    "input_audio": _chat_audio,
}


def _annotations(part: Part, where: str) -> list[Any]:
    found = part.get("annotations") or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise refused(f"{where}.annotations", "must be a list of objects")
    return [_nested(each) for each in found]


def _flat(annotation: Any) -> Any:
    """A citation as items have it: its fields beside its type."""
    cited = annotation.get("url_citation") if isinstance(annotation, dict) else None
    return {"type": "url_citation", **cited} if isinstance(cited, dict) else annotation


def _nested(annotation: Part) -> Part:
    """A citation as chat messages have it: its fields in an object of their own."""
    if annotation.get("type") != "url_citation" or "url_citation" in annotation:
        return annotation
    return {"type": "url_citation", "url_citation": _rest(annotation, "type")}


def _listed(content: Any, where: str) -> list[tuple[int, Any]]:
    if not isinstance(content, list) or not content:
        raise refused(where, "must be a string or a list of at least one part")
    return list(enumerate(content))


def _kind(part: Any, where: str) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise refused(where, "must be an object with a type")
    return str(part["type"])


def _text(part: Part, name: str, where: str) -> str:
    if not isinstance(part.get(name), str):
        raise refused(f"{where}.{name}", "must be a string")
    return str(part[name])


def _rest(part: Part, *names: str) -> Part:
    """What else a part says, such as where a provider's cache is to break."""
    return {name: value for name, value in part.items() if name not in names and value is not None}


Item = dict[str, Any]
ITEM_ID = re.compile(r"(msg|rs|fc|ctc|fco|ctco)_(sys)?([0-9A-Za-z-]{1,60})(_[0-9a-f]{12})?")
INSTRUCTION_PREFIX = "msg_sys"
THOUGHTS = frozenset(
    {
        *("reasoning_content", "reasoning", "reasoning_details", "reasoning_items", "thinking_blocks"),
        *("thought_signature", "provider_specific_fields", "encrypted_content"),
    }
)
WORDS = frozenset({"content", "refusal", "annotations", "audio"})


def items_of(message: ConversationMessage, custom: Collection[str] = ()) -> list[Item]:
    """The items that a stored message is, at least one.

    Args:
        custom: the ids of custom tool calls that a tool's message may answer.
    """
    status = "incomplete" if message.status == "partial" else "completed"
    stem = (message.message_id or "").removeprefix("msg_")
    if message.role in ("tool", "function"):
        return [_output(message.body, stem, status, custom)]
    if message.role == "assistant":
        return _answer(message, stem, status)
    return [_said(message, status, input_parts(message.content))]


def instruction_items(conversation_id: str, instructions: Sequence[dict[str, Any]]) -> list[Item]:
    """The system messages in force, which stand before the first message. Their ids come from what they say."""
    found: list[Item] = []
    for body in instructions:
        identity = jsons.canonical([conversation_id, body]).decode()
        times = sum(body == other for other in instructions[: len(found)])
        item_id = INSTRUCTION_PREFIX + content_digest(f"{identity}{times}")[:32]
        found += items_of(ConversationMessage(role=str(body.get("role")), body=body, message_id=item_id))
    return found


def message_id_of(item_id: str) -> str | None:
    """The stored message that an item belongs to; None if no item can have that id."""
    parts = ITEM_ID.fullmatch(item_id)
    return f"msg_{parts.group(3)}" if parts and not parts.group(2) else None


def custom_calls(message: ConversationMessage) -> frozenset[str]:
    """The ids of a message's custom tool calls."""
    calls = message.body.get("tool_calls") or ()
    return frozenset(str(call.get("id")) for call in calls if isinstance(call.get("custom"), dict))


def without(message: ConversationMessage, item_id: str) -> ConversationMessage | None:
    """The message without one of its items; None if that leaves nothing of it."""
    others = [item for item in items_of(message) if item["id"] != item_id]
    if message.role != "assistant" or not others:
        return None
    body = message.body
    if item_id.startswith("msg_"):
        body = {name: value for name, value in body.items() if name not in WORDS} | {"content": None}
    elif item_id.startswith("rs_"):
        body = {name: value for name, value in body.items() if name not in THOUGHTS}
    else:
        kept = [call for call, made in _calls(body, item_id) if made != item_id]
        body = {name: value for name, value in body.items() if name not in ("tool_calls", "function_call")}
        if kept:
            body["tool_calls"] = kept
    return replace(message, body=body, rendered=None)


def called(message: ConversationMessage, item_id: str) -> str | None:
    """The id by which a tool call, or its result, is known to the model; None for other items."""
    items = items_of(message)
    found = next((item for item in items if item["id"] == item_id or len(items) == 1), {})
    return found.get("call_id")


def _said(message: ConversationMessage, status: str, parts: list[Any]) -> Item:
    item = {"id": message.message_id, "type": "message", "status": status, "role": message.role, "content": parts}
    name = message.body.get("name")
    return {**item, "name": name} if isinstance(name, str) else item


def _answer(message: ConversationMessage, stem: str, status: str) -> list[Item]:
    body = message.body
    items: list[Item] = []
    thoughts = body.get("reasoning_content") or body.get("reasoning")
    if isinstance(thoughts, str) and thoughts:
        content = [{"type": "reasoning_text", "text": thoughts}]
        items.append({"id": f"rs_{stem}", "type": "reasoning", "summary": [], "content": content, "status": status})
    parts = output_parts(body)
    calls = [_call(call, item_id, status) for call, item_id in _calls(body, stem)]
    says_something = any(part.get("text") or part.get("type") != "output_text" for part in parts)
    if says_something or not (calls or items):
        items.append(_said(message, status, parts))
    return items + calls


def _calls(body: dict[str, Any], stem: str) -> list[tuple[dict[str, Any], str]]:
    """The tool calls of a message with the ids of their items, which do not depend on each other's places.

    Args:
        stem: what the ids of the message's items have in common, or one of those ids.
    """
    parts = ITEM_ID.fullmatch(stem)
    stem = parts.group(3) if parts else stem
    calls: list[dict[str, Any]] = [call for call in body.get("tool_calls") or () if isinstance(call, dict)]
    if isinstance(body.get("function_call"), dict):  # as calls were made before there were tools
        calls.append({"id": body["function_call"].get("name"), "function": body["function_call"]})
    found: list[tuple[dict[str, Any], str]] = []
    seen: list[str] = []
    for call in calls:
        call_id = str(call.get("id"))
        mark = content_digest(f"{call_id}\n{seen.count(call_id)}")[:12]
        kind = "ctc" if isinstance(call.get("custom"), dict) else "fc"
        found.append((call, f"{kind}_{stem}_{mark}"))
        seen.append(call_id)
    return found


def _call(call: dict[str, Any], item_id: str, status: str) -> Item:
    custom = call.get("custom")
    shared = {"id": item_id, "call_id": str(call.get("id")), "status": status}
    if isinstance(custom, dict):
        return {**shared, "type": "custom_tool_call", "name": custom.get("name"), "input": custom.get("input", "")}
    function = call.get("function") or {}
    arguments = function.get("arguments", "")
    return {**shared, "type": "function_call", "name": function.get("name"), "arguments": arguments}


def _output(body: dict[str, Any], stem: str, status: str, custom: Collection[str]) -> Item:
    call_id = str(body.get("tool_call_id") or body.get("name"))
    content = body.get("content")
    output = content if isinstance(content, str) else input_parts(content)
    kind, prefix = ("custom_tool_call_output", "ctco") if call_id in custom else ("function_call_output", "fco")
    return {"id": f"{prefix}_{stem}", "type": kind, "call_id": call_id, "output": output, "status": status}
