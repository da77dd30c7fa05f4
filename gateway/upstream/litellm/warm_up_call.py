"""A call through litellm that goes nowhere: what litellm loads at its first call is there before the first real one."""

import asyncio
from typing import Any

import httpx

from gateway.core.errors import GatewayError
from gateway.core.types.chat import ModelDeployment
from gateway.core.types.upstreams import UpstreamRequest
from gateway.upstream.litellm.provider import LitellmUpstream
from gateway.upstream.litellm.wire import LitellmLibrary

ROUTE = "anthropic/claude-rehearsal"
"""litellm sends this provider's calls with the client that it is given and asks nobody else anything; what it loads is
the same for all providers, but for a hundredth of a second."""
SECONDS = 60.0


class RefusingTransport(httpx.AsyncBaseTransport):
    """Refuses each request without sending it."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """A 400 of no content."""
        return httpx.Response(400, stream=httpx.ByteStream(b"{}"), request=request)


async def rehearse(library: LitellmLibrary) -> None:
    """Loads litellm, then makes that call in a thread with an event loop of its own, since it computes for half a
    second."""
    await library.get()
    await asyncio.to_thread(lambda: asyncio.run(_call_nowhere(library)))


async def _call_nowhere(library: LitellmLibrary) -> None:
    nowhere = ModelDeployment(
        model="rehearsal",
        provider_model="claude-rehearsal",
        route=ROUTE,
        api_base="",
        api_key=None,
        operator_key=False,
        connect_timeout=SECONDS,
        first_byte_timeout=SECONDS,
        idle_timeout=SECONDS,
        protocol="litellm",
    )
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "rehearsal"}], "max_tokens": 1}
    async with httpx.AsyncClient(transport=RefusingTransport()) as client:
        try:
            await LitellmUpstream(client, library).complete(nowhere, UpstreamRequest(body))
        except GatewayError:  # it was refused, as it had to be
            return
