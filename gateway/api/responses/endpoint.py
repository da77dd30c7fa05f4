"""`POST /v1/responses`: create, plain and streamed."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from gateway.api.completion_handler import CompletionHandler, Instead, StreamWriter
from gateway.api.request.body_cache import MIN_BYTES, BodyCache, read_chat_request
from gateway.api.request.validation import RequestArrival, check_spelling, parse_chat_request
from gateway.api.responses.compact import CompactionEndpoint, ResolvedItems, triggered
from gateway.api.responses.references import refers
from gateway.api.server.fast_router import Receive, Scope, Send, named_event
from gateway.api.server.keepalive import comment
from gateway.api.server.receiving import json_body
from gateway.core import jsons
from gateway.core.config.settings import Settings
from gateway.core.errors import GatewayError
from gateway.core.formats.compaction_items import CompactionSealer
from gateway.core.formats.responses.request_parser import ResponsesReading, read_request
from gateway.core.formats.responses.response_events import ResponseEvents
from gateway.core.formats.responses.serializer import echo, response_of
from gateway.core.formats.responses.stored import asked_of
from gateway.core.types.chat import ChatRequest, ContextOptions, RequestCaller
from gateway.core.types.conversation import ConversationRef
from gateway.pipeline.streaming import Chunks


class ResponsesEndpoint:
    """The endpoint."""

    def __init__(
        self, answering: CompletionHandler, settings: Settings, resends: BodyCache, compaction: CompactionEndpoint
    ) -> None:
        self._answering = answering
        self._settings = settings
        self._resends = resends
        self._compaction = compaction

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = ResponsesDialect(self._settings, self._resends, self._compaction)
        await self._answering.answer(scope, receive, send, dialect)


class ResponsesDialect:
    """One request in the words of Responses (an `ApiAdapter`)."""

    def __init__(self, settings: Settings, resends: BodyCache, compaction: CompactionEndpoint) -> None:
        self._settings = settings
        self._resends = resends
        self._compaction = compaction
        self._body: dict[str, Any] = {}
        self._resolved: ResolvedItems | None = None
        self._compaction_of: CompactionSealer | None = None
        """Where the client wants a compaction item if room is made."""
        self._chat = b""
        """The request as the bytes of a chat, where it is long enough to be recognised in the next one."""
        self._repeated: dict[str, Any] = {}
        self._include: tuple[str, ...] = ()
        self._reading: ResponsesReading | None = None

    def read(
        self, raw: bytes, headers: Mapping[str, str], caller: RequestCaller, arrival: RequestArrival
    ) -> ChatRequest | None:
        """The request as a chat; one that refers to something is read with that in its place."""
        if self._resolved is None:
            self._body = json_body(raw)
            if refers(self._body):
                return None
        body, at, before, sealer = self._resolved or ResolvedItems(self._body)
        check_spelling(body, self._settings)
        self._reading = reading = read_request(body)
        self._include = tuple(body.get("include") or ())
        if len(raw) < MIN_BYTES:
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

    async def look_up(self, caller: RequestCaller) -> Instead | None:
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
        return _ResponsesWriter(ResponseEvents(self._repeated, self._include, item))


def _options(options: ContextOptions, reading: ResponsesReading) -> ContextOptions:
    """With what the request says of its window in words of its own."""
    if reading.whole:
        options = replace(options, planning="never", whole=True)
    if reading.threshold is not None:
        options = replace(options, clear_above=reading.threshold, compacts=True)
    return options


class _ResponsesWriter:
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
