"""What went wrong with a connection, as the gateway's errors: host and kind of failure are told, and no key, path or
query (guarantee §7)."""

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

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
