"""The official client of MCP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2

from tests.support.gateway_process import GatewayProcess

if TYPE_CHECKING:
    from mcp import Client


@asynccontextmanager
async def connected(gateway: GatewayProcess, key: str | None, mode: Any = "auto") -> "AsyncIterator[Client]":
    """The official client, with a key as it is set in an agent's configuration. Its package is imported here, since
    every process that runs tests imports this module, and few of them need it."""
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http_client:
        transport = streamable_http_client(f"{gateway.url}/mcp", http_client=http_client)
        async with Client(transport, mode=mode) as client:
            yield client
