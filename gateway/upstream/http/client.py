"""The HTTP client: httpx's API over the gateway's own pool of connections (ADR 4); answers that are compressed although
nobody asked for it, as web servers before local models do."""

import asyncio
import contextlib
import ssl
import zlib
from collections import deque
from collections.abc import AsyncIterator
from functools import lru_cache
from http.cookiejar import DefaultCookiePolicy

import httpx

from gateway.core.errors import UpstreamInvalidResponse
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.http.connection import (
    END,
    ConnectionOrigin,
    UpstreamConnection,
    translated,
    translation,
    why_not_connected,
)

KEEP_ALIVE_SECONDS = 30.0
"""How long an idle connection is kept."""


class ConnectionPool:
    """Hands out connections. The latest used comes first, so that the others grow old and leave."""

    def __init__(self, max_connections: int, keep_alive: float = KEEP_ALIVE_SECONDS) -> None:
        self._max_connections = max_connections
        self._keep_alive = keep_alive
        self._idle: dict[ConnectionOrigin, list[UpstreamConnection]] = {}
        self._open: set[UpstreamConnection] = set()
        self._opening = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._sweeper: asyncio.TimerHandle | None = None
        self._trust: ssl.SSLContext | None = None

    @property
    def size(self) -> int:
        return len(self._open) + self._opening

    async def take(
        self,
        origin: ConnectionOrigin,
        connect_seconds: float | None,
        wait_seconds: float | None,
        *,
        fresh: bool = False,
    ) -> UpstreamConnection:
        """A connection of one's own until its `close()`.
        `fresh`: not one that has been used before.
        Raises httpx.ConnectError, httpx.ConnectTimeout: it could not be opened; httpx.PoolTimeout: all are in use, and
        none became free within `wait_seconds`."""
        while True:
            connection = None if fresh else self._take_idle(origin)
            if connection is not None:
                return connection
            if self.size < self._max_connections:
                return await self._connect(origin, connect_seconds)
            await self._room(wait_seconds)

    def give_back(self, connection: UpstreamConnection) -> None:
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(connection.origin, []).append(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._keep_alive, self._sweep)
        if self._waiting:
            self._invite()

    def forget(self, connection: UpstreamConnection) -> None:
        if connection not in self._open:
            return
        self._open.discard(connection)
        self._leave_idle(connection)
        self._invite()

    async def prepare(self) -> None:
        """Reads the certificates, for which the first connection by TLS would otherwise wait."""
        await self._context()

    async def aclose(self) -> None:
        """Closes all connections at once."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._open):
            self.forget(connection)
            connection.abort()
        await asyncio.sleep(0)

    def _take_idle(self, origin: ConnectionOrigin) -> UpstreamConnection | None:
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection
            self.forget(connection)
        return None

    async def _connect(self, origin: ConnectionOrigin, seconds: float | None) -> UpstreamConnection:
        loop = asyncio.get_running_loop()
        host, port, secure = origin
        self._opening += 1
        try:
            async with asyncio.timeout(seconds):
                context = await self._context() if secure else None
                _, connection = await loop.create_connection(
                    lambda: UpstreamConnection(self, origin),
                    host,
                    port,
                    ssl=context,
                    server_hostname=host if secure else None,
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout("The upstream did not accept a connection in time.") from error
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that is none
            raise httpx.ConnectError(why_not_connected(error)) from error
        finally:
            self._opening -= 1
            self._invite()
        self._open.add(connection)
        return connection

    async def _context(self) -> ssl.SSLContext:
        if self._trust is None:  # reading the certificates takes a while
            self._trust = await asyncio.to_thread(_default_trust)
        return self._trust

    async def _room(self, seconds: float | None) -> None:
        """Returns once another connection may be opened or one is free."""
        self._evict()
        if self.size < self._max_connections:
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except TimeoutError as error:
            raise httpx.PoolTimeout("All connections to upstreams are in use.") from error
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._invite()  # the turn was given, and is not taken
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(turn)

    def _evict(self) -> None:
        """Closes the connection that has been idle longest."""
        oldest = min((c for idle in self._idle.values() for c in idle), key=lambda c: c.idle_since, default=None)
        if oldest is not None:
            self.forget(oldest)
            oldest.abort()

    def _invite(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _leave_idle(self, connection: UpstreamConnection) -> None:
        idle = self._idle.get(connection.origin, [])
        if connection in idle:
            idle.remove(connection)

    def _sweep(self) -> None:
        """Closes what has not been used for a while."""
        loop = asyncio.get_running_loop()
        self._sweeper = None
        before = loop.time() - self._keep_alive
        for origin, idle in list(self._idle.items()):
            for connection in [c for c in idle if c.idle_since <= before]:
                self.forget(connection)
                connection.abort()
            if not idle:
                del self._idle[origin]
        if self._idle:
            self._sweeper = loop.call_later(self._keep_alive / 4, self._sweep)


def _default_trust() -> ssl.SSLContext:
    """The system's certificates and those that come with certifi: slim images have none of their own."""
    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


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
