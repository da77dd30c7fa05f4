"""The HTTP client: httpx's API over the gateway's own pool of HTTP/1.1 connections (ADR 4), each used by one exchange
at a time; bytes are parsed by httptools (llhttp).

Faults are raised as the gateway's errors, which name the host and the kind of failure, and no key, path or query
(guarantee §7).
"""

import asyncio
import contextlib
import errno
import re
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from http.cookiejar import DefaultCookiePolicy
from typing import Any, NamedTuple

import httptools
import httpx

from gateway.core import errors
from gateway.core.types.chat import ModelDeployment


class ConnectionOrigin(NamedTuple):
    """Where connections lead."""

    host: str
    port: int
    secure: bool

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class NotHttp(httpx.RemoteProtocolError):
    """What the upstream sent is no HTTP/1.1 response."""


TOO_LONG = "The upstream took too long."
DNS = "its name cannot be resolved (DNS)"
REFUSED = "the connection was refused"
TLS = "the TLS connection could not be made"
TIMEOUT = "it did not accept a connection in time (timeout)"
CUT = "the connection was cut"
CONNECTION_FAILED = "the connection failed"
NO_ROUTE = "no network leads there"
ERRNO_NUMBER = re.compile(r"\[Errno (\d+)\]")
NO_ROUTE_NUMBERS = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL)
CUT_NUMBERS = (errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE)


def why_not_connected(error: Exception) -> str:
    """Renders the reason why no connection could be opened."""
    if isinstance(error, TimeoutError):
        return TIMEOUT
    if isinstance(error, socket.gaierror | UnicodeError):  # UnicodeError: a name that is none
        return DNS
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{TLS}: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"{TLS}: {error.reason or 'it was closed in the middle'}"
    # Where a name has several addresses, asyncio puts the texts of their errors together.
    numbers = {int(number) for number in ERRNO_NUMBER.findall(str(error))} | {getattr(error, "errno", None)}
    if errno.ECONNREFUSED in numbers:
        return REFUSED
    if numbers.intersection(NO_ROUTE_NUMBERS):
        return NO_ROUTE
    if errno.ETIMEDOUT in numbers:
        return TIMEOUT
    return CUT if isinstance(error, ConnectionError) or numbers.intersection(CUT_NUMBERS) else CONNECTION_FAILED


HTTPX_FAULTS = (httpx.HTTPError, httpx.InvalidURL)
"""httpx's exceptions for a failed call."""
NO_ADDRESS = (httpx.InvalidURL, httpx.UnsupportedProtocol)
"""Those for a URL that cannot be called at all."""


@contextmanager
def translated(*, begun: bool, origin: ConnectionOrigin | None = None) -> Iterator[None]:
    """Translates httpx's exceptions into the gateway's (guarantee §7).
    `begun`: whether a part of the answer has been read already; `origin`: where the call leads; without one, the origin
    that httpx reports."""
    try:
        yield
    except HTTPX_FAULTS as error:
        raise translation(error, begun=begun, origin=origin) from error


def translation(
    error: httpx.HTTPError | httpx.InvalidURL, *, begun: bool, origin: ConnectionOrigin | None
) -> errors.UpstreamError:
    """Translates one of httpx's exceptions into the gateway's error."""
    if origin is None and isinstance(error, httpx.HTTPError):
        origin = _asked(error)
    found = _translation(error, origin, begun)
    found.host = None if origin is None else str(origin)
    return found


def _translation(
    error: httpx.HTTPError | httpx.InvalidURL, origin: ConnectionOrigin | None, begun: bool
) -> errors.UpstreamError:
    if isinstance(error, NO_ADDRESS):
        return errors.UpstreamUnreachable("The upstream's address is not usable.")
    if isinstance(error, httpx.PoolTimeout):
        waited = errors.UpstreamTimeout("All connections to upstreams are in use (upstream.max_connections).")
        waited.may_be_charged = False  # nothing was sent
        return waited
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
        return errors.UpstreamTimeout(TOO_LONG)
    if isinstance(error, httpx.LocalProtocolError):
        return errors.UpstreamUnreachable("The upstream could not be asked: a header holds what no header may.")
    if isinstance(error, NotHttp):
        return errors.UpstreamInvalidResponse("The upstream's answer is not HTTP.")
    if isinstance(error, httpx.DecodingError):
        return errors.UpstreamInvalidResponse("The upstream's answer is not compressed as it says.")
    if begun:
        return errors.UpstreamInterrupted("The upstream broke off its answer.")
    upstream = "The upstream" if origin is None else f"The upstream {origin}"
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        timed_out = isinstance(error, httpx.ConnectTimeout)
        return errors.UpstreamUnreachable(f"{upstream} could not be reached: {TIMEOUT if timed_out else _why(cause)}.")
    return errors.UpstreamUnreachable(f"{upstream} could not be reached: {CUT} before an answer.")


def _asked(error: httpx.HTTPError) -> ConnectionOrigin | None:
    try:
        url = error.request.url
    except RuntimeError:  # the exception carries no request
        return None
    secure = url.scheme == "https"
    return ConnectionOrigin(url.host, url.port or (443 if secure else 80), secure)


def _why(error: Exception) -> str:
    """Renders the innermost cause: httpx passes on errors that it has wrapped more than once."""
    while isinstance(error, httpx.HTTPError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return why_not_connected(error)


HIGH_WATER_BYTES = 2**19
"""Unread bytes of a body above which the socket is no longer read."""
MAX_CONNECTION_HEAD_BYTES = 2**17
"""Limit of a response's head: several times what servers send."""
LINGER_SECONDS = 1.0
LINGER_BYTES = 2**16
"""How long, and for how many bytes, the end of a body is awaited so that the connection can be reused."""
JOINED_BYTES = 2**14
"""A smaller body is sent with the head: copying it costs less than a second write."""
BODILESS = (204, 304)
"""Statuses whose responses have no body."""
END = b""


class UpstreamConnection(asyncio.Protocol):
    """Sends a request and receives its response: first `status` and `headers`, then the body piece by piece.

    Faults are raised as httpx's exceptions. A connection whose exchange did not end well is never used again.
    """

    def __init__(self, pool: "ConnectionPool", origin: ConnectionOrigin) -> None:
        self._pool = pool
        self.origin = origin
        self.idle_since = 0.0
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.spoke = False
        """Whether any byte of a response has arrived."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # set before anything else is called
        self._parser: Any = None
        self._pieces: list[bytes] = []
        self._buffered = 0
        self._head_bytes = 0
        self._busy = self._lingering = False
        self._head_complete = False
        self._complete = False
        self._reusable = False
        self._framed = False
        self._bodiless = False
        self._uploading = False
        self._paused = False
        self._take: Callable[[bytes], bool] | None = None
        self._fault: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0
        self._limit = 0.0

    # -- the exchange

    def begin(self, head: bytes, body: bytes = b"", *, bodiless: bool = False) -> None:
        """Sends a request. `bodiless`: its response has no body whatever its headers say (HEAD)."""
        self._parser = httptools.HttpResponseParser(self)
        self.status, self.headers, self.spoke = 0, [], False
        self._head_bytes = 0
        self._busy = True
        self._head_complete = self._complete = self._reusable = self._framed = False
        self._bodiless, self._uploading = bodiless, False
        if len(body) <= JOINED_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    async def upload(self, pieces: AsyncIterable[bytes], *, chunked: bool, seconds: float | None) -> None:
        """Sends the body of a request that has begun, piece by piece, no faster than the upstream takes it; ends early
        when the answer is complete. Until all is sent the connection can take no other request.
        Raises httpx.WriteTimeout: the upstream did not take a piece within `seconds`."""
        self._uploading = True
        async for piece in pieces:
            if self._complete or self._fault is not None:
                return
            if piece:
                self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            if self._writable is not None:
                try:
                    async with asyncio.timeout(seconds):
                        await asyncio.shield(self._writable)
                except TimeoutError as error:
                    raise httpx.WriteTimeout("The upstream does not take the request.") from error
        if self._complete or self._fault is not None:
            return
        if chunked:
            self._transport.write(b"0\r\n\r\n")
        self._uploading = False

    async def response(self, seconds: float | None) -> None:
        """Waits for the response's head.
        Raises httpx.ReadTimeout: not within `seconds`; httpx.ReadError, httpx.RemoteProtocolError: the connection was
        lost, or the response is no HTTP."""
        while not self._head_complete:
            await self._wait(seconds)

    async def read(self, seconds: float | None) -> bytes:
        """Returns what has arrived of the body since the last call, at least one byte; `b""` at its end.
        Raises as `response`; httpx.RemoteProtocolError: the body ends before its framing says so."""
        while not self._pieces:
            if self._complete:
                return END
            await self._wait(seconds)
        return self._taken()

    async def push(self, take: Callable[[bytes], bool], seconds: float | None) -> None:
        """Calls `take` with each piece of the body at the moment it arrives, so that no task is woken for it.

        Returns when `take` returned False, or when only `read` can report what is next.
        `take`: must not raise.
        Raises as `response`, if nothing arrives for `seconds`, or the body breaks off."""
        if self._pieces or self._complete:
            return
        self._take = take
        try:
            await self._wait(seconds)
        finally:
            self._take = None

    def close(self, *, linger: bool = False) -> None:
        """Ends the exchange: after a response that was read to its end, the next request may use the connection.

        `linger`: all that matters has been read; the rest, if it arrives at once, is dropped.
        """
        if not self._busy or self._lingering:
            return
        if linger and not self._complete and self._fault is None:
            self._lingering = True
            self._pieces, self._buffered = [], 0
            self._stop_timer()
            self._timer = self._loop.call_later(LINGER_SECONDS, self._finish)
            return
        self._finish()

    def _finish(self) -> None:
        if self._lingering:
            self._stop_timer()
        self._busy = self._lingering = False
        whole = self._complete and not self._pieces and not self._uploading
        if whole and self._reusable and self._fault is None:
            self._pool.give_back(self)
        else:
            self._pool.forget(self)
            self.abort()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._stop_timer()
        if not self._transport.is_closing():
            self._transport.abort()

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._fault is None and not self._transport.is_closing()

    # -- waiting

    async def _wait(self, seconds: float | None) -> None:
        if self._fault is not None:
            raise self._fault
        self._waiter = self._loop.create_future()
        if seconds is not None:
            self._watch(seconds)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _watch(self, seconds: float) -> None:
        """Starts one timer per connection, which is checked again when it fires: a timer for each piece would cost more
        than reading the piece."""
        now = self._loop.time()
        self._since, self._limit = now, seconds
        if self._timer is not None:
            if self._timer.when() <= now + seconds:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(now + seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        due = self._since + self._limit
        if self._loop.time() >= due - 0.001:
            self._fail(httpx.ReadTimeout("The upstream fell silent."))
        else:
            self._timer = self._loop.call_at(due, self._look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, fault: Exception) -> None:
        if self._fault is None:
            self._fault = fault
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(fault)

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport (asyncio callback)."""
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Parses bytes of the response and wakes its reader (asyncio callback)."""
        if not self._busy:
            self._fault = httpx.RemoteProtocolError("The upstream spoke without being asked.")
            self._pool.forget(self)
            self.abort()
            return
        self.spoke = True
        knows_head = self._head_complete
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(NotHttp("The upstream changed the protocol."))
        except httptools.HttpParserError as error:
            if self._complete:  # the answer is whole; what came after it is ignored
                self._reusable = False
            else:
                self._fail(NotHttp(f"The upstream's answer is no HTTP: {type(error).__name__}."))
        if self._lingering:
            self._pieces = []
            if self._complete or self._fault is not None or self._buffered > LINGER_BYTES:
                self._finish()
            return
        if self._buffered > HIGH_WATER_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        news = self._pieces or self._complete or self._head_complete is not knows_head
        if self._head_complete and news and not self._is_pushed():  # the length of a piece alone breaks no silence
            self._wake()

    def _is_pushed(self) -> bool:
        """Hands on what has arrived, if somebody takes it here; returns whether no task needs to be woken."""
        if self._take is None or not self._pieces:
            return False
        self._since = self._loop.time()
        if not self._take(self._taken()):
            self._take = None  # what comes before the task runs is for the reader
        return self._take is not None and not self._complete

    def _taken(self) -> bytes:
        pieces = self._pieces
        self._pieces, self._buffered = [], 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def eof_received(self) -> bool:
        """Ends a body without a length of its own at the end of the connection (asyncio callback)."""
        self._ended()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Fails an incomplete response and leaves the pool (asyncio callback)."""
        if exc is not None and not self._complete:
            self._fail(httpx.ReadError("The connection to the upstream was lost."))
        self._ended()
        self._pool.forget(self)

    def pause_writing(self) -> None:
        """Makes `upload` wait until the upstream takes more (asyncio callback)."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Lets `upload` send on (asyncio callback)."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def _ended(self) -> None:
        self._reusable = False
        if not self._busy:
            self._fail(httpx.ReadError("The upstream closed the connection."))
            self._pool.forget(self)
        elif self._head_complete and not self._framed and self._fault is None:
            self._complete = True
            self._wake()
        elif not self._complete:
            self._fail(httpx.RemoteProtocolError("The upstream closed the connection before its answer was complete."))

    # -- httptools' callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        """Stores a header, within the limit of a head (httptools callback)."""
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_CONNECTION_HEAD_BYTES:
            raise ValueError("head too large")
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._framed = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Notes the status, and whether the response has a body (httptools callback)."""
        self.status = self._parser.get_status_code()
        if self.status < 200:
            return
        self._head_complete = True
        if self._bodiless or self.status in BODILESS:
            self._framed = self._complete = True

    def on_body(self, body: bytes) -> None:
        """Stores a piece of the body (httptools callback)."""
        if body and not self._complete:
            self._pieces.append(body)
            self._buffered += len(body)

    def on_message_begin(self) -> None:
        """Rejects a second response to one request (httptools callback)."""
        if self._head_complete:
            self._reusable = False
            raise ValueError("a second response")

    def on_message_complete(self) -> None:
        """Completes the response (httptools callback). A 1xx response only announces the real one."""
        if not self._head_complete:
            self.headers, self._head_bytes, self._framed = [], 0, False
            return
        self._complete = True
        self._reusable = bool(self._parser.should_keep_alive())


KEEP_ALIVE_SECONDS = 30.0
"""How long an idle connection stays open."""


class ConnectionPool:
    """Hands out connections. The most recently used comes first, so that the others expire and leave."""

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
        """Returns a connection for the caller alone, until its `close()`.
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
        """Takes back a connection whose exchange ended well: it can be used again."""
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(connection.origin, []).append(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._keep_alive, self._sweep)
        if self._waiting:
            self._invite()

    def forget(self, connection: UpstreamConnection) -> None:
        """Removes a connection that is closed."""
        if connection not in self._open:
            return
        self._open.discard(connection)
        if connection in (idle := self._idle.get(connection.origin, [])):
            idle.remove(connection)
        self._invite()

    async def prepare(self) -> None:
        """Reads the certificates, for which the first TLS connection would otherwise wait."""
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
        """Waits until another connection may be opened or one is free."""
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
                self._invite()  # the turn was given and not used
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

    def _sweep(self) -> None:
        """Closes connections that have been idle for too long."""
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
    """Loads the system's certificates and certifi's: slim images have none of their own."""
    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


PORTS = {"http": 80, "https": 443}
MAX_PORT = 65_535
HOP_BY_HOP = (b"connection", b"transfer-encoding", b"keep-alive", b"upgrade", b"te", b"trailer")
"""Request headers that belong to the connection."""
CONTENT_LENGTH = b"content-length"


def new_client(pool: ConnectionPool) -> httpx.AsyncClient:
    """Creates a client for all upstreams: no redirects, nothing of the environment, no cookies shared by callers."""
    headers = {"user-agent": "context-gateway"}
    client = httpx.AsyncClient(transport=PooledTransport(pool), trust_env=False, headers=headers)
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return client


async def get(client: httpx.AsyncClient, deployment: ModelDeployment, path: str, seconds: float) -> httpx.Response:
    """Sends `GET` of `path` beside a deployment's completions, with its key; the caller checks the status.
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
        """Sends a request and returns its response with the body still to come, as httpx wants it. The request's
        extensions hold the timeouts."""
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
    if body and all(name != CONTENT_LENGTH for name, _ in kept):
        kept.append((CONTENT_LENGTH, b"%d" % len(body)))
    return request_head(request.method.encode(), request.url.raw_path, kept)


def request_head(method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Renders the bytes before a request's body. Raises httpx.LocalProtocolError: a header would leave its line."""
    lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers) or b"\0" in lines or b" " in target:
        raise httpx.LocalProtocolError("A header of the request holds what no header may.")
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, target, lines)


def origin_of(url: httpx.URL) -> ConnectionOrigin:
    """Returns the host, port and scheme that a URL's connections lead to.
    Raises httpx.UnsupportedProtocol: it is neither http nor https, or names no host, or a port that there is not."""
    if url.scheme not in PORTS or not url.host or not 0 <= (url.port or 0) <= MAX_PORT:
        raise httpx.UnsupportedProtocol("The address is neither http:// nor https:// with a host.")
    return ConnectionOrigin(url.host, url.port or PORTS[url.scheme], url.scheme == "https")


@lru_cache(maxsize=256)
def address(url: str) -> tuple[ConnectionOrigin, bytes, bytes]:
    """Parses a URL into origin, request target and `Host`. Raises UpstreamUnreachable: it cannot be called."""
    with translated(begun=False):
        parsed = httpx.URL(url)
        return origin_of(parsed), parsed.raw_path, parsed.netloc


class Answering:
    """Guards the sending of a request and the wait for the head of its response: any fault closes the connection.
    Raises UpstreamError: it broke after a part of the answer had arrived; any other fault is raised as it is."""

    __slots__ = ("_connection",)

    def __init__(self, connection: UpstreamConnection) -> None:
        self._connection = connection

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self._connection.close()
            if isinstance(error, httpx.NetworkError | httpx.ProtocolError) and self._connection.spoke:
                raise translation(error, begun=True, origin=self._connection.origin) from error
