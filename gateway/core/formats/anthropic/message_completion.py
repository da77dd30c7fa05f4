"""A message of Anthropic's as a completion of the inner form (ADR 27)."""

from typing import Any

from gateway.core import jsons
from gateway.core.formats.tool_calls import CallIds
from gateway.core.types.items import ANTHROPIC_BLOCKS

Json = dict[str, Any]
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
"""Fields that a completion says in its own words. All others stand on it under the same name."""
NATIVE_STOP = "native_stop"
"""The field of a choice with what else the end of a stream says in Anthropic's own words."""
STOPPED = ("stop_reason", "stop_sequence", "stop_details")
"""What a choice says in Anthropic's own words, beside its `finish_reason`."""
ORDER = {"thinking": 0, "redacted_thinking": 0, "text": 1, "tool_use": 2}
FIELDS = {
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "text": {"type", "text"},
    "tool_use": {"type", "id", "name", "input"},
}
"""What a chat has a place for; of anything else the blocks are kept as they came."""
COUNTED = ("input_tokens", "output_tokens", "output_tokens_details", "service_tier")
"""Fields of usage that a completion has by other names."""
FAULTS = {
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
"""The status that an error has, by its type, where it comes in a stream."""


def is_message(value: Any) -> bool:
    """Whether that is a message whose blocks can be read."""
    blocks = value.get("content") if isinstance(value, dict) else None
    return isinstance(blocks, list) and all(isinstance(b, dict) and isinstance(b.get("type"), str) for b in blocks)


def completion_of(message: Json, created: int) -> Json:
    """A whole answer.

    Args:
        created: when it was made, in seconds since 1970, which Anthropic does not say.
    """
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
    """What an answer says beside its content."""
    found = {name: value for name, value in message.items() if name not in OF_A_MESSAGE and value is not None}
    tier = object_of(message.get("usage")).get("service_tier")
    return {**found, "service_tier": tier} if isinstance(tier, str) else found


def ended(message: Json) -> Json:
    """Why an answer ended, in a chat's words and in Anthropic's."""
    reason = message.get("stop_reason")
    told = {name: message[name] for name in STOPPED if message.get(name) is not None}
    return {"finish_reason": FINISH.get(str(reason), "stop"), **told}


def message_of(blocks: list[Json]) -> Json:
    """The blocks of an answer as an assistant's message."""
    texts = [str(block.get("text") or "") for block in blocks if block["type"] == "text"]
    thoughts = [block for block in blocks if ORDER.get(block["type"]) == 0]
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
    """The citations of an answer's texts as a chat has them: those of pages, and of files that have an id. Others name
    a place in a document of the request, for which a chat has no words."""
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
    """Whether thoughts, one text and calls, in that order, are all that the blocks say."""
    places = [ORDER.get(block["type"], -1) for block in blocks]
    if -1 in places or places != sorted(places) or places.count(ORDER["text"]) > 1:
        return False
    return all({k for k, v in block.items() if v is not None} <= FIELDS[block["type"]] for block in blocks)


def sound_block(block: Json, ids: CallIds) -> Json:
    """A block; that of a call has an id of its own, a name, and an object of arguments (guarantee §1.9)."""
    if block["type"] != "tool_use":
        return block
    said = {"id": ids.distinct(block.get("id")), "name": block.get("name"), "input": block.get("input")}
    said["name"] = said["name"] if isinstance(said["name"], str) else ""
    if not isinstance(said["input"], dict):
        said["input"] = arguments_of(said["input"])
    return {**block, **said}


def call_of(block: Json) -> Json:
    """A call of a tool that the client runs."""
    function = {"name": block["name"], "arguments": jsons.dumps_text(block["input"])}
    return {"id": block["id"], "type": "function", "function": function}


def arguments_of(text: Any) -> Json:
    """A call's arguments as an object. What is none stands in it as it came, so that nothing is lost."""
    if text is None or (isinstance(text, str) and not text.strip()):
        return {}
    try:
        found = jsons.loads_answer(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else text
    except jsons.JSONDecodeError:
        found = text
    return dict(jsons.with_whole_characters(found) if isinstance(found, dict) else {"arguments": text})


def usage_of(usage: Any) -> Json | None:
    """Usage by a chat's names, with LiteLLM's for what was read from the cache and written to it. None where there is
    none."""
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
    return {**{k: v for k, v in usage.items() if k not in COUNTED and v is not None}, **found}


def fault_status(event: Json) -> int:
    """The status of an error that came with none of its own."""
    return FAULTS.get(str(object_of(event.get("error")).get("type")), 502)


def object_of(value: Any) -> Json:
    """The object that a value is, else one that says nothing."""
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0
