"""Anthropic's and Gemini's wires of a mock upstream, for models that are called without an OpenAI-compatible API."""

import json
from collections import deque
from collections.abc import Callable
from threading import Event
from typing import Any

from tests.support import anthropic_wire, gemini_wire
from tests.support.anthropic_cache import PromptCache
from tests.support.http_server import Answer, Record
from tests.support.mock_upstream import MockUpstream

Json = dict[str, Any]
JSON = (("content-type", "application/json"),)
EVENTS = (("content-type", "text/event-stream; charset=utf-8"),)


class MockProvider:
    """Answers `POST /v1/messages` (Anthropic) and `/models/…:generateContent`, `:streamGenerateContent` (Gemini) of a
    `MockUpstream` until that is cleared; an `api_base` is its `url`."""

    def __init__(self, upstream: MockUpstream) -> None:
        self._upstream = upstream
        self.cache: PromptCache | None = None
        """What Anthropic's usage says of its prompt cache, where nothing is queued."""
        self.claude: Callable[[Json], Json | Answer] | None = None
        """Answers requests of Anthropic's API for which nothing is queued; what it raises as `Refused` is a 400."""
        self._queue: deque[tuple[Json | Answer, int | None]] = deque()
        upstream.wires.append(self._respond)

    @property
    def url(self) -> str:
        return self._upstream.url

    @property
    def requests(self) -> list[Record]:
        """All in these words, those of `gateway check` included."""
        return list(filter(_is_native, self._upstream.requests))

    @property
    def last(self) -> Record:
        """The latest request."""
        return self.requests[-1]

    @property
    def calls(self) -> list[Record]:
        """Requests to models."""
        return [record for record in self.requests if record.method == "POST"]

    def reply(self, answer: Json, *, stall_after: int | None = None) -> None:
        """Queues an answer in the wire format of whoever is asked; `stall_after` events a stream falls silent."""
        self._queue.append((answer, stall_after))

    def script(self, *events: bytes, **timing: Any) -> None:
        """Queues a stream of exactly these events, with the timing of `Answer`."""
        self._queue.append((Answer(200, EVENTS, events, streamed=True, **timing), None))

    def fail(self, status: int, body: Json, **headers: str) -> None:
        """Queues an error."""
        named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        self._queue.append((Answer(status, (*JSON, *named), (json.dumps(body).encode(),)), None))

    def _respond(self, record: Record) -> Answer | None:
        if not _is_native(record):
            return None
        if record.method == "GET":
            known = record.headers.get("x-api-key", record.headers.get("x-goog-api-key")) != "sk-bad"
            return Answer(200 if known else 401, JSON, (b'{"data": []}',))
        answer, stall_after = self._queue.popleft() if self._queue else (self._unasked(record), None)
        if isinstance(answer, Answer):
            return answer
        if not _streams(record):
            return Answer(200, JSON, (json.dumps(answer).encode(),))
        pieces = (anthropic_wire if _is_anthropic(record) else gemini_wire).events(answer)
        return Answer(200, EVENTS, pieces, streamed=True, stall_after=stall_after, stall_until=Event())

    def _unasked(self, record: Record) -> Json | Answer:
        if not _is_anthropic(record):
            return gemini_wire.answer(gemini_wire.text("ok"))
        try:
            if self.claude is not None:
                return self.claude(record.body)
            spent = None if self.cache is None else self.cache.usage(record.body)
        except anthropic_wire.Refused as refused:
            return Answer(400, JSON, (json.dumps(refused.body).encode(),))
        return anthropic_wire.message(anthropic_wire.text("ok"), spent=spent)


def _is_native(record: Record) -> bool:
    names_key = not {"x-api-key", "x-goog-api-key"}.isdisjoint(record.headers)
    return names_key if record.method == "GET" else _is_anthropic(record) or ":" in record.path


def _is_anthropic(record: Record) -> bool:
    return record.path.endswith("/v1/messages")


def _streams(record: Record) -> bool:
    return bool(record.body.get("stream")) if _is_anthropic(record) else ":stream" in record.path
