"""`POST /v1/chat/completions`."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from gateway.base import jsons
from gateway.base.tasks import BackgroundTasks, offload_if
from gateway.config.settings import Settings
from gateway.errors import GatewayError, StorageUnavailable
from gateway.http.admission import LargeBodies, Place
from gateway.http.auth import UNKNOWN, Authenticator
from gateway.http.chat.repeats import identify, keyed, replay
from gateway.http.chat.resends import Resends, read_chat_request
from gateway.http.chat.validation import Arrival
from gateway.http.edge import (
    CLIENT,
    EVENT_STREAM,
    STREAM_END,
    Client,
    Receive,
    Scope,
    Send,
    answer_headers,
    event,
    note_fault,
    send_json,
    send_json_bytes,
    send_start,
)
from gateway.http.receive import LARGE_BODY, read_body, until_disconnect
from gateway.models.conversation import ConversationRef
from gateway.models.exchange import Caller, ChatRequest, stays
from gateway.models.turn import RequestIdentity, StoredCompletion
from gateway.ports import Clock
from gateway.storage.store import ConversationStore
from gateway.turn.idempotency import IdempotencyGate, Permit
from gateway.turn.pipeline import Completion, Pipeline
from gateway.turn.streaming import Chunks, StreamedAnswer


class ChatCompletions:
    """Reads and validates, hands over to the pipeline, and sends what comes back."""

    def __init__(
        self,
        pipeline: Pipeline,
        idempotency: IdempotencyGate,
        store: ConversationStore,
        auth: Authenticator,
        settings: Settings,
        clock: Clock,
        resends: Resends,
    ) -> None:
        server = settings.server
        self._large_bodies = LargeBodies(server.max_bytes_in_flight, server.receive_timeout)
        self._pipeline = pipeline
        self._idempotency = idempotency
        self._store = store
        self._auth = auth
        self._settings = settings
        self._clock = clock
        self._resends = resends
        self._unattended = BackgroundTasks()

    async def __call__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        translated: Callable[[bytes], bytes] | None = None,
        caller: Caller | None = None,
    ) -> None:
        """`translated` makes a chat of the body of another API's request; it may raise `InvalidRequest`. `caller` is
        who asks, where that is known already."""
        at, started = self._clock.now(), self._clock.monotonic()
        key = keyed(scope)
        caller = caller or await self._auth.caller(scope)
        with self._large_bodies.place() as place:
            raw = await read_body(scope, receive, self._settings.server.max_body_bytes, place)
            if translated is not None:
                raw = await offload_if(len(raw) >= LARGE_BODY, translated, raw)
            facts, client = scope["gateway"], scope.get(CLIENT)
            has_left = stays if client is None else client.has_left
            arrival = Arrival(facts["request_id"], at, started, len(raw), facts, has_left)
            request = await self._parsed(raw, scope, caller, arrival)
            identity = await identify(key, caller.tenant, raw, self._store) if key else None
            with self._resends.holding(raw, request):
                del raw
                if request.options.dry_run:
                    await self._dry_run(request, receive, send)
                elif identity is None:
                    await self._respond(request, scope, receive, send, place)
                else:
                    await self._respond_once(identity, request, scope, receive, send, place)

    async def _parsed(self, raw: bytes, scope: Scope, caller: Caller, arrival: Arrival) -> ChatRequest:
        def parsed() -> ChatRequest:
            headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"] if k[:2] == b"x-"}
            return read_chat_request(self._resends, raw, headers, caller, self._settings, arrival)

        request = await offload_if(len(raw) >= LARGE_BODY, parsed)
        if caller.tenant == UNKNOWN and (request.keeps_content or request.conversation != ConversationRef()):
            raise StorageUnavailable("The storage cannot be reached.")
        scope["gateway"].update(model=request.model, stream=request.stream, tenant=caller.tenant)
        if request.agent is not None:
            scope["gateway"]["agent"] = request.agent.agent_id
        return request

    async def _dry_run(self, request: ChatRequest, receive: Receive, send: Send) -> None:
        estimate = await until_disconnect(receive, self._pipeline.dry_run(request))
        bill = estimate["response_metadata"]
        headers = answer_headers(bill["conversation_id"], bill["cost"]["total_cost"])
        await send_json(send, 200, estimate, headers)

    async def _respond(self, request: ChatRequest, scope: Scope, receive: Receive, send: Send, place: Place) -> None:
        if request.stream:
            await until_disconnect(receive, self._stream(request, scope, send, place))
            return
        completion = await until_disconnect(receive, self._pipeline.answer(request))
        await self._send_completion(completion, scope, send)

    async def _respond_once(
        self, identity: RequestIdentity, request: ChatRequest, scope: Scope, receive: Receive, send: Send, place: Place
    ) -> None:
        """Runs the request, or sends the answer that it was given before."""
        admitted = await until_disconnect(receive, self._idempotency.admit(identity, request))
        if isinstance(admitted, StoredCompletion):
            scope["gateway"]["replayed"] = True
            scope["gateway"]["conversation_id"] = admitted.ledger.conversation_id
            await replay(send, request, admitted)
            return
        request = replace(request, claim=admitted.claim)
        if request.stream or not request.keeps_content:
            with admitted:
                await self._respond(request, scope, receive, send, place)
            return
        completion = await self._answer_in_any_case(admitted, replace(request, has_left=stays), receive)
        await self._send_completion(completion, scope, send)

    async def _answer_in_any_case(self, permit: Permit, request: ChatRequest, receive: Receive) -> Completion:
        """The answer, which is finished and stored also if the client leaves: by its key it is found again, so that
        nothing is charged twice."""

        async def answered() -> Completion:
            with permit:
                return await self._pipeline.answer(request)

        task = self._unattended.start(answered())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits for it
        try:
            return await until_disconnect(receive, _of(task))
        except asyncio.CancelledError:  # the server ends this request; a client that leaves is no reason
            task.cancel()
            raise

    async def close(self) -> None:
        """Ends what goes on without its client, at shutdown; its bill is kept."""
        await self._unattended.cancel()

    async def _send_completion(self, completion: Completion, scope: Scope, send: Send) -> None:
        headers = {**completion.headers, **answer_headers(completion.conversation_id, completion.cost)}
        scope["gateway"]["conversation_id"] = completion.conversation_id
        content = jsons.dumps(completion.body)
        with self._large_bodies.occupied(len(content)):
            await send_json_bytes(send, 200, content, headers)

    async def _stream(self, request: ChatRequest, scope: Scope, send: Send, place: Place) -> None:
        answer = await self._pipeline.stream(request)
        place.release()
        try:
            await self._send_stream(answer, scope, send)
        finally:
            await answer.aclose()

    async def _send_stream(self, answer: StreamedAnswer, scope: Scope, send: Send) -> None:
        scope["gateway"]["conversation_id"] = answer.conversation_id
        headers = {**answer.headers, **EVENT_STREAM, **answer_headers(answer.conversation_id)}
        await send_start(send, 200, headers)
        end = STREAM_END
        try:
            await answer.send_to(_EventStream(send, scope.get(CLIENT)))
        except GatewayError as error:
            # The answer has begun, so its status cannot change: an error event, and no [DONE] (guarantee §7).
            note_fault(scope["gateway"], error)
            end = event(error.body())
        await send({"type": "http.response.body", "body": end})


class _EventStream:
    """A streamed answer on its way (adapter of `turn.streaming.Receiver`)."""

    def __init__(self, send: Send, client: Client | None) -> None:
        self._send = send
        self._client = client
        self.writes_at_once = client is not None

    async def send(self, chunks: Chunks) -> None:
        await self._send({"type": "http.response.body", "body": _events(chunks), "more_body": True})

    def write(self, chunks: Chunks) -> bool:
        return self._client is not None and self._client.write(_events(chunks))


def _events(chunks: Chunks) -> bytes:
    return b"".join([event(chunk) for chunk in chunks])


async def _of(task: "asyncio.Task[Completion]") -> Completion:
    return await asyncio.shield(task)
