"""Every other path under `/v1/`: passed on to the upstream, streaming both ways (guarantee §1)."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

from gateway.base import jsons
from gateway.config.settings import Settings
from gateway.errors import (
    GatewayError,
    MethodNotAllowed,
    ModelNotFound,
    NotFound,
    NotRelayed,
    RequestTimeout,
    RequestTooLarge,
    UpstreamError,
)
from gateway.http.auth import Authenticator
from gateway.http.edge import ClientDisconnected, Message, Receive, Scope, Send
from gateway.http.receive import header, until_disconnect
from gateway.http.relay.rules import OWN, PREFIX, QUERY, headers_down, headers_up, is_plain_path, named_calls
from gateway.models.exchange import Caller, Deployment, RelayedCall
from gateway.upstream.openai.passthrough import Passthrough, RawAnswer
from gateway.upstream.routing.router import ConfiguredRouter

WITHOUT_BODY = (204, 304)
"""Statuses whose answers have no body."""


class Upload:
    """A request body that is passed on while it arrives. `fault` keeps what ended it early, which would otherwise be
    raised inside the HTTP client.

    Raises:
        RequestTooLarge: by its declared length, before it is read.
    """

    def __init__(self, scope: Scope, receive: Receive, max_bytes: int, seconds: float) -> None:
        self.fault: GatewayError | ClientDisconnected | None = None
        self.length = header(scope, b"content-length")
        self.present = self.length not in (None, "0") or header(scope, b"transfer-encoding") is not None
        self._receive = receive
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._ended = asyncio.Event()
        if not self.present:
            self._ended.set()
        if self.length is not None and self.length.isdigit() and int(self.length) > max_bytes:
            raise self._too_large()

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """The pieces of the body; can be read once.

        Raises:
            RequestTooLarge: as soon as the body is too long.
            RequestTimeout: the client took longer than `server.receive_timeout`, not counting what upstream takes.
            ClientDisconnected: the client left before it was complete.
        """
        try:
            async for piece in self._pieces():
                yield piece
        except (GatewayError, ClientDisconnected) as fault:
            self.fault = fault
            raise
        finally:
            self._ended.set()

    async def read(self) -> bytes:
        """The whole body; raises as reading in pieces does."""
        return b"".join([piece async for piece in self])

    async def after(self) -> Message:
        """The next message once the body has been read: `http.disconnect`, sooner or later."""
        await self._ended.wait()
        return await self._receive()

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        size, waited, more = 0, 0.0, True
        while more:
            since = time.monotonic()
            try:
                async with asyncio.timeout(self._seconds - waited):
                    message = await self._receive()
            except TimeoutError:
                raise RequestTimeout(f"The request did not arrive within {self._seconds:g} seconds.") from None
            waited += time.monotonic() - since
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            piece = message.get("body", b"")
            size += len(piece)
            if size > self._max_bytes:
                raise self._too_large()
            more = message.get("more_body", False)
            if piece:
                yield piece

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(f"The request body exceeds {self._max_bytes} bytes.")


class Relay:
    """Decides where a call goes and with whose key, then lets both bodies flow."""

    def __init__(
        self, router: ConfiguredRouter, upstream: Passthrough, auth: Authenticator, settings: Settings
    ) -> None:
        self._router = router
        self._upstream = upstream
        self._auth = auth
        self._server = settings.server
        self._named = named_calls(settings.server.relay)
        self._has_entries = bool(settings.model_list)
        self._has_keys = bool(settings.auth.keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["raw_path"].decode("latin-1")
        if not path.startswith(PREFIX) or scope["path"].startswith(OWN):
            raise NotFound("There is nothing at this path.")
        caller = await self._auth.caller(scope)
        scope["gateway"]["tenant"] = caller.tenant
        target = _target(scope, path)
        upload = Upload(scope, receive, self._server.max_body_bytes, self._server.receive_timeout)
        named = any(pattern.fits(scope["method"], path) for pattern in self._named)
        if not named:
            self._default(caller, named=False)  # says no before a body is read
        work = self._relay(scope, send, caller, target, upload, named)
        await until_disconnect(upload.after, work)

    async def _relay(self, scope: Scope, send: Send, caller: Caller, target: str, upload: Upload, named: bool) -> None:
        deployment, body = await self._destination(scope, caller, upload, named)
        headers = headers_up(scope["headers"], operator=deployment.operator_key or self._has_keys)
        if upload.length is not None and not isinstance(body, bytes):
            headers.append((b"content-length", upload.length.encode()))
        call = RelayedCall(scope["method"], target, headers, body)
        try:
            async with self._upstream.open(deployment, call) as answer:
                await self._pass_down(scope, send, answer)
        except UpstreamError:
            if upload.fault is not None:
                raise upload.fault from None
            raise

    async def _destination(
        self, scope: Scope, caller: Caller, upload: Upload, named: bool
    ) -> tuple[Deployment, bytes | Upload | None]:
        """The upstream, and the body for it: a model of `model_list` is served where its entry says."""
        if not upload.present:
            return self._default(caller, named=named), None
        if not (named and self._has_entries and scope["method"] == "POST" and _is_json(scope)):
            return self._default(caller, named=named), upload
        raw = await upload.read()
        body = _json_object(raw)
        model = body.get("model")
        if not isinstance(model, str) or not self._router.lists(model):
            return self._default(caller, named=named), raw
        deployment = self._router.deployment(model, caller)
        scope["gateway"]["model"] = model
        if deployment.protocol != "openai":
            raise NotRelayed(f"The provider of {model!r} does not speak OpenAI's protocol; it serves chats alone.")
        return deployment, jsons.dumps({**deployment.parameters, **body, "model": deployment.provider_model})

    def _default(self, caller: Caller, *, named: bool) -> Deployment:
        try:
            deployment = self._router.default("", caller)
        except ModelNotFound:
            raise NotRelayed("This path is not relayed: the default upstream has no key.") from None
        if deployment.operator_key and not named:
            raise NotRelayed("This path is not relayed with the gateway's own key; server.relay could name it.")
        return deployment

    async def _pass_down(self, scope: Scope, send: Send, answer: RawAnswer) -> None:
        headers = headers_down(answer.headers)
        if answer.status in WITHOUT_BODY:
            headers = [pair for pair in headers if pair[0] != b"content-length"]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        try:
            async for piece in answer.pieces():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except UpstreamError as error:
            # The answer has begun. Without its end the server breaks the connection, so it cannot pass for a whole one.
            scope["gateway"]["error_code"] = error.code
            return
        await send({"type": "http.response.body", "body": b""})


def _target(scope: Scope, path: str) -> str:
    """Path and query below the upstream's base, as they came.

    Raises:
        MethodNotAllowed: for CONNECT and TRACE.
        NotRelayed: the upstream could read the path as another one, or the request asks for a WebSocket.
    """
    query = scope["query_string"].decode("latin-1")
    if scope["method"] in ("CONNECT", "TRACE"):
        raise MethodNotAllowed("This method is not allowed here.")
    if (header(scope, b"upgrade") or "").lower() == "websocket":
        raise NotRelayed("WebSocket connections are not relayed.")
    if not is_plain_path(path) or not QUERY.fullmatch(query):
        raise NotRelayed("This path is not relayed as it is written.")
    return path.removeprefix(PREFIX) + (f"?{query}" if query else "")


def _is_json(scope: Scope) -> bool:
    kind = (header(scope, b"content-type") or "application/json").partition(";")[0].strip().lower()
    return kind == "application/json" and header(scope, b"content-encoding") in (None, "identity")


def _json_object(raw: bytes) -> dict[str, Any]:
    """The body, or an empty object: what is no JSON object is for the upstream to refuse."""
    try:
        body = jsons.loads_exact(raw)
    except jsons.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}
