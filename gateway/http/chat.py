"""`POST /v1/chat/completions`."""

import asyncio
from datetime import datetime
from functools import partial

from gateway import jsons
from gateway.errors import GatewayError, StorageUnavailable
from gateway.http.auth import UNKNOWN, Authenticator
from gateway.http.edge import Receive, Scope, Send, named, send_json
from gateway.http.receive import chat_body, read_body, until_disconnect
from gateway.http.wire import parse_chat_request
from gateway.models.conversation import ConversationRef
from gateway.models.exchange import Caller, ChatRequest
from gateway.pipeline import Pipeline, StreamedAnswer
from gateway.ports import Clock
from gateway.settings import Settings

LARGE_BODY = 2**20


class ChatCompletions:
    """Reads and validates, hands over to the pipeline, and sends what comes back."""

    def __init__(self, pipeline: Pipeline, auth: Authenticator, settings: Settings, clock: Clock) -> None:
        self._pipeline = pipeline
        self._auth = auth
        self._settings = settings
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        arrived = (self._clock.now(), self._clock.monotonic())
        caller = await self._auth.caller(scope)
        raw = await read_body(scope, receive, self._settings.server.max_body_bytes)
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"] if k[:2] == b"x-"}
        facts = scope["gateway"]
        read = partial(self._read, raw, scope, headers, caller, arrived)
        # Looking at very many small parts takes a while; streams of other requests must not wait for it.
        request = read() if len(raw) < LARGE_BODY else await asyncio.to_thread(read)
        keeps = request.store and request.options.mode != "off"
        if caller.tenant == UNKNOWN and (keeps or request.conversation != ConversationRef()):
            raise StorageUnavailable("The storage cannot be reached.")
        facts["model"] = request.model
        facts["stream"] = request.stream
        facts["tenant"] = caller.tenant
        if request.options.dry_run:
            await send_json(send, 200, await until_disconnect(receive, self._pipeline.dry_run(request)))
        elif request.stream:
            await until_disconnect(receive, self._stream(request, scope, send))
        else:
            await self._answer(request, scope, receive, send)

    def _read(
        self, raw: bytes, scope: Scope, headers: dict[str, str], caller: Caller, arrived: tuple[datetime, float]
    ) -> ChatRequest:
        body, plain = chat_body(raw, scope)
        request_id = scope["gateway"]["request_id"]
        return parse_chat_request(body, headers, caller, self._settings, request_id, arrived, len(raw), plain)

    async def _answer(self, request: ChatRequest, scope: Scope, receive: Receive, send: Send) -> None:
        completion = await until_disconnect(receive, self._pipeline.answer(request))
        headers = {**completion.headers, **named(completion.conversation_id)}
        if completion.cost is not None:
            headers["x-gateway-response-cost"] = f"{completion.cost:f}"
        scope["gateway"]["conversation_id"] = completion.conversation_id
        await send_json(send, 200, completion.body, headers)

    async def _stream(self, request: ChatRequest, scope: Scope, send: Send) -> None:
        answer = await self._pipeline.stream(request)
        try:
            await self._send_stream(answer, scope, send)
        finally:
            await answer.aclose()

    async def _send_stream(self, answer: StreamedAnswer, scope: Scope, send: Send) -> None:
        scope["gateway"]["conversation_id"] = answer.conversation_id
        fields = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        headers = {**answer.headers, **fields, **named(answer.conversation_id)}
        encoded = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": encoded})
        end = b"data: [DONE]\n\n"
        try:
            async for batch in answer.batches:
                body = b"".join([_event(chunk) for chunk in batch])
                await send({"type": "http.response.body", "body": body, "more_body": True})
        except GatewayError as error:
            # The answer has begun, so its status cannot change: an error event, and no [DONE] (contract §7).
            scope["gateway"]["error_code"] = error.code
            end = _event(error.body())
        await send({"type": "http.response.body", "body": end})


def _event(data: object) -> bytes:
    return b"data: " + jsons.dumps(data) + b"\n\n"
