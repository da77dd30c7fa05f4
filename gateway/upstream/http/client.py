"""The HTTP client: httpx's API over the gateway's own connections (ADR 4)."""

from collections.abc import AsyncIterator
from functools import lru_cache
from http.cookiejar import DefaultCookiePolicy

import httpx

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

    Raises:
        UpstreamError: there is no answer.
    """
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
        """Closes all connections."""
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
        """Ends the exchange."""
        self._connection.close()


def _head_of(request: httpx.Request, body: bytes) -> bytes:
    headers = [(name.lower(), value) for name, value in request.headers.raw]
    kept = [pair for pair in headers if pair[0] not in HOP_BY_HOP]
    if body and all(name != LENGTH for name, _ in kept):
        kept.append((LENGTH, b"%d" % len(body)))
    return request_head(request.method.encode(), request.url.raw_path, kept)


def request_head(method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The bytes before a request's body.

    Raises:
        httpx.LocalProtocolError: a header would break out of its line.
    """
    lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers) or b"\0" in lines or b" " in target:
        raise httpx.LocalProtocolError("A header of the request holds what no header may.")
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, target, lines)


def origin_of(url: httpx.URL) -> ConnectionOrigin:
    """Where a URL's connections lead.

    Raises:
        httpx.UnsupportedProtocol: it is neither http nor https, or names no host.
    """
    if url.scheme not in PORTS or not url.host:
        raise httpx.UnsupportedProtocol("The address is neither http:// nor https:// with a host.")
    return ConnectionOrigin(url.host, url.port or PORTS[url.scheme], url.scheme == "https")


@lru_cache(maxsize=256)
def address(url: str) -> tuple[ConnectionOrigin, bytes, bytes]:
    """Origin, request target and `Host` of a URL.

    Raises:
        UpstreamUnreachable: it is none that can be called.
    """
    with translated(begun=False):
        parsed = httpx.URL(url)
        return origin_of(parsed), parsed.raw_path, parsed.netloc


class Answering:
    """While a request is sent and the head of its response is awaited: any fault closes the connection.

    Raises:
        UpstreamError: it broke after a part of the answer had come; any other fault is raised as it is.
    """

    __slots__ = ("_connection",)

    def __init__(self, connection: UpstreamConnection) -> None:
        self._connection = connection

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self._connection.close()
            if isinstance(error, httpx.NetworkError | httpx.ProtocolError) and self._connection.spoke:
                raise translation(error, begun=True, origin=self._connection.origin) from error
