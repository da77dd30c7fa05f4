"""uvicorn's HTTP/1.1, with limits for slow and endless clients (guarantee §7).

uvicorn does not limit the time and the bytes of a request head, answers what it cannot parse in plain text, and closes
a connection whose client is still sending, so that the client never sees the answer. The classes here add that (ADR
18). A request that arrives in one piece costs a few attribute reads more: no clock is read and no timer is set.
"""

import asyncio
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from gateway.api.server.asgi import CHAT_PATH, CLIENT
from gateway.core import errors, ids, jsons
from gateway.core.config.settings import ServerSettings
from gateway.core.instrumentation import logs

MAX_HEAD_BYTES = 2**16
MAX_HEADERS = 256
PROTOCOL_LINGER_SECONDS = 10.0
"""How long a refused client may go on sending, so that it sees the answer."""
READ_WHOLE = CHAT_PATH.encode()
"""Path whose bodies are handed on whole: waking the task for each piece costs more than reading it."""
UPLOADS = (b"/v1/files", b"/ui/admin/files")
"""Path of POST requests that may be larger, and take as long as much comes: what is large takes long on a slow line."""
MIN_RATE = 10_000
"""Bytes a second that an upload must have sent of each `receive_timeout`."""
GATHERED_BYTES = 2**20
"""Bytes of such a body from which pieces are handed on all the same."""
STATUS_LINE_PREFIX = b"HTTP/1.1 "
MAX_JOINED_BYTES = 2**16
"""A larger body is not copied to be joined with its head."""
OF_UPGRADES = (b"connection", b"upgrade", b"http2-settings")
"""Headers in which a client offers another protocol: Java's HTTP client offers HTTP/2 with each request."""
log = logs.get_logger("gateway.api")


class _DroppedTrailers(list[tuple[bytes, bytes]]):
    """Discards trailer fields, which must not become headers of a running request."""

    def append(self, _: tuple[bytes, bytes]) -> None:
        """Discards the field."""


_TRAILERS = _DroppedTrailers()


class _UntilTheEnd(int):
    """The bytes that are left of a body of unknown length: uvicorn finds that it has neither more nor fewer."""

    def __lt__(self, _: int) -> bool:
        """Returns that no piece is too long."""
        return False

    def __sub__(self, _: int) -> "_UntilTheEnd":
        """Returns what is left after a piece."""
        return self


class LimitedProtocol(HttpToolsProtocol):
    """One connection. Subclasses made by `limited` carry the limits."""

    receive_timeout = 60.0
    send_timeout = 60.0
    max_message_bytes = 2**27
    max_upload_bytes = 2**27
    max_connections = 2**16

    _raw: asyncio.Transport
    _deadline: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _unsent = 0
    _received = 0
    _received_before = 0
    _bare = 0
    """Bytes of an upload since any of its body came: heads of chunks, or trailers."""
    _has_body = _uploading = False
    _much = False
    _in_head = False
    _keep_alive = True
    _offers_another = False
    """Whether the request offers another protocol and has a body, which the parser takes for that protocol."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._raw = transport
        self.transport = cast(asyncio.Transport, _PoliteTransport(transport, self))
        if len(self.connections) > self.max_connections:
            log.warning("connection_refused", open=len(self.connections) - 1)
            transport.abort()
            return
        self._deadline = self.loop.call_later(self.receive_timeout, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self._stall is not None:
            self._stall.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._much = len(data) > MAX_HEAD_BYTES
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._offers_another:
                self._read_plainly(data[offer.args[0] :])
                return
            self._keep_alive = self.cycle.keep_alive = False  # answered in HTTP/1.1; what follows is another protocol
        except httptools.HttpParserError as error:
            self._in_head = True
            cause = error.__context__
            known = cause if isinstance(cause, errors.GatewayError) else None
            self.refuse(known or errors.InvalidHttp("This is not a valid HTTP/1.1 request."))
        cycle = self.cycle
        if self._in_head or cycle is None or cycle.more_body or cycle.response_complete:
            self._await_rest(len(data))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._received = self._received_before = self._bare = 0
        self._uploading = False
        self._disarm()

    def on_headers_complete(self) -> None:
        if len(self.headers) > MAX_HEADERS:
            raise errors.HeadersTooLarge(f"A request may have {MAX_HEADERS} header fields.")
        if (self._much or self._received) and self._head_bytes() > MAX_HEAD_BYTES:
            raise errors.HeadersTooLarge(f"The head of a request may have {MAX_HEAD_BYTES} bytes.")
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1 or (hosts and b"," in hosts[0]):  # a proxy in front may have read another
            raise errors.InvalidHttp("A request has one Host header, of one host.")
        self._offers_another = self.parser.should_upgrade() and self._has_length()
        if self._offers_another:
            return
        super().on_headers_complete()
        cycle = self.cycle
        cast(dict[str, Any], self.scope)[CLIENT] = _ProtocolClient(cycle)
        if self.parser.get_http_version() == "1.0":  # it knows no chunks: its body ends with the connection
            cycle.chunked_encoding, cycle.expected_content_length = False, _UntilTheEnd()
        self._in_head = False
        if self.url.startswith(UPLOADS) and self.parser.get_method() == b"POST":
            self._uploading = self.url.partition(b"?")[0].rstrip(b"/") in UPLOADS
        self.headers = _TRAILERS
        # An answer that begins before the request is complete has `connection: close`.
        self._keep_alive = self.cycle.keep_alive
        self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        if not self.url.startswith(READ_WHOLE) or cycle.response_complete or self.parser.should_upgrade():
            self._has_body = True
            super().on_body(body)
            return
        cycle.body += body
        if len(cycle.body) > GATHERED_BYTES:
            self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self._offers_another:
            return
        self.cycle.keep_alive = self._keep_alive
        if self._deadline is not None:
            self._disarm()
        super().on_message_complete()

    def shutdown(self) -> None:
        self._keep_alive = False
        super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.watch_writes()

    def refuse(self, error: errors.GatewayError) -> None:
        """Sends the error for a request that does not reach the application, if possible, and ends the connection."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:  # rubbish after a whole request, which is still answered
                self._keep_alive = cycle.keep_alive = False
                return
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
        request_id = ids.new_id("req_")
        content = jsons.dumps(error.body())
        fields = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),
            (b"x-request-id", request_id.encode()),
        ]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in fields)
        self._raw.write(STATUS_LINE[error.status] + lines + b"\r\n" + content)
        log.info("refused", request_id=request_id, status=error.status, error_code=error.code)
        self.transport.close()

    def watch_writes(self) -> None:
        """Cuts the client off if it reads nothing for `send_timeout` seconds from now on."""
        if self._stall is None:
            self._unsent = self._raw.get_write_buffer_size()
            self._stall = self.loop.call_later(self.send_timeout, self._check_writes)

    @property
    def unfinished(self) -> bool:
        """Whether the client may still be sending."""
        return self._in_head or (self.cycle is not None and self.cycle.more_body)

    def _has_length(self) -> bool:
        is_tunnel = self.parser.get_method() == b"CONNECT"
        return not is_tunnel and any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0"))
            for name, value in self.headers
        )

    def _read_plainly(self, rest: bytes) -> None:
        """Reads a request again without its offer of another protocol, which may be ignored; then reads no other."""
        fields = [pair for pair in self.headers if pair[0] not in OF_UPGRADES] + [(b"connection", b"close")]
        line = b"%b %b HTTP/1.1\r\n" % (self.parser.get_method(), self.url)
        head = line + b"".join(b"%b: %b\r\n" % pair for pair in fields)
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(head + b"\r\n" + rest)

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _await_rest(self, size: int) -> None:
        """Limits the time and the bytes of a request that is not complete."""
        self._received += size
        if self._raw.is_closing() or self._raw.get_protocol() is not self:
            return
        if self._in_head and self._received > MAX_HEAD_BYTES:
            self.refuse(errors.HeadersTooLarge(f"The head of a request may have {MAX_HEAD_BYTES} bytes."))
        elif self._received > self.max_message_bytes and not self._may_be_larger(size):
            self.refuse(errors.RequestTooLarge("The request is too large."))
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.receive_timeout, self._too_late)

    def _may_be_larger(self, size: int) -> bool:
        """Returns whether the request uploads a file, and the bytes that came now are bytes of the file."""
        self._bare, self._has_body = 0 if self._has_body else self._bare + size, False
        return self._uploading and self._received <= self.max_upload_bytes and self._bare <= MAX_HEAD_BYTES

    def _too_late(self) -> None:
        self._deadline = None
        if self.flow.read_paused or self._uploads():  # the gateway waits, or much comes
            self._deadline = self.loop.call_later(self.receive_timeout, self._too_late)
        elif self.unfinished:
            self.refuse(errors.RequestTimeout(f"The request did not arrive within {self.receive_timeout:g} seconds."))
        elif self.cycle is None or self.cycle.response_complete:
            self._raw.close()

    def _uploads(self) -> bool:
        """Returns whether a file is being uploaded, and fast enough since the last check."""
        cycle = self.cycle
        if not self._uploading or cycle is None or not cycle.more_body or cycle.response_complete:
            return False
        came, self._received_before = self._received - self._received_before, self._received
        return came >= MIN_RATE * self.receive_timeout

    def _check_writes(self) -> None:
        self._stall = None
        left = self._raw.get_write_buffer_size()
        if left and left >= self._unsent:
            log.info("client_stalled", unsent_bytes=left)
            self._raw.abort()
        elif left and (self.flow.write_paused or self._raw.is_closing()):
            self.watch_writes()

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _ProtocolClient:
    """The connection of one request (adapter of `ClientConnection`)."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def has_left(self) -> bool:
        return self._cycle.disconnected

    def write(self, piece: bytes) -> bool:
        """Writes a piece of a body of unknown length, as uvicorn's `send` does."""
        cycle = self._cycle
        if cycle.disconnected:
            return False
        is_open = cycle.chunked_encoding or isinstance(cycle.expected_content_length, _UntilTheEnd)
        if not is_open or cycle.response_complete:
            raise RuntimeError("no body of unknown length is being sent")
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if cycle.chunked_encoding else piece)
        return not cycle.flow.write_paused


class _PoliteTransport:
    """A transport that sends the head of an answer with its body, and closes only when the client has seen both.

    Each write is a system call, which costs up to a fifth of what the gateway does for a small chat. A head waits for
    its body until the event loop's next iteration, no longer.

    If the client is still sending when the connection is to end, the transport ends its own side and reads on for a
    while: the kernel would answer unread bytes with a reset, and a reset may overtake the answer.
    """

    __slots__ = ("_head", "_protocol", "_raw", "is_closing")

    def __init__(self, raw: asyncio.Transport, protocol: LimitedProtocol) -> None:
        self._raw = raw
        self._protocol = protocol
        self._head = b""
        self.is_closing = raw.is_closing

    def write(self, data: bytes) -> None:
        """Sends the data after all that was written before."""
        if self._head:
            head, self._head = self._head, b""
            if len(data) > MAX_JOINED_BYTES:
                self._raw.writelines((head, data))
            else:
                self._raw.write(head + data)
        elif data.startswith(STATUS_LINE_PREFIX):
            self._head = data
            self._protocol.loop.call_soon(self._flush)
        else:
            self._raw.write(data)

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self._raw.is_closing():
            self._raw.write(head)

    def close(self) -> None:
        """Ends the connection; the second call ends it at once."""
        self._flush()
        raw, protocol = self._raw, self._protocol
        if raw.get_write_buffer_size():
            protocol.watch_writes()
        if raw.is_closing() or not protocol.unfinished or raw.get_protocol() is not protocol:
            raw.close()
            return
        raw.set_protocol(_BodyDrain(raw, protocol))
        protocol.flow.resume_reading()
        raw.write_eof()


class _BodyDrain(asyncio.Protocol):
    """Reads and discards what a refused client still sends."""

    def __init__(self, raw: asyncio.Transport, protocol: LimitedProtocol) -> None:
        self._protocol = protocol
        self._end = protocol.loop.call_later(PROTOCOL_LINGER_SECONDS, raw.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.cancel()
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


def limited(settings: ServerSettings, max_connections: int, max_file_bytes: int = 0) -> type[LimitedProtocol]:
    """Returns the protocol with the configured limits; connections beyond `max_connections` are closed at once."""
    limits: dict[str, Any] = {
        "receive_timeout": settings.receive_timeout,
        "send_timeout": settings.send_timeout,
        "max_connections": max_connections,
        # Chunks have their own overhead; the body itself is measured where it is read.
        "max_message_bytes": 2 * settings.max_body_bytes + 2**20,
        "max_upload_bytes": 2 * max(settings.max_body_bytes, max_file_bytes) + 2**20,
    }
    return type("ConfiguredProtocol", (LimitedProtocol,), limits)
