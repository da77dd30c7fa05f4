"""A provider for tests: a real OpenAI-compatible server that records, can be scripted, and is strict.

Prompt tokens are counted by a documented, cheap rule: white-space words of all contents and of all calls'
names and arguments, plus one for each part that is not text; `MockUpstream.count_prompt` may be replaced.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from tests.support.http_server import Answer, Record, ThreadedHttpServer
from tests.support.mock_embeddings import embeddings
from tests.support.process import Closing, wait_until
from tests.support.reply import JsonDict, Reply, answer, count_message, dumps, error_body, render
from tests.support.strict_chat import violations

__all__ = ["MockUpstream", "Record", "Reply"]

_MODELS = ("gpt-4o", "gpt-4o-mini", "small")
_ECHO_CHARS = 80


class MockUpstream(Closing):
    """Listens from the moment it is made until `stop`, or to the end of its `with` block.

    A chat request is answered by the first of these that applies: the strict checks and the modes (so a
    refused request does not use up a queued reply), the queue of `reply`, the `handler`, an echo of the last
    user message. `handler` and callable `routes` run on the server's loop and must not block: they return
    a `Reply` with `delay_first` or `gate` instead.
    """

    server: type[ThreadedHttpServer] = ThreadedHttpServer
    """By which it is reached."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._serial = 0
        self._server = self.server(self._respond)
        self._stalled = threading.Event()
        self.requests: list[Record] = []
        self.files: dict[str, bytes] = {}
        self._set_defaults()
        self._server.start()

    def _set_defaults(self) -> None:
        self.violations: list[str] = []
        self.strict = True
        self.refuse_stream_options = False
        self.context_limit: int | None = None
        self.handler: Callable[[Record], Reply | None] | None = None
        self.routes: dict[str, Reply | Callable[[Record], Reply | None]] = {}
        """Answers of other endpoints, by `"POST /v1/responses"`: `json`, `body` or `raw_sse` replies."""
        self.wires: list[Callable[[Record], Answer | None]] = []
        """Other APIs than OpenAI's: the first that knows a request answers it."""
        self.models: list[str] = list(_MODELS)
        self.count_prompt: Callable[[JsonDict], int] = count_prompt
        self._queue: deque[Reply] = deque()

    def close(self) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self._server.port}"

    @property
    def base_url(self) -> str:
        """What goes into `api_base`: `…/v1`."""
        return f"{self.url}/v1"

    @property
    def chats(self) -> list[Record]:
        """The recorded chat requests, refused ones included, internal models' too."""
        with self._lock:
            return [record for record in self.requests if record.path.endswith("/chat/completions")]

    def chats_of(self, model: str) -> list[Record]:
        """The chat requests for one model, to tell primary and internal calls apart."""
        return [record for record in self.chats if record.body and record.body.get("model") == model]

    @property
    def last(self) -> Record:
        """The last chat request."""
        return self.chats[-1]

    @property
    def forwarded(self) -> list[JsonDict]:
        """The messages of the latest chat."""
        found: list[JsonDict] = self.last.body["messages"]
        return found

    @property
    def queued(self) -> int:
        """Scripted replies that no request has used yet."""
        return len(self._queue)

    @property
    def in_flight(self) -> int:
        """Requests being answered now."""
        return self._server.in_flight

    @property
    def max_in_flight(self) -> int:
        """The most requests that were being answered at once since the last `clear`."""
        return self._server.max_in_flight

    @property
    def connections_opened(self) -> int:
        """TCP connections accepted since the last `clear`."""
        return self._server.connections_opened

    @property
    def connections_open(self) -> int:
        """TCP connections that are open now, idle ones included."""
        return self._server.connections_open

    def reset_at_accept(self, connections: int) -> None:
        """Reset the next connections as soon as they are made, before any request is read."""
        self._server.resets_at_accept = connections

    def reply(self, **script: Any) -> Reply:
        """Queue the reply to the next chat request; fields as in `Reply`."""
        queued = Reply(**script)
        self._queue.append(queued)
        return queued

    def release(self) -> None:
        """End all present stalls (of `stall_after` without a `stall_until` of its own)."""
        self._stalled.set()
        self._stalled = threading.Event()

    def clear(self) -> None:
        """Forget requests, violations, queued replies, modes, routes, wires and files, and end stalls."""
        self.release()
        with self._lock:
            self.requests.clear()
        self.files.clear()
        self._set_defaults()
        self._server.max_in_flight = self._server.in_flight
        self._server.connections_opened = 0
        self._server.resets_at_accept = 0

    def wait_for_chats(self, number: int) -> list[Record]:
        """Wait until at least `number` chat requests have arrived, and return them all."""
        wait_until(lambda: len(self.chats) >= number, f"{number} chat requests", interval=0.002)
        return self.chats

    def stop(self) -> None:
        """Break all connections and refuse new ones, as a provider that is down; `start` brings it back."""
        self._server.stop()

    def start(self) -> None:
        """Listen again on the same port after `stop`."""
        self._server.start()

    def _respond(self, record: Record) -> Answer:
        with self._lock:
            self._serial += 1
            serial = self._serial
            self.requests.append(record)
        try:
            if (spoken := next(filter(None, (wire(record) for wire in self.wires)), None)) is not None:
                return spoken
            made = self._route(record, serial)
        except Exception as error:  # a test's handler may raise anything; the test must learn of it
            self.violations.append(f"{record.method} {record.path}: the mock failed: {error!r}")
            made = _error(500, f"the mock failed: {error!r}")
        trace = [("x-request-id", f"req_mock{serial}"), ("openai-processing-ms", "1")]
        own = {name for name, _ in made.headers}
        return replace(made, headers=[*made.headers, *(item for item in trace if item[0] not in own)])

    def _route(self, record: Record, serial: int) -> Answer:
        scripted = self.routes.get(f"{record.method} {record.path}")
        if callable(scripted):
            scripted = scripted(record)
        if scripted is not None:
            return render(self._complete(scripted, record.body or {}), record.body or {}, serial, 0)
        match record.method, record.path.removeprefix("/v1").strip("/").split("/"):
            case "POST", ["chat", "completions"]:
                return self._chat(record, serial)
            case "POST", ["embeddings"] if isinstance(record.body, dict):
                return _json(embeddings(record.body))
            case "GET", ["models"]:
                return _json({"object": "list", "data": [_model(name) for name in self.models]})
            case "GET", ["models", name] if unquote(name) in self.models:
                return _json(_model(unquote(name)))
            case "GET", ["files", file_id, "content"] if file_id in self.files:
                return answer(Reply(content_type="application/octet-stream"), self.files[file_id])
        return _error(404, f"Invalid URL ({record.method} {record.path})")

    def _chat(self, record: Record, serial: int) -> Answer:
        body = record.body if isinstance(record.body, dict) else {}
        wrong = violations(record.body) if self.strict else []
        if wrong:
            self.violations.extend(wrong)
            return _error(400, "; ".join(wrong))
        if self.refuse_stream_options and "stream_options" in body:
            message = "Unrecognized request argument supplied: stream_options"
            return _error(400, message, "unknown_parameter", "stream_options")
        tokens = self.count_prompt(body)
        if self.context_limit is not None and tokens > self.context_limit:
            message = (
                f"This model's maximum context length is {self.context_limit} tokens. "
                f"However, your messages resulted in {tokens} tokens. "
                "Please reduce the length of the messages."
            )
            return _error(400, message, "context_length_exceeded", "messages")
        scripted = self._queue.popleft() if self._queue else self.handler(record) if self.handler else None
        return render(self._complete(scripted or Reply(), body), body, serial, tokens)

    def _complete(self, reply: Reply, body: JsonDict) -> Reply:
        """The script with what it leaves open: an echo as its text, our own event as the stall's end."""
        silent = reply.text is None and not reply.tool_calls
        return replace(
            reply,
            text=f"echo: {_last_user_text(body)[:_ECHO_CHARS]}" if silent else reply.text,
            stall_until=reply.stall_until or self._stalled,
        )


def count_prompt(body: JsonDict) -> int:
    """The mock's own count of a chat request's prompt tokens."""
    return sum(count_message(message) for message in body.get("messages") or [])


def _last_user_text(body: JsonDict) -> str:
    users = [m.get("content") for m in body.get("messages") or [] if m.get("role") == "user"]
    content = users[-1] if users else ""
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if "text" in part)
    return str(content or "")


def _json(value: Any, status: int = 200) -> Answer:
    return answer(Reply(status=status), dumps(value))


def _error(status: int, message: str, code: str | None = None, param: str | None = None) -> Answer:
    return _json(error_body(status, message, code, param), status)


def _model(name: str) -> JsonDict:
    return {"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "mock"}
