"""A chat's request said by any of the three APIs, and their answers read back as a chat's, written apart from the
gateway's own translations (guarantee §10)."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]
Edge = Literal["chat", "responses", "messages"]
EDGES: tuple[Edge, ...] = ("chat", "responses", "messages")
PATHS: dict[Edge, str] = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}
SAME = ("model", "stream", "store", "context", "conversation", "attachments", "agent", "memory", "temperature")
"""Fields that all three have by one name."""
MAX_TOKENS = 500
"""Of a request that does not say: Messages cannot leave it out."""


class Unsayable(Exception):
    """The API has no words for it."""


@dataclass(frozen=True)
class Heard:
    """What an answer says, whichever API it came by."""

    answer_id: str
    message: Json
    conversation: str | None
    bill: Json


def common(body: Json) -> Json:
    """What of a chat's request each of the three APIs can say, in the form that a chat gives it: such a request is
    forwarded the same, equal as JSON, whichever it comes by."""
    made = {**body, "messages": common_messages(body["messages"])}
    made["max_tokens"] = made.pop("max_completion_tokens", None) or made.get("max_tokens") or MAX_TOKENS
    if (body.get("response_format") or {}).get("type") == "json_schema":
        schema = {"name": "output", "schema": body["response_format"]["json_schema"]["schema"], "strict": True}
        made["response_format"] = {"type": "json_schema", "json_schema": schema}
    return made


def common_messages(messages: Iterable[Json]) -> list[Json]:
    """The same of messages."""
    found: list[Json] = []
    for message in map(common_message, messages):
        before = found[-1] if found else {}
        calls_alone = message.get("tool_calls") and message["content"] is None
        if calls_alone and before.get("role") == "assistant" and not before.get("tool_calls"):
            found[-1] = {**message, "content": before["content"]}  # Responses has a text and calls, and no seam
        else:
            found.append(message)
    return found


def common_message(message: Json) -> Json:
    """The same of one message: without a name, a picture without its detail, instructions as `system`. Of texts in a
    tool's result, Messages makes one for a model that is asked by a chat."""
    made = {name: value for name, value in message.items() if name != "name"}
    if made["role"] == "developer":
        made["role"] = "system"
    if isinstance(made["content"], list):
        parts = [_common_part(part) for part in made["content"]]
        joins = len(parts) == 1 or made["role"] == "tool"
        is_text = joins and all(part.keys() == {"type", "text"} for part in parts)
        made["content"] = "\n\n".join(part["text"] for part in parts) if is_text else parts
    if made.get("tool_calls"):
        made["content"] = made["content"] or None
        made["tool_calls"] = [_common_call(call) for call in made["tool_calls"]]
    return made


def _common_part(part: Json) -> Json:
    return {**part, "image_url": {"url": part["image_url"]["url"]}} if part["type"] == "image_url" else part


def _common_call(call: Json) -> Json:
    """Arguments in the spelling of whoever has them as an object."""
    given = json.dumps(json.loads(call["function"]["arguments"]), ensure_ascii=False, separators=(",", ":"))
    return {**call, "function": {**call["function"], "arguments": given}}


def said_by(edge: Edge, body: Json) -> Json:
    """A chat's request, as `common` gives it, in the words of an API.

    Raises:
        Unsayable: it has none for it.
    """
    return dict(body) if edge == "chat" else _as_responses(body) if edge == "responses" else _as_messages(body)


def _as_responses(body: Json) -> Json:
    made = {name: body[name] for name in SAME if name in body}
    made["max_output_tokens"] = body["max_tokens"]
    messages = body["messages"]
    if messages and messages[0]["role"] == "system" and not _is_pinned(messages[0]) and _is_text(messages[0]):
        made["instructions"], messages = messages[0]["content"], messages[1:]
    made["input"] = [item for message in messages for item in _items(message)]
    if "tools" in body:
        made["tools"] = [{"type": "function", **tool["function"]} for tool in body["tools"]]
    if "response_format" in body:
        made["text"] = {"format": {"type": "json_schema", **body["response_format"]["json_schema"]}}
    if body.get("stream_options"):
        raise Unsayable("usage is always told")
    return made


def _items(message: Json) -> list[Json]:
    role, content = message["role"], message["content"]
    pinned = {"pinned": True} if _is_pinned(message) else {}
    if role == "tool":
        output = content if isinstance(content, str) else [_responses_part(part) for part in content]
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": output, **pinned}]
    if role != "assistant":
        said = content if isinstance(content, str) else [_responses_part(part) for part in content]
        return [{"role": role, "content": said, **pinned}]
    items: list[Json] = []
    if thought := message.get("reasoning_content"):
        items.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": thought}]})
    if content is not None:
        text = {"type": "output_text", "text": content, "annotations": []}
        items.append({"type": "message", "role": "assistant", "status": "completed", "content": [text], **pinned})
    calls = message.get("tool_calls") or ()
    items += [{"type": "function_call", "call_id": call["id"], **call["function"], **pinned} for call in calls]
    return items


def _responses_part(part: Json) -> Json:
    if part["type"] == "text":
        return {**part, "type": "input_text"}
    if part["type"] == "image_url":
        return {"type": "input_image", "image_url": part["image_url"]["url"]}
    return {"type": "input_file", **part["file"]}


def _as_messages(body: Json) -> Json:
    made = {name: body[name] for name in (*SAME, "max_tokens") if name in body}
    messages = body["messages"]
    if any(map(_is_pinned, messages)):
        raise Unsayable("pins")
    if messages and messages[0]["role"] == "system":
        made["system"] = _blocks(messages[0]["content"])
        messages = messages[1:]
    turns: list[Json] = []
    made["messages"] = turns
    for message in messages:
        role = "user" if message["role"] == "tool" else message["role"]
        blocks = _answer_blocks(message) if role == "assistant" else _user_blocks(message)
        results = message["role"] in ("tool", "user") and turns and turns[-1]["role"] == "user"
        if results and turns[-1]["content"][-1]["type"] == "tool_result":  # what a user says stands behind results
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if "tools" in body:
        made["tools"] = [_anthropic_tool(tool["function"]) for tool in body["tools"]]
    if "response_format" in body:
        schema = body["response_format"]["json_schema"]["schema"]
        made["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    if body.get("stream_options"):
        raise Unsayable("usage is always told")
    return made


def _anthropic_tool(function: Json) -> Json:
    rest = {name: value for name, value in function.items() if name != "parameters"}
    return {**rest, "input_schema": function["parameters"]}


def _user_blocks(message: Json) -> list[Json]:
    blocks = _blocks(message["content"])
    if message["role"] != "tool":
        return blocks
    content = message["content"] if isinstance(message["content"], str) else blocks
    return [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}]


def _answer_blocks(message: Json) -> list[Json]:
    blocks: list[Json] = []
    if thought := message.get("reasoning_content"):
        blocks.append({"type": "thinking", "thinking": thought, "signature": ""})
    if message["content"] is not None:
        blocks += _blocks(message["content"])
    for call in message.get("tool_calls") or ():
        function = call["function"]
        given = json.loads(function["arguments"])
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": given})
    return blocks


def _blocks(content: str | list[Json]) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_block(part) for part in content]


def _block(part: Json) -> Json:
    if part["type"] == "text":
        return part
    if part["type"] == "image_url":
        return {"type": "image", "source": _source(part["image_url"]["url"])}
    file = part["file"]
    return {"type": "document", "title": file["filename"], "source": _source(file["file_data"])}


def _source(url: str) -> Json:
    head, inline, data = url.partition(";base64,")
    if not inline:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}


def _is_text(message: Json) -> bool:
    return isinstance(message["content"], str) and bool(message["content"])


def _is_pinned(message: Json) -> bool:
    return bool(message.get("pinned"))


def heard(edge: Edge, answer: Json) -> Heard:
    """What a whole answer says, as a chat has it: its text (None where there is none), thoughts and calls."""
    message = _HEARD[edge](answer)
    found = {"role": "assistant", "content": message.pop("content", None) or None, **message}
    named = answer.get("conversation") or {}
    return Heard(answer["id"], found, named.get("id"), answer["response_metadata"])


def _chat_message(answer: Json) -> Json:
    said: Json = answer["choices"][0]["message"]
    names = ("content", "reasoning_content", "tool_calls")
    return {name: said[name] for name in names if said.get(name)}


def _response_message(answer: Json) -> Json:
    made: Json = {}
    for item in answer["output"]:
        if item["type"] == "message":
            made["content"] = "".join(part["text"] for part in item["content"])
        elif item["type"] == "reasoning":
            made["reasoning_content"] = "".join(part["text"] for part in item["content"])
        elif item["type"] == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            made.setdefault("tool_calls", []).append(call)
    return made


def _anthropic_message(answer: Json) -> Json:
    made: Json = {}
    for block in answer["content"]:
        if block["type"] == "text":
            made["content"] = made.get("content", "") + block["text"]
        elif block["type"] == "thinking":
            made["reasoning_content"] = block["thinking"]
        elif block["type"] == "tool_use":
            given = json.dumps(block["input"], ensure_ascii=False, separators=(",", ":"))
            function = {"name": block["name"], "arguments": given}
            call = {"id": block["id"], "type": "function", "function": function}
            made.setdefault("tool_calls", []).append(call)
    return made


_HEARD: dict[Edge, Callable[[Json], Json]] = {
    "chat": _chat_message,
    "responses": _response_message,
    "messages": _anthropic_message,
}
