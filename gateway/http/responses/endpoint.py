"""`POST /v1/responses`: create, plain and streamed."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from gateway.base import jsons
from gateway.config.settings import Settings
from gateway.errors import GatewayError, InvalidRequest
from gateway.http.answering import Answering, StreamWriter
from gateway.http.chat.validation import Arrival, parse_chat_request
from gateway.http.edge import Receive, Scope, Send, named_event
from gateway.http.receive import json_body
from gateway.models.exchange import Caller, ChatRequest
from gateway.turn.streaming import Chunks
from gateway.wire.responses.events import ResponseEvents
from gateway.wire.responses.reading import Reading, read_request, renamed
from gateway.wire.responses.wording import echo, response_of


class Responses:
    """The endpoint."""

    def __init__(self, answering: Answering, settings: Settings) -> None:
        self._answering = answering
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = ResponsesDialect(self._settings)
        try:
            await self._answering.answer(scope, receive, send, dialect)
        except GatewayError as error:
            dialect.rename(error)
            raise


class ResponsesDialect:
    """One request in the words of Responses (a `Dialect`)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._body: dict[str, Any] = {}
        self._reading: Reading | None = None

    def read(self, raw: bytes, headers: Mapping[str, str], caller: Caller, arrival: Arrival) -> ChatRequest:
        """The request as a chat."""
        body = self._body = json_body(raw)
        reading = self._reading = read_request(body)
        request = parse_chat_request(reading.chat, headers, caller, self._settings, arrival)
        if reading.previous is not None:
            text = "previous_response_id is not served: send conversation, or all of the input."
            raise InvalidRequest(text, param="previous_response_id", code="unsupported_parameter")
        if reading.whole:
            request = replace(request, options=replace(request.options, planning="never", whole=True))
        return replace(request, api="responses", native=reading.native, include_usage=request.stream)

    def rename(self, error: GatewayError) -> None:
        """An error, in place, in the words of the request."""
        renamed(error, self._reading.places if self._reading is not None else ())

    def holding(self, raw: bytes, request: ChatRequest) -> AbstractContextManager[object]:
        """Nothing is kept of a body."""
        return nullcontext()

    def whole(self, body: dict[str, Any], request: ChatRequest) -> bytes:
        """The completion as a response."""
        return jsons.dumps(response_of(body, self._echo(request), self._include))

    def writer(self, request: ChatRequest) -> StreamWriter:
        """Events with names."""
        return _Writer(ResponseEvents(self._echo(request), self._include), self)

    @property
    def _include(self) -> tuple[str, ...]:
        return tuple(self._body.get("include") or ())

    def _echo(self, request: ChatRequest) -> dict[str, Any]:
        return echo(self._body, store=request.store)


class _Writer:
    """Bytes of events."""

    def __init__(self, events: ResponseEvents, dialect: ResponsesDialect) -> None:
        self._events = events
        self._dialect = dialect

    def events(self, chunks: Chunks) -> bytes:
        return b"".join(map(named_event, self._events.of(chunks)))

    def end(self) -> bytes:
        return b"".join(map(named_event, self._events.end()))

    def fault(self, error: GatewayError) -> bytes:
        self._dialect.rename(error)
        return b"".join(map(named_event, self._events.fault(error)))
