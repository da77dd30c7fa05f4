"""A response as a chat completion of the inner form; its events are read in `response_chunks`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.core import jsons
from gateway.core.types.items import BETWEEN, CUSTOM, ITEM_ORDER, is_own_call, item_order
from gateway.core.types.typed_tools import TYPED, TYPED_CALLS, arguments_of

Json = dict[str, Any]
OF_A_RESPONSE = frozenset(
    {
        *("id", "created_at", "error", "incomplete_details", "instructions", "metadata", "model", "object", "output"),
        *("parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p", "background", "completed_at"),
        *("conversation", "max_output_tokens", "max_tool_calls", "previous_response_id", "prompt", "prompt_cache_key"),
        *("prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier", "status", "text"),
        *("top_logprobs", "truncation", "usage", "user", "store", "moderation", "frequency_penalty"),
        *("presence_penalty", "output_text"),
    }
)
"""What a response says in a chat's words, or repeats of its request. All else is passed on."""
FINISHED = {"content_filter": "content_filter", "max_output_tokens": "length"}
FAILED = {
    **dict.fromkeys(("rate_limit_exceeded", "rate_limit_error", "insufficient_quota"), 429),
    **dict.fromkeys(("overloaded", "overloaded_error", "slow_down"), 503),
    "context_length_exceeded": 400,
    "invalid_request_error": 400,
    "invalid_api_key": 401,
    "server_error": 500,
}
"""Statuses of what a failed response names by its code or its type."""
OF_REQUEST = re.compile(r"invalid|image|policy|unsupported")
"""Codes of faults of the request; all others are the server's, as it had taken the request."""
FAULTS = ("error", "response.failed", "response.error")
"""Events that tell of one."""
MOST = 10**15


def completion_of(response: Mapping[str, Any]) -> Json:
    """A whole response as a completion."""
    items = objects(response.get("output"))
    message = message_of(items)
    choice: Json = {"index": 0, "message": message, "finish_reason": finish_reason(response, message)}
    tokens = [token for part in _said(items) for token in objects(part.get("logprobs"))]
    choice["logprobs"] = {"content": [chat_token(token) for token in tokens]} if tokens else None
    found = {**envelope(response, "chat.completion"), "choices": [choice]}
    usage = chat_usage(response.get("usage"))
    return {**found, "usage": usage} if usage else found


def envelope(response: Mapping[str, Any], kind: str) -> Json:
    """What a completion, or each chunk of one, says of itself."""
    found = {"id": response.get("id"), "object": kind, "model": response.get("model")}
    found["created"] = _whole_number(response.get("created_at"))
    return {**found, **{k: v for k, v in response.items() if k not in OF_A_RESPONSE and v is not None}}


def message_of(items: Sequence[Json]) -> Json:
    """The items of an answer as an assistant's message: its words, its calls, its thoughts, and what no chat has."""
    message: Json = {"role": "assistant", "content": None}
    texts = [text for item in items if item.get("type") == "message" if (text := _text(item))]
    calls = [chat_call(item) for item in items if is_own_call(item)]
    refusal = "".join(str(part.get("refusal") or "") for part in _said(items) if part.get("type") == "refusal")
    message["content"] = BETWEEN.join(texts) or (None if calls or refusal else "")
    message["refusal"] = refusal or None
    cited = [nested(each) for part in _said(items) for each in objects(part.get("annotations"))]
    thoughts = BETWEEN.join(text for item in items if (text := thoughts_of(item)))
    kept = [item for item in items if is_whole(item)]
    named = {"reasoning_items": [item for item in kept if item["type"] == "reasoning"]}
    named["output_items"] = [item for item in kept if item["type"] != "reasoning"]
    phase = next((item["phase"] for item in reversed(items) if isinstance(item.get("phase"), str)), None)
    more = {"annotations": cited, "reasoning_content": thoughts, **named, "tool_calls": calls, "phase": phase}
    more[ITEM_ORDER] = order_of(items)
    return {**message, **{name: value for name, value in more.items() if value}}


def order_of(items: Sequence[Json]) -> list[Json]:
    """The `item_order` of an answer, without the ids that its maker gave."""
    bare = [{name: value for name, value in item.items() if name != "id"} for item in items]
    for item in bare:
        if item.get("type") == "message":
            item["content"] = objects(item.get("content"))
    return item_order([item for item in bare if isinstance(item.get("type"), str)])


def finish_reason(response: Mapping[str, Any], message: Mapping[str, Any]) -> str:
    """Why an answer ended, in a chat's words."""
    if response.get("status") == "incomplete":
        details = response.get("incomplete_details")
        return FINISHED.get(str(details.get("reason")) if isinstance(details, dict) else "", "length")
    return "tool_calls" if message.get("tool_calls") else "stop"


Failure = tuple[int, Json]
"""A status, and an error as OpenAI shapes it."""


def failure_of_event(event: Mapping[str, Any]) -> Failure | None:
    """What an event tells of, if it is a fault: in a response, in an object, or beside its type."""
    kind, error, response = event.get("type"), event.get("error"), event.get("response")
    if kind not in FAULTS and not (kind is None and error):
        return None
    if isinstance(response, dict):
        error = response.get("error") or error
    if not isinstance(error, dict | str):
        error = {name: event[name] for name in ("code", "message", "param") if event.get(name) is not None}
    return failure_of({"status": "failed", "error": error})


def failure_of(response: Mapping[str, Any]) -> Failure | None:
    """The same of a response; None of one that did not fail."""
    error = response.get("error")
    if response.get("status") != "failed" and not error:
        return None
    words = error if isinstance(error, str) and error else "The upstream's response failed."
    found = error if isinstance(error, dict) and error else {"code": "server_error", "message": words}
    names = [str(found.get(name)) for name in ("code", "type")]
    status = next((FAILED[name] for name in names if name in FAILED), 400 if OF_REQUEST.search(names[0]) else 500)
    kind = {429: "rate_limit_error", 400: "invalid_request_error"}.get(status, "server_error")
    return status, {"error": {"type": kind, "param": None, "code": None, **found}}


def chat_usage(usage: Any) -> Json | None:
    """Usage by a chat's names, with its details; what is written to a cache by the name that prices know."""
    if not isinstance(usage, dict):
        return None
    renamed = ("input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details")
    sent, answered = _whole_number(usage.get("input_tokens")), _whole_number(usage.get("output_tokens"))
    total = _whole_number(usage.get("total_tokens")) or sent + answered
    found: Json = {"prompt_tokens": sent, "completion_tokens": answered, "total_tokens": total}
    details = usage.get("input_tokens_details")
    if isinstance(details, dict):
        written = {"cache_creation_tokens": n} if (n := details.get("cache_write_tokens")) else {}
        found["prompt_tokens_details"] = {**{k: v for k, v in details.items() if k != "cache_write_tokens"}, **written}
    if isinstance(usage.get("output_tokens_details"), dict):
        found["completion_tokens_details"] = usage["output_tokens_details"]
    return {**found, **{k: v for k, v in usage.items() if k not in renamed}}


def chat_call(item: Json) -> Json:
    """A call that the client answers."""
    call_id, name = str(item.get("call_id") or item.get("id") or ""), item.get("name")
    kind = str(item.get("type"))
    if typed := TYPED_CALLS.get(kind):
        function = {"name": typed.tool, "arguments": arguments_of(kind, item.get(typed.holds))}
        return {"id": call_id, "type": "function", "function": function, TYPED: kind}
    if kind == CUSTOM:
        return {"id": call_id, "type": "custom", "custom": {"name": name, "input": as_text(item.get("input"))}}
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": as_text(item.get("arguments"))}}


def thoughts_of(item: Json) -> str:
    """The text of a reasoning item, else its summary."""
    if item.get("type") != "reasoning":
        return ""
    for name in ("content", "summary"):
        texts = [str(part.get("text") or "") for part in objects(item.get(name))]
        if any(texts):
            return BETWEEN.join(texts)
    return ""


def chat_token(token: Json) -> Json:
    """A token's log probability as a chat has it."""
    others = [_with_bytes(each) for each in objects(token.get("top_logprobs"))]
    return {**_with_bytes(token), "top_logprobs": others}


def nested(annotation: Any) -> Any:
    """A citation as a chat has it: its fields in an object of their own."""
    if not isinstance(annotation, dict) or annotation.get("type") != "url_citation" or "url_citation" in annotation:
        return annotation
    return {"type": "url_citation", "url_citation": {k: v for k, v in annotation.items() if k != "type"}}


def objects(value: Any) -> list[Json]:
    """The objects of a list; none of anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """What should be a string; some servers send JSON as it is."""
    if value is None or isinstance(value, str):
        return value or ""
    return jsons.dumps_text(value)


def is_whole(item: Json) -> bool:
    """Whether an item is kept as it is, as a chat has no words for it: thoughts, and what the upstream ran."""
    return isinstance(item.get("type"), str) and not _is_chats(item)


def _is_chats(item: Json) -> bool:
    return item.get("type") == "message" or is_own_call(item)


def _said(items: Sequence[Json]) -> list[Json]:
    """The parts of all messages among the items."""
    return [part for item in items if item.get("type") == "message" for part in objects(item.get("content"))]


def _text(item: Json) -> str:
    return "".join(str(part.get("text") or "") for part in _said([item]) if part.get("type") == "output_text")


def _with_bytes(token: Json) -> Json:
    known = token.get("bytes")
    found = {"token": token.get("token"), "logprob": token.get("logprob")}
    return {**found, "bytes": known if known is not None else [*str(token.get("token")).encode("utf-8", "replace")]}


def _whole_number(value: Any) -> int:
    """A count or a time; 0 if it is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and 0 <= value < MOST else 0
