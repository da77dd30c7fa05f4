"""`POST /v1/chat/completions`."""

import asyncio
from dataclasses import replace

from gateway.base.tasks import BackgroundTasks, offload_if
from gateway.config.settings import Settings
from gateway.errors import GatewayError, StorageUnavailable
from gateway.http.auth import UNKNOWN, Authenticator
from gateway.http.chat.messages import chat_body
from gateway.http.chat.repeats import Keyed, identify, keyed, replay
from gateway.http.chat.validation import Arrival, parse_chat_request
from gateway.http.edge import (
    EVENT_STREAM,
    STREAM_END,
    Receive,
    Scope,
    Send,
    answer_headers,
    event,
    send_json,
    send_start,
)
from gateway.http.receive import LARGE_BODY, read_body, until_disconnect
from gateway.models.conversation import ConversationRef
from gateway.models.exchange import ChatRequest
from gateway.models.turn import StoredCompletion
from gateway.ports import Clock
from gateway.storage.store import ConversationStore
from gateway.turn.idempotency import IdempotencyGate, Permit
from gateway.turn.pipeline import Completion, Pipeline
from gateway.turn.streaming import StreamedAnswer


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
    ) -> None:
        self._pipeline = pipeline
        self._idempotency = idempotency
        self._store = store
        self._auth = auth
        self._settings = settings
        self._clock = clock
        self._unattended = BackgroundTasks()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        at, started = self._clock.now(), self._clock.monotonic()
        key = keyed(scope)
        caller = await self._auth.caller(scope)
        raw = await read_body(scope, receive, self._settings.server.max_body_bytes)
        log_facts = scope["gateway"]
        arrival = Arrival(log_facts["request_id"], at, started, len(raw))

        def parsed() -> ChatRequest:
            headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"] if k[:2] == b"x-"}
            body, plain = chat_body(raw, scope)
            return parse_chat_request(body, headers, caller, self._settings, arrival, plain)

        request = await offload_if(len(raw) >= LARGE_BODY, parsed)
        if caller.tenant == UNKNOWN and (request.keeps_content or request.conversation != ConversationRef()):
            raise StorageUnavailable("The storage cannot be reached.")
        log_facts["model"] = request.model
        log_facts["stream"] = request.stream
        log_facts["tenant"] = caller.tenant
        if request.options.dry_run:
            estimate = await until_disconnect(receive, self._pipeline.dry_run(request))
            bill = estimate["response_metadata"]
            headers = answer_headers(bill["conversation_id"], bill["cost"]["total_cost"])
            await send_json(send, 200, estimate, headers)
            return
        if key is None:
            await self._respond(request, scope, receive, send)
        else:
            await self._respond_once(key, raw, request, scope, receive, send)

    async def _respond(self, request: ChatRequest, scope: Scope, receive: Receive, send: Send) -> None:
        if request.stream:
            await until_disconnect(receive, self._stream(request, scope, send))
            return
        await _send_completion(await until_disconnect(receive, self._pipeline.answer(request)), scope, send)

    async def _respond_once(
        self, key: Keyed, raw: bytes, request: ChatRequest, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Runs the request, or sends the answer that it was given before."""
        identity = await identify(key, request.caller.tenant, raw, self._store)
        admitted = await until_disconnect(receive, self._idempotency.admit(identity, request))
        if isinstance(admitted, StoredCompletion):
            scope["gateway"]["replayed"] = True
            scope["gateway"]["conversation_id"] = admitted.ledger.conversation_id
            await replay(send, request, admitted)
            return
        request = replace(request, claim=admitted.claim)
        if request.stream or not request.keeps_content:
            with admitted:
                await self._respond(request, scope, receive, send)
            return
        completion = await self._answer_in_any_case(admitted, request, receive)
        await _send_completion(completion, scope, send)

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

    async def _stream(self, request: ChatRequest, scope: Scope, send: Send) -> None:
        answer = await self._pipeline.stream(request)
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
            async for batch in answer.batches:
                body = b"".join([event(chunk) for chunk in batch])
                await send({"type": "http.response.body", "body": body, "more_body": True})
        except GatewayError as error:
            # The answer has begun, so its status cannot change: an error event, and no [DONE] (guarantee §7).
            scope["gateway"]["error_code"] = error.code
            end = event(error.body())
        await send({"type": "http.response.body", "body": end})


async def _of(task: "asyncio.Task[Completion]") -> Completion:
    return await asyncio.shield(task)


async def _send_completion(completion: Completion, scope: Scope, send: Send) -> None:
    headers = {**completion.headers, **answer_headers(completion.conversation_id, completion.cost)}
    scope["gateway"]["conversation_id"] = completion.conversation_id
    await send_json(send, 200, completion.body, headers)
