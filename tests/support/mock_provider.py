"""Anthropic and Gemini behind one scriptable server: it answers in their wire formats what a test has queued."""

import json
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.support import anthropic_wire, gemini_wire
from tests.support.anthropic_cache import PromptCache
from tests.support.http_server import Answer, Record, ThreadedHttpServer
from tests.support.process import Closing

Json = dict[str, Any]
JSON = (("content-type", "application/json"),)
EVENTS = (("content-type", "text/event-stream; charset=utf-8"),)


class MockProvider(Closing):
    """Answers `POST /v1/messages` (Anthropic) and `/models/…:generateContent`, `:streamGenerateContent` (Gemini)."""

    server: type[ThreadedHttpServer] = ThreadedHttpServer

    def __init__(self) -> None:
        self.requests: list[Record] = []
        self.cache: PromptCache | None = None
        """What Anthropic's usage says of its prompt cache, where nothing is queued."""
        self.claude: Callable[[Json], Json | Answer] | None = None
        """Answers requests of Anthropic's API for which nothing is queued."""
        self._queue: deque[tuple[Json | Answer, int | None]] = deque()
        self._stalled = threading.Event()
        self._server = self.server(self._respond)
        self._server.start()

    def close(self) -> None:
        self._server.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.port}"

    @property
    def last(self) -> Record:
        """The latest request."""
        return self.requests[-1]

    @property
    def calls(self) -> list[Record]:
        """Requests to models, without those of `gateway check`."""
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

    def clear(self) -> None:
        """Forgets requests and answers."""
        self.requests.clear()
        self._queue.clear()
        self.cache = self.claude = None

    def _respond(self, record: Record) -> Answer:
        self.requests.append(record)
        if record.method == "GET":
            known = record.headers.get("x-api-key", record.headers.get("x-goog-api-key")) != "sk-bad"
            return Answer(200 if known else 401, JSON, (b'{"data": []}',))
        answer, stall_after = self._queue.popleft() if self._queue else (self._unasked(record), None)
        if isinstance(answer, Answer):
            return answer
        if not _streams(record):
            return Answer(200, JSON, (json.dumps(answer).encode(),))
        pieces = (anthropic_wire if _is_anthropic(record) else gemini_wire).events(answer)
        stalled = {"stall_after": stall_after, "stall_until": self._stalled} if stall_after is not None else {}
        return Answer(200, EVENTS, pieces, streamed=True, **stalled)  # type: ignore[arg-type]

    def _unasked(self, record: Record) -> Json | Answer:
        if not _is_anthropic(record):
            return gemini_wire.answer(gemini_wire.text("ok"))
        if self.claude is not None:
            return self.claude(record.body)
        if self.cache is None:
            return anthropic_wire.message(anthropic_wire.text("ok"))
        try:
            return anthropic_wire.message(anthropic_wire.text("ok"), spent=self.cache.usage(record.body))
        except AssertionError as refused:
            error = anthropic_wire.error("invalid_request_error", str(refused))
            return Answer(400, JSON, (json.dumps(error).encode(),))


def _is_anthropic(record: Record) -> bool:
    return record.path.endswith("/v1/messages")


def _streams(record: Record) -> bool:
    return bool(record.body.get("stream")) if _is_anthropic(record) else ":stream" in record.path
