"""Translates chats of the inner form to Messages requests (alternating roles, results right after their calls, thoughts
first), and completions to messages and back (ADR 27)."""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from gateway.core import errors, jsons
from gateway.core.formats.anthropic.edits import applied, with_iterations
from gateway.core.formats.anthropic.request_parser import BETA, BLOCK_ORDER, PAGE_CITED, PICTURES_NOTE
from gateway.core.formats.tool_calls import CallIds, CallPairs
from gateway.core.jsons import Json
from gateway.core.types import upstreams
from gateway.core.types.bill import cache_tokens
from gateway.core.types.chat import COMPLETION_FIELDS
from gateway.core.types.content_parts import dicts_of
from gateway.core.types.conversation import INSTRUCTION_ROLES
from gateway.core.types.items import (
    ANTHROPIC_BLOCK,
    ANTHROPIC_BLOCKS,
    BREAKPOINT,
    flat_annotation,
    named_calls,
    named_picture,
    with_plain_text,
)

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "error": "error",
}
OF_A_MESSAGE = ("id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details", "usage")
"""Message fields that a completion has in another form. All others keep their names on the completion."""
NATIVE_STOP = "native_stop"
"""The field of a choice with all other fields of a stream's final delta, verbatim."""
STOPPED = ("stop_reason", "stop_sequence", "stop_details")
"""Anthropic's own stop fields, which a choice has beside its `finish_reason`."""
BLOCK_FIELDS = {
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "text": {"type", "text"},
    "tool_use": {"type", "id", "name", "input"},
}
"""Block fields that a chat can express; with any other field, the blocks are retained verbatim."""
ANTHROPIC_USAGE_FIELDS = ("input_tokens", "output_tokens", "output_tokens_details", "service_tier")
"""Usage fields that a completion has under other names."""
FAULT_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""HTTP status of an error that comes in a stream, by its type."""


def is_message(value: Any) -> bool:
    """Returns whether a value is a message whose blocks can be read."""
    blocks = value.get("content") if isinstance(value, dict) else None
    return isinstance(blocks, list) and all(isinstance(b, dict) and isinstance(b.get("type"), str) for b in blocks)


def completion_of(message: Json, created: int) -> Json:
    """Converts a whole message. `created`: when it was made, in seconds since 1970, which Anthropic does not send."""
    ids = CallIds()
    blocks = [sound_block(block, ids) for block in message["content"]]
    choice = {"index": 0, "message": message_of(blocks), **ended(message)}
    found = {
        "id": str(message.get("id")),
        "object": "chat.completion",
        "created": created,
        "model": message.get("model"),
        "choices": [choice],
        "usage": usage_of(message.get("usage")),
    }
    return {**found, **envelope_of(message)}


def envelope_of(message: Json) -> Json:
    """Returns the fields of a message that its completion has by the same name, and its service tier."""
    found = {name: value for name, value in message.items() if name not in OF_A_MESSAGE and value is not None}
    tier = object_of(message.get("usage")).get("service_tier")
    return {**found, "service_tier": tier} if isinstance(tier, str) else found


def ended(message: Json) -> Json:
    """Returns a choice's stop fields: `finish_reason`, and Anthropic's own."""
    reason = message.get("stop_reason")
    told = {name: message[name] for name in STOPPED if message.get(name) is not None}
    later = {LATER_REASON: reason} if isinstance(reason, str) and reason not in FINISH else {}
    return {"finish_reason": FINISH.get(str(reason), "stop"), **told, **later}


def message_of(blocks: list[Json]) -> Json:
    """Converts the blocks of an answer to an assistant's message."""
    texts = [str(block.get("text") or "") for block in blocks if block["type"] == "text"]
    thoughts = [block for block in blocks if BLOCK_ORDER.get(block["type"]) == 0]
    calls = [call_of(block) for block in blocks if block["type"] == "tool_use"]
    message: Json = {"role": "assistant", "content": "".join(texts) if texts or not calls else None}
    if cited := annotations_of(blocks):
        message["annotations"] = cited
    if calls:
        message["tool_calls"] = calls
        message["content"] = message["content"] or None
    if thoughts:
        message["thinking_blocks"] = thoughts
        said = "".join(str(block.get("thinking") or "") for block in thoughts)
        if said:
            message["reasoning_content"] = said
    if not is_plain(blocks):
        message[ANTHROPIC_BLOCKS] = blocks
    return message


def annotations_of(blocks: list[Json]) -> list[Json]:
    """Converts the citations of an answer's texts to a chat's annotations: those of pages, and of files that have an
    id. Others name a place in a document of the request, which a chat cannot express."""
    found: list[Json] = []
    start = 0
    for block in blocks:
        if block["type"] != "text":
            continue
        end = start + len(str(block.get("text") or ""))
        for cited in map(object_of, block.get("citations") or ()):
            if isinstance(cited.get("url"), str):
                place = {"url": cited["url"], "title": cited.get("title") or "", "start_index": start, "end_index": end}
                found.append({"type": "url_citation", "url_citation": place})
            elif isinstance(cited.get("file_id"), str):
                file = {"file_id": cited["file_id"], "filename": cited.get("document_title") or "", "index": end}
                found.append({"type": "file_citation", **file})
        start = end
    return found


def is_plain(blocks: list[Json]) -> bool:
    """Returns whether blocks are only thoughts, one text and calls, in that order and without other fields."""
    places = [BLOCK_ORDER.get(block["type"], -1) for block in blocks]
    if -1 in places or places != sorted(places) or places.count(BLOCK_ORDER["text"]) > 1:
        return False
    return all({k for k, v in block.items() if v is not None} <= BLOCK_FIELDS[block["type"]] for block in blocks)


def sound_block(block: Json, ids: CallIds) -> Json:
    """Repairs a block; a call gets a distinct id, a name, and an object of arguments (guarantee §1.9)."""
    if block["type"] == "text" and not isinstance(block.get("text"), str):
        return {**block, "text": ""}
    if block["type"] != "tool_use":
        return block
    said = {"id": ids.distinct(block.get("id")), "name": block.get("name"), "input": block.get("input")}
    said["name"] = said["name"] if isinstance(said["name"], str) else ""
    if not isinstance(said["input"], dict):
        said["input"] = arguments_of(said["input"])
    return {**block, **said}


def call_of(block: Json) -> Json:
    """Converts a `tool_use` block to a chat's call."""
    function = {"name": block["name"], "arguments": jsons.dumps_text(block["input"])}
    return {"id": block["id"], "type": "function", "function": function}


def arguments_of(text: Any) -> Json:
    """Parses a call's arguments to an object. Anything else is put in `arguments` verbatim, so that nothing is lost."""
    if text is None or (isinstance(text, str) and not text.strip()):
        return {}
    try:
        found = jsons.loads_answer(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else text
    except jsons.JSONDecodeError:
        found = text
    if not isinstance(found, dict):
        return {"arguments": text}
    if type(text) is str and text.isascii() and "\\u" not in text:  # nothing but an escape could be half a character
        return found
    return dict(jsons.with_whole_characters(found))


def usage_of(usage: Any) -> Json | None:
    """Converts usage to a chat's names, with LiteLLM's names for cache reads and writes; None if there is none."""
    if not isinstance(usage, dict):
        return None
    read, written = _count(usage.get("cache_read_input_tokens")), _count(usage.get("cache_creation_input_tokens"))
    prompt = _count(usage.get("input_tokens")) + read + written
    answer = _count(usage.get("output_tokens"))
    found: Json = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
    found["prompt_tokens_details"] = {"cached_tokens": read, "cache_creation_tokens": written}
    found |= {"cache_read_input_tokens": read, "cache_creation_input_tokens": written}
    thought = object_of(usage.get("output_tokens_details")).get("thinking_tokens")
    if _count(thought):
        found["completion_tokens_details"] = {"reasoning_tokens": thought}
    return {**{k: v for k, v in usage.items() if k not in ANTHROPIC_USAGE_FIELDS and v is not None}, **found}


def fault_status(event: Json) -> int:
    """Returns the HTTP status of an error event, by its type; 502 if that is unknown."""
    return FAULT_STATUSES.get(str(object_of(event.get("error")).get("type")), 502)


def object_of(value: Any) -> Json:
    """Returns a value that is an object, else an empty object."""
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "model_length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
ANTHROPIC_STOP_REASONS = FINISH.keys() - {"error"}
"""Anthropic's own reasons, which a choice may have in `stop_reason` beside its `finish_reason`."""
LATER_REASON = "native_finish_reason"
"""Where a choice has a reason of Anthropic's that is not known here: other upstreams put words into `stop_reason`."""
GATEWAYS_OWN_FIELDS = ("response_metadata", "conversation", "agent")
"""Fields that the gateway adds to an answer (guarantee §6)."""
ENVELOPE = ("container", "context_management", "diagnostics", "input_transformations", *GATEWAYS_OWN_FIELDS)
"""Completion fields that are sent at the end of a streamed message: Anthropic's, and the gateway's own."""
USAGE_OF_A_CHAT = (
    *("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details"),
)
METADATA_FIELD = "response_metadata"
ANTHROPIC_SERVICE_TIERS = ("standard", "priority", "batch")
BILLED = ("cost", "cost_details")


def message_id(completion_id: str) -> str:
    """Converts a completion's id to that of a message."""
    return f"msg_{completion_id.removeprefix('chatcmpl-')}"


def as_message(
    completion: Json, model: str, stops: Sequence[str] = (), edits: Sequence[Json] = (), compaction: Json | None = None
) -> Json:
    """Converts a completion to a message. `model`: the requested one; `stops`: the request's stop sequences; `edits`:
    its context edits; `compaction`: the block that replaces everything before the answer."""
    choice: Json = next(iter(completion.get("choices") or ()), {})
    said = with_plain_text(choice.get("message") or {})
    content = content_blocks(said)
    reason, sequence = stopped(choice, stops, calls=any(block["type"] == "tool_use" for block in content))
    if said.get("refusal"):
        reason = "refusal"
    message: Json = {
        "id": message_id(str(completion.get("id"))),
        "type": "message",
        "role": "assistant",
        "model": str(completion.get("model") or model),
        "content": content,
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": as_usage(completion.get("usage"), completion.get("service_tier")),
    }
    message |= extras(completion)
    if pictures := images_of(said):
        message["images"] = pictures
    if details := refusal_details(choice):
        message["stop_details"] = details
    if compaction is not None:
        message |= {"content": [compaction, *content], "usage": with_iterations(message["usage"])}
    return with_applied(message, edits)


def extras(completion: Json) -> Json:
    """Returns the fields of a completion or chunk that a message passes on unchanged."""
    return {name: value for name, value in completion.items() if name not in COMPLETION_FIELDS and value is not None}


def with_applied(told: Json, edits: Sequence[Json]) -> Json:
    """Adds what was cleared of the context to a message, or to the event that ends one, if the request has edits."""
    if not edits:
        return told
    reported = blocks_in(object_of(told.get("context_management")).get("applied_edits"))
    return {**told, "context_management": {"applied_edits": [*reported, *applied(edits, told.get(METADATA_FIELD))]}}


def content_blocks(said: Json) -> list[Json]:
    """Returns the blocks of an assistant's plain-text message: its native blocks, or thoughts, text and calls."""
    if kept := blocks_in(said.get(ANTHROPIC_BLOCKS)):
        return kept
    blocks = _thoughts(said)
    texts = (text_of(said.get("content")), said.get("refusal"))
    spoken: list[Json] = [{"type": "text", "text": text} for text in texts if isinstance(text, str) and text]
    if texts[0] and (cited := cited_pages(said.get("annotations"), texts[0])):
        spoken[0]["citations"] = cited
    if images_of(said):
        spoken.append({"type": "text", "text": PICTURES_NOTE})
    blocks += spoken
    for call in said.get("tool_calls") or ():
        name, given = _asked_of(call)
        blocks.append({"type": "tool_use", "id": str(call.get("id")), "name": str(name), "input": given})
    return blocks


def _asked_of(call: Json) -> tuple[Any, Json]:
    """Returns a call's tool and input; a freeform text becomes the input of a function that replaces the tool."""
    custom, function = call.get("custom"), object_of(call.get("function"))
    if isinstance(custom, dict):
        return custom.get("name"), {"input": custom.get("input") or ""}
    return function.get("name"), arguments_of(function.get("arguments"))


def cited_pages(annotations: Any, text: str) -> list[Json]:
    """Converts a chat's page annotations to citations of a text block; nothing is sealed in them.
    `text`: that of the answer, to which the annotations' indexes refer."""
    found: list[Json] = []
    for each in map(flat_annotation, annotations if isinstance(annotations, list) else ()):
        if object_of(each).get("type") == "url_citation" and isinstance(each.get("url"), str):
            start, end = each.get("start_index"), each.get("end_index")
            said = text[start:end] if type(start) is int and type(end) is int and 0 <= start < end else ""
            page = {"type": PAGE_CITED, "url": each["url"], "title": each.get("title"), "cited_text": said}
            found.append({**page, "encrypted_index": ""})
    return found


def images_of(said: Json) -> list[Any]:
    """Returns the pictures of a chat's answer or delta, which it has beside its text."""
    images = said.get("images")
    return images if isinstance(images, list) else []


def _thoughts(said: Json) -> list[Json]:
    if signed := thoughts_in(said):
        texts = ("thinking", "signature")
        return [
            {**b, **{name: str(b.get(name) or "") for name in texts}} if b["type"] == "thinking" else b for b in signed
        ]
    text = reasoning_of(said)
    return [{"type": "thinking", "thinking": text, "signature": ""}] if text else []


def thoughts_in(said: Json) -> list[Json]:
    """Returns the signed thoughts of a message or a delta."""
    found = blocks_in(said.get("thinking_blocks"))
    needs = {"thinking": "type", "redacted_thinking": "data"}
    return [block for block in found if isinstance(block.get(needs.get(block["type"], "")), str)]


def reasoning_of(said: Json) -> str:
    """Returns the unsigned thoughts of a message or a delta, from either of their fields."""
    text = said.get("reasoning_content") or said.get("reasoning")
    return text if isinstance(text, str) else ""


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(str(part.get("text") or "") for part in dicts_of(content))


def canonical_calls(choice: Json) -> Json:
    """Rewrites a choice's call arguments as clients of this API send them back, since it has them as objects."""
    message = choice.get("message") or {}
    calls = message.get("tool_calls")
    if not calls:
        return choice
    written = []
    for call in calls:
        function = call.get("function")
        if not isinstance(function, dict):
            written.append(call)
            continue
        text = jsons.dumps_text(arguments_of(function.get("arguments")))
        written.append({**call, "function": {**function, "arguments": text}})
    return {**choice, "message": {**message, "tool_calls": written}}


def stopped(choice: Json, stops: Sequence[str], *, calls: bool) -> tuple[str, str | None]:
    """Returns the stop reason of a choice, and the stop sequence if its upstream names it."""
    said = choice.get("stop_reason")
    if isinstance(said, str) and said in ANTHROPIC_STOP_REASONS:
        sequence = choice.get("stop_sequence")
        return said, sequence if isinstance(sequence, str) else None
    if isinstance(said, str) and said in stops:  # as vLLM reports it
        return "stop_sequence", said
    if isinstance(said, str) and said == choice.get(LATER_REASON):
        return said, None
    reason = STOP_REASONS.get(str(choice.get("finish_reason")), "end_turn")
    return ("tool_use" if calls and reason == "end_turn" else reason), None


def refusal_details(choice: Json) -> Json | None:
    """Returns the details of a refusal; None if Anthropic sent none."""
    found = object_of(choice.get("stop_details"))
    return found if found.get("type") == "refusal" else None


def as_usage(usage: Any, tier: Any = None) -> Json:
    """Converts usage to Anthropic's names: `input_tokens` excludes what was read from or written to a cache."""
    usage = usage if isinstance(usage, dict) else {}
    read, made = cache_tokens(usage)
    found: Json = {
        "input_tokens": max(0, _count(usage.get("prompt_tokens")) - read - made),
        "cache_creation_input_tokens": made,
        "cache_read_input_tokens": read,
        "output_tokens": _count(usage.get("completion_tokens")),
    }
    thought = _count(object_of(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    if thought:
        found["output_tokens_details"] = {"thinking_tokens": thought}
    if tier in ANTHROPIC_SERVICE_TIERS:
        found["service_tier"] = tier
    more = {k: v for k, v in usage.items() if k not in USAGE_OF_A_CHAT and (v is not None or k in BILLED)}
    return {**more, **found}


def blocks_in(value: Any) -> list[Json]:
    """Returns the blocks in a list; empty for any other value."""
    return [each for each in value if isinstance(object_of(each).get("type"), str)] if isinstance(value, list) else []


Block = dict[str, Any]
DATA_URL_HEAD = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)
THOUGHT_BLOCKS = ("thinking", "redacted_thinking")
ANTHROPIC_KEPT_FIELDS = (BREAKPOINT, "citations", "context")
"""Other fields of a picture or a document."""
UNTITLED = ("document.pdf", "document.txt", "document")


def as_turns(messages: Iterable[Json]) -> tuple[list[Block], list[Json]]:
    """Converts chat messages to the system's blocks and the messages. Instructions before the first message of a user
    or model go to the system; others stay where they are.
    Raises InvalidRequest: a message holds what no model of Anthropic's accepts."""
    system: list[Block] = []
    turns: list[Json] = []
    ids = CallPairs()
    for index, message in enumerate(messages):
        role = message.get("role")
        _check_parts(message.get("content"), index)
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
    for turn in turns:
        if any(map(_is_blank, turn["content"])):  # an all-blank message stays: its sender is to learn of the error
            turn["content"] = [block for block in turn["content"] if not _is_blank(block)] or turn["content"]
    return [block for block in system if not _is_blank(block)], turns


def _check_parts(content: Any, index: int) -> None:
    for number, part in enumerate(content if type(content) is list else ()):
        name = upstreams.NOT_READ_BY_CLAUDE.get(str(part.get("type"))) if isinstance(part, dict) else None
        if name is not None:
            param = f"messages[{index}].content[{number}]"
            raise errors.InvalidRequest(f"This model takes no {name}.", param=param, code="unsupported_parameter")


def _answer(message: Json, ids: CallPairs) -> list[Block]:
    """Returns the blocks of an assistant's message: its native blocks if it has any, or thoughts, text and calls."""
    calls = named_calls(message)
    kept = message.get(ANTHROPIC_BLOCKS)
    if isinstance(kept, list) and kept:
        named = {str(call.get("id")) for call in calls}
        still = [block for block in kept if _still_said(block, named, message)]
        said = [{**b, "id": ids.of_call(str(b.get("id")))} if b.get("type") == "tool_use" else b for b in still]
        return _with_breakpoint(said, message)
    blocks: list[Block] = []
    if thoughts := message.get("thinking_blocks"):  # Anthropic does not accept unsigned ones
        thoughts = [b for b in dicts_of(thoughts) if b.get("type") in THOUGHT_BLOCKS]
        blocks = [b for b in thoughts if b["type"] != "thinking" or b.get("signature")]
    if content := message.get("content"):
        blocks += [block for block in _said(content) if not _is_blank(block)]
    if isinstance(message.get("refusal"), str) and message["refusal"]:
        blocks.append({"type": "text", "text": message["refusal"]})
    return _with_breakpoint(blocks + [_call(call, ids) for call in calls], message)


def _still_said(block: Any, named: set[str], message: Json) -> bool:
    """Returns whether a native block is still in the message, which may have lost calls or thoughts since."""
    if not isinstance(block, dict):
        return False
    if block.get("type") == "tool_use":
        return str(block.get("id")) in named
    return block.get("type") not in THOUGHT_BLOCKS or bool(message.get("thinking_blocks"))


def _call(call: Json, ids: CallPairs) -> Block:
    name, given = _asked_of(call)  # freeform calls are sent as functions; this form is also digested
    made = {"type": "tool_use", "id": ids.of_call(str(call.get("id"))), "name": name, "input": given}
    return {**made, BREAKPOINT: call[BREAKPOINT]} if call.get(BREAKPOINT) else made


def _result(message: Json, ids: CallPairs) -> Block:
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
    """Converts a content to blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for part in content or () for block in _part(part)]


def _part(part: Any) -> Iterator[Block]:
    if not isinstance(part, dict):
        yield {"type": "text", "text": str(part)}
        return
    kind = part.get("type")
    kept = {name: part[name] for name in ANTHROPIC_KEPT_FIELDS if part.get(name) is not None}
    if kind == "image_url":
        image = part["image_url"] if isinstance(part.get("image_url"), dict) else {"url": part.get("image_url")}
        yield {"type": "image", "source": _source(str(image.get("url") or "")), **kept}
    elif kind == "input_image" and named_picture(part) is not None:
        yield {"type": "image", "source": {"type": "file", "file_id": part["file_id"]}, **kept}
    elif kind == "file" and isinstance(part.get("file"), dict):
        yield {**_document(part["file"]), **(part.get(ANTHROPIC_BLOCK) or {}), **kept}
    elif kind == "refusal":
        yield {"type": "text", "text": str(part.get("refusal") or "")}
    elif kind == ANTHROPIC_BLOCK:  # verbatim, with the cache mark of its part
        if isinstance(block := part.get(ANTHROPIC_BLOCK), dict):
            yield {**block, BREAKPOINT: part[BREAKPOINT]} if part.get(BREAKPOINT) else block
    elif kind == "text" and isinstance(part.get(ANTHROPIC_BLOCK), dict):  # a document that is shown whole
        yield from _part({**part[ANTHROPIC_BLOCK], **{name: part[name] for name in (BREAKPOINT,) if part.get(name)}})
    else:
        yield part


def _source(url: str) -> Json:
    head = DATA_URL_HEAD.match(url[:200])
    if head is None:
        return {"type": "url", "url": url}
    data = url[head.end() :]
    if not head.group(2).lower().endswith(";base64"):
        data = base64.b64encode(unquote_to_bytes(data)).decode()
    return {"type": "base64", "media_type": head.group(1) or "image/png", "data": data}


def _document(file: Json) -> Block:
    """Converts a file to a document. A text file is sent as text."""
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
    """Moves the cache mark of a message to its last block."""
    if not message.get(BREAKPOINT) or not blocks:
        return blocks
    return [*blocks[:-1], {**blocks[-1], BREAKPOINT: message[BREAKPOINT]}]


def _is_blank(block: Block) -> bool:
    """Returns whether a block is a blank text, which Anthropic refuses."""
    return block.get("type") == "text" and not str(block.get("text") or "").strip()


DEFAULT_MAX_TOKENS = 4096
"""Anthropic requires a limit; each of its models can write this much."""
SAME = ("model", "temperature", "top_p", "top_k", "thinking", "stream")
TRANSLATED = frozenset(
    {
        *(*SAME, "messages", "max_tokens", "max_completion_tokens", "stop", "tools", "functions"),
        *("tool_choice", "function_call", "parallel_tool_calls", "response_format", "reasoning_effort"),
        *("service_tier", "user"),
    }
)
CHATS_ALONE = frozenset(
    {
        *("n", "seed", "logprobs", "top_logprobs", "logit_bias", "presence_penalty", "frequency_penalty", "audio"),
        *("stream_options", "store", "metadata", "modalities", "prediction", "prompt_cache_key", "verbosity"),
        *("prompt_cache_retention", "safety_identifier", "web_search_options"),
    }
)
"""Chat fields without an equivalent in Anthropic's API."""
TOOL_CHOICES_OF_CHATS = {"auto": "auto", "required": "any", "none": "none"}
TIERS_OF_CHATS = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
BUDGETS = {"minimal": 1024, "low": 1024, "medium": 2048, "high": 4096}
"""Thinking tokens for each effort, as in LiteLLM."""
MIN_THINKING_TOKENS = 1024
"""Anthropic refuses a smaller budget."""


def messages_request(body: Mapping[str, Any], native: Mapping[str, Any] | None = None) -> tuple[Json, list[str]]:
    """Builds the request's body, and the names for its header `anthropic-beta`.

    Native fields of the client (`native`) are sent verbatim.
    Raises InvalidRequest: a message holds what no model of Anthropic's accepts."""
    own: Json = dict(native or {})
    betas = own.pop(BETA, None) or []
    found: Json = {name: body[name] for name in SAME if body.get(name) is not None}
    found["max_tokens"] = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_MAX_TOKENS
    check_turns(body.get("messages") or ())
    system, found["messages"] = as_turns(body.get("messages") or ())
    if system:
        found["system"] = system
    if stop := body.get("stop"):
        found["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if body.get("service_tier") in TIERS_OF_CHATS:
        found["service_tier"] = TIERS_OF_CHATS[body["service_tier"]]
    if isinstance(body.get("user"), str):
        found["metadata"] = {"user_id": body["user"]}
    _with_tools(found, body, own.pop("tools", None))
    _with_format(found, body, own)
    _with_effort(found, body, own)
    others = {k: v for k, v in body.items() if k not in TRANSLATED and k not in CHATS_ALONE and v is not None}
    return {**found, **others, **own}, [name for name in betas if isinstance(name, str)]


def check_turns(messages: Iterable[Mapping[str, Any]]) -> None:
    """Raises InvalidRequest: the system alone speaks, which no model of Anthropic's accepts."""
    if all(message.get("role") in INSTRUCTION_ROLES for message in messages):
        text = "This model needs at least one message that is not the system's or a developer's."
        raise errors.InvalidRequest(text, param="messages")


def _with_tools(found: Json, body: Mapping[str, Any], native: Any) -> None:
    """Sets the tools: the client's own verbatim, then those that it did not send, such as the gateway's."""
    tools = [tool for tool in native if isinstance(tool, dict)] if isinstance(native, list) else []
    known = {tool.get("name") for tool in tools}
    tools += [tool for tool in map(_tool, body.get("tools") or ()) if tool["name"] not in known]
    tools += [tool for f in body.get("functions") or () if (tool := _tool({"function": f}))["name"] not in known]
    if not tools:
        return
    found["tools"] = tools
    asked = body.get("tool_choice")
    if asked is None:
        asked = body.get("function_call")
    choice: Json | None = None
    if isinstance(asked, str) and asked in TOOL_CHOICES_OF_CHATS:
        choice = {"type": TOOL_CHOICES_OF_CHATS[asked]}
    elif isinstance(asked, dict):
        named = asked.get("function") or asked
        choice = {"type": "tool", "name": named.get("name")}
    parallel = body.get("parallel_tool_calls")
    if isinstance(parallel, bool) and (choice or {}).get("type") != "none":
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": not parallel}
    if choice is not None:
        found["tool_choice"] = choice


def _tool(tool: Json) -> Json:
    """Converts a chat's function. Other tools are functions by now (guarantee §1.11)."""
    function = tool.get("function") or {}
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    made = {"name": function.get("name"), "description": function.get("description"), "input_schema": schema}
    made |= {"strict": function.get("strict"), "cache_control": tool.get("cache_control")}
    return {name: value for name, value in made.items() if value is not None}


def _with_format(found: Json, body: Mapping[str, Any], native: Json) -> None:
    """Sets structured output, unless the client set it in a native field."""
    asked = body.get("response_format")
    config = native.get("output_config")
    if not isinstance(asked, dict) or asked.get("type") != "json_schema" or native.get("output_format"):
        return
    if isinstance(config, dict) and config.get("format"):
        return
    schema = (asked.get("json_schema") or {}).get("schema")
    if isinstance(schema, dict):
        kept = config if isinstance(config, dict) else {}
        native["output_config"] = {**kept, "format": {"type": "json_schema", "schema": schema}}


def _with_effort(found: Json, body: Mapping[str, Any], native: Json) -> None:
    """Sets the thinking budget of an effort, unless the client set one. Anthropic demands that it is below the answer's
    limit; where that leaves too little, there is no thinking."""
    budget = BUDGETS.get(str(body.get("reasoning_effort")))
    if budget is None or "thinking" in found or "thinking" in native or "output_config" in native:
        return
    budget = min(budget, found["max_tokens"] - 1)
    if budget >= MIN_THINKING_TOKENS:
        found["thinking"] = {"type": "enabled", "budget_tokens": budget}
