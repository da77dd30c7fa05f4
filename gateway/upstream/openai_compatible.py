"""An OpenAI-compatible provider (adapter of `ports.Upstream`)."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx

from gateway import jsons
from gateway.errors import UpstreamError, UpstreamInterrupted, UpstreamInvalidResponse, UpstreamUnreachable
from gateway.models.exchange import Deployment, JsonAnswer
from gateway.upstream.client import address, request_head
from gateway.upstream.connection import END, Connection
from gateway.upstream.faults import refusal, relayed_headers, translated
from gateway.upstream.pool import ConnectionPool, Origin
from gateway.upstream.sse import EventParser

MAX_ANSWER_BYTES = 256 * 2**20
MAX_CHOICES = 128
DONE = b"[DONE]"
PLAIN = (b"", b"identity")
RELAYED_STARTS = (b"x-", b"op", b"re")
FIXED = {
    b"content-type": b"application/json",
    b"accept-encoding": b"identity",
    b"user-agent": b"context-gateway",
}


class HttpUpstream:
    """Calls providers; a connection that failed before any byte is tried once more, nothing else is."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def complete(self, deployment: Deployment, body: dict[str, Any], headers: dict[str, str]) -> JsonAnswer:
        """One whole answer (see `ports.Upstream`)."""
        connection = await self._open(deployment, body, headers)
        try:
            raw = await _read(connection, deployment)
        finally:
            connection.close()
        try:
            answer = jsons.loads_exact(raw)
        except jsons.JSONDecodeError as error:
            raise UpstreamInvalidResponse("The upstream's answer is not JSON.") from error
        if not isinstance(answer, dict) or not isinstance(answer.get("choices"), list):
            if isinstance(answer, dict) and answer.get("error"):
                raise refusal(502, raw, _named(connection), deployment)
            raise UpstreamInvalidResponse("The upstream's answer holds no choices.")
        _check_choices(answer["choices"], "message")
        return JsonAnswer(answer, relayed_headers(_named(connection)))

    @contextlib.asynccontextmanager
    async def stream(
        self, deployment: Deployment, body: dict[str, Any], headers: dict[str, str]
    ) -> AsyncIterator["HttpChunkStream"]:
        """An answer in chunks (see `ports.Upstream`)."""
        connection = await self._open(deployment, body, headers)
        stream = HttpChunkStream(connection, deployment)
        try:
            if b"text/event-stream" not in _header(connection, b"content-type"):
                raise _no_stream(await _read(connection, deployment), connection, deployment)
            if _header(connection, b"content-encoding") not in PLAIN:
                raise UpstreamInvalidResponse("The upstream compressed a stream although nobody asked for it.")
            yield stream
        finally:
            connection.close(linger=stream.done)

    async def _open(self, deployment: Deployment, body: dict[str, Any], headers: dict[str, str]) -> Connection:
        """A connection whose response has begun, with a status that promises an answer."""
        content = jsons.dumps(body)
        with translated(begun=False):
            origin, target, host = address(f"{deployment.api_base}/chat/completions")
            head = request_head(b"POST", target, _fields(deployment, headers, host, len(content)))
        try:
            connection = await self._answered(origin, head, content, deployment, fresh=False)
        except UpstreamUnreachable:
            connection = await self._answered(origin, head, content, deployment, fresh=True)
        if connection.status >= 300:
            try:
                raise await _refused(connection, deployment)
            finally:
                connection.close()
        return connection

    async def _answered(
        self, origin: Origin, head: bytes, content: bytes, deployment: Deployment, *, fresh: bool
    ) -> Connection:
        seconds = deployment.first_byte_timeout
        with translated(begun=False):
            connection = await self._pool.take(origin, deployment.connect_timeout, seconds, fresh=fresh)
            try:
                connection.begin(head, content)
                await connection.response(seconds)
            except BaseException as error:
                connection.close()
                if isinstance(error, httpx.NetworkError | httpx.ProtocolError) and connection.spoke:
                    raise UpstreamInterrupted("The upstream broke off its answer.") from error
                raise
            return connection


class HttpChunkStream:
    """Chunks of one streamed answer."""

    def __init__(self, connection: Connection, deployment: Deployment) -> None:
        self._connection = connection
        self._deployment = deployment
        self.done = False

    @property
    def headers(self) -> dict[str, str]:
        return relayed_headers(_named(self._connection))

    async def batches(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Chunks as they come together, until `[DONE]`, or until the connection is closed in good order.

        Raises:
            UpstreamInterrupted, UpstreamTimeout: it broke off, or fell silent.
            UpstreamInvalidResponse: an event is not a JSON object.
            UpstreamRefused: upstream sent an error event.
        """
        parser = EventParser()
        read = self._connection.read
        seconds = self._deployment.first_byte_timeout
        with translated(begun=True):
            while (piece := await read(seconds)) is not END:
                chunks: list[dict[str, Any]] = []
                try:
                    for data in parser.feed(piece):
                        if data.strip() == DONE:
                            self.done = True
                            break
                        chunks.append(self._chunk(data))
                except UpstreamError:
                    if chunks:
                        yield chunks  # what came before the fault was said all the same
                    raise
                if chunks:
                    seconds = self._deployment.idle_timeout
                    yield chunks
                if self.done:
                    return

    def _chunk(self, data: bytes) -> dict[str, Any]:
        try:
            chunk = jsons.loads_exact(data)
        except jsons.JSONDecodeError as error:
            raise UpstreamInvalidResponse("The upstream sent an event that is not JSON.") from error
        if not isinstance(chunk, dict):
            raise UpstreamInvalidResponse("The upstream sent an event that is no object.")
        choices = chunk.get("choices")
        if chunk.get("error") and not choices:
            raise refusal(502, data, {}, self._deployment)
        if choices:
            _check_choices(choices, "delta")
        return chunk


async def _read(connection: Connection, deployment: Deployment) -> bytes:
    pieces: list[bytes] = []
    size = 0
    with translated(begun=True):
        while (piece := await connection.read(deployment.first_byte_timeout)) is not END:
            pieces.append(piece)
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise UpstreamInvalidResponse("The upstream's answer exceeds 256 MB.")
    raw = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    encoding = _header(connection, b"content-encoding")
    return await asyncio.to_thread(_decoded, raw, encoding) if encoding not in PLAIN else raw


def _decoded(raw: bytes, encoding: bytes) -> bytes:
    """An answer that was compressed although nobody asked for it; small pieces, so that a bomb is noticed early."""
    pieces = (raw[at : at + 2**14] for at in range(0, len(raw), 2**14))
    response = httpx.Response(200, headers=[(b"content-encoding", encoding)], content=pieces)
    decoded: list[bytes] = []
    size = 0
    with translated(begun=True):
        for piece in response.iter_bytes():
            decoded.append(piece)
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise UpstreamInvalidResponse("The upstream's answer exceeds 256 MB.")
    return b"".join(decoded)


async def _refused(connection: Connection, deployment: Deployment) -> UpstreamError:
    if connection.status < 400:
        return UpstreamInvalidResponse(f"The upstream answered with status {connection.status}.")
    raw = await _read(connection, deployment)
    return refusal(connection.status, raw, _named(connection), deployment)


def _no_stream(raw: bytes, connection: Connection, deployment: Deployment) -> UpstreamError:
    with contextlib.suppress(jsons.JSONDecodeError):
        if "error" in jsons.loads(raw):
            return refusal(502, raw, _named(connection), deployment)
    return UpstreamInvalidResponse("The upstream answered a stream request with something else.")


def _fields(
    deployment: Deployment, headers: dict[str, str], host: bytes, length: int
) -> list[tuple[bytes, bytes]]:
    """The request's headers: the deployment's outrank the client's."""
    fields = {**FIXED}
    for source in (headers, deployment.headers) if deployment.headers else (headers,):
        for name, value in source.items():
            fields[name.lower().encode("latin-1", "replace")] = value.encode("latin-1", "replace")
    if deployment.api_key:
        fields[b"authorization"] = b"Bearer " + deployment.api_key.encode("latin-1", "replace")
    fields[b"host"] = host
    fields[b"content-length"] = b"%d" % length
    return list(fields.items())


def _header(connection: Connection, name: bytes) -> bytes:
    return next((value for key, value in connection.headers if key == name), b"").lower()


def _named(connection: Connection) -> dict[str, str]:
    """The headers among which those are that go back to the client; most answers have many others."""
    known = (pair for pair in connection.headers if pair[0][:2] in RELAYED_STARTS)
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in known}


def _check_choices(choices: Any, part: str) -> None:
    """What all later steps rely on; a missing index is the choice's position.

    Raises:
        UpstreamInvalidResponse: choices, their messages or tool calls are not what OpenAI's protocol says.
    """
    if not isinstance(choices, list):
        raise UpstreamInvalidResponse("The upstream's choices are no list.")
    for position, choice in enumerate(choices):
        message = choice.get(part) if isinstance(choice, dict) else False
        if message is not None:
            if not isinstance(message, dict):
                raise UpstreamInvalidResponse("The upstream's answer holds a choice that is none.")
            calls = message.get("tool_calls")
            if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
                raise UpstreamInvalidResponse("The upstream's answer holds tool calls that are none.")
        index = choice.get("index")
        if type(index) is not int or not 0 <= index < MAX_CHOICES:
            choice["index"] = position
