"""What an upstream says, in the words of the API that it speaks: an answer, the same as a stream, and errors."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.support import anthropic_wire as wire
from tests.support.raw import LAST, SSE_HEAD, event

Json = dict[str, Any]
PIECES = ("one", " two")
TEXT = "".join(PIECES)


@dataclass(frozen=True)
class Words:
    """One API's. `events` are those of a whole stream, of which the first `begun` say `TEXT`; `more` is one that says
    more. `error` makes an error's body of its type, message and code; `error_event` the same as an event."""

    name: str
    path: str
    answer: Json
    events: Sequence[Any]
    begun_events: int
    more: Json
    error: Callable[[str, str, Any], Json]
    error_event: Callable[[str, str, Any], Json]

    @cached_property
    def body(self) -> bytes:
        """The answer as JSON."""
        return json.dumps(self.answer).encode()

    @cached_property
    def begun(self) -> bytes:
        """The head of a stream and the events that say `TEXT`, chunked."""
        return SSE_HEAD + b"".join(map(event, self.events[: self.begun_events]))

    @cached_property
    def ending(self) -> bytes:
        """The events behind them, chunked, without the end of the body."""
        return b"".join(map(event, self.events[self.begun_events :]))

    @cached_property
    def finish(self) -> bytes:
        """All that is behind them."""
        return self.ending + LAST

    @cached_property
    def stream(self) -> bytes:
        """The events of a whole stream, not chunked."""
        return b"".join(b"data: %b\n\n" % _written(each) for each in self.events)

    @cached_property
    def begun_plain(self) -> bytes:
        """Those that say `TEXT`, not chunked."""
        return b"".join(b"data: %b\n\n" % _written(each) for each in self.events[: self.begun_events])


def _written(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def _chat(text: str, finish: str | None = None) -> Json:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return {"id": "up-1", "object": "chat.completion.chunk", "created": 1, "model": "small", "choices": [choice]}


def _openais(kind: str, message: str, code: Any) -> Json:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
CHAT = Words(
    name="chat",
    path="/v1/chat/completions",
    answer={
        "id": "up-1",
        "object": "chat.completion",
        "created": 1,
        "model": "small",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}],
        "usage": USAGE,
    },
    events=[*map(_chat, PIECES), _chat("", "stop"), {**_chat(""), "choices": [], "usage": USAGE}, b"[DONE]"],
    begun_events=2,
    more=_chat(" three"),
    error=_openais,
    error_event=_openais,
)


def _said(text: str) -> Json:
    return {"type": "response.output_text.delta", "output_index": 0, "delta": text}


_RESPONSE: Json = {
    "id": "up-1",
    "status": "completed",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": TEXT}]}],
    "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
}
RESPONSES = Words(
    name="responses",
    path="/v1/responses",
    answer=_RESPONSE,
    events=[*map(_said, PIECES), {"type": "response.completed", "response": _RESPONSE}],
    begun_events=2,
    more=_said(" three"),
    error=_openais,
    error_event=lambda kind, message, code: {"type": "error", "code": code or kind, "message": message, "param": None},
)


def _delta(text: str) -> Json:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


def _anthropics(kind: str, message: str, code: Any) -> Json:
    return wire.error(kind, message)


_MESSAGE = wire.message(wire.text(TEXT), spent=wire.usage(3, 2))
ANTHROPIC = Words(
    name="anthropic",
    path="/v1/messages",
    answer=_MESSAGE,
    events=[
        {"type": "message_start", "message": {**_MESSAGE, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": wire.text("")},
        *map(_delta, PIECES),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ],
    begun_events=4,
    more=_delta(" three"),
    error=_anthropics,
    error_event=_anthropics,
)
