"""The HTTP client: httpx's API over aiohttp's connections."""

from typing import TYPE_CHECKING

import httpx

from gateway.models.exchange import Deployment
from gateway.upstream.faults import translated

if TYPE_CHECKING:
    import aiohttp


class AiohttpConnections(httpx.AsyncBaseTransport):
    """httpx-aiohttp's transport, loaded at its first request: aiohttp takes a tenth of a second to import.

    aiohttp's pool is several times cheaper per request than httpx's own, and cancelled requests leave it healthy.
    """

    def __init__(self, max_connections: int) -> None:
        self._max_connections = max_connections
        self._transport: httpx.AsyncBaseTransport | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See httpx."""
        if self._transport is None:
            self._transport = _transport(self._max_connections)
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        """Closes all connections."""
        if self._transport is not None:
            await self._transport.aclose()


def _transport(max_connections: int) -> httpx.AsyncBaseTransport:
    from httpx_aiohttp import AiohttpTransport

    transport: httpx.AsyncBaseTransport = AiohttpTransport(client=lambda: new_session(max_connections))
    return transport


def new_session(max_connections: int) -> "aiohttp.ClientSession":
    """aiohttp's session with its pool: keeps no cookies, sets no time limit and decodes no body by itself."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=max_connections, keepalive_timeout=30)
    timeout = aiohttp.ClientTimeout(total=None)
    cookies = aiohttp.DummyCookieJar()
    return aiohttp.ClientSession(
        connector=connector, cookie_jar=cookies, read_bufsize=2**18, timeout=timeout, auto_decompress=False
    )


def new_client(max_connections: int) -> httpx.AsyncClient:
    """A client for all upstreams: no redirects, nothing of the environment, no cookies kept between callers."""
    headers = {"user-agent": "context-gateway"}
    return httpx.AsyncClient(transport=AiohttpConnections(max_connections), trust_env=False, headers=headers)


async def get(client: httpx.AsyncClient, deployment: Deployment, path: str, seconds: float) -> httpx.Response:
    """`GET` of what lies beside the completions of a deployment, with its key.

    Raises:
        UpstreamError: no answer; one with an error status is the caller's to judge.
    """
    headers = {"authorization": f"Bearer {deployment.api_key}"} if deployment.api_key else {}
    timeout = httpx.Timeout(seconds, connect=deployment.connect_timeout)
    with translated(begun=False):
        return await client.get(f"{deployment.api_base}/{path}", headers=headers, timeout=timeout)


def warm_up() -> None:
    """Loads what the first request will need; to be run in a thread once the server answers."""
    import httpx_aiohttp  # noqa: F401 - for its effect
