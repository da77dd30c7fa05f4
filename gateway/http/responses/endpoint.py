"""`POST /v1/responses`: create, plain and streamed."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from gateway.base import jsons
from gateway.config.settings import Settings
from gateway.errors import GatewayError
from gateway.http.alive import comment
from gateway.http.answering import Answering, Instead, StreamWriter
from gateway.http.edge import Receive, Scope, Send, named_event
from gateway.http.inner.resends import LEAST_BYTES, Resends, read_chat_request
from gateway.http.inner.validation import Arrival, check_spelling, parse_chat_request
from gateway.http.receive import json_body
from gateway.http.responses.compact import Compaction, Resolved, triggered
from gateway.http.responses.references import refers
from gateway.models.conversation import ConversationRef
from gateway.models.exchange import Caller, ChatRequest, ContextOptions
from gateway.turn.streaming import Chunks
from gateway.wire.compaction import Sealer
from gateway.wire.responses.events import ResponseEvents
from gateway.wire.responses.reading import Reading, read_request
from gateway.wire.responses.stored import asked_of
from gateway.wire.responses.wording import echo, response_of


class Responses:
    """The endpoint."""

    def __init__(self, answering: Answering, settings: Settings, resends: Resends, compaction: Compaction) -> None:
        self._answering = answering
        self._settings = settings
        self._resends = resends
        self._compaction = compaction

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = ResponsesDialect(self._settings, self._resends, self._compaction)
        await self._answering.answer(scope, receive, send, dialect)


class ResponsesDialect:
    """One request in the words of Responses (a `Dialect`)."""

    def __init__(self, settings: Settings, resends: Resends, compaction: Compaction) -> None:
        self._settings = settings
        self._resends = resends
        self._compaction = compaction
        self._body: dict[str, Any] = {}
        self._resolved: Resolved | None = None
        self._compaction_of: Sealer | None = None
        """Where the client wants a compaction item if room is made."""
        self._chat = b""
        """The request as the bytes of a chat, where it is long enough to be recognised in the next one."""
        self._repeated: dict[str, Any] = {}
        self._include: tuple[str, ...] = ()
        self._reading: Reading | None = None

    def read(self, raw: bytes, headers: Mapping[str, str], caller: Caller, arrival: Arrival) -> ChatRequest | None:
        """The request as a chat; one that refers to something is read with that in its place."""
        if self._resolved is None:
            self._body = json_body(raw)
            if refers(self._body):
                return None
        body, at, before, sealer = self._resolved or Resolved(self._body)
        check_spelling(body, self._settings)
        self._reading = reading = read_request(body)
        self._include = tuple(body.get("include") or ())
        if len(raw) < LEAST_BYTES:
            request = parse_chat_request(reading.chat, headers, caller, self._settings, arrival)
        else:
            chat = self._chat = jsons.dumps({"messages": reading.chat["messages"], **reading.chat})
            request = read_chat_request(self._resends, chat, headers, caller, self._settings, arrival)
        self._repeated = echo(body, store=request.store)
        conversation = request.conversation
        if reading.previous is not None:
            conversation = ConversationRef(behind=reading.previous)
        elif at is not None and conversation == ConversationRef():
            conversation = ConversationRef(at=at, before=before)
            request = replace(request, size=len(jsons.dumps(request.messages)))  # of what stands from the item on
        if sealer is not None and reading.threshold is not None:
            told = None if request.keeps_content else request.messages
            self._compaction_of = replace(sealer, messages=told, tokens=reading.threshold)
        return replace(
            request,
            api="responses",
            native=reading.native,
            include_usage=request.stream,
            options=_options(request.options, reading),
            conversation=conversation,
            asked=asked_of(body, request.messages),
        )

    async def look_up(self, caller: Caller) -> Instead | None:
        """Puts what items stand for in their place; where a compaction is asked for, and no answer, that is made."""
        if (rest := triggered(self._body)) is not None:
            return partial(self._compaction.answer, rest, caller)
        self._resolved = await self._compaction.resolved(self._body, caller.tenant)
        return None

    def own_name(self, path: str) -> str:
        """As the client knows it, once the request has been read."""
        return path if self._reading is None else self._reading.own_name(path)

    def holding(self, raw: bytes, request: ChatRequest) -> AbstractContextManager[object]:
        """The chat that it is, is kept for later requests that begin with the same messages."""
        chat, self._chat = self._chat, b""
        return self._resends.holding(chat, request) if chat else nullcontext()

    def whole(self, body: dict[str, Any], request: ChatRequest) -> bytes:
        """The completion as a response."""
        item = self._compaction_of.item(body) if self._compaction_of is not None else None
        return jsons.dumps(response_of(body, self._repeated, self._include, item))

    def writer(self, request: ChatRequest) -> StreamWriter:
        """Events with names."""
        item = self._compaction_of.item if self._compaction_of is not None else None
        return _Writer(ResponseEvents(self._repeated, self._include, item))


def _options(options: ContextOptions, reading: Reading) -> ContextOptions:
    """With what the request says of its window in words of its own."""
    if reading.whole:
        options = replace(options, planning="never", whole=True)
    if reading.threshold is not None:
        options = replace(options, clear_above=reading.threshold, compacts=True)
    return options


class _Writer:
    """Bytes of events."""

    def __init__(self, events: ResponseEvents) -> None:
        self._events = events

    def events(self, chunks: Chunks) -> bytes:
        return b"".join(map(named_event, self._events.of(chunks)))

    def end(self) -> bytes:
        return b"".join(map(named_event, self._events.end()))

    def fault(self, error: GatewayError) -> bytes:
        return b"".join(map(named_event, self._events.fault(error)))

    def alive(self, said: bytes) -> bytes:
        return comment(said)
