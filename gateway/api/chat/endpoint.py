"""`POST /v1/chat/completions`."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gateway.api.completion_handler import CompletionHandler, StreamWriter
from gateway.api.request.body_cache import MIN_CACHED_BODY, BodyCache, read_chat_request
from gateway.api.request.validation import RequestArrival, read_chat_body
from gateway.api.server.asgi import STREAM_END, Receive, Scope, Send, comment, event
from gateway.core import errors, jsons
from gateway.core.config.settings import Settings
from gateway.core.formats.responses.request_parser import ResponsesReading
from gateway.core.formats.stream_record import Chunks
from gateway.core.types.chat import ChatRequest, RequestCaller


class ChatCompletions:
    def __init__(self, answering: CompletionHandler, settings: Settings, resends: BodyCache) -> None:
        self._answering = answering
        self._settings = settings
        self._resends = resends

    async def __call__(self, scope: Scope, receive: Receive, send: Send, caller: RequestCaller | None = None) -> None:
        """Answers the request. `caller`: who sends it, where that is known already."""
        await self._answering.answer(scope, receive, send, ChatAdapter(self._settings, self._resends), caller)


class ChatAdapter:
    """The gateway's own form of a request, which is that of chat completions (an `ApiAdapter`). There is one for each
    request, since some arrive in the form of Responses and are answered as any chat."""

    def __init__(self, settings: Settings, resends: BodyCache) -> None:
        self._settings = settings
        self._resends = resends
        self._reading: ResponsesReading | None = None

    def read(
        self, raw: bytes, headers: Mapping[str, str], caller: RequestCaller, arrival: RequestArrival
    ) -> ChatRequest:
        """Parses the request. Of a body that begins as an earlier one did, only the rest is parsed (ADR 20)."""
        if len(raw) < MIN_CACHED_BODY:
            return read_chat_body(raw, headers, caller, self._settings, arrival, self._read)
        return read_chat_request(self._resends, raw, headers, caller, self._settings, arrival, self._read)

    def _read(self, reading: ResponsesReading) -> None:
        self._reading = reading

    async def look_up(self, caller: RequestCaller) -> None:
        """Looks up nothing: a chat request contains all that it needs."""

    def holding(self, raw: bytes, request: ChatRequest) -> AbstractContextManager[object]:
        """Caches the body while the block runs, for later requests that begin with the same bytes."""
        is_kept = len(raw) >= MIN_CACHED_BODY and request.native is None
        return self._resends.holding(raw, request) if is_kept else nullcontext()

    def external_field_name(self, path: str) -> str:
        """Returns `path`; for a body in the form of Responses, the name that the client used instead."""
        return path if self._reading is None else self._reading.external_field_name(path)

    def whole(self, body: dict[str, Any], request: ChatRequest) -> bytes:
        return jsons.dumps(body)

    def writer(self, request: ChatRequest) -> StreamWriter:
        return CHUNKS


class _ChatChunks:
    """Writes chunks unchanged, then `[DONE]`."""

    def events(self, chunks: Chunks) -> bytes:
        return b"".join([event(chunk) for chunk in chunks])

    def end(self) -> bytes:
        return STREAM_END

    def fault(self, error: errors.GatewayError) -> bytes:
        return event(error.body())

    def alive(self, said: bytes) -> bytes:
        return comment(said)


CHUNKS = _ChatChunks()
