"""The HTTP client: httpx's API over the gateway's own connections (ADR 4).

Answers that are compressed although the gateway asks for none of it, as web servers before local models do.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator
from functools import lru_cache
from http.cookiejar import DefaultCookiePolicy

import httpx

from gateway.core.errors import UpstreamInvalidResponse
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.http.connection import END, UpstreamConnection
from gateway.upstream.http.connection_faults import ConnectionOrigin, translated, translation
from gateway.upstream.http.pool import ConnectionPool

PORTS = {"http": 80, "https": 443}
HOP_BY_HOP = (b"connection", b"transfer-encoding", b"keep-alive", b"upgrade", b"te", b"trailer")
"""Headers of a request that the connection decides on."""
LENGTH = b"content-length"


def new_client(pool: ConnectionPool) -> httpx.AsyncClient:
    """A client for all upstreams: no redirects, nothing of the environment, no cookies kept between callers."""
    headers = {"user-agent": "context-gateway"}
    client = httpx.AsyncClient(transport=PooledTransport(pool), trust_env=False, headers=headers)
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return client


async def get(client: httpx.AsyncClient, deployment: ModelDeployment, path: str, seconds: float) -> httpx.Response:
    """`GET` of `path` beside a deployment's completions, with its key; the caller looks at the status.
    Raises UpstreamError: there is no answer."""
    timeout = httpx.Timeout(seconds, connect=deployment.connect_timeout)
    with translated(begun=False):
        headers = {**deployment.headers, **deployment.authorization}
        return await client.get(deployment.url(path), headers=headers, timeout=timeout)


class PooledTransport(httpx.AsyncBaseTransport):
    """httpx over a `ConnectionPool`. A request's body is sent whole."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request and returns its response with the body still to come, as httpx wants it. Timeouts are those
        of the request's extensions."""
        timeouts = request.extensions.get("timeout", {})
        seconds = timeouts.get("read")
        body = await request.aread()
        connection = await self._pool.take(origin_of(request.url), timeouts.get("connect"), timeouts.get("pool"))
        try:
            connection.begin(_head_of(request, body), body, bodiless=request.method == "HEAD")
            await connection.response(seconds)
        except BaseException:
            connection.close()
            raise
        stream = PooledBody(connection, seconds)
        return httpx.Response(connection.status, headers=connection.headers, stream=stream)

    async def aclose(self) -> None:
        await self._pool.aclose()


class PooledBody(httpx.AsyncByteStream):
    """The body of a response as it comes; leaving it early closes its connection."""

    def __init__(self, connection: UpstreamConnection, seconds: float | None) -> None:
        self._connection = connection
        self._seconds = seconds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._connection.read(self._seconds)) is not END:
            yield piece

    async def aclose(self) -> None:
        self._connection.close()


def _head_of(request: httpx.Request, body: bytes) -> bytes:
    headers = [(name.lower(), value) for name, value in request.headers.raw]
    kept = [pair for pair in headers if pair[0] not in HOP_BY_HOP]
    if body and all(name != LENGTH for name, _ in kept):
        kept.append((LENGTH, b"%d" % len(body)))
    return request_head(request.method.encode(), request.url.raw_path, kept)


def request_head(method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The bytes before a request's body. Raises httpx.LocalProtocolError: a header would break out of its line."""
    lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers) or b"\0" in lines or b" " in target:
        raise httpx.LocalProtocolError("A header of the request holds what no header may.")
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, target, lines)


def origin_of(url: httpx.URL) -> ConnectionOrigin:
    """Where a URL's connections lead.
    Raises httpx.UnsupportedProtocol: it is neither http nor https, or names no host."""
    if url.scheme not in PORTS or not url.host:
        raise httpx.UnsupportedProtocol("The address is neither http:// nor https:// with a host.")
    return ConnectionOrigin(url.host, url.port or PORTS[url.scheme], url.scheme == "https")


@lru_cache(maxsize=256)
def address(url: str) -> tuple[ConnectionOrigin, bytes, bytes]:
    """Origin, request target and `Host` of a URL. Raises UpstreamUnreachable: it is none that can be called."""
    with translated(begun=False):
        parsed = httpx.URL(url)
        return origin_of(parsed), parsed.raw_path, parsed.netloc


class Answering:
    """While a request is sent and the head of its response is awaited: any fault closes the connection.
    Raises UpstreamError: it broke after a part of the answer had come; any other fault is raised as it is."""

    __slots__ = ("_connection",)

    def __init__(self, connection: UpstreamConnection) -> None:
        self._connection = connection

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self._connection.close()
            if isinstance(error, httpx.NetworkError | httpx.ProtocolError) and self._connection.spoke:
                raise translation(error, begun=True, origin=self._connection.origin) from error


MAX_PIECE_BYTES = 2**18
"""Decompressed bytes given out at a time, however few they were made of: the reader decides whether to go on."""
PLAIN = (b"", b"identity")
DEFLATED = (b"gzip", b"x-gzip", b"deflate")
ANY_HEADER, NO_HEADER = 47, -15
"""zlib's `wbits`: gzip's or zlib's header; no header at all."""


def decompressed(connection: UpstreamConnection, encoding: bytes) -> "UpstreamConnection | InflatedBody":
    """The connection's body without its `content-encoding`.
    Raises UpstreamInvalidResponse: the encoding is unknown here."""
    if encoding in PLAIN:
        return connection
    if encoding not in DEFLATED:
        raise UpstreamInvalidResponse("The upstream compressed its answer although nobody asked for it.")
    return InflatedBody(connection)


class Replayed:
    """A body that was read already, as far as it goes."""

    def __init__(self, raw: bytes, rest: "UpstreamConnection | InflatedBody | Replayed | None" = None) -> None:
        self._raw = raw
        self._rest = rest

    async def read(self, seconds: float | None) -> bytes:
        """All of it, then what the rest gives, then `b""`."""
        raw, self._raw = self._raw, END
        return raw if raw or self._rest is None else await self._rest.read(seconds)


class InflatedBody:
    """A connection's body, decompressed as it comes: gzip in any number of members, or deflate with or without zlib's
    header."""

    def __init__(self, connection: UpstreamConnection) -> None:
        self._connection = connection
        self._inflate = zlib.decompressobj(ANY_HEADER)
        self._waiting = b""
        self._begun = False
        self._more = False

    async def read(self, seconds: float | None) -> bytes:
        """The next bytes, `b""` at the end; raises as `UpstreamConnection.read` does.
        Raises UpstreamInvalidResponse: the body is not compressed as its header says."""
        clock = asyncio.get_running_loop().time
        due = None if seconds is None else clock() + seconds
        while True:
            if self._more:
                await asyncio.sleep(0)  # a little that grows to much must not hold up other requests
            if not (self._waiting or self._more):
                self._waiting = await self._connection.read(due and max(due - clock(), 0))
                if not self._waiting:
                    return END
            if piece := self._next():
                return piece
            if due is not None and clock() >= due:  # bytes come, and become nothing
                raise httpx.ReadTimeout("The upstream fell silent.")

    def _next(self) -> bytes:
        if self._inflate.eof:
            self._inflate = zlib.decompressobj(ANY_HEADER)
        try:
            piece = self._inflate.decompress(self._waiting, MAX_PIECE_BYTES)
        except zlib.error:
            if self._begun:
                raise UpstreamInvalidResponse("The upstream's answer is not compressed as it says.") from None
            self._inflate, self._begun = zlib.decompressobj(NO_HEADER), True
            return self._next()
        self._begun = True
        self._more = len(piece) == MAX_PIECE_BYTES  # zlib may hold back a part of what it has taken in
        self._waiting = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        return piece


def decompressed_at_once(raw: bytes, encoding: str, max_bytes: int) -> bytes | None:
    """The first `max_bytes` of a body that was read as it came; None if its encoding is unknown or not kept."""
    if encoding.encode("latin-1", "replace") in PLAIN:
        return raw
    if encoding not in ("gzip", "deflate"):
        return None
    try:
        return zlib.decompressobj(ANY_HEADER).decompress(raw, max_bytes)
    except zlib.error:
        return None
