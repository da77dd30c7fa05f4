"""`POST /v1/responses`: create, plain and streamed."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from gateway.base import jsons
from gateway.config.settings import Settings
from gateway.errors import GatewayError, InvalidRequest
from gateway.http.answering import Answering, StreamWriter
from gateway.http.chat.resends import LEAST_BYTES, Resends, read_chat_request
from gateway.http.chat.validation import Arrival, parse_chat_request
from gateway.http.edge import Receive, Scope, Send, named_event
from gateway.http.receive import json_body
from gateway.models.exchange import Caller, ChatRequest
from gateway.turn.streaming import Chunks
from gateway.wire.responses.events import ResponseEvents
from gateway.wire.responses.reading import Place, read_request, renamed
from gateway.wire.responses.wording import echo, response_of


class Responses:
    """The endpoint."""

    def __init__(self, answering: Answering, settings: Settings, resends: Resends) -> None:
        self._answering = answering
        self._settings = settings
        self._resends = resends

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = ResponsesDialect(self._settings, self._resends)
        try:
            await self._answering.answer(scope, receive, send, dialect)
        except GatewayError as error:
            dialect.rename(error)
            raise


class ResponsesDialect:
    """One request in the words of Responses (a `Dialect`)."""

    def __init__(self, settings: Settings, resends: Resends) -> None:
        self._settings = settings
        self._resends = resends
        self._chat = b""
        """The request as the bytes of a chat, where it is long enough to be recognised in the next one."""
        self._repeated: dict[str, Any] = {}
        self._include: tuple[str, ...] = ()
        self._places: tuple[Place, ...] = ()

    def read(self, raw: bytes, headers: Mapping[str, str], caller: Caller, arrival: Arrival) -> ChatRequest:
        """The request as a chat."""
        body = json_body(raw)
        reading = read_request(body)
        self._places = reading.places
        self._include = tuple(body.get("include") or ())
        if len(raw) < LEAST_BYTES:
            request = parse_chat_request(reading.chat, headers, caller, self._settings, arrival)
        else:
            chat = self._chat = jsons.dumps({"messages": reading.chat["messages"], **reading.chat})
            request = read_chat_request(self._resends, chat, headers, caller, self._settings, arrival)
        self._repeated = echo(body, store=request.store)
        if reading.previous is not None:
            text = "previous_response_id is not served: send conversation, or all of the input."
            raise InvalidRequest(text, param="previous_response_id", code="unsupported_parameter")
        if reading.whole:
            request = replace(request, options=replace(request.options, planning="never", whole=True))
        return replace(request, api="responses", native=reading.native, include_usage=request.stream)

    def rename(self, error: GatewayError) -> None:
        """An error, in place, in the words of the request."""
        renamed(error, self._places)

    def holding(self, raw: bytes, request: ChatRequest) -> AbstractContextManager[object]:
        """The chat that it is, is kept for later requests that begin with the same messages."""
        chat, self._chat = self._chat, b""
        return self._resends.holding(chat, request) if chat else nullcontext()

    def whole(self, body: dict[str, Any], request: ChatRequest) -> bytes:
        """The completion as a response."""
        return jsons.dumps(response_of(body, self._repeated, self._include))

    def writer(self, request: ChatRequest) -> StreamWriter:
        """Events with names."""
        return _Writer(ResponseEvents(self._repeated, self._include), self)


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
