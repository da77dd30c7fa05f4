"""One HTTP/1.1 connection to an upstream, used by one exchange at a time; bytes are parsed by httptools (llhttp).

What goes wrong with it is raised as the gateway's errors, which name the host and the kind of failure, and no key, path
or query (guarantee §7).
"""

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import AsyncIterable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import httptools
import httpx

from gateway.core.errors import (
    UpstreamError,
    UpstreamInterrupted,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamUnreachable,
)


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
FAILED = "the connection failed"
NO_ROUTE = "no network leads there"
NUMBER = re.compile(r"\[Errno (\d+)\]")
NO_ROUTE_NUMBERS = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL)
CUT_NUMBERS = (errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE)


def why_not_connected(error: Exception) -> str:
    """Why no connection could be opened, in words."""
    if isinstance(error, TimeoutError):
        return TIMEOUT
    if isinstance(error, socket.gaierror | UnicodeError):  # UnicodeError: a name that is none
        return DNS
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{TLS}: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"{TLS}: {error.reason or 'it was closed in the middle'}"
    # Where a name has several addresses, asyncio puts the texts of their errors together.
    numbers = {int(number) for number in NUMBER.findall(str(error))} | {getattr(error, "errno", None)}
    if errno.ECONNREFUSED in numbers:
        return REFUSED
    if numbers.intersection(NO_ROUTE_NUMBERS):
        return NO_ROUTE
    if errno.ETIMEDOUT in numbers:
        return TIMEOUT
    return CUT if isinstance(error, ConnectionError) or numbers.intersection(CUT_NUMBERS) else FAILED


FAULTS = (httpx.HTTPError, httpx.InvalidURL)
"""What goes wrong with a call, in httpx's words."""


@contextmanager
def translated(*, begun: bool, origin: ConnectionOrigin | None = None) -> Iterator[None]:
    """Turns httpx's exceptions into the gateway's (guarantee §7).
    `begun`: whether a part of the answer has been read already; `origin`: where the call leads; without one, what httpx
    says of it."""
    try:
        yield
    except FAULTS as error:
        raise translation(error, begun=begun, origin=origin) from error


def translation(
    error: httpx.HTTPError | httpx.InvalidURL, *, begun: bool, origin: ConnectionOrigin | None
) -> UpstreamError:
    """The gateway's error for one of httpx's."""
    if origin is None and isinstance(error, httpx.HTTPError):
        origin = _asked(error)
    found = _translation(error, origin, begun)
    found.host = None if origin is None else str(origin)
    return found


def _translation(
    error: httpx.HTTPError | httpx.InvalidURL, origin: ConnectionOrigin | None, begun: bool
) -> UpstreamError:
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        return UpstreamUnreachable("The upstream's address is not usable.")
    if isinstance(error, httpx.PoolTimeout):
        waited = UpstreamTimeout("All connections to upstreams are in use (upstream.max_connections).")
        waited.may_be_charged = False  # nothing was sent
        return waited
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
        return UpstreamTimeout(TOO_LONG)
    if isinstance(error, httpx.LocalProtocolError):
        return UpstreamUnreachable("The upstream could not be asked: a header holds what no header may.")
    if isinstance(error, NotHttp):
        return UpstreamInvalidResponse("The upstream's answer is not HTTP.")
    if isinstance(error, httpx.DecodingError):
        return UpstreamInvalidResponse("The upstream's answer is not compressed as it says.")
    if begun:
        return UpstreamInterrupted("The upstream broke off its answer.")
    upstream = "The upstream" if origin is None else f"The upstream {origin}"
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        timed_out = isinstance(error, httpx.ConnectTimeout)
        return UpstreamUnreachable(f"{upstream} could not be reached: {TIMEOUT if timed_out else _why(cause)}.")
    return UpstreamUnreachable(f"{upstream} could not be reached: {CUT} before an answer.")


def _asked(error: httpx.HTTPError) -> ConnectionOrigin | None:
    try:
        url = error.request.url
    except RuntimeError:  # nobody has told it
        return None
    secure = url.scheme == "https"
    return ConnectionOrigin(url.host, url.port or (443 if secure else 80), secure)


def _why(error: Exception) -> str:
    """httpx passes on errors that it has wrapped more than once."""
    while isinstance(error, httpx.HTTPError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return why_not_connected(error)


HIGH_WATER_BYTES = 2**19
"""Unread bytes of a body above which nothing more is read from the socket."""
MAX_CONNECTION_HEAD_BYTES = 2**17
"""Of a response's head: several times what servers send."""
LINGER_SECONDS = 1.0
LINGER_BYTES = 2**16
"""How long and for how much the end of a body is awaited so that the connection can be kept."""
JOINED_BYTES = 2**14
"""A smaller body is sent with the head: copying it costs less than a second write."""
BODILESS = (204, 304)
"""Statuses whose responses have no body."""
END = b""


class ConnectionHolder(Protocol):
    """Where a connection goes once its exchange is over."""

    def give_back(self, connection: "UpstreamConnection") -> None:
        """It ended well: the connection can be used again."""
        ...

    def forget(self, connection: "UpstreamConnection") -> None:
        """It is closed."""
        ...


class UpstreamConnection(asyncio.Protocol):
    """Sends a request and gives its response: first `status` and `headers`, then the body piece by piece.

    Faults are raised as httpx's exceptions. A connection whose exchange did not end well is never used again.
    """

    def __init__(self, pool: ConnectionHolder, origin: ConnectionOrigin) -> None:
        self._pool = pool
        self.origin = origin
        self.idle_since = 0.0
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.spoke = False
        """Whether any byte of a response has come."""
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
        """Sends the body of a request that has begun as it comes, no faster than the upstream takes it; ends early once
        the answer is complete. Until all is sent the connection can take no other request.
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
        """Returns once the response's head is there.
        Raises httpx.ReadTimeout: not within `seconds`; httpx.ReadError, httpx.RemoteProtocolError: the connection was
        lost, or that was no HTTP."""
        while not self._head_complete:
            await self._wait(seconds)

    async def read(self, seconds: float | None) -> bytes:
        """What has come of the body since the last time, at least one byte; `b""` at its end.
        Raises as `response`; a body that ends before its framing says so is a `httpx.RemoteProtocolError`."""
        while not self._pieces:
            if self._complete:
                return END
            await self._wait(seconds)
        return self._taken()

    async def push(self, take: Callable[[bytes], bool], seconds: float | None) -> None:
        """Calls `take` with what comes of the body in the moment in which it comes, so that no task is woken for it.

        Returns when `take` returned False, and when there is something that only `read` can tell.
        `take`: must not raise.
        Raises as `response`, if nothing comes for `seconds`, or the body breaks off."""
        if self._pieces or self._complete:
            return
        self._take = take
        try:
            await self._wait(seconds)
        finally:
            self._take = None

    def close(self, *, linger: bool = False) -> None:
        """Ends the exchange: a response that was read to its end leaves the connection to the next request.

        `linger`: all that matters has been read, and the rest, if it comes at once, is only dropped.
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
        """One timer a connection, looked at again when it fires: starting one for each piece would cost more than to
        read it."""
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
        """See asyncio."""
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
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
        """Hands on what has come, if somebody takes it here; returns whether no task need know."""
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
        """See asyncio. The end of the connection is the end of a body without a length of its own."""
        self._ended()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        if exc is not None and not self._complete:
            self._fail(httpx.ReadError("The connection to the upstream was lost."))
        self._ended()
        self._pool.forget(self)

    def pause_writing(self) -> None:
        """See asyncio."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """See asyncio."""
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
        """See httptools."""
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_CONNECTION_HEAD_BYTES:
            raise ValueError("head too large")
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._framed = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """See httptools."""
        self.status = self._parser.get_status_code()
        if self.status < 200:
            return
        self._head_complete = True
        if self._bodiless or self.status in BODILESS:
            self._framed = self._complete = True

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        if body and not self._complete:
            self._pieces.append(body)
            self._buffered += len(body)

    def on_message_begin(self) -> None:
        """See httptools. A second response to one request is none of ours."""
        if self._head_complete:
            self._reusable = False
            raise ValueError("a second response")

    def on_message_complete(self) -> None:
        """See httptools. A 1xx response only announces the real one."""
        if not self._head_complete:
            self.headers, self._head_bytes, self._framed = [], 0, False
            return
        self._complete = True
        self._reusable = bool(self._parser.should_keep_alive())
