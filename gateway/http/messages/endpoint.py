"""`POST /v1/messages`."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from gateway.base import jsons
from gateway.config.settings import Settings
from gateway.errors import GatewayError, InvalidRequest
from gateway.http.answering import Answering, StreamWriter
from gateway.http.chat.messages import plain_messages
from gateway.http.chat.resends import LEAST_BYTES, Resends, read_chat_request
from gateway.http.chat.validation import Arrival, check_spelling, parse_chat_request
from gateway.http.edge import Receive, Scope, Send, named_event
from gateway.http.fields import MAX_SESSION_CHARS
from gateway.http.receive import json_body
from gateway.models.conversation import ConversationRef
from gateway.models.exchange import Caller, ChatRequest
from gateway.turn.streaming import Chunks
from gateway.wire.anthropic.edits import edits_of, limit_of
from gateway.wire.anthropic.events import Events, MessageEvents
from gateway.wire.anthropic.faults import error_body
from gateway.wire.anthropic.reading import Reading, read_request
from gateway.wire.anthropic.wording import as_message


class Messages:
    """The endpoint."""

    def __init__(self, answering: Answering, settings: Settings, resends: Resends) -> None:
        self._answering = answering
        self._settings = settings
        self._resends = resends

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = MessagesDialect(self._settings, self._resends)
        try:
            await self._answering.answer(scope, receive, send, dialect)
        except InvalidRequest as error:
            raise dialect.renamed(error) from None


class MessagesDialect:
    """One request in Anthropic's words (a `Dialect`)."""

    def __init__(self, settings: Settings, resends: Resends) -> None:
        self._settings = settings
        self._resends = resends
        self._chat = b""
        """The request as the bytes of a chat, where it is long enough to be recognised in the next one."""
        self._reading: Reading | None = None

    def read(self, raw: bytes, headers: Mapping[str, str], caller: Caller, arrival: Arrival) -> ChatRequest:
        """The request in the inner form."""
        body = json_body(raw)
        check_spelling(body, self._settings)
        self._reading = reading = read_request(body, headers)
        if len(raw) < LEAST_BYTES:
            return chat_request(reading, headers, caller, self._settings, arrival)
        chat = self._chat = jsons.dumps({"messages": reading.chat["messages"], **reading.chat})
        return in_its_words(read_chat_request(self._resends, chat, headers, caller, self._settings, arrival), reading)

    def renamed(self, error: InvalidRequest) -> InvalidRequest:
        """An error that names the field as the client knows it."""
        return error if self._reading is None else self._reading.renamed(error)

    async def look_up(self, caller: Caller) -> None:
        """A message says everything itself."""

    def holding(self, raw: bytes, request: ChatRequest) -> AbstractContextManager[object]:
        """The chat that it is, is kept for later requests that begin with the same messages."""
        chat, self._chat = self._chat, b""
        return self._resends.holding(chat, request) if chat else nullcontext()

    def whole(self, body: dict[str, Any], request: ChatRequest) -> bytes:
        """The completion as a message."""
        return jsons.dumps(as_message(body, request.model, stops_of(request), edits_asked(request)))

    def writer(self, request: ChatRequest) -> StreamWriter:
        """Chunks as events."""
        return _EventWriter(request)


class _EventWriter:
    """Events with their names, as Anthropic sends them."""

    def __init__(self, request: ChatRequest) -> None:
        self._events = MessageEvents(request.model, stops_of(request), edits_asked(request))
        self._request_id = request.request_id

    def events(self, chunks: Chunks) -> bytes:
        return _written(self._events.of(chunks))

    def end(self) -> bytes:
        return _written(self._events.end())

    def fault(self, error: GatewayError) -> bytes:
        return _written([error_body(error, self._request_id)])


def chat_request(
    reading: Reading, headers: Mapping[str, str], caller: Caller, settings: Settings, arrival: Arrival
) -> ChatRequest:
    """The request as the pipeline takes it.

    Raises:
        InvalidRequest: a field breaks a rule.
    """
    plain = plain_messages(reading.chat["messages"])
    return in_its_words(parse_chat_request(reading.chat, headers, caller, settings, arrival, plain), reading)


def in_its_words(request: ChatRequest, reading: Reading) -> ChatRequest:
    """The request with what a chat has no words for. What its client calls the session by itself names the
    conversation, unless it names one in the gateway's words; such a client always sends the whole of it."""
    limit = limit_of(reading.edits)
    if limit is not None:
        request = replace(request, options=replace(request.options, clear_above=limit))
    session = reading.session
    is_name = session is not None and len(session) <= MAX_SESSION_CHARS and session.isprintable()
    if is_name and request.conversation == ConversationRef():
        request = replace(request, conversation=ConversationRef(session=session, is_whole=True))
    return replace(request, api="messages", native=reading.native)


def edits_asked(request: ChatRequest) -> list[dict[str, Any]]:
    """What the client wants to be cleared of its context."""
    return edits_of(request.native.fields.get("context_management")) if request.native is not None else []


def stops_of(request: ChatRequest) -> tuple[str, ...]:
    """The request's stop sequences."""
    stops = request.forward.get("stop")
    return tuple(stops) if isinstance(stops, list) else ()


def _written(events: Events) -> bytes:
    return b"".join(map(named_event, events))
