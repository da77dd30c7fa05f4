"""Converts responses, also stored ones, to completions of the inner form and back, and their events to chunks."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.core import errors, jsons
from gateway.core.formats.responses.item_reader import names_apart
from gateway.core.formats.responses.sealed_thoughts import ThoughtSealer
from gateway.core.ids import RESPONSE, answer_id
from gateway.core.jsons import Json
from gateway.core.types.bill import cache_tokens, without_cache
from gateway.core.types.chat import COMPLETION_FIELDS
from gateway.core.types.content_parts import dicts_of
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.items import (
    BETWEEN,
    CUSTOM,
    ITEM_DONE,
    ITEM_ORDER,
    OWN_CALLS,
    TYPED,
    TYPED_CALLS,
    arguments_of,
    is_own_call,
    item_order,
    items_of,
    nested_annotation,
    status_of,
)

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
"""Response fields that a completion has in another form, or that repeat the request. All others are passed on."""
FINISHED = {"content_filter": "content_filter", "max_output_tokens": "length"}
FAILURE_STATUSES = {
    **dict.fromkeys(("rate_limit_exceeded", "rate_limit_error", "insufficient_quota"), 429),
    **dict.fromkeys(("overloaded", "overloaded_error", "slow_down"), 503),
    "context_length_exceeded": 400,
    "invalid_request_error": 400,
    "invalid_api_key": 401,
    "server_error": 500,
}
"""HTTP statuses of failed responses, by the code or type of the error."""
OF_REQUEST = re.compile(r"invalid|image|policy|unsupported")
"""Codes of faults of the request; all others are the server's fault, since it accepted the request."""
FAULT_EVENTS = ("error", "response.failed", "response.error")
"""Events that report a fault."""
MAX_STATED_NUMBER = 10**15


def completion_of(response: Mapping[str, Any]) -> Json:
    """Converts a whole response to a completion."""
    items = [item for _, item in _placed(response.get("output"))]
    message = message_of(items)
    choice: Json = {"index": 0, "message": message, "finish_reason": finish_reason(response, message)}
    tokens = [token for part in _said(items) for token in dicts_of(part.get("logprobs"))]
    choice["logprobs"] = {"content": [chat_token(token) for token in tokens]} if tokens else None
    found = {**envelope(response, "chat.completion"), "choices": [choice]}
    usage = chat_usage(response.get("usage"))
    return {**found, "usage": usage} if usage else found


def envelope(response: Mapping[str, Any], kind: str) -> Json:
    """Returns the fields that a completion, or each chunk of one, has beside its choices."""
    found = {"id": response.get("id"), "object": kind, "model": response.get("model")}
    found["created"] = _whole_number(response.get("created_at"))
    return {**found, **{k: v for k, v in response.items() if k not in OF_A_RESPONSE and v is not None}}


def message_of(items: Sequence[Json]) -> Json:
    """Converts an answer's items to an assistant's message: text, calls, thoughts, and what no chat has."""
    message: Json = {"role": "assistant", "content": None}
    texts = [text for item in items if item.get("type") == "message" if (text := _text(item))]
    calls = [chat_call(item) for item in items if is_own_call(item)]
    refusal = "".join(str(part.get("refusal") or "") for part in _said(items) if part.get("type") == "refusal")
    message["content"] = BETWEEN.join(texts) or (None if calls or refusal else "")
    message["refusal"] = refusal or None
    cited = [nested_annotation(each) for part in _said(items) for each in dicts_of(part.get("annotations"))]
    thoughts = BETWEEN.join(text for item in items if (text := thoughts_of(item)))
    kept = [item for item in items if is_whole(item)]
    named = {"reasoning_items": [item for item in kept if item["type"] == "reasoning"]}
    named["output_items"] = [item for item in kept if item["type"] != "reasoning"]
    phase = next((item["phase"] for item in reversed(items) if isinstance(item.get("phase"), str)), None)
    more = {"annotations": cited, "reasoning_content": thoughts, **named, "tool_calls": calls, "phase": phase}
    more[ITEM_ORDER] = order_of(items)
    return {**message, **{name: value for name, value in more.items() if value}}


def order_of(items: Sequence[Json]) -> list[Json]:
    """Returns the `item_order` of an answer, without its maker's ids."""
    bare = [{name: value for name, value in item.items() if name != "id"} for item in items]
    for item in bare:
        if item.get("type") == "message":
            item["content"] = list(dicts_of(item.get("content")))
    return item_order([item for item in bare if isinstance(item.get("type"), str)])


def finish_reason(response: Mapping[str, Any], message: Mapping[str, Any]) -> str:
    """Returns a chat's finish reason for a response."""
    if response.get("status") == "incomplete":
        details = response.get("incomplete_details")
        return FINISHED.get(str(details.get("reason")) if isinstance(details, dict) else "", "length")
    return "tool_calls" if message.get("tool_calls") else "stop"


Failure = tuple[int, Json]
"""An HTTP status, and an error in OpenAI's shape."""


def failure_of_event(event: Mapping[str, Any]) -> Failure | None:
    """Returns the fault in an event: in a response, in an object, or beside its type; None if there is none."""
    kind, error, response = event.get("type"), event.get("error"), event.get("response")
    if kind not in FAULT_EVENTS and not (kind is None and error):
        return None
    if isinstance(response, dict):
        error = response.get("error") or error
    if not isinstance(error, dict | str):
        error = {name: event[name] for name in ("code", "message", "param") if event.get(name) is not None}
    return failure_of({"status": "failed", "error": error})


def failure_of(response: Mapping[str, Any]) -> Failure | None:
    """Returns the fault of a response; None if it did not fail."""
    error = response.get("error")
    if response.get("status") != "failed" and not error:
        return None
    words = error if isinstance(error, str) and error else "The upstream's response failed."
    found = error if isinstance(error, dict) and error else {"code": "server_error", "message": words}
    names = [str(found.get(name)) for name in ("code", "type")]
    status = next(
        (FAILURE_STATUSES[name] for name in names if name in FAILURE_STATUSES),
        400 if OF_REQUEST.search(names[0]) else 500,
    )
    kind = {429: "rate_limit_error", 400: "invalid_request_error"}.get(status, "server_error")
    return status, {"error": {"type": kind, "param": None, "code": None, **found}}


def chat_usage(usage: Any) -> Json | None:
    """Converts usage to a chat's names, with details; cache writes get the name that prices use."""
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
    """Converts the item of a client-run call to a chat's call."""
    call_id, name = str(item.get("call_id") or item.get("id") or ""), item.get("name")
    kind = str(item.get("type"))
    if typed := TYPED_CALLS.get(kind):
        function = {"name": typed.tool, "arguments": arguments_of(kind, item.get(typed.holds))}
        return {"id": call_id, "type": "function", "function": function, TYPED: kind}
    if kind == CUSTOM:
        return {"id": call_id, "type": "custom", "custom": {"name": name, "input": as_text(item.get("input"))}}
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": as_text(item.get("arguments"))}}


def thoughts_of(item: Json) -> str:
    """Returns the text of a reasoning item, or else its summary."""
    if item.get("type") != "reasoning":
        return ""
    return _thought_in(item)[1]


def _thought_in(item: Json) -> tuple[str, str]:
    """Returns the field of a reasoning item that has its text, and the text; both empty if there is none."""
    for name in ("content", "summary"):
        texts = [str(part.get("text") or "") for part in dicts_of(item.get(name))]
        if any(texts):
            return name, BETWEEN.join(texts)
    return "", ""


def chat_token(token: Json) -> Json:
    """Converts a token's log probability to a chat's form."""
    others = [_with_bytes(_bare(each)) for each in dicts_of(token.get("top_logprobs"))]
    return {**_with_bytes(_bare(token)), "top_logprobs": others}


def _placed(output: Any) -> list[tuple[int, Json]]:
    """Returns the repaired items of an output, each with its index."""
    entries = enumerate(output if isinstance(output, list) else ())
    return [(place, _mended_item(item)) for place, item in entries if isinstance(item, dict)]


def _mended_item(item: Json) -> Json:
    """Repairs a message: some servers leave out fields, or send them in a chat's form."""
    if item.get("type") is None and "role" in item:
        item = {**item, "type": "message"}
    content = item.get("content")
    if item.get("type") != "message" or not isinstance(content, str | list):
        return item
    return {**item, "content": [_mended_part(part) for part in ([content] if isinstance(content, str) else content)]}


def _mended_part(part: Any) -> Any:
    if isinstance(part, str):
        part = {"type": "output_text", "text": part, "annotations": []}
    return {**part, "type": "output_text"} if isinstance(part, dict) and part.get("type") == "text" else part


def as_text(value: Any) -> str:
    """Returns a value as a string: some servers send JSON where a string belongs."""
    if value is None or isinstance(value, str):
        return value or ""
    return jsons.dumps_text(value)


def is_whole(item: Json) -> bool:
    """Returns whether an item is retained verbatim, since no chat can express it: thoughts, and upstream-run calls."""
    return isinstance(item.get("type"), str) and item["type"] != "message" and not is_own_call(item)


def _said(items: Sequence[Json]) -> list[Json]:
    """Returns the parts of all messages among the items."""
    return [part for item in items if item.get("type") == "message" for part in dicts_of(item.get("content"))]


def _text(item: Json) -> str:
    return "".join(str(part.get("text") or "") for part in _said([item]) if part.get("type") == "output_text")


def _bare(token: Json) -> Json:
    return {name: token.get(name) for name in ("token", "logprob", "bytes")}


def _with_bytes(token: Json) -> Json:
    known = token.get("bytes")
    return {**token, "bytes": known if known is not None else [*str(token.get("token")).encode("utf-8", "replace")]}


def _whole_number(value: Any) -> int:
    """Returns a count or a time; 0 for any other value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and 0 <= value < MAX_STATED_NUMBER else 0


OF_A_CHAT = COMPLETION_FIELDS - {"service_tier"}
"""Completion fields that a response has in another form. All others are passed on."""
ECHOED: Json = {
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "background": False,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "prompt_cache_retention": None,
    "safety_identifier": None,
    "service_tier": "auto",
    "store": True,
    "top_logprobs": 0,
    "truncation": "auto",
    "user": None,
}
"""Request fields that the response repeats, and their values if the request does not set them."""
INCOMPLETE = {
    **dict.fromkeys(("length", "model_length"), "max_output_tokens"),  # the latter is Mistral's, at the window's end
    "content_filter": "content_filter",
}
ENCRYPTED = "reasoning.encrypted_content"


def echo(body: Mapping[str, Any], *, store: bool) -> Json:
    """Returns the request fields that a response repeats."""
    found = {name: default if body.get(name) is None else body[name] for name, default in ECHOED.items()}
    text, reasoning = body.get("text") or {}, body.get("reasoning") or {}
    found["text"] = {"format": {"type": "text"}, **text}
    found["reasoning"] = {"effort": None, "summary": None, **reasoning}
    return {**found, "store": store}


def response_of(
    completion: Mapping[str, Any],
    echoed: Mapping[str, Any],
    include: tuple[str, ...] = (),
    compaction: Json | None = None,
    sealer: ThoughtSealer | None = None,
) -> Json:
    """Converts a whole completion to a response.
    `echoed`: the request fields that it repeats; see `echo`; `include`: additional output that the request asks for;
    `compaction`: the item that replaces everything before it; `sealer`: for thoughts that no response can show."""
    choice: Json = next(iter(completion.get("choices") or ()), {})
    output = output_items(choice.get("message") or {}, completion["id"], include, choice.get("logprobs"), sealer)
    names = names_apart(echoed.get("tools"))
    output = [{**item, **names.get(str(item.get("name")), {})} for item in output] if names else output
    reason = INCOMPLETE.get(str(choice.get("finish_reason")))
    if reason:
        output[-1] = as_incomplete(output[-1])
    if compaction is not None:
        output = [compaction, *output]
    return ended(begun(completion, echoed), output, reason, completion.get("usage"), completion)


def begun(completion: Mapping[str, Any], echoed: Mapping[str, Any]) -> Json:
    """Builds a response in progress from a completion or the first chunk of one."""
    response: Json = {
        "id": answer_id(completion["id"], RESPONSE),
        "object": "response",
        "created_at": _whole_number(completion.get("created")),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": str(completion.get("model") or ""),
        "output": [],
        **echoed,
        "usage": None,
    }
    return {**response, **extras(completion)}


def extras(completion: Mapping[str, Any]) -> Json:
    """Returns the fields of a completion or chunk that a response passes on unchanged: the bill, the conversation, and
    whatever the upstream added."""
    return {name: value for name, value in completion.items() if name not in OF_A_CHAT and value is not None}


def ended(response: Json, output: list[Json], reason: str | None, usage: Any, completion: Mapping[str, Any]) -> Json:
    """Completes a response with its output. `reason`: why it is incomplete; None if it is complete."""
    found = {**response, **extras(completion), "output": output, "usage": usage_of(usage)}
    if reason:
        return {**found, "status": "incomplete", "incomplete_details": {"reason": reason}}
    return {**found, "status": "completed", "completed_at": found["created_at"]}


def output_items(
    message: Json,
    completion_id: str,
    include: tuple[str, ...],
    logprobs: Any = None,
    sealer: ThoughtSealer | None = None,
) -> list[Json]:
    """Converts an answer's message to items, the same that the Conversations API shows."""
    body = {**message, "role": "assistant"}
    stored = ConversationMessage("assistant", body, message_id=answer_id(completion_id))
    items = items_of(stored)
    if ENCRYPTED in include:
        items = with_sealed(items, body)
        if sealer is not None:
            items = sealer.with_thoughts(items, body, answer_id(completion_id, "rs_"))
    said = (logprobs or {}).get("content") if isinstance(logprobs, dict) else None
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    texts = [part for part in parts if part.get("type") == "output_text"]
    for part in texts:
        part.setdefault("annotations", [])
        part["logprobs"] = whole_logprobs(part.get("logprobs"))
    if texts and not any(part["logprobs"] for part in texts):
        texts[0]["logprobs"] = whole_logprobs(said)
    return items


def with_sealed(items: list[Json], body: Mapping[str, Any]) -> list[Json]:
    """Adds the sealed thoughts to reasoning items, for clients that send them again."""
    thoughts = [each for each in body.get("reasoning_items") or () if isinstance(each, dict) and each]
    thoughts += [each for each in body.get("output_items") or () if each.get("type") == "reasoning"]
    sealed = iter(thoughts)
    found = []
    for item in items:
        if item["type"] == "reasoning" and (thought := next(sealed, None)) and thought.get("encrypted_content"):
            item = {**item, "encrypted_content": thought["encrypted_content"]}
        found.append(item)
    return found


def as_incomplete(item: Json) -> Json:
    """Marks the item in which an answer broke off."""
    return {**item, "status": status_of(item.get("type"), "incomplete")}


def failed(error: errors.GatewayError) -> Json:
    """Returns the fields of a response that an error broke off."""
    return {"status": "failed", "error": {"code": "server_error", "message": told(error)["message"]}}


def told(error: errors.GatewayError) -> Json:
    """Returns an error as reported to the client: `code`, `message`, `param`."""
    said = error.body()["error"]
    message = str(said.get("message") or error.message)
    code, param = (said.get(name) and str(said[name]) for name in ("code", "param"))
    return {"code": code, "message": message, "param": param}


def whole_logprobs(tokens: Any) -> list[Json]:
    """Adds missing bytes to the log probabilities of a text."""
    found = []
    for each in tokens or ():
        others = [_with_bytes(other) for other in each.get("top_logprobs") or ()]
        found.append({**_with_bytes(each), "top_logprobs": others})
    return found


def usage_of(usage: Any) -> Json | None:
    """Converts usage to the names of Responses; `cost` and all other fields stay."""
    if not isinstance(usage, dict):
        return None
    prompt, completion = _details(usage, "prompt_tokens_details"), _details(usage, "completion_tokens_details")
    read, written = cache_tokens(usage)
    own = ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details")
    sent, answered = _whole_number(usage.get("prompt_tokens")), _whole_number(usage.get("completion_tokens"))
    return {
        "input_tokens": sent,
        "input_tokens_details": {**without_cache(prompt), "cached_tokens": read, "cache_write_tokens": written},
        "output_tokens": answered,
        "output_tokens_details": {**completion, "reasoning_tokens": completion.get("reasoning_tokens") or 0},
        "total_tokens": _whole_number(usage.get("total_tokens")) or sent + answered,
        **{name: value for name, value in without_cache(usage).items() if name not in own},
    }


def _details(usage: Json, name: str) -> Json:
    details = usage.get(name)
    return {k: v for k, v in details.items() if v is not None} if isinstance(details, dict) else {}


RESPONSE_ENDS = ("response.completed", "response.incomplete", "response.cancelled")
SUMMARY = "thoughts_are_summary"
"""The field of a choice that marks its thoughts as a summary, for an edge of Responses."""
MESSAGE_AT = "message_at"
"""The field of a choice with the place of its text: the indexes of the message and of the part in it, and the phase;
and whether the text begins with the separator between messages in a chat's text."""
MESSAGE_PARTS = ("output_text", "text", "refusal")
OTHER_PART = "other_part"
"""The field of a choice with a part that is neither a text nor a refusal; its place is in `MESSAGE_AT`."""


class ResponseChunks:
    """Converts the events of one answer to chunks: each event to at least one, perhaps without choices.

    The content of an event is passed on at once. What a server leaves out of its pieces is added when the item, or the
    response, is there whole; what it repeats counts once.
    """

    def __init__(self, *, as_items: bool) -> None:
        """`as_items`: the answer is for an edge of Responses, which shows items as items."""
        self._as_items = as_items
        self._envelope: Json = {"id": None, "object": "chat.completion.chunk", "created": 0, "model": None}
        self._open: dict[Any, _PassedItem] = {}
        """Items by their place in the output."""
        self._whole: dict[Any, Json] = {}
        """Complete items by their place in the output."""
        self._speaking: _PassedItem | None = None
        """The message whose text is being sent. Text of others waits until it is done: a chat has one text."""
        self._messages = 0
        self._calls = 0
        self._has_words = False
        self._has_thoughts = False
        self._role_sent = False
        self._phase: str | None = None
        self._by_ids = False
        self.ended = False
        """Whether the response has ended."""
        self._more: Json = {}
        self._numbers: dict[str, int] = {}

    def of(self, event: Mapping[str, Any]) -> list[Json]:
        """Converts an event to chunks; if it ends the response, the last chunk has the usage."""
        kind = str(event.get("type"))
        response = event.get("response")
        if isinstance(response, dict):
            self._envelope = {**self._envelope, **envelope(response, "chat.completion.chunk")}
        if kind in RESPONSE_ENDS and isinstance(response, dict):
            return self._finish(response)
        return self._made(kind, event) or [{**self._envelope, "choices": []}]

    def _made(self, kind: str, event: Mapping[str, Any]) -> list[Json]:
        """Converts an event inside the response to chunks; none if a chat has none."""
        delta, item = event.get("delta"), event.get("item")
        item = _mended_item(item) if isinstance(item, dict) else None
        place, part = self._place(event), event.get("content_index")
        match kind.removeprefix("response."):
            case "output_item.added" if item is not None:
                return self._told(self._begin(place, item))
            case "output_item.done" if item is not None:
                return self._catch_up(place, item)
            case "output_text.delta" if isinstance(delta, str):
                return self._told(self._words(self._at(place, "message"), delta, part, event.get("logprobs")))
            case "refusal.delta" if isinstance(delta, str):
                return self._told(self._refused(self._at(place, "message"), delta, part))
            case "content_part.done" if isinstance(event.get("part"), dict) and place in self._open:
                return self._other_part(self._open[place], event["part"], part)
            case "output_text.annotation.added":
                return self._told(self._cited(self._at(place, "message"), [event.get("annotation")], part))
            case "reasoning_summary_text.delta" | "reasoning_text.delta" if isinstance(delta, str):
                part = event.get("summary_index", part)
                is_summary = "summary" in kind
                return self._told(self._thoughts(self._at(place, "reasoning"), delta, part, is_summary=is_summary))
            case "function_call_arguments.delta" | "custom_tool_call_input.delta" if isinstance(delta, str):
                return self._told(self._arguments(self._open.get(place), delta))
        return []

    def _told(self, delta: Json | None) -> list[Json]:
        return [] if delta is None else [self._chunk(delta)]

    def _place(self, event: Mapping[str, Any]) -> Any:
        """Returns the place of an event in the output: its index, since some servers change ids, else its id."""
        number, item = event.get("output_index"), event.get("item")
        if isinstance(number, int):
            return number
        item_id = event.get("item_id") or (item.get("id") if isinstance(item, dict) else None)
        self._by_ids = self._by_ids or item_id is not None
        return str(item_id)

    def _chunk(self, delta: Json, finish: str | None = None, **more: Any) -> Json:
        if not self._role_sent:
            self._role_sent = True
            delta = {"role": "assistant", **delta}
        choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, **self._more}
        self._more = {}
        return {**self._envelope, "choices": [choice], **more}

    def _at(self, place: Any, kind: str) -> "_PassedItem":
        found = self._open.get(place)
        if found is None:
            found = self._open[place] = _PassedItem(kind)
        return found

    def _begin(self, place: Any, item: Json) -> Json | None:
        """Begins an item: a call with its name; other items have no content yet."""
        kind = str(item.get("type"))
        if place in self._open:
            return None
        opened = self._open[place] = _PassedItem(kind)
        opened.phase = item.get("phase")
        if kind in OWN_CALLS:
            opened.index, self._calls = self._calls, self._calls + 1
        if kind not in OWN_CALLS or kind in TYPED_CALLS:  # which are sent whole
            return {} if not self._role_sent else None
        opened.is_named, call = True, chat_call(item)
        opened.chars = len(_arguments_of(call))
        return {"tool_calls": [{"index": opened.index, **call}]}

    def _waits(self, item: "_PassedItem", part: Any) -> bool:
        """Returns whether text of a message waits for the end of another; if not, records its place."""
        if self._speaking is not item:
            if item.waits or not (self._speaking is None or self._speaking.is_done):
                item.waits = True
                return True
            self._speaking, item.number = item, self._messages
            self._messages += 1
        if self._as_items:
            at = {"message": item.number, "part": part if isinstance(part, int) else 0}
            self._more[MESSAGE_AT] = {**at, "phase": item.phase} if isinstance(item.phase, str) else at
        return False

    def _words(self, item: "_PassedItem", text: str, part: Any, logprobs: Any = None) -> Json | None:
        if self._waits(item, part):
            return None
        between = BETWEEN if text and item.chars == 0 and self._has_words else ""
        if between and self._as_items:
            self._more[MESSAGE_AT]["between"] = True
        item.chars += len(text)
        self._has_words = self._has_words or bool(text)
        if logprobs:
            self._more["logprobs"] = {"content": [chat_token(token) for token in dicts_of(logprobs)]}
        return {"content": between + text}

    def _refused(self, item: "_PassedItem", text: str, part: Any) -> Json | None:
        if self._waits(item, part):
            return None
        item.refused += len(text)
        return {"refusal": text}

    def _cited(self, item: "_PassedItem", cited: list[Any], part: Any) -> Json | None:
        if self._waits(item, part):
            return None
        item.annotations += len(cited)
        return self._listed("annotations", [nested_annotation(each) for each in cited])

    def _other_part(self, item: "_PassedItem", part: Json, number: Any) -> list[Json]:
        """Sends a part that no chat has, once and in its place; a chat's edge gets it with the order of items."""
        is_other = item.kind == "message" and part.get("type") not in MESSAGE_PARTS
        if not (self._as_items and is_other) or number in item.others or self._waits(item, number):
            return []
        item.others.add(number)
        self._more[OTHER_PART] = part
        return [self._chunk({})]

    def _thoughts(self, item: "_PassedItem", text: str, part: Any, *, is_summary: bool) -> Json:
        begins = item.chars == 0 if item.part is None else part != item.part
        between = self._has_thoughts and begins and (item.part is not None or not self._as_items)
        item.part, item.chars = part, item.chars + len(text)
        self._has_thoughts = True
        if is_summary and self._as_items:
            self._more[SUMMARY] = True
        return {"reasoning_content": BETWEEN + text if between else text}

    def _arguments(self, item: "_PassedItem | None", text: str) -> Json | None:
        if item is None or item.kind not in OWN_CALLS:
            return None
        item.chars += len(text)
        return {"tool_calls": [_piece(item, text)]}

    def _catch_up(self, place: Any, item: Json) -> list[Json]:
        """Completes an item: sends what its pieces did not bring, or all of an item that is retained verbatim."""
        opened = self._at(place, str(item.get("type")))
        if opened.is_done:
            return []
        self._whole[place] = item
        if is_whole(item):
            named = "reasoning_items" if item.get("type") == "reasoning" else "output_items"
            thoughts = {} if opened.chars else self._late_thoughts(opened, item)
            opened.is_done = True
            return self._told({**thoughts, **self._listed(named, [item])})
        if opened.kind in OWN_CALLS:
            opened.is_done = True
            return self._done(self._told(self._rest_of_call(opened, item)), call=chat_call(item)["id"])
        if not (self._speaking in (None, opened) or self._speaking.is_done):
            opened.waits = True
            return []
        opened.waits = False
        chunks = self._rest_of_words(opened, item)
        if opened is self._speaking:
            chunks = self._done(chunks, message=opened.number, phase=opened.phase)
        opened.is_done = True
        waiting = [at for at, each in self._open.items() if each.waits and at in self._whole]
        return chunks + [chunk for at in waiting for chunk in self._catch_up(at, self._whole[at])]

    def _done(self, chunks: list[Json], **item: Any) -> list[Json]:
        """Marks the last chunks of an item, for an edge that shows when it ends."""
        if not self._as_items:
            return chunks
        chunks = chunks or [self._chunk({})]
        chunks[-1]["choices"][0][ITEM_DONE] = item
        return chunks

    def _late_thoughts(self, opened: "_PassedItem", item: Json) -> Json:
        name, text = _thought_in(item)
        return self._thoughts(opened, text, 0, is_summary=name == "summary") if name else {}

    def _rest_of_call(self, opened: "_PassedItem", item: Json) -> Json | None:
        call = chat_call(item)
        if opened.index is None:
            opened.index, self._calls = self._calls, self._calls + 1
        if not opened.is_named:
            opened.is_named = True
            return {"tool_calls": [{"index": opened.index, **call}]}
        rest = _arguments_of(call)[opened.chars :]
        opened.chars += len(rest)
        return {"tool_calls": [_piece(opened, rest)]} if rest else None

    def _rest_of_words(self, opened: "_PassedItem", item: Json) -> list[Json]:
        if isinstance(item.get("phase"), str):
            self._phase = opened.phase = item["phase"]
        chars, refused, known = opened.chars, opened.refused, opened.annotations
        chunks: list[Json] = []
        for number, part in enumerate(dicts_of(item.get("content"))):
            text = str(part.get("text") or "") if part.get("type") == "output_text" else ""
            refusal = str(part.get("refusal") or "") if part.get("type") == "refusal" else ""
            cited = list(dicts_of(part.get("annotations")))
            chunks += self._other_part(opened, part, number)
            if text[chars:]:
                tokens = None if chars else part.get("logprobs")
                chunks += self._told(self._words(opened, text[chars:], number, tokens))
            if refusal[refused:]:
                chunks += self._told(self._refused(opened, refusal[refused:], number))
            if cited[known:]:
                chunks += self._told(self._cited(opened, cited[known:], number))
            chars, refused = max(0, chars - len(text)), max(0, refused - len(refusal))
            known = max(0, known - len(cited))
        return chunks

    def _listed(self, name: str, entries: list[Any]) -> Json:
        """Builds a delta with entries of a list, numbered for chat clients, which merge a stream by these indexes."""
        if self._as_items:
            return {name: entries}
        first = self._numbers.get(name, 0)
        self._numbers[name] = first + len(entries)
        numbered = [{"index": first + n, **e} for n, e in enumerate(entries) if isinstance(e, dict)]
        return {name: numbered}

    def _finish(self, response: Json) -> list[Json]:
        self.ended = True
        output = _placed(response.get("output"))
        chunks: list[Json] = []
        for number, item in output:
            chunks += self._catch_up(str(item.get("id")) if self._by_ids else number, item)
        done = [self._whole[place] for place in self._open if place in self._whole]
        order = order_of([item for _, item in output] or done)
        if order:
            chunks += self._told(self._listed(ITEM_ORDER, order))
        reason = finish_reason(response, {"tool_calls": self._calls})
        phase = {"phase": self._phase} if self._phase else {}
        usage = chat_usage(response.get("usage"))
        return [*chunks, self._chunk(phase, reason, **({"usage": usage} if usage else {}))]


class _PassedItem:
    """How much of an item has been passed on."""

    __slots__ = (
        *("annotations", "chars", "index", "is_done", "is_named", "kind"),
        *("number", "others", "part", "phase", "refused", "waits"),
    )

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.index: int | None = None
        """The number of a call."""
        self.is_named = False
        """Whether a call's id and name have been sent."""
        self.part: Any = None
        """The latest part of thoughts."""
        self.chars = 0
        self.refused = 0
        self.annotations = 0
        self.others: set[Any] = set()
        """The numbers of a message's parts that no chat has."""
        self.is_done = False
        self.waits = False
        self.number = 0
        """The number of a message among those of the answer."""
        self.phase: Any = None


def _arguments_of(call: Json) -> str:
    if call["type"] == "custom":
        return str(call["custom"]["input"])
    return str(call["function"]["arguments"])


def _piece(item: _PassedItem, text: str) -> Json:
    if item.kind == "custom_tool_call":
        return {"index": item.index, "custom": {"input": text}}
    return {"index": item.index, "function": {"arguments": text}}
