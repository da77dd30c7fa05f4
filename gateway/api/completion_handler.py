"""The path of a request through any API that calls a model: read, answered once (`Idempotency-Key`, ADR 9), sent whole
or as a stream (ADR 27). An `ApiAdapter` has what differs between APIs: how a request is read into the inner form, and
how answers are written."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from gateway.api.auth import FORWARDED_HEADERS, KeyAuthenticator, check_known
from gateway.api.fields import renamed
from gateway.api.request.stored_answer import replayed_chunks, stored_answer
from gateway.api.request.validation import GATEWAY_HEADERS, RequestArrival
from gateway.api.server.asgi import (
    CLIENT,
    EVENT_STREAM,
    LARGE_BODY,
    SENDING,
    BodySlot,
    ClientConnection,
    ClientDisconnected,
    KeptAlive,
    LargeBodies,
    Receive,
    Scope,
    Send,
    answer_headers,
    named_event,
    read_body,
    send_json,
    send_json_bytes,
    send_start,
    until_disconnect,
)
from gateway.api.server.middleware import as_gateway_error, note_caller, note_fault
from gateway.core import errors, ports
from gateway.core.config.settings import Settings
from gateway.core.formats.stream_record import Chunks
from gateway.core.frozen_records import record
from gateway.core.tasks import BackgroundTasks, offload_if
from gateway.core.types import chat, turn
from gateway.core.types.chat import ChatRequest, RequestCaller
from gateway.core.types.conversation import UNNAMED
from gateway.pipeline import IdempotencyGate, LimitedPipeline, PausedRequest, RunPermit, StreamedAnswer, WholeCompletion

KEY = b"idempotency-key"
MAX_KEY_CHARS = 255
SEMANTIC_HEADERS = GATEWAY_HEADERS | {b"x-claude-code-session-id", b"anthropic-beta", *FORWARDED_HEADERS}
"""Headers that change what is asked, as the body does."""
REPLAYED = {"idempotent-replayed": "true"}


@record
class KeyedRequest:
    """A request with an `Idempotency-Key`. `meaning` holds the headers that change what is asked for, as bytes."""

    key: str
    meaning: bytes


def keyed(scope: Scope) -> KeyedRequest | None:
    """Returns the request's `Idempotency-Key` with the headers that belong to it; None without a key.
    Raises InvalidRequest: there are several keys that differ, or the key breaks its rule."""
    keys = {value for name, value in scope["headers"] if name == KEY}
    if not keys:
        return None
    if len(keys) > 1:
        raise errors.invalid("Idempotency-Key", "must be sent once; there are several that differ")
    meaning = [name + b":" + value for name, value in scope["headers"] if name in SEMANTIC_HEADERS and value]
    return KeyedRequest(_checked(keys.pop()), b"\n".join(sorted(meaning)))


async def identify(
    request: KeyedRequest, tenant: str, body: bytes, secret: Callable[[], Awaitable[bytes]]
) -> turn.RequestIdentity:
    """Computes the keyed digests that identify the request; `secret` reads their key.
    Raises StorageUnavailable: the storage, and with it the secret of the digests, cannot be reached."""
    key = await secret()
    check_known(tenant)

    def digests() -> turn.RequestIdentity:
        return turn.RequestIdentity(tenant, key_digest(key, request.key), _digest(key, b"asked", request.meaning, body))

    return await offload_if(len(body) >= LARGE_BODY, digests)


def key_digest(secret: bytes, key: str) -> bytes:
    """Computes the keyed digest, 32 bytes, that identifies an `Idempotency-Key`."""
    return _digest(secret, b"key", key.encode())


def _digest(secret: bytes, purpose: bytes, head: bytes, body: bytes = b"") -> bytes:
    made = hashlib.blake2b(b"%d\n%s" % (len(head), head), digest_size=32, key=secret[:64], person=purpose)
    made.update(body)
    return made.digest()


def _checked(value: bytes) -> str:
    try:
        key = value.decode()
    except UnicodeDecodeError:
        key = value.decode("latin-1")
    if not (0 < len(key) <= MAX_KEY_CHARS and key.isprintable()):
        raise errors.invalid("Idempotency-Key", f"must be 1 to {MAX_KEY_CHARS} printable characters")
    return key


T = TypeVar("T")
ADAPTER_HEADER_PREFIXES = (b"x-", b"anthropic-")
"""Prefixes of the headers that an adapter gets."""


class StreamWriter(Protocol):
    """Writes one streamed answer in an API's form. Each method returns the bytes to send now, perhaps none."""

    def events(self, chunks: Chunks) -> bytes:
        """Encodes these chunks, which are of the inner form, that of chat completions."""

    def end(self) -> bytes:
        """Encodes what follows the last chunk."""

    def fault(self, error: errors.GatewayError) -> bytes:
        """Encodes the end of an answer that broke off."""

    def alive(self, said: bytes) -> bytes:
        """Encodes a keepalive between events; `said`: the text of an upstream's comment, or nothing."""


class NamedEvents(Protocol):
    """Makes the events of one answer."""

    def of(self, chunks: Chunks) -> Iterable[dict[str, Any]]: ...

    def end(self) -> Iterable[dict[str, Any]]: ...


@record
class NamedEventWriter:
    """A streamed answer as events under their names (a `StreamWriter`)."""

    made: NamedEvents
    broken: Callable[[errors.GatewayError], Iterable[dict[str, Any]]]
    alive: Callable[[bytes], bytes]

    def events(self, chunks: Chunks) -> bytes:
        return b"".join(map(named_event, self.made.of(chunks)))

    def end(self) -> bytes:
        return b"".join(map(named_event, self.made.end()))

    def fault(self, error: errors.GatewayError) -> bytes:
        return b"".join(map(named_event, self.broken(error)))


Instead = Callable[[Scope, Send], Awaitable[None]]
"""Answers a request in place of a model."""


class ApiAdapter(Protocol):
    """An API's form of requests and answers."""

    def read(
        self, raw: bytes, headers: Mapping[str, str], caller: RequestCaller, arrival: RequestArrival
    ) -> ChatRequest | None:
        """Parses the body to a request in the inner form; returns None if it refers to stored data, which is to be
        looked up before it is read again. It may run in a thread.
        `headers`: see `told_headers`.
        Raises InvalidRequest: a field breaks a rule; `param` names it."""

    async def look_up(self, caller: RequestCaller) -> Instead | None:
        """Looks up the stored data that the body refers to. A function that it returns answers in place of a model.
        Raises GatewayError: the data is not there; or the body breaks a rule."""

    def holding(self, raw: bytes, request: ChatRequest) -> AbstractContextManager[object]:
        """Caches what the API caches of a body while its request is answered in the block."""

    def external_field_name(self, path: str) -> str:
        """Returns this API's name for a field of the inner form, for errors that name the field."""

    def whole(self, body: dict[str, Any], request: ChatRequest) -> bytes:
        """Encodes a completion of the inner form as this API's JSON."""

    def writer(self, request: ChatRequest) -> StreamWriter:
        """Returns the writer of the request's streamed answer."""


class CompletionHandler:
    """Reads and validates a request, hands it to the pipeline, and sends the answer."""

    def __init__(
        self,
        pipeline: LimitedPipeline,
        idempotency: IdempotencyGate,
        *,
        auth: KeyAuthenticator,
        settings: Settings,
        clock: ports.Clock,
        bodies: LargeBodies,
    ) -> None:
        server = settings.server
        self._large_bodies = bodies
        self._pipeline = pipeline
        self._idempotency = idempotency
        self._auth = auth
        self._max_body_bytes = server.max_body_bytes
        self._keepalive = server.keepalive
        self.clock = clock
        self._unattended = BackgroundTasks()

    async def answer(
        self, scope: Scope, receive: Receive, send: Send, adapter: ApiAdapter, caller: RequestCaller | None = None
    ) -> PausedRequest | None:
        """Sends the answer of a request; or returns the request if its client must first learn that its history was
        compacted.
        `caller`: who sends it, where that is known already.
        Raises GatewayError: see `core/errors`; it names its field as the adapter does. Nothing has been sent yet."""
        try:
            return await self._answer(scope, receive, send, adapter, caller)
        except errors.GatewayError as error:
            renamed(error, adapter.external_field_name)
            raise

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, adapter: ApiAdapter, caller: RequestCaller | None
    ) -> PausedRequest | None:
        at, started = self.clock.now(), self.clock.monotonic()
        caller = caller or await self._auth.caller(scope)
        key = keyed(scope)
        facts = scope["gateway"]
        note_caller(facts, caller)
        with self._large_bodies.place(caller.tenant) as slot:
            raw = await read_body(scope, receive, self._max_body_bytes, slot)
            client = scope.get(CLIENT)
            has_left = chat.never_leaves if client is None else client.has_left
            arrival = RequestArrival(facts["request_id"], at, started, len(raw), facts, has_left)
            request = await self._read(raw, scope, caller, arrival, adapter)
            if not isinstance(request, ChatRequest):
                await request(scope, send)
                return None
            identity = await identify(key, caller.tenant, raw, self._idempotency.secret) if key else None
            call = _ClientCall(request, adapter, scope, receive, send, slot)
            with adapter.holding(raw, request):
                del raw
                if request.options.dry_run:
                    return await self._dry_run(call)
                if request.stream:
                    return await self._answer_stream(identity, call)
                return await self._answered(identity, call)

    async def _answered(self, identity: turn.RequestIdentity | None, call: "_ClientCall") -> PausedRequest | None:
        return await (self._respond(call) if identity is None else self._respond_once(identity, call))

    async def _answer_stream(self, identity: turn.RequestIdentity | None, call: "_ClientCall") -> PausedRequest | None:
        """Answers with a stream that has keepalives, and is cut off when the caller's key is revoked or expires. A
        failure after the first keepalive is an event in it, as is the end of the server."""
        call.writer = writer = call.adapter.writer(call.request)
        kept = KeptAlive(call.send, self._keepalive, writer.alive)
        call.send = call.scope[SENDING] = kept
        signs = chat.SIGNS.set(kept.heard)
        try:
            with self._auth.watch.holding(call.scope, call.request.caller):
                return await self._answered(identity, call)
        except ClientDisconnected:
            raise
        except asyncio.CancelledError as error:
            if kept.is_under_way and errors.cancellation_code(error) == errors.ShuttingDown.code:
                await kept({"type": "http.response.body", "body": _faulty(call, writer, errors.ShuttingDown())})
            raise
        except Exception as error:
            if not kept.is_under_way:
                raise
            fault = as_gateway_error(error, call.request.request_id)
            await kept({"type": "http.response.body", "body": _faulty(call, writer, fault)})
            return None
        finally:
            chat.SIGNS.reset(signs)
            kept.close()

    async def _read(
        self, raw: bytes, scope: Scope, caller: RequestCaller, arrival: RequestArrival, adapter: ApiAdapter
    ) -> ChatRequest | Instead:
        def read() -> ChatRequest | None:
            return adapter.read(raw, told_headers(scope), caller, arrival)

        is_large = len(raw) >= LARGE_BODY
        while (request := await offload_if(is_large, read)) is None:
            if (instead := await adapter.look_up(caller)) is not None:
                return instead
        if request.keeps_content or request.conversation != UNNAMED:
            check_known(caller.tenant)
        scope["gateway"].update(model=request.model, stream=request.stream)
        if not request.store:
            scope["gateway"]["store"] = False
        if request.agent is not None:
            scope["gateway"]["agent"] = request.agent.agent_id
        return request

    async def _dry_run(self, call: "_ClientCall") -> PausedRequest | None:
        estimate = await until_disconnect(call.receive, self._pipeline.of(call.request.caller).dry_run(call.request))
        if isinstance(estimate, PausedRequest):
            return estimate
        bill = estimate["response_metadata"]
        headers = answer_headers(bill["conversation_id"], bill["cost"]["total_cost"])
        await send_json(call.send, 200, estimate, headers)
        return None

    async def _respond(self, call: "_ClientCall") -> PausedRequest | None:
        if call.request.stream:
            return await until_disconnect(call.receive, self._stream(call))
        completion = await until_disconnect(call.receive, self._pipeline.of(call.request.caller).answer(call.request))
        return await self._send_completion(completion, call)

    async def _respond_once(self, identity: turn.RequestIdentity, call: "_ClientCall") -> PausedRequest | None:
        """Runs the request, or sends the answer that was given before."""
        admitted = await until_disconnect(call.receive, self._idempotency.admit(identity, call.request))
        if isinstance(admitted, turn.StoredCompletion):
            call.scope["gateway"]["replayed"] = True
            call.scope["gateway"]["conversation_id"] = admitted.ledger.conversation_id
            await _replay(call, admitted)
            return None
        call.request = request = replace(call.request, claim=admitted.claim)
        if request.stream or not request.keeps_content:
            with admitted:
                return await self._respond(call)
        completion = await self._answer_detached(admitted, replace(request, has_left=chat.never_leaves), call.receive)
        return await self._send_completion(completion, call)

    async def _answer_detached(
        self, permit: RunPermit, request: ChatRequest, receive: Receive
    ) -> WholeCompletion | PausedRequest:
        """Returns the answer, which is finished and stored even if the client leaves: it is found again by its key, so
        that nothing is charged twice."""

        async def answered() -> WholeCompletion | PausedRequest:
            with permit:
                return await self._pipeline.of(request.caller).answer(request)

        task = self._unattended.start(answered())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits for it
        try:
            return await until_disconnect(receive, _of(task))
        except asyncio.CancelledError as error:  # the server ends this request; a client that leaves is no reason
            task.cancel(*error.args)
            raise

    async def close(self) -> None:
        """Ends at shutdown the requests that continue without their clients; their bills are stored."""
        self._auth.watch.close()
        await self._unattended.cancel(errors.ShuttingDown.code)

    async def _send_completion(
        self, completion: WholeCompletion | PausedRequest, call: "_ClientCall"
    ) -> PausedRequest | None:
        if isinstance(completion, PausedRequest):
            return completion
        headers = {**completion.headers, **answer_headers(completion.conversation_id, completion.cost)}
        call.scope["gateway"]["conversation_id"] = completion.conversation_id
        content = call.adapter.whole(completion.body, call.request)
        with self._large_bodies.occupied(len(content)):
            await send_json_bytes(call.send, 200, content, headers)
        return None

    async def _stream(self, call: "_ClientCall") -> PausedRequest | None:
        answer = await self._pipeline.of(call.request.caller).stream(call.request)
        if isinstance(answer, PausedRequest):
            return answer
        call.slot.release()
        try:
            await _send_stream(answer, call)
        finally:
            await answer.aclose()
        return None


def told_headers(scope: Scope) -> dict[str, str]:
    """Returns the headers that an adapter gets, by lower-case names: those that describe the request, but no key."""
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if name.startswith(ADAPTER_HEADER_PREFIXES) and name != b"x-api-key"
    }


@dataclass(eq=False, slots=True)
class _ClientCall:
    """A request in progress: where it came from and where its answer goes. `writer`: of a streamed answer."""

    request: ChatRequest
    adapter: ApiAdapter
    scope: Scope
    receive: Receive
    send: Send
    slot: BodySlot
    writer: StreamWriter = field(init=False)


async def _send_stream(answer: StreamedAnswer, call: _ClientCall) -> None:
    call.scope["gateway"]["conversation_id"] = answer.conversation_id
    headers = {**answer.headers, **EVENT_STREAM, **answer_headers(answer.conversation_id)}
    await send_start(call.send, 200, headers)
    writer = call.writer
    try:
        await answer.send_to(_EventStream(call.send, call.scope.get(CLIENT), writer))
        end = writer.end()
    except errors.GatewayError as error:
        end = _faulty(call, writer, error)
    await call.send({"type": "http.response.body", "body": end})


def _faulty(call: _ClientCall, writer: StreamWriter, error: errors.GatewayError) -> bytes:
    """Encodes the end of an answer whose status is sent already: an error event, not the end of a whole one (§7)."""
    note_fault(call.scope["gateway"], error)
    renamed(error, call.adapter.external_field_name)
    return writer.fault(error)


async def _replay(call: _ClientCall, stored: turn.StoredCompletion) -> None:
    """Sends the stored first answer in the form that the request asks for."""
    body, conversation_id, cost = stored_answer(stored)
    request, adapter = call.request, call.adapter
    if not request.stream:
        headers = {**REPLAYED, **answer_headers(conversation_id, cost)}
        await send_json_bytes(call.send, 200, adapter.whole(body, request), headers)
        return
    await send_start(call.send, 200, {**EVENT_STREAM, **REPLAYED, **answer_headers(conversation_id)})
    chunks = replayed_chunks(body, request.choices, include_usage=request.include_usage)
    await call.send({"type": "http.response.body", "body": call.writer.events(chunks) + call.writer.end()})


class _EventStream:
    """A streamed answer in progress (adapter of `StreamReceiver`)."""

    def __init__(self, send: Send, client: ClientConnection | None, writer: StreamWriter) -> None:
        self._send = send
        self._client = client
        self._sent = send.sent if isinstance(send, KeptAlive) else lambda: None
        self._events = writer.events
        self.writes_at_once = client is not None

    async def send(self, chunks: Chunks) -> None:
        if body := self._events(chunks):
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    def write(self, chunks: Chunks) -> bool:
        if not (body := self._events(chunks)):
            return True
        self._sent()
        return self._client is not None and self._client.write(body)


async def _of(task: "asyncio.Task[T]") -> T:
    return await asyncio.shield(task)
