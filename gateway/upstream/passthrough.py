"""A provider's other endpoints, passed on byte by byte (adapter of `ports.RawUpstream`).

On aiohttp itself: httpx would write addresses anew, and a pool of its own keeps long transfers out of the way of chats.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator
from typing import TYPE_CHECKING

from gateway.errors import UpstreamInterrupted, UpstreamInvalidResponse, UpstreamTimeout, UpstreamUnreachable
from gateway.models.exchange import Deployment
from gateway.models.relay import Headers, RelayedCall
from gateway.upstream.refusals import MAX_ERROR_BYTES, check_refusal

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

REPEATED_BY_CLIENT = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
NOT_ADDED = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class Passthrough:
    """Opens relayed calls; a connection that failed before any byte is tried once more, nothing else is."""

    def __init__(self, max_connections: int) -> None:
        self._max_connections = max_connections
        self._session: ClientSession | None = None

    async def aclose(self) -> None:
        """Closes all connections."""
        if self._session is not None:
            await self._session.close()

    @contextlib.asynccontextmanager
    async def open(self, deployment: Deployment, call: RelayedCall) -> AsyncIterator["RawAnswer"]:
        """See `ports.RawUpstream`."""
        response = await self._send(deployment, call)
        try:
            if not 200 <= response.status < 600:
                raise UpstreamInvalidResponse(f"The upstream answered with status {response.status}.")
            answer = RawAnswer(response, deployment)
            if response.status >= 400:
                await answer.check(call.method)
            yield answer
        finally:
            response.close()

    async def _send(self, deployment: Deployment, call: RelayedCall) -> "ClientResponse":
        body = call.body if call.body is None or isinstance(call.body, bytes) else _Fed(call.body, deployment)
        try:
            return await self._try(deployment, call, body)
        except UpstreamUnreachable as error:
            if not _may_repeat(call, body, error.__cause__):
                raise
        return await self._try(deployment, call, body)

    async def _try(self, deployment: Deployment, call: RelayedCall, body: "bytes | _Fed | None") -> "ClientResponse":
        import aiohttp
        import yarl
        from multidict import CIMultiDict

        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._max_connections, keepalive_timeout=30)
            timeout, cookies = aiohttp.ClientTimeout(total=None), aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=cookies, read_bufsize=2**18, timeout=timeout, auto_decompress=False
            )
        headers = CIMultiDict(call.headers)
        headers.update(deployment.headers)
        if deployment.api_key:
            headers["authorization"] = f"Bearer {deployment.api_key}"
        async with _deadline(deployment.first_byte_timeout) as deadline:
            if isinstance(body, _Fed):
                body.deadline = deadline
            with _translated(begun=False):
                url = yarl.URL(f"{deployment.api_base}/{call.target}", encoded=True)
                return await self._session.request(
                    call.method,
                    url,
                    headers=headers,
                    data=body,
                    allow_redirects=False,
                    skip_auto_headers=NOT_ADDED,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=deployment.connect_timeout),
                )


class RawAnswer:
    """One answer; that of an error is read before it is passed on (adapter of `RelayedAnswer`)."""

    def __init__(self, response: "ClientResponse", deployment: Deployment) -> None:
        self._response = response
        self._deployment = deployment
        self._held: bytes | None = None
        self.status = response.status
        self.headers: Headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in response.raw_headers]

    async def check(self, method: str) -> None:
        """
        Raises:
            UpstreamError: what the client is told instead of the error that upstream sent.
        """
        raw, size = [], 0
        async for piece in self.pieces():
            raw.append(piece)
            size += len(piece)
            if size > MAX_ERROR_BYTES:
                break
        self._held = b"".join(raw)
        check_refusal(method, self.status, self._held, self._response.headers, self._deployment)
        if method != "HEAD":
            kept = [pair for pair in self.headers if pair[0].lower() != "content-length"]
            self.headers = [*kept, ("content-length", str(size))]

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """See `RelayedAnswer`."""
        if self._held is not None:
            yield self._held
            return
        seconds = self._deployment.first_byte_timeout  # headers alone are no sign that the answer has begun
        while True:
            async with _deadline(seconds):
                with _translated(begun=True):
                    piece = await self._response.content.readany()
            if not piece:
                return
            yield piece
            seconds = self._deployment.idle_timeout


class _Fed:
    """A body in pieces that moves the deadline of its own request: upstream's time does not run while the client's
    pieces are waited for, and `first_byte` begins when the last of them is sent."""

    def __init__(self, pieces: AsyncIterable[bytes], deployment: Deployment) -> None:
        self._pieces = pieces
        self._deployment = deployment
        self.begun = False
        self.deadline: asyncio.Timeout | None = None

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        self.begun = True
        self._allow(None)
        async for piece in self._pieces:
            self._allow(self._deployment.idle_timeout)
            yield piece
            self._allow(None)
        self._allow(self._deployment.first_byte_timeout)

    def _allow(self, seconds: float | None) -> None:
        if self.deadline is not None:
            with contextlib.suppress(RuntimeError):  # the answer has begun before the upload ended
                now = asyncio.get_running_loop().time()
                self.deadline.reschedule(None if seconds is None else now + seconds)


def _may_repeat(call: RelayedCall, body: "bytes | _Fed | None", cause: BaseException | None) -> bool:
    """Whether nothing of a body is lost by it, and the client has not tried again by itself."""
    import aiohttp

    if isinstance(body, _Fed):
        return not body.begun
    return isinstance(cause, aiohttp.ClientConnectorError) or call.method not in REPEATED_BY_CLIENT


@contextlib.asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[asyncio.Timeout]:
    try:
        async with asyncio.timeout(seconds) as deadline:
            yield deadline
    except TimeoutError as error:
        raise UpstreamTimeout("The upstream took too long.") from error


@contextlib.contextmanager
def _translated(*, begun: bool) -> Iterator[None]:
    """Turns aiohttp's exceptions into the gateway's.

    Args:
        begun: whether a part of the answer has been read already.
    """
    import aiohttp

    try:
        yield
    except (aiohttp.InvalidURL, ValueError) as error:
        raise UpstreamUnreachable("The upstream's address is not usable.") from error
    except aiohttp.ClientResponseError as error:
        raise UpstreamInvalidResponse("The upstream's answer is not HTTP.") from error
    except (aiohttp.ClientError, OSError) as error:
        if begun:
            raise UpstreamInterrupted("The upstream broke off its answer.") from error
        raise UpstreamUnreachable("The upstream could not be reached.") from error
