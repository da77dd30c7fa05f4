"""What the model says to each scenario: the first word of the last user message chooses.

One vocabulary for every client, so that clients in any language are asked, and answer, the same.
"""

import json
from collections import Counter
from typing import Any

from tests.support.http_server import Record
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import JsonDict, Reply, count_usage, error_body

MODEL = "gpt-4o-mini"
USAGE = count_usage(1000, 500)
COST = 0.00045
"""What `USAGE` costs on `MODEL`."""

SEA = "The sea is wide – größer als alles 🌊, and  keeps its  white space."
FORECAST = "It rains in Bern, and it is noon."
TRIP = {"city": "Bern", "days": 3}
CALLS = [("weather", {"city": "Bern"}), ("clock", {"zone": "Europe/Zurich"})]
REFUSAL = "I cannot help with that."
LOGPROBS = {
    "content": [{"token": "Yes", "logprob": -0.5, "bytes": [89, 101, 115], "top_logprobs": []}],
    "refusal": None,
}
STALL_AFTER = 4
CUT_AFTER = 4
GONE = "/gone"
"""A client asks the mock here which of its stalled streams the gateway has cancelled."""


def script(upstream: MockUpstream) -> None:
    """Make `upstream` answer as this module says until it is cleared."""
    attempts: Counter[str] = Counter()

    def answer(record: Record) -> Reply | None:
        messages = record.body["messages"]
        asked = _last_user_text(messages)
        attempts[asked] += 1
        return _reply(asked.split(), record.body, attempts[asked])

    def gone(_: Record) -> Reply:
        chats = [chat for chat in upstream.chats if chat.disconnected.is_set()]
        return Reply(json=[_last_user_text(chat.body["messages"]) for chat in chats])

    upstream.handler = answer
    upstream.routes[f"GET {GONE}"] = gone
    upstream.routes["POST /v1/moderations"] = Reply(json={"id": "modr_1", "model": "m", "results": []})


def _last_user_text(messages: list[JsonDict]) -> str:
    content = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
    if isinstance(content, list):
        return " ".join(part.get("text", "") for part in content)
    return str(content)


def _reply(words: list[str], body: JsonDict, attempt: int) -> Reply | None:
    match words:
        case ["tools", *_] if body["messages"][-1]["role"] == "tool":
            return Reply(text=FORECAST, usage=USAGE)
        case ["tools", *_]:
            return Reply(text=None, tool_calls=CALLS, usage=USAGE)
        case ["refusal", *_]:
            return Reply(message={"role": "assistant", "content": None, "refusal": REFUSAL}, usage=USAGE)
        case ["logprobs", *_]:
            message = {"role": "assistant", "content": "Yes", "refusal": None}
            return Reply(choices=[{"message": message, "logprobs": LOGPROBS}], usage=USAGE)
        case ["reasoning", *_]:
            thought = {"role": "assistant", "reasoning_content": "Water, so wide.", "content": SEA}
            return Reply(message=thought, usage=USAGE)
        case ["status", status, *_]:
            return _refused(int(status))
        case ["busy", *_] if attempt == 1:
            return Reply(status=429, headers={"retry-after": "1"})
        case ["broken", *_]:
            return Reply(raw_sse=_broken_stream())
        case ["odd", *_]:
            return Reply(raw_sse=_odd_stream())
        case ["cut", *_]:
            return Reply(text=SEA, cut_after=CUT_AFTER)
        case ["stall", *_]:
            return Reply(text=SEA, stall_after=STALL_AFTER)
    structured = (body.get("response_format") or {}).get("type") == "json_schema"
    return Reply(text=json.dumps(TRIP) if structured else SEA, usage=USAGE)


def _refused(status: int) -> Reply:
    body = error_body(status, f"the upstream says {status}", f"code_{status}", "temperature")
    return Reply(status=status, json=body, headers={"retry-after": "7"} if status == 429 else {})


def _chunk(delta: JsonDict | None, finish: str | None = None, **more: Any) -> JsonDict:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {"id": "chatcmpl-raw", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    return {**head, "choices": choices, **more}


def _odd_stream() -> bytes:
    """What some providers send and some clients choke on: named events, comments, chunks without choices."""
    half = len(SEA) // 2
    lines = [
        ": connected",
        _chunk(None, prompt_filter_results=[{"prompt_index": 0, "content_filter_results": {}}]),
        "event: completion",
        _chunk({"role": "assistant", "content": SEA[:half]}),
        ": keep-alive",
        {"object": "heartbeat"},
        _chunk({"content": SEA[half:], "provider_note": {"cached": True}}, x_metrics={"queue": 3}),
        _chunk({}, "stop"),
        _chunk(None, usage=USAGE),
        "data: [DONE]",
    ]
    parts = [line if isinstance(line, str) else f"data: {json.dumps(line)}" for line in lines]
    return "".join(part + ("\n" if part.startswith("event:") else "\n\n") for part in parts).encode()


def _broken_stream() -> bytes:
    events: list[Any] = [_chunk({"role": "assistant"}), _chunk({"content": "The sea"})]
    events.append(error_body(500, "the model has failed", "server_error"))
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
