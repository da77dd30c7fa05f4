"""The HTTP client: httpx's API over the gateway's own connections."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import lru_cache

import httpx

from gateway.errors import UpstreamInterrupted, UpstreamInvalidResponse
from gateway.models.exchange import Deployment
from gateway.upstream.http.connection import END, Connection, NotHttp
from gateway.upstream.http.pool import ConnectionPool, Origin
from gateway.upstream.openai.faults import translated

# Streams that were compressed although nobody asked for it, as a web server before a local model does.


MOST_AT_ONCE = 2**18
"""Bytes given out at a time, however little they were made of: whoever reads decides whether to go on."""
ANY_HEADER, NO_HEADER = 47, -15
DEFLATED = (b"gzip", b"x-gzip", b"deflate")
PLAIN = (b"", b"identity")


def inflated(connection: Connection, encoding: bytes) -> "Connection | Inflated":
    """The connection's body as it was before it was encoded.

    Raises:
        UpstreamInvalidResponse: it is encoded in a way that nobody asked for and that is not known here.
    """
    if encoding in PLAIN:
        return connection
    if encoding not in DEFLATED:
        raise UpstreamInvalidResponse("The upstream compressed a stream although nobody asked for it.")
    return Inflated(connection)


class Inflated:
    """Reads what a connection brings, decompressed as it comes: gzip in any number of members, or deflate with or
    without zlib's header."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._inflate = zlib.decompressobj(ANY_HEADER)
        self._waiting = b""
        self._begun = False
        self._more = False

    async def read(self, seconds: float | None) -> bytes:
        """As `Connection.read`.

        Raises:
            UpstreamInvalidResponse: it is not compressed as it says.
        """
        while True:
            if not (self._waiting or self._more):
                self._waiting = await self._connection.read(seconds)
                if not self._waiting:
                    return END
            if piece := self._next():
                return piece

    def _next(self) -> bytes:
        if self._inflate.eof:
            self._inflate = zlib.decompressobj(ANY_HEADER)
        try:
            piece = self._inflate.decompress(self._waiting, MOST_AT_ONCE)
        except zlib.error:
            if self._begun:
                raise UpstreamInvalidResponse("The upstream's answer is not compressed as it says.") from None
            self._inflate, self._begun = zlib.decompressobj(NO_HEADER), True
            return self._next()
        self._begun = True
        self._more = len(piece) == MOST_AT_ONCE  # zlib may hold back a part of what it has taken in
        self._waiting = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        return piece


PORTS = {"http": 80, "https": 443}
NOT_SENT = (b"connection", b"transfer-encoding", b"keep-alive", b"upgrade", b"te", b"trailer")


class PooledTransport(httpx.AsyncBaseTransport):
    """httpx over a `ConnectionPool` (see docs/adr/0004)."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See httpx. Timeouts are those of the request's extensions, as httpx means them."""
        timeouts = request.extensions.get("timeout", {})
        origin = origin_of(request.url)
        connection = await self._pool.take(origin, timeouts.get("connect"), timeouts.get("pool"))
        try:
            await _exchange(connection, request, timeouts)
        except BaseException:
            connection.close()
            raise
        body = PooledBody(connection, timeouts.get("read"))
        return httpx.Response(connection.status, headers=connection.headers, stream=body)

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._pool.aclose()


class PooledBody(httpx.AsyncByteStream):
    """The body of a response as it comes; leaving it early closes its connection."""

    def __init__(self, connection: Connection, seconds: float | None) -> None:
        self._connection = connection
        self._seconds = seconds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._connection.read(self._seconds)) is not END:
            yield piece

    async def aclose(self) -> None:
        """See httpx."""
        self._connection.close()


async def _exchange(connection: Connection, request: httpx.Request, timeouts: dict[str, float | None]) -> None:
    """Sends the request; returns once the head of the response is there."""
    headers = [(name.lower(), value) for name, value in request.headers.raw]
    chunked = any(name == b"transfer-encoding" for name, _ in headers)
    kept = [(name, value) for name, value in headers if name not in NOT_SENT]
    if chunked:
        kept.append((b"transfer-encoding", b"chunked"))
    head = request_head(request.method.encode(), request.url.raw_path, kept)
    bodiless = request.method == "HEAD"
    seconds = timeouts.get("read")
    if isinstance(request.stream, httpx.ByteStream):
        connection.begin(head, b"".join(request.stream), bodiless=bodiless)
        await connection.response(seconds)
        return
    if not isinstance(request.stream, httpx.AsyncByteStream):
        raise TypeError("an async client sends an async body")
    connection.begin(head, bodiless=bodiless)
    sending = connection.upload(request.stream, chunked=chunked, seconds=timeouts.get("write"))
    uploading, answering = asyncio.ensure_future(sending), asyncio.ensure_future(connection.response(None))
    try:
        await asyncio.wait({uploading, answering}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            uploading.result()
    finally:
        for task in (uploading, answering):
            task.cancel()
        await asyncio.gather(uploading, answering, return_exceptions=True)
    await connection.response(seconds)


@contextmanager
def answering(connection: Connection) -> Iterator[None]:
    """While the head of a response is waited for: whatever goes wrong closes the connection.

    Raises:
        UpstreamInterrupted: it broke after a part of the answer had come; else the fault itself.
    """
    try:
        yield
    except BaseException as error:
        connection.close()
        broken = isinstance(error, httpx.NetworkError | httpx.ProtocolError) and not isinstance(error, NotHttp)
        if connection.spoke and broken:
            raise UpstreamInterrupted("The upstream broke off its answer.") from error
        raise


def request_head(method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The bytes before a request's body.

    Raises:
        httpx.LocalProtocolError: a header would break out of its line.
    """
    lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers) or b"\0" in lines or b" " in target:
        raise httpx.LocalProtocolError("A header of the request holds what no header may.")
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, target, lines)


def origin_of(url: httpx.URL) -> Origin:
    """Where a URL's connections lead.

    Raises:
        httpx.UnsupportedProtocol: it is neither http nor https, or names no host.
    """
    if url.scheme not in PORTS or not url.host:
        raise httpx.UnsupportedProtocol("The address is neither http:// nor https:// with a host.")
    return Origin(url.host, url.port or PORTS[url.scheme], url.scheme == "https")


@lru_cache(maxsize=256)
def address(url: str) -> tuple[Origin, bytes, bytes]:
    """Origin, request target and `Host` of a URL.

    Raises:
        httpx.InvalidURL, httpx.UnsupportedProtocol: it is none that can be called.
    """
    parsed = httpx.URL(url)
    return origin_of(parsed), parsed.raw_path, parsed.netloc


def new_client(pool: ConnectionPool) -> httpx.AsyncClient:
    """A client for all upstreams: no redirects, nothing of the environment, no cookies kept between callers."""
    headers = {"user-agent": "context-gateway"}
    return httpx.AsyncClient(transport=PooledTransport(pool), trust_env=False, headers=headers)


async def get(client: httpx.AsyncClient, deployment: Deployment, path: str, seconds: float) -> httpx.Response:
    """`GET` of what lies beside the completions of a deployment, with its key.

    Raises:
        UpstreamError: no answer; one with an error status is the caller's to judge.
    """
    timeout = httpx.Timeout(seconds, connect=deployment.connect_timeout)
    with translated(begun=False):
        headers = {**deployment.headers, **deployment.authorization}
        return await client.get(deployment.url(path), headers=headers, timeout=timeout)
