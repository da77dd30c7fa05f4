"""A provider's `/v1/responses` for tests, beside the chats of a `MockUpstream`: scripted answers, every event of them.

It keeps nothing: thoughts that come back must be sealed, as OpenAI demands of whoever sends `store: false`.
"""

import itertools
import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.http_server import Record
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import JsonDict, Reply, count_words, error_body

PATH = "/v1/responses"
CALLS = ("function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call")
OF_CHATS = ("messages", "max_tokens", "max_completion_tokens", "response_format", "reasoning_effort", "logprobs")
_CREATED = 1_700_000_000
_numbers = itertools.count(1)


def thought(summary: str = "", sealed: str | None = None, text: str = "") -> JsonDict:
    """A reasoning item."""
    parts = [{"type": "summary_text", "text": summary}] if summary else []
    content = {"content": [{"type": "reasoning_text", "text": text}]} if text else {}
    sealed = sealed if sealed is not None else f"sealed-{next(_numbers)}"
    return {"id": f"rs_{next(_numbers)}", "type": "reasoning", "summary": parts, **content, "encrypted_content": sealed}


def words(text: str, annotations: Sequence[JsonDict] = (), logprobs: Sequence[JsonDict] = ()) -> JsonDict:
    """A message with one text."""
    part = {"type": "output_text", "text": text, "annotations": [*annotations], "logprobs": [*logprobs]}
    return _message([part])


def refusal(text: str) -> JsonDict:
    """A message that refuses."""
    return _message([{"type": "refusal", "refusal": text}])


def _message(content: list[JsonDict]) -> JsonDict:
    shared = {"type": "message", "status": "completed", "role": "assistant"}
    return {"id": f"msg_{next(_numbers)}", **shared, "content": content}


def call(name: str, arguments: Any = None, call_id: str | None = None) -> JsonDict:
    """A call of a function."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    item = {"id": f"fc_{next(_numbers)}", "type": "function_call", "status": "completed"}
    return {**item, "call_id": call_id or f"call_{next(_numbers)}", "name": name, "arguments": text}


def custom_call(name: str, text: str, call_id: str | None = None) -> JsonDict:
    """A call of a custom tool."""
    item = {"id": f"ctc_{next(_numbers)}", "type": "custom_tool_call", "status": "completed"}
    return {**item, "call_id": call_id or f"call_{next(_numbers)}", "name": name, "input": text}


TYPED: dict[str, tuple[str, JsonDict]] = {
    "local_shell_call": ("action", {"type": "exec", "command": ["ls", "-a"], "env": {"A": "1"}, "timeout_ms": 5}),
    "shell_call": ("action", {"commands": ["ls", "cd x"], "timeout_ms": 1000, "max_output_length": 99}),
    "apply_patch_call": ("operation", {"type": "create_file", "path": "a.py", "diff": "+x = 1\n+"}),
}
"""Calls with items of their own: the field that says what to do, and an example of it."""


def typed_call(kind: str, held: JsonDict | None = None, call_id: str | None = None) -> JsonDict:
    """A call of a shell or of a patch."""
    field_name, example = TYPED[kind]
    where = {"environment": {"type": "local"}} if kind == "shell_call" else {}
    item = {"id": f"x_{next(_numbers)}", "type": kind, "status": "completed", **where}
    return {**item, "call_id": call_id or f"call_{next(_numbers)}", field_name: held or example}


def web_search(query: str) -> JsonDict:
    """A search that the provider ran itself."""
    action = {"type": "search", "query": query, "queries": [query], "sources": []}
    return {"id": f"ws_{next(_numbers)}", "type": "web_search_call", "status": "completed", "action": action}


def look(call_id: str) -> JsonDict:
    """A call of a computer, which the client runs: for a screenshot."""
    shared = {"type": "computer_call", "status": "completed", "call_id": call_id}
    return {"id": f"cu_{next(_numbers)}", **shared, "action": {"type": "screenshot"}, "pending_safety_checks": []}


@dataclass(kw_only=True)
class Script:
    """One answer: its items, and how it ends. `reply` says how its bytes come (`Reply`); with a status, JSON or bytes
    of its own it outranks the rest. `events` changes those of a stream."""

    output: Sequence[JsonDict] = ()
    status: Literal["completed", "incomplete", "failed"] = "completed"
    incomplete: str | None = None
    error: JsonDict | None = None
    usage: JsonDict | Literal["auto"] | None = "auto"
    extra: JsonDict = field(default_factory=dict)
    events: Callable[[list[JsonDict]], Sequence[JsonDict]] | None = None
    reply: JsonDict = field(default_factory=dict)


class MockResponses:
    """Answers `POST /v1/responses` of a `MockUpstream` until that is cleared.

    A request is answered by the first of these that applies: `modes` (a refusal of sealed thoughts), the strict checks,
    the queue of `reply`, the `handler`, an echo of the last user message.
    """

    def __init__(self, upstream: MockUpstream) -> None:
        self._upstream = upstream
        self._queue: deque[Script] = deque()
        self.handler: Callable[[JsonDict], Script | None] | None = None
        self.refuses_seals = False
        self.foreign_seals: set[str] = set()
        upstream.routes[f"POST {PATH}"] = self._answer

    @property
    def requests(self) -> list[JsonDict]:
        """The bodies of all requests for a response."""
        return [record.body for record in self._upstream.requests if record.path == PATH]

    @property
    def last(self) -> JsonDict:
        """The last of them."""
        return self.requests[-1]

    def reply(self, *output: JsonDict, **script: Any) -> None:
        """Queue the answer to the next request; fields as in `Script`."""
        self._queue.append(Script(output=output, **script))

    def _answer(self, record: Record) -> Reply:
        body = record.body if isinstance(record.body, dict) else {}
        include = body.get("include") or ()
        if self.refuses_seals and "reasoning.encrypted_content" in include:
            return _error("Encrypted content is not supported with this model.", "include")
        sealed = {item.get("encrypted_content") for item in _items(body)}
        if sealed & self.foreign_seals:
            return _error("The encrypted content could not be verified.", None, "invalid_encrypted_content")
        if wrong := violations(body):
            self._upstream.violations.extend(wrong)
            return _error("; ".join(wrong), None)
        script = self._queue.popleft() if self._queue else self.handler(body) if self.handler else None
        return _rendered(script or Script(output=[words(f"echo: {_last_user_text(body)[:80]}")]), body)


def violations(body: JsonDict) -> list[str]:
    """What OpenAI would refuse in a request."""
    found = [f"Unknown parameter: '{name}'." for name in OF_CHATS if name in body]
    if not isinstance(body.get("input", [] if "prompt" in body else None), str | list):
        found.append("input must be a string or a list")
    calls: set[str] = set()
    for index, item in enumerate(_items(body)):
        where, kind = f"input[{index}]", item.get("type", "message")
        if kind == "message" and item.get("role") not in ("user", "assistant", "system", "developer"):
            found.append(f"{where}.role is {item.get('role')!r}")
        if kind == "reasoning" and not item.get("encrypted_content") and not body.get("store", True):
            found.append(f"{where}: Item {item.get('id')!r} not found. Items are not persisted when `store` is false.")
        if kind in CALLS:
            calls.add(item["call_id"])
        answered = item["id" if kind == "local_shell_call_output" else "call_id"] if kind.endswith("_output") else None
        if answered is not None and answered not in calls:
            found.append(f"{where}: No tool call found for function call output with call_id {answered}.")
        if {"tool_calls", "reasoning_content", "reasoning_items", "annotations"} & item.keys():
            found.append(f"{where} has fields of a chat")
    for index, tool in enumerate(body.get("tools") or ()):
        if tool.get("type") == "function" and "name" not in tool:
            found.append(f"Missing required parameter: 'tools[{index}].name'.")
    return found


def _items(body: JsonDict) -> list[JsonDict]:
    value = body.get("input")
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _error(message: str, param: str | None, code: str | None = None) -> Reply:
    return Reply(status=400, json=error_body(400, message, code, param))


def _rendered(script: Script, request: JsonDict) -> Reply:
    if {"status", "json", "body", "raw", "raw_sse"} & script.reply.keys():
        return Reply(**script.reply)
    response = response_of(script, request)
    if not request.get("stream"):
        return Reply(json=response, **script.reply)
    events: Sequence[JsonDict] = [*events_of(response)]
    if script.events is not None:
        events = script.events([*events])
    framed = b"".join(f"event: {each.get('type')}\ndata: {json.dumps(each)}\n\n".encode() for each in events)
    return Reply(raw_sse=framed, **script.reply)


def response_of(script: Script, request: JsonDict) -> JsonDict:
    """The whole response of a script."""
    usage = script.usage
    if usage == "auto":
        usage = count_usage(request, script.output)
    return {
        "id": f"resp_{next(_numbers)}",
        "object": "response",
        "created_at": _CREATED,
        "status": script.status,
        "background": False,
        "error": script.error,
        "incomplete_details": {"reason": script.incomplete} if script.incomplete else None,
        "instructions": request.get("instructions"),
        "max_output_tokens": request.get("max_output_tokens"),
        "model": request.get("model"),
        "output": [*script.output],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": request.get("store", True),
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": request.get("tools") or [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage,
        "metadata": {},
        **script.extra,
    }


def count_usage(request: JsonDict, output: Sequence[JsonDict]) -> JsonDict:
    """Tokens are words, of the input's texts and of the output's; thoughts count a tenth of their seals' characters."""
    sent = _count(request.get("input"))
    thoughts = sum(len(item.get("encrypted_content") or "") // 10 for item in output)
    written = _count([*output]) + thoughts
    details = {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
    details["output_tokens_details"] = {"reasoning_tokens": thoughts}
    return {"input_tokens": sent, "output_tokens": written, "total_tokens": sent + written, **details}


def _count(value: Any) -> int:
    if isinstance(value, str):
        return count_words(value)
    if isinstance(value, list):
        return sum(map(_count, value))
    if isinstance(value, dict):
        names = ("content", "text", "refusal", "output", "arguments", "input", "name")
        return sum(_count(value.get(name)) for name in names)
    return 0


def _last_user_text(body: JsonDict) -> str:
    if isinstance(body.get("input"), str):
        return str(body["input"])
    said = [item.get("content") for item in _items(body) if item.get("role") == "user"]
    content = said[-1] if said else ""
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if "text" in part)
    return str(content or "")


def events_of(response: JsonDict) -> Iterator[JsonDict]:
    """The events of a response, in OpenAI's order and numbering."""
    begun = {**response, "status": "in_progress", "output": [], "usage": None, "error": None}
    begun["incomplete_details"] = None
    events: list[JsonDict] = [{"type": f"response.{kind}", "response": begun} for kind in ("created", "in_progress")]
    for index, item in enumerate(response["output"]):
        events += _events_of_item(item, index)
    events.append({"type": f"response.{response['status']}", "response": response})
    for number, each in enumerate(events):
        yield {**each, "sequence_number": number}


def _events_of_item(item: JsonDict, index: int) -> list[JsonDict]:
    kind = item["type"]
    place = {"item_id": item["id"], "output_index": index}
    emptied: JsonDict = {"message": {"content": []}, "reasoning": {"summary": []}}.get(kind, {})
    emptied |= {"function_call": {"arguments": ""}, "custom_tool_call": {"input": ""}}.get(kind, {})
    first = {**item, **emptied, **({"status": "in_progress"} if "status" in item else {})}
    if kind == "reasoning":
        first.pop("content", None)
    between: list[JsonDict] = []
    if kind == "message":
        for number, part in enumerate(item["content"]):
            between += _events_of_part(part, {**place, "content_index": number})
    elif kind == "reasoning":
        between = _events_of_thought(item, place)
    elif kind in ("function_call", "custom_tool_call"):
        name, field_name = ("function_call_arguments", "arguments"), ("custom_tool_call_input", "input")
        event, value = name if kind == "function_call" else field_name
        text = item[value]
        between = [{"type": f"response.{event}.delta", **place, "delta": piece} for piece in _pieces(text)]
        named = {"name": item["name"]} if kind == "function_call" else {}
        between.append({"type": f"response.{event}.done", **place, value: text, **named})
    elif kind == "web_search_call":
        between = [{"type": f"response.{kind}.{state}", **place} for state in ("in_progress", "searching", "completed")]
    return [
        {"type": "response.output_item.added", "output_index": index, "item": first},
        *between,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _events_of_part(part: JsonDict, place: JsonDict) -> list[JsonDict]:
    if part["type"] == "refusal":
        deltas = [{"type": "response.refusal.delta", **place, "delta": each} for each in _pieces(part["refusal"])]
        done = {"type": "response.refusal.done", **place, "refusal": part["refusal"]}
        empty = {**part, "refusal": ""}
    else:
        logprobs = [_of_event(token) for token in part["logprobs"]]
        deltas = [
            {"type": "response.output_text.delta", **place, "delta": each, "logprobs": logprobs if n == 0 else []}
            for n, each in enumerate(_pieces(part["text"]))
        ]
        added = "response.output_text.annotation.added"
        deltas += [
            {"type": added, **place, "annotation_index": n, "annotation": each}
            for n, each in enumerate(part["annotations"])
        ]
        done = {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": logprobs}
        empty = {**part, "text": "", "annotations": [], "logprobs": []}
    begins = {"type": "response.content_part.added", **place, "part": empty}
    return [begins, *deltas, done, {"type": "response.content_part.done", **place, "part": part}]


def _events_of_thought(item: JsonDict, place: JsonDict) -> list[JsonDict]:
    found: list[JsonDict] = []
    for number, part in enumerate(item["summary"]):
        at = {**place, "summary_index": number}
        found.append({"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}})
        found += [
            {"type": "response.reasoning_summary_text.delta", **at, "delta": each} for each in _pieces(part["text"])
        ]
        found.append({"type": "response.reasoning_summary_text.done", **at, "text": part["text"]})
        found.append({"type": "response.reasoning_summary_part.done", **at, "part": part})
    for number, part in enumerate(item.get("content") or ()):
        at = {**place, "content_index": number}
        found += [{"type": "response.reasoning_text.delta", **at, "delta": each} for each in _pieces(part["text"])]
        found.append({"type": "response.reasoning_text.done", **at, "text": part["text"]})
    return found


def _of_event(token: JsonDict) -> JsonDict:
    others = [{"token": each["token"], "logprob": each["logprob"]} for each in token.get("top_logprobs") or ()]
    return {"token": token["token"], "logprob": token["logprob"], "top_logprobs": others}


def _pieces(text: str) -> list[str]:
    """Words with the white space before them; joined again they are `text`."""
    return re.findall(r"\s*\S+\s*\Z|\s*\S+|\s+\Z", text)
