"""Scripted replies of the mock upstream, and how they become the bytes that a provider would send."""

import itertools
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.http_server import Answer
from tests.support.raw import Step

JsonDict = dict[str, Any]
ToolCall = tuple[str, Any] | JsonDict
"""`(name, arguments)` with arguments as a dict or a raw string, or a whole tool call as on the wire."""

_CREATED = 1_700_000_000
_ARGUMENT_FRAGMENT = 7
_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


@dataclass(kw_only=True)
class Reply:
    """One scripted answer: the first that is given of body, json, an error status, raw_sse, chunks, choices.

    `cut_after` and `stall_after` count SSE events where we frame them (a normal stream, `chunks`) and bytes
    otherwise (`raw_sse`, JSON and other bodies); `cut_after=-1` breaks the connection before the status line.
    """

    text: str | None = None
    tool_calls: Sequence[ToolCall] = ()
    message: JsonDict | None = None
    """A raw assistant message; strings in it are streamed in pieces, whatever their key."""
    choices: Sequence[JsonDict] | None = None
    """Raw choices with `message`; missing index and finish_reason are filled in."""
    finish_reason: str | None = None
    usage: JsonDict | Literal["auto"] | None = "auto"
    """None leaves usage out altogether."""
    extra: JsonDict = field(default_factory=dict)
    """Further top-level fields of the completion, and of every chunk."""
    chunks: Sequence[JsonDict] | None = None
    """Sent as an SSE stream as they are, whatever the request asked for."""
    raw_sse: bytes | None = None
    send_done: bool = True
    """False leaves out `data: [DONE]`."""
    status: int = 200
    json: Any = None
    body: bytes | None = None
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_first: float = 0.0
    delay_body: float = 0.0
    chunk_delay: float = 0.0
    cut_after: int | None = None
    stall_after: int | None = None
    stall_until: threading.Event | None = None
    """Ends the stall; by default only `MockUpstream.release()` or the peer's hanging up does."""
    gate: threading.Event | None = None
    """Must be set before the status line goes out."""
    split_bytes: int | None = None
    """Send a stream in writes of this size, regardless of events and characters."""
    reset: bool = False
    """Cut with a TCP reset instead of a plain close; the peer may then lose what it had not read yet."""
    raw: Sequence[Step] | None = None
    """Outranks everything else: exactly these bytes, pauses and ends (`tests.support.raw`)."""


def render(reply: Reply, request: JsonDict, serial: int, prompt_tokens: int) -> Answer:
    """The answer to chat request number `serial`, streamed if the request asks for it."""
    if reply.raw is not None:
        return Answer(status=0, headers=(), pieces=(), raw=reply.raw, delay_first=reply.delay_first, gate=reply.gate)
    if reply.body is not None:
        return answer(reply, reply.body)
    if reply.json is not None:
        return answer(reply, dumps(reply.json))
    if reply.status >= 400:
        return answer(reply, dumps(error_body(reply.status, f"scripted {reply.status}")))
    if reply.raw_sse is not None:
        return answer(reply, reply.raw_sse, "text/event-stream")
    if reply.chunks is not None:
        return _stream_answer(reply, reply.chunks)
    choices = _choices(reply, request, serial)
    usage = reply.usage
    if usage == "auto":
        usage = count_usage(prompt_tokens, sum(count_message(choice["message"]) for choice in choices))
    head = {"id": f"chatcmpl-mock{serial}", "created": _CREATED, "model": request.get("model")}
    if request.get("stream"):
        head |= {"object": "chat.completion.chunk", "system_fingerprint": "fp_mock", **reply.extra}
        asked = bool((request.get("stream_options") or {}).get("include_usage"))
        return _stream_answer(reply, _stream(head, choices, usage if asked else None))
    head |= {"object": "chat.completion", "system_fingerprint": "fp_mock", "choices": choices}
    return answer(reply, dumps(head | ({} if usage is None else {"usage": usage}) | reply.extra))


def answer(reply: Reply, body: bytes, content_type: str | None = None) -> Answer:
    """An unframed body: cuts and stalls count its bytes."""
    scripted = [m for m in (reply.cut_after, reply.stall_after) if m is not None and 0 < m < len(body)]
    pieces = [body[start:end] for start, end in itertools.pairwise(sorted({0, len(body), *scripted}))]
    if reply.split_bytes:
        pieces = _split(body, reply.split_bytes)

    def as_piece(mark: int | None) -> int | None:
        if mark is None or mark < 0:
            return mark
        return len(list(itertools.takewhile(lambda end: end <= mark, itertools.accumulate(map(len, pieces)))))

    kind = content_type or reply.content_type
    return _timed(reply, pieces, kind, as_piece(reply.cut_after), as_piece(reply.stall_after))


def error_body(status: int, message: str, code: str | None = None, param: str | None = None) -> JsonDict:
    """OpenAI's error shape."""
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def dumps(value: Any) -> bytes:
    """JSON as providers send it: compact, characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def count_words(content: Any) -> int:
    """The mock's token count of a `content`: white-space words, and one for each part that is not text."""
    if isinstance(content, str):
        return len(content.split())
    if isinstance(content, list):
        return sum(count_words(p.get("text")) if "text" in p else 1 for p in content if isinstance(p, dict))
    return 0


def count_message(message: JsonDict) -> int:
    """Words of a message's content and of its calls' names and arguments."""
    functions = [call.get("function") or {} for call in message.get("tool_calls") or []]
    calls = sum(count_words(f.get("name")) + count_words(f.get("arguments")) for f in functions)
    return count_words(message.get("content")) + calls


def count_usage(prompt_tokens: int, completion_tokens: int) -> JsonDict:
    """A `usage` object; its total is the sum."""
    total = prompt_tokens + completion_tokens
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total}


def _choices(reply: Reply, request: JsonDict, serial: int) -> list[JsonDict]:
    if reply.choices is not None:
        return [
            {"index": i, "finish_reason": _finish(reply, choice["message"]), **choice}
            for i, choice in enumerate(reply.choices)
        ]
    choices = []
    for index in range(request.get("n") or 1):
        message = reply.message
        if message is None:
            text = reply.text if index == 0 or reply.text is None else f"{reply.text} [choice {index}]"
            message = {"role": "assistant", "content": text, "refusal": None}
            prefix = f"call_{serial}_{index}"
            calls = [_tool_call(call, f"{prefix}_{i}") for i, call in enumerate(reply.tool_calls)]
            message |= {"tool_calls": calls} if calls else {}
        finish = _finish(reply, message)
        choices.append({"index": index, "message": message, "logprobs": None, "finish_reason": finish})
    return choices


def _finish(reply: Reply, message: JsonDict) -> str:
    return reply.finish_reason or ("tool_calls" if message.get("tool_calls") else "stop")


def _tool_call(call: ToolCall, call_id: str) -> JsonDict:
    if isinstance(call, dict):
        return call
    name, arguments = call
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def _stream(head: JsonDict, choices: Sequence[JsonDict], usage: JsonDict | None) -> Iterator[JsonDict]:
    """Role, content in pieces, finish; choices take turns; `usage: null` on each, then the usage chunk."""
    null = {} if usage is None else {"usage": None}
    for turn in itertools.zip_longest(*map(_deltas, choices)):
        for choice, item in zip(choices, turn, strict=True):
            if item is not None:
                yield {**head, "choices": [{"index": choice["index"], **item}], **null}
    if usage is not None:
        yield {**head, "choices": [], "usage": usage}


def _deltas(choice: JsonDict) -> Iterator[JsonDict]:
    message = choice["message"]
    extras = {k: v for k, v in choice.items() if k not in ("index", "message", "finish_reason", "logprobs")}
    logprobs = choice.get("logprobs")

    def item(delta: JsonDict, **more: Any) -> JsonDict:
        return {"delta": delta, "logprobs": None, "finish_reason": None} | more

    yield item({"role": message.get("role", "assistant"), "content": "", "refusal": None}, **extras)
    for key, value in message.items():
        if key in ("role", "tool_calls") or value is None:
            continue
        for piece in _pieces(value) if isinstance(value, str) else [value]:
            yield item({key: piece}, logprobs=logprobs)
            logprobs = None
    for index, call in enumerate(message.get("tool_calls") or []):
        kind, said = ("custom", "input") if "custom" in call else ("function", "arguments")
        arguments = call[kind][said]
        opening = call | {kind: call[kind] | {said: ""}}
        yield item({"tool_calls": [{"index": index, **opening}]})
        for start in range(0, len(arguments), _ARGUMENT_FRAGMENT):
            fragment = arguments[start : start + _ARGUMENT_FRAGMENT]
            yield item({"tool_calls": [{"index": index, kind: {said: fragment}}]})
    yield item({}, finish_reason=choice["finish_reason"])


def _pieces(text: str) -> list[str]:
    """Words with the white space before them; joined again they are `text`."""
    return re.findall(r"\s*\S+\s*\Z|\s*\S+|\s+\Z", text)


def _stream_answer(reply: Reply, chunks: Sequence[JsonDict] | Iterator[JsonDict]) -> Answer:
    events = [b"data: " + dumps(chunk) + b"\n\n" for chunk in chunks]
    if reply.send_done:
        events.append(b"data: [DONE]\n\n")
    if reply.split_bytes:
        events = _split(b"".join(events), reply.split_bytes)
    return _timed(reply, events, "text/event-stream; charset=utf-8", reply.cut_after, reply.stall_after)


def _split(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def _timed(
    reply: Reply, pieces: list[bytes], content_type: str, cut_after: int | None, stall_after: int | None
) -> Answer:
    scripted = {name.lower(): value for name, value in reply.headers.items()}
    return Answer(
        status=reply.status,
        headers=list(({"content-type": content_type} | scripted).items()),
        pieces=pieces,
        streamed=content_type.startswith("text/event-stream"),
        delay_first=reply.delay_first,
        delay_body=reply.delay_body,
        piece_delay=reply.chunk_delay,
        cut_after=cut_after,
        stall_after=stall_after,
        stall_until=reply.stall_until,
        gate=reply.gate,
        reset=reply.reset,
    )
