"""Translates a chat of the inner form to a response request."""

from collections.abc import Container, Iterable, Mapping
from typing import Any

from gateway.core.formats.responses.response_completion import ENCRYPTED
from gateway.core.formats.tool_calls import ANY_ID, CallPairs
from gateway.core.jsons import Json
from gateway.core.types.items import (
    CUSTOM,
    FUNCTION,
    LOCAL_SHELL,
    OUTPUT,
    SHELL,
    TYPED,
    TYPED_CALLS,
    call_kind,
    input_parts,
    is_own_call,
    named_calls,
    ordered,
    output_parts,
    rest_of,
    result_item,
    typed_item,
    typed_kind,
)
from gateway.core.types.tool_steps import text_of

LOGPROBS = "message.output_text.logprobs"
RESPONSE_COMMON_FIELDS = (
    "messages tools tool_choice response_format verbosity reasoning_effort max_tokens max_completion_tokens"
)
RESPONSE_REWORDED_FIELDS = frozenset((*RESPONSE_COMMON_FIELDS.split(), "logprobs", "stream_options"))
"""Chat fields that Responses has in another form. All others are sent as they are; the upstream may refuse them."""
NEUTRAL: Json = {"n": 1, "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}, "stop": [], "functions": []}
"""Neutral values of chat fields that Responses lacks; SDKs send them all the same, and they are dropped."""
RESPONSE_GATEWAY_FIELDS = ("previous_response_id", "conversation")
"""Fields that name a history here; an upstream is sent the whole history instead."""
INSTRUCTIONS_FIELD = "instructions"
RESPONSE_MERGED_FIELDS = ("text", "reasoning", "tools", "include", INSTRUCTIONS_FIELD)
"""Fields that merge a chat's fields with the request's native ones."""
Calls = dict[str, Json]
"""The items of calls so far, by their ids."""


def response_request(chat: Mapping[str, Any], native: Mapping[str, Any] | None = None) -> Json:
    """Builds the response request for a chat, with the client's native fields of Responses (`native`).

    Thoughts and hosted calls of earlier answers return to their places. The upstream stores nothing unless the chat
    asks for it; without storage, the request asks for sealed thoughts, so that they can be sent again.
    """
    own: Json = dict(native or {})
    said_by_chat = rest_of(chat, *RESPONSE_REWORDED_FIELDS)
    request = {name: value for name, value in said_by_chat.items() if name not in NEUTRAL or value != NEUTRAL[name]}
    request |= {
        name: value for name, value in own.items() if name not in (*RESPONSE_MERGED_FIELDS, *RESPONSE_GATEWAY_FIELDS)
    }
    request.setdefault("store", False)
    keeps = bool(request["store"])
    messages = chat["messages"]
    if (said := own.get(INSTRUCTIONS_FIELD)) and messages[:1] == [{"role": "system", "content": said}]:
        request[INSTRUCTIONS_FIELD], messages = said, messages[1:]
    if messages or "prompt" not in own:
        request["input"] = input_items(messages, keeps=keeps)
    limit = chat.get("max_completion_tokens") or chat.get("max_tokens")
    if limit is not None:
        request["max_output_tokens"] = limit
    tools = [_tool(tool, strict=None if native is not None else False) for tool in chat.get("tools") or ()]
    if tools or own.get("tools"):
        request["tools"] = [*tools, *(own.get("tools") or ())]
    if "tool_choice" not in own and chat.get("tool_choice") is not None:
        typed = [tool["function"].get("name") for tool in chat.get("tools") or () if typed_kind(tool)]
        request["tool_choice"] = _tool_choice(chat["tool_choice"], typed)
    include = [*(own.get("include") or ())]
    if chat.get("logprobs"):
        include.append(LOGPROBS)
    if not keeps and ENCRYPTED not in include:
        include.append(ENCRYPTED)
    fields = {"text": _text(chat, own), "reasoning": _reasoning(chat, own), "include": include}
    request |= {name: value for name, value in fields.items() if value}
    options = {k: v for k, v in (chat.get("stream_options") or {}).items() if k != "include_usage"}
    return {**request, "stream_options": options} if options else request


def _text(chat: Mapping[str, Any], own: Json) -> Json:
    text = dict(own.get("text") or {})
    shape = chat.get("response_format")
    if isinstance(shape, dict):
        schema = shape.get("json_schema")
        text["format"] = {"type": "json_schema", **schema} if isinstance(schema, dict) else shape
    if chat.get("verbosity") is not None:
        text["verbosity"] = chat["verbosity"]
    return text


def _reasoning(chat: Mapping[str, Any], own: Json) -> Json:
    reasoning = dict(own.get("reasoning") or {})
    if chat.get("reasoning_effort") is not None:
        reasoning["effort"] = chat["reasoning_effort"]
    return reasoning


def _tool(tool: Any, *, strict: bool | None) -> Any:
    """Moves a tool's fields beside its type. `strict`: the value for functions that do not set it, since a chat's are
    not strict by default and a response's are."""
    if not isinstance(tool, dict):
        return tool
    if typed_kind(tool):
        return tool[TYPED]
    kind = tool.get("type")
    inner = tool.get(str(kind))
    if kind not in ("function", "custom") or not isinstance(inner, dict):
        return tool
    found = {"type": kind, **inner}
    if kind == "function":
        found.setdefault("parameters", None)
        if strict is not None:
            found.setdefault("strict", strict)
    shape = inner.get("format")
    if isinstance(shape, dict) and isinstance(shape.get("grammar"), dict):
        found["format"] = {"type": "grammar", **shape["grammar"]}
    return found


def _tool_choice(choice: Any, typed: Container[str]) -> Any:
    """Converts a tool choice. `typed`: the names of functions that replace typed tools."""
    if not isinstance(choice, dict):
        return choice
    kind = choice.get("type")
    inner = choice.get(str(kind))
    if not isinstance(inner, dict):
        return choice
    if kind == "allowed_tools":
        return {"type": kind, **inner, "tools": [_tool_choice(tool, typed) for tool in inner.get("tools") or ()]}
    name = inner.get("name")
    return {"type": name} if name in typed else {"type": kind, "name": name}


def input_items(messages: list[Json], *, keeps: bool = False) -> list[Json]:
    """Converts messages to items. `keeps`: the upstream stores responses, so that it knows its items by their ids."""
    found: list[Json] = []
    calls: Calls = {}
    for message in messages:
        role = message.get("role")
        if role == "assistant":
            found += _answer(message, calls, keeps=keeps)
        elif role in ("tool", "function"):
            found.append(_output(message, calls))
        else:
            content = message.get("content")
            found.append({"role": role, "content": content if isinstance(content, str) else input_parts(content)})
    return _paired(found)


def _paired(found: list[Json]) -> list[Json]:
    """Returns the items with a distinct id for each call: some local servers repeat theirs."""
    called = [str(item.get("call_id")) for item in found if is_own_call(item)]
    if len(set(called)) == len(called):
        return found
    ids, paired = CallPairs(ANY_ID), []
    for item in found:
        name = "id" if item.get("type") == LOCAL_SHELL + OUTPUT else "call_id"
        if is_own_call(item):
            item = {**item, name: ids.of_call(str(item.get(name)))}
        elif str(item.get("type")).endswith(OUTPUT) and name in item:
            item = {**item, name: ids.of_result(str(item[name]))}
        paired.append(item)
    return paired


def _answer(message: Json, calls: Calls, *, keeps: bool) -> list[Json]:
    """Converts an assistant's message: thoughts and hosted calls, text, calls, or all of them in their own order. Items
    keep their ids only if none of their thoughts is left out: their maker would notice by the ids."""
    items = [item for name in ("reasoning_items", "output_items") for item in message.get(name) or ()]
    kept = [_given_back(item, keeps=keeps) for item in items if isinstance(item, dict)]
    words = _words(message)
    phase = {"phase": message["phase"]} if isinstance(message.get("phase"), str) else {}
    said = [{"role": "assistant", "content": words, **phase}] if words else []
    found = ordered(message, kept, said, [_call(call, calls) for call in named_calls(message)], _apart)
    while found and found[-1].get("type") == "reasoning":  # thoughts at the end are refused without a following item
        found.pop()
    return found if all(kept) else unnamed(found)


def unnamed(items: Iterable[Json]) -> list[Json]:
    """Removes the ids of messages and calls among items; calls of local shells keep theirs."""
    return [
        {k: v for k, v in each.items() if k != "id"}
        if each.get("type") in (None, "message") or (is_own_call(each) and each["type"] != LOCAL_SHELL)
        else each
        for each in items
    ]


def _apart(entry: Json, number: int) -> Json:
    """Returns one of an answer's messages as it came."""
    content = entry["content"]
    return {**entry, "content": content if isinstance(content, str) else _parts(content)}


def _given_back(item: Json, *, keeps: bool) -> Json:
    """Returns an item as it came, but without null fields, which some upstreams send and do not accept, and without its
    index in a stream. Empty for thoughts that are neither sealed nor readable, if the upstream stores nothing."""
    is_thought = item.get("type") == "reasoning"
    if is_thought and not (keeps or item.get("encrypted_content") or item.get("content")):
        return {}
    return {**({"summary": []} if is_thought else {}), **rest_of(item, "index")}


def _words(message: Json) -> str | list[Json]:
    content = message.get("content")
    if isinstance(content, str) and not message.get("refusal") and not message.get("annotations"):
        return content
    parts = output_parts(message)
    return _parts(part for part in parts if part.get("type") != "output_text" or part.get("text"))


def _parts(parts: Iterable[Any]) -> list[Json]:
    return [{k: v for k, v in part.items() if k != "logprobs"} for part in parts if isinstance(part, dict)]


def _call(call: Json, calls: Calls) -> Json:
    call_id, kind = str(call.get("id")), call_kind(call)
    custom, function = call.get("custom") or {}, call.get("function") or {}
    if kind in TYPED_CALLS:
        found = {"call_id": call_id, "status": "completed", **typed_item(kind, function.get("arguments"))}
        found |= {"id": f"lsh_{call_id}"} if kind == LOCAL_SHELL else {}  # which must have one
    elif kind == CUSTOM:
        found = {"type": kind, "call_id": call_id, "name": custom.get("name"), "input": custom.get("input") or ""}
    else:
        arguments = function.get("arguments") or "{}"
        found = {"type": kind, "call_id": call_id, "name": function.get("name"), "arguments": arguments}
    calls[call_id] = found
    return found


def _output(message: Json, calls: Calls) -> Json:
    call_id, content = str(message.get("tool_call_id") or message.get("name")), message.get("content")
    call = calls.get(call_id) or {}
    kind = call.get("type", FUNCTION)
    if kind not in TYPED_CALLS:
        output = content or "" if isinstance(content, str | None) else input_parts(content)
        return {"type": kind + OUTPUT, "call_id": call_id, "output": output}
    found = {"id" if kind == LOCAL_SHELL else "call_id": call_id, "type": kind + OUTPUT}
    limit = call["action"].get("max_output_length") if kind == SHELL else None  # which must be sent again
    return {**found, **result_item(kind, text_of(content)), **({"max_output_length": limit} if limit else {})}
