"""A provider's other endpoints, passed on byte by byte (guarantee §1)."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator

import httpx

from gateway.core.errors import UpstreamInterrupted, UpstreamInvalidResponse, UpstreamUnreachable
from gateway.core.types.chat import Headers, ModelDeployment
from gateway.core.types.upstream import RelayedCall
from gateway.upstream.http.client import LENGTH, Answering, address, request_head
from gateway.upstream.http.connection import END, UpstreamConnection
from gateway.upstream.http.connection_faults import translated
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.openai.provider_faults import MAX_ERROR_BYTES, check_refusal, without_insane_waits

CHUNKED = (b"transfer-encoding", b"chunked")
BODILESS = ("GET", "HEAD", "OPTIONS", "DELETE")
Sending = asyncio.Task[None] | None


class PassthroughClient:
    """Opens relayed calls; a connection that failed before any byte is tried once more, nothing else is."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    @contextlib.asynccontextmanager
    async def open(self, deployment: ModelDeployment, call: RelayedCall) -> AsyncIterator["RawAnswer"]:
        """The answer once it has begun; leaving the context closes the connection.

        Raises:
            UpstreamError: as drawn in `errors`; error answers in OpenAI's shape are answers.
        """
        answer = await self._send(deployment, call)
        try:
            if not 200 <= answer.status < 600:
                raise UpstreamInvalidResponse(f"The upstream answered with status {answer.status}.")
            if answer.status >= 400:
                await answer.check(call.method)
            yield answer
        finally:
            await answer.aclose()

    async def _send(self, deployment: ModelDeployment, call: RelayedCall) -> "RawAnswer":
        streamed = call.body is not None and not isinstance(call.body, bytes)
        try:
            # What is sent but once is not entrusted to a connection that upstream may be closing just now.
            return await self._answered(deployment, call, fresh=streamed)
        except UpstreamUnreachable as error:
            if streamed and not isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
                raise
        return await self._answered(deployment, call, fresh=True)

    async def _answered(self, deployment: ModelDeployment, call: RelayedCall, *, fresh: bool) -> "RawAnswer":
        seconds = deployment.first_byte_timeout
        origin, base, host = address(f"{deployment.api_base}/")
        with translated(begun=False, origin=origin):
            fields = _fields(deployment, call, host)
            head = request_head(call.method.encode(), base + call.target.encode(), fields)
            connection = await self._pool.take(origin, deployment.connect_timeout, seconds, fresh=fresh)
            sending: Sending = None
            with Answering(connection):
                whole = call.body if isinstance(call.body, bytes) else b""
                connection.begin(head, whole, bodiless=call.method == "HEAD")
                if call.body is not None and not isinstance(call.body, bytes):
                    sending = await _uploaded(connection, call.body, deployment, chunked=CHUNKED in fields)
                await connection.response(seconds)
            return RawAnswer(connection, deployment, sending)


class RawAnswer:
    """One answer; an error is read before it is passed on."""

    def __init__(self, connection: UpstreamConnection, deployment: ModelDeployment, sending: Sending) -> None:
        self._connection = connection
        self._deployment = deployment
        self._sending = sending
        self._held: bytes | None = None
        self.status = connection.status
        self.headers: Headers = without_insane_waits(connection.headers)

    async def check(self, method: str) -> None:
        """
        Raises:
            UpstreamError: what the client gets instead of the error that upstream sent.
        """
        raw, size = [], 0
        async for piece in self.pieces():
            raw.append(piece)
            size += len(piece)
            if size > MAX_ERROR_BYTES:
                break
        self._held = b"".join(raw)
        named = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.headers}
        check_refusal(method, self.status, self._held, named, self._deployment)
        if method != "HEAD":
            kept = [pair for pair in self.headers if pair[0] != LENGTH]
            self.headers = [*kept, (LENGTH, b"%d" % size)]

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives.

        Raises:
            UpstreamInterrupted, UpstreamTimeout: it broke off, or fell silent.
        """
        if self._held is not None:
            yield self._held
            return
        seconds = self._deployment.first_byte_timeout  # headers alone are no sign that the answer has begun
        while True:
            with translated(begun=True, origin=self._connection.origin):
                piece = await self._connection.read(seconds)
            if piece is END:
                break
            yield piece
            seconds = self._deployment.idle_timeout
        if self._sending is not None and self._sending.done() and self._sending.exception() is not None:
            raise UpstreamInterrupted("The request broke off before its answer was complete.")

    async def aclose(self) -> None:
        """Ends the call, wherever it is."""
        if self._sending is not None:
            await _cancel(self._sending)
        self._connection.close()


async def _uploaded(
    connection: UpstreamConnection, body: AsyncIterable[bytes], deployment: ModelDeployment, *, chunked: bool
) -> Sending:
    """Sends a body in pieces, to its end or until upstream answers; None, or what is still being sent then."""
    sending = asyncio.ensure_future(connection.upload(body, chunked=chunked, seconds=deployment.idle_timeout))
    answering = asyncio.ensure_future(connection.response(None))
    try:
        await asyncio.wait({sending, answering}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
            return None
        if answering.exception() is None and connection.status < 400:
            sending.add_done_callback(lambda task: connection.abort() if _failed(task) else None)
            return sending
        await _cancel(sending)
        return None
    except BaseException:
        await _cancel(sending)
        raise
    finally:
        await _cancel(answering)


def _failed(task: asyncio.Task[None]) -> bool:
    return not task.cancelled() and task.exception() is not None


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _fields(deployment: ModelDeployment, call: RelayedCall, host: bytes) -> Headers:
    """The request's headers: the deployment's outrank the client's."""
    own = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in deployment.headers.items()]
    own += [(name.encode(), value.encode("latin-1", "replace")) for name, value in deployment.authorization.items()]
    names = {name for name, _ in own}
    fields = [(b"host", host), *(pair for pair in call.headers if pair[0] not in names), *own]
    if isinstance(call.body, bytes):
        return [*fields, (LENGTH, b"%d" % len(call.body))]
    if any(name == LENGTH for name, _ in fields):
        return fields
    if call.body is not None:
        return [*fields, CHUNKED]
    return fields if call.method in BODILESS else [*fields, (LENGTH, b"0")]
