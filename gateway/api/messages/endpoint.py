"""`POST /v1/messages`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from gateway.api.completion_handler import CompletionHandler, NamedEventWriter, StreamWriter
from gateway.api.fields import MAX_SESSION_CHARS
from gateway.api.request.body_cache import BodyCache, ReadAsChat
from gateway.api.request.chat_shapes import ATTACHED, BILL, CONVERSATION, MESSAGES
from gateway.api.request.gateway_fields import ContextField
from gateway.api.request.validation import RequestArrival, check_spelling, parse_chat_request, plain_messages
from gateway.api.server import asgi
from gateway.api.shapes import Json, said, shape
from gateway.core import ids, jsons
from gateway.core.config.settings import Settings
from gateway.core.formats import compaction_items
from gateway.core.formats.anthropic import edits, message_events, serializer
from gateway.core.formats.anthropic.request_parser import MessagesReading, read_request
from gateway.core.formats.compaction_items import CompactionSealer
from gateway.core.frozen_records import record
from gateway.core.types.chat import ChatRequest, RequestCaller
from gateway.core.types.conversation import UNNAMED, ConversationRef
from gateway.pipeline import PausedRequest
from gateway.storage import ConversationStore

# Compaction blocks of `/v1/messages`: what one represents, and an answer that is one and nothing else.

COMPACTION_MARKERS = (b"compact_20260112", b'"compaction"')
"""Every body that has a block, or asks for one, contains one of these."""
UNUSED: Json = {
    **dict.fromkeys(("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"), 0)
}


MessagesRequest = shape(
    "MessagesRequest",
    "Anthropic's request. Fields that are not named here go up untouched to Anthropic, and nowhere else.",
    {"model": str, "max_tokens?": said(int, "Required, but for counting."), "context?": ContextField | None}
    | {"conversation?": said(str | Json, CONVERSATION)}
    | MESSAGES
    | ATTACHED,
    is_open=True,
)
Message = shape(
    "Message",
    "Anthropic's message, with the gateway's bill.",
    {"id model": str, "type": Literal["message"], "role": Literal["assistant"], "content": list[Json]}
    | {"stop_reason?": str | None, "usage": Json, **BILL},
    is_open=True,
)
MessageEvent = shape("MessageEvent", "Anthropic's event.", {"type": str}, is_open=True)
MessagesError = shape(
    "MessagesError", "Anthropic's error shape.", {"type": Literal["error"], "error": Json, "request_id?": str}
)


@record
class ResolvedBlocks:
    """A body with its block expanded, the point of a stored conversation that it continues, and the key of blocks."""

    body: Json
    secret: bytes = field(repr=False)
    ref: ConversationRef = field(default_factory=ConversationRef)


async def resolved(body: Json, tenant: str, store: ConversationStore) -> ResolvedBlocks:
    """Expands the last compaction block of a body: its content replaces the block and all before it. A block that this
    gateway did not make for this tenant stays as it is; so does one of a deleted conversation.
    Raises StorageUnavailable: the storage cannot be reached."""
    secret = await store.secret()
    found = edits.find_block(body)
    compacted = compaction_items.opened(found.sealed, tenant, secret) if found is not None else None
    if found is None or compacted is None:
        return ResolvedBlocks(body, secret)
    at = compacted.at
    if at is not None and not await store.said_anywhere(tenant, [at]):
        at = None
        content = body["messages"][found.message]["content"][found.block].get("content")
        if compacted.extract is None and isinstance(content, str):
            compacted = replace(compacted, extract=content)
    ref = ConversationRef(at=at, before=compacted.before) if at is not None else UNNAMED
    return ResolvedBlocks(edits.expanded(body, found, compacted), secret, ref)


async def send_paused(paused: PausedRequest, sealer: CompactionSealer, send: asgi.Send) -> None:
    """Sends an answer that is a compaction block: no model was called, nothing is billed or stored."""
    request = paused.request
    sealer = replace(sealer, messages=request.messages, at=paused.at)
    block = edits.as_block(sealer, sealer.made_for(""))
    usage = {**UNUSED, "iterations": [{"type": "compaction", **UNUSED}]}
    message: Json = {"id": ids.new_id("msg_"), "type": "message", "role": "assistant", "model": request.model}
    ended = {"stop_reason": "compaction", "stop_sequence": None}
    applied: Json = {"context_management": {"applied_edits": []}}
    if not request.stream:
        await asgi.send_json(send, 200, {**message, "content": [block], **ended, "usage": usage, **applied})
        return
    begins = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": UNUSED}
    events = [
        {"type": "message_start", "message": begins},
        *edits.block_events(block, 0),
        {"type": "message_delta", "delta": ended, "usage": usage, **applied},
        {"type": "message_stop"},
    ]
    await asgi.send_start(send, 200, asgi.EVENT_STREAM)
    await send({"type": "http.response.body", "body": b"".join(map(asgi.named_event, events))})


PING = asgi.named_event({"type": "ping"})


@dataclass(slots=True)
class MessagesEndpoint:
    _answering: CompletionHandler
    _settings: Settings
    _resends: BodyCache
    _store: ConversationStore

    async def __call__(
        self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send, caller: RequestCaller | None = None
    ) -> None:
        """Answers the request. `caller`: who sends it, where that is known already."""
        adapter = MessagesAdapter(self._settings, self._resends, self._store)
        paused = await self._answering.answer(scope, receive, send, adapter, caller)
        if paused is not None and (sealer := adapter.sealer(paused.request)) is not None:
            await send_paused(paused, sealer, scope.get(asgi.SENDING, send))


class MessagesAdapter(ReadAsChat[MessagesReading]):
    """One request in Anthropic's form (an `ApiAdapter`)."""

    def __init__(self, settings: Settings, resends: BodyCache, store: ConversationStore) -> None:
        super().__init__(settings, resends)
        self._store = store
        self._resolved: ResolvedBlocks | None = None

    def read(
        self, raw: bytes, headers: Mapping[str, str], caller: RequestCaller, arrival: RequestArrival
    ) -> ChatRequest | None:
        """Parses the request to the inner form; None: it has a compaction block, which has to be looked up first."""
        if self._resolved is None:
            self._parse(raw, caller, MessagesReading)
            if any(mark in raw for mark in COMPACTION_MARKERS):
                return None
        body, ref = self._body, UNNAMED
        if self._resolved is not None:
            body, ref = self._resolved.body, self._resolved.ref
        check_spelling(body, self._settings)
        before, count = self._before(body, MessagesReading)
        reading = read_request(body, headers, before=before, count=count, is_kept=self._is_kept(body))
        return in_its_words(self._request(reading, body, headers, caller, arrival), reading, ref)

    async def look_up(self, caller: RequestCaller) -> None:
        """Replaces a compaction block by the messages that it represents."""
        self._resolved = await resolved(self._body, caller.tenant, self._store)

    def sealer(self, request: ChatRequest) -> CompactionSealer | None:
        """Returns what makes compaction blocks; None where the request asks for none."""
        if self._resolved is None or not request.options.compacts:
            return None
        told = None if request.keeps_content else request.messages
        tokens = request.options.clear_above or 0
        return CompactionSealer(
            request.caller.tenant, self._resolved.secret, told, said=request.messages, tokens=tokens
        )

    def whole(self, body: dict[str, Any], request: ChatRequest) -> bytes:
        sealer = self.sealer(request)
        block = edits.block_of(sealer, body) if sealer is not None else None
        return jsons.dumps(serializer.as_message(body, request.model, stops_of(request), edits_asked(request), block))

    def writer(self, request: ChatRequest) -> StreamWriter:
        sealer = self.sealer(request)
        compaction = partial(edits.block_of, sealer) if sealer is not None else None
        events = message_events.MessageEvents(request.model, stops_of(request), edits_asked(request), compaction)
        return NamedEventWriter(
            events, lambda error: [message_events.error_body(error, request.request_id)], lambda _: PING
        )


def chat_request(
    reading: MessagesReading,
    headers: Mapping[str, str],
    caller: RequestCaller,
    settings: Settings,
    arrival: RequestArrival,
    ref: ConversationRef = UNNAMED,
) -> ChatRequest:
    """Converts a parsed request to the one that the pipeline takes.
    `ref`: the point that it continues from, by a compaction block.
    Raises InvalidRequest: a field breaks a rule."""
    plain = plain_messages(reading.chat["messages"])
    return in_its_words(parse_chat_request(reading.chat, headers, caller, settings, arrival, plain), reading, ref)


def in_its_words(request: ChatRequest, reading: MessagesReading, ref: ConversationRef = UNNAMED) -> ChatRequest:
    """Adds what a chat has no fields for. The session that such a client names by itself becomes the conversation,
    unless the request names one in the gateway's fields; the client always sends the whole of it."""
    limit = edits.limit_of(reading.edits)
    if limit is not None:
        asked_edits = reading.edits
        options = replace(
            request.options, clear_above=limit, compacts=edits.compacts(asked_edits), pauses=edits.pauses(asked_edits)
        )
        request = replace(request, options=options)
    session = reading.session
    is_name = session is not None and len(session) <= MAX_SESSION_CHARS and session.isprintable()
    if ref != UNNAMED and request.conversation == UNNAMED:
        size = len(jsons.dumps(request.messages))  # of the messages from the block on
        request = replace(request, conversation=ref, size=size)
    if is_name and request.conversation == UNNAMED:
        request = replace(request, conversation=ConversationRef(session=session, is_whole=True))
    return replace(request, api="messages", native=reading.native)


def edits_asked(request: ChatRequest) -> list[dict[str, Any]]:
    """Returns the edits of its context that the client asks for; empty for other APIs."""
    return edits.edits_of(request.native.fields.get("context_management")) if request.native is not None else []


def stops_of(request: ChatRequest) -> tuple[str, ...]:
    stops = request.forward.get("stop")
    return tuple(stops) if isinstance(stops, list) else ()
