"""`POST /v1/messages`."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from gateway.base import jsons
from gateway.config.settings import Settings
from gateway.errors import GatewayError
from gateway.http.answering import Answering, StreamWriter
from gateway.http.edge import SENDING, Receive, Scope, Send, named_event
from gateway.http.fields import MAX_SESSION_CHARS
from gateway.http.inner.messages import plain_messages
from gateway.http.inner.resends import LEAST_BYTES, Resends, read_chat_request
from gateway.http.inner.validation import Arrival, check_spelling, parse_chat_request
from gateway.http.messages.compaction import MARKS, Resolved, resolved, send_paused
from gateway.http.receive import json_body
from gateway.models.conversation import ConversationRef
from gateway.models.exchange import Caller, ChatRequest
from gateway.storage.store import ConversationStore
from gateway.turn.streaming import Chunks
from gateway.wire.anthropic.compacting import block_of
from gateway.wire.anthropic.edits import compacts, edits_of, limit_of, pauses
from gateway.wire.anthropic.events import Events, MessageEvents
from gateway.wire.anthropic.faults import error_body
from gateway.wire.anthropic.reading import Reading, read_request
from gateway.wire.anthropic.wording import as_message
from gateway.wire.compaction import Sealer

NO_NAME = ConversationRef()
PING = named_event({"type": "ping"})


class Messages:
    """The endpoint."""

    def __init__(self, answering: Answering, settings: Settings, resends: Resends, store: ConversationStore) -> None:
        self._answering = answering
        self._settings = settings
        self._resends = resends
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = MessagesDialect(self._settings, self._resends, self._store)
        paused = await self._answering.answer(scope, receive, send, dialect)
        if paused is not None and (sealer := dialect.sealer(paused.request)) is not None:
            await send_paused(paused, sealer, scope.get(SENDING, send))


class MessagesDialect:
    """One request in Anthropic's words (a `Dialect`)."""

    def __init__(self, settings: Settings, resends: Resends, store: ConversationStore) -> None:
        self._settings = settings
        self._resends = resends
        self._store = store
        self._body: dict[str, Any] = {}
        self._chat = b""
        """The request as the bytes of a chat, where it is long enough to be recognised in the next one."""
        self._reading: Reading | None = None
        self._resolved: Resolved | None = None

    def read(self, raw: bytes, headers: Mapping[str, str], caller: Caller, arrival: Arrival) -> ChatRequest | None:
        """The request in the inner form; one with a compaction block is read with what that stands for."""
        if self._resolved is None:
            self._body = json_body(raw)
            if any(mark in raw for mark in MARKS):
                return None
        body, ref = self._body, ConversationRef()
        if self._resolved is not None:
            body, ref = self._resolved.body, self._resolved.ref
        check_spelling(body, self._settings)
        self._reading = reading = read_request(body, headers)
        if len(raw) < LEAST_BYTES:
            return chat_request(reading, headers, caller, self._settings, arrival, ref)
        chat = self._chat = jsons.dumps({"messages": reading.chat["messages"], **reading.chat})
        request = read_chat_request(self._resends, chat, headers, caller, self._settings, arrival)
        return in_its_words(request, reading, ref)

    async def look_up(self, caller: Caller) -> None:
        """Puts what a compaction block stands for in its place."""
        self._resolved = await resolved(self._body, caller.tenant, self._store)

    def sealer(self, request: ChatRequest) -> Sealer | None:
        """Makes compaction blocks, where the request asks for them."""
        if self._resolved is None or not request.options.compacts:
            return None
        told = None if request.keeps_content else request.messages
        tokens = request.options.clear_above or 0
        return Sealer(request.caller.tenant, self._resolved.secret, told, said=request.messages, tokens=tokens)

    def holding(self, raw: bytes, request: ChatRequest) -> AbstractContextManager[object]:
        """The chat that it is, is kept for later requests that begin with the same messages."""
        chat, self._chat = self._chat, b""
        return self._resends.holding(chat, request) if chat else nullcontext()

    def own_name(self, path: str) -> str:
        """As the client knows it, once the request has been read."""
        return path if self._reading is None else self._reading.own_name(path)

    def whole(self, body: dict[str, Any], request: ChatRequest) -> bytes:
        """The completion as a message."""
        sealer = self.sealer(request)
        block = block_of(sealer, body) if sealer is not None else None
        return jsons.dumps(as_message(body, request.model, stops_of(request), edits_asked(request), block))

    def writer(self, request: ChatRequest) -> StreamWriter:
        """Chunks as events."""
        return _EventWriter(request, self.sealer(request))


class _EventWriter:
    """Events with their names, as Anthropic sends them."""

    def __init__(self, request: ChatRequest, sealer: Sealer | None) -> None:
        compaction = partial(block_of, sealer) if sealer is not None else None
        self._events = MessageEvents(request.model, stops_of(request), edits_asked(request), compaction)
        self._request_id = request.request_id

    def events(self, chunks: Chunks) -> bytes:
        return _written(self._events.of(chunks))

    def end(self) -> bytes:
        return _written(self._events.end())

    def fault(self, error: GatewayError) -> bytes:
        return _written([error_body(error, self._request_id)])

    def alive(self, said: bytes) -> bytes:
        return PING


def chat_request(
    reading: Reading,
    headers: Mapping[str, str],
    caller: Caller,
    settings: Settings,
    arrival: Arrival,
    ref: ConversationRef = NO_NAME,
) -> ChatRequest:
    """The request as the pipeline takes it.

    Args:
        ref: where it goes on by a compaction block.

    Raises:
        InvalidRequest: a field breaks a rule.
    """
    plain = plain_messages(reading.chat["messages"])
    return in_its_words(parse_chat_request(reading.chat, headers, caller, settings, arrival, plain), reading, ref)


def in_its_words(request: ChatRequest, reading: Reading, ref: ConversationRef = NO_NAME) -> ChatRequest:
    """The request with what a chat has no words for. What its client calls the session by itself names the
    conversation, unless it names one in the gateway's words; such a client always sends the whole of it."""
    limit = limit_of(reading.edits)
    if limit is not None:
        edits = reading.edits
        options = replace(request.options, clear_above=limit, compacts=compacts(edits), pauses=pauses(edits))
        request = replace(request, options=options)
    session = reading.session
    is_name = session is not None and len(session) <= MAX_SESSION_CHARS and session.isprintable()
    if ref != NO_NAME and request.conversation == NO_NAME:
        size = len(jsons.dumps(request.messages))  # of what stands from the block on
        request = replace(request, conversation=ref, size=size)
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
