"""`POST /mcp`: who may ask, and from where (guarantee §10.12). Light: the server is made at the first request."""

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from gateway.api.api_call import received
from gateway.api.auth import KeyAuthenticator, is_unnamed
from gateway.api.mcp.asker import ASKER, McpCaller
from gateway.api.mcp.past.conversation_search import PastSearch
from gateway.api.server.asgi import Receive, Scope, Send, header, send_json
from gateway.api.server.middleware import is_foreign, is_local
from gateway.core import errors, jsons
from gateway.core.config import exposure
from gateway.core.config.settings import Settings
from gateway.storage import EntityStore, LargeDocuments
from gateway.storage.conversations import PastReader

if TYPE_CHECKING:
    from gateway.api.mcp.server import McpServer

PATH = "/mcp"
MAX_BYTES = 2**20
"""Of a request: arguments are short."""
PACKAGES = ("mcp", "mcp_types")
INVALID_ID = {"code": -32600, "message": "Invalid request: `id` must be a string or an integer."}
"""JSON-RPC's error for a request that could not be answered by its id."""


class McpNotInstalled(errors.GatewayError):
    """The extra `mcp`, which serves `/mcp`, is not installed."""

    status = 501
    code = "mcp_not_installed"
    advice = "`pip install 'context-gateway[mcp]'`, then restart."
    may_be_charged = False

    def __init__(self) -> None:
        super().__init__("This gateway was installed without MCP. Install context-gateway[mcp] and start it anew.")


class McpEndpoint:
    """The endpoint. Answers are whole, so there is no GET for a stream, and no session to DELETE."""

    def __init__(
        self, settings: Settings, past: PastReader, things: EntityStore, auth: KeyAuthenticator, large: LargeDocuments
    ) -> None:
        self._settings = settings
        self._things = things
        self._auth = auth
        self._past = PastSearch(past, things, settings.context.document_min_chars, large)
        self._server: McpServer | None = None
        self._making = asyncio.Lock()

    def routes(self) -> list[Route]:
        """Lists the route of the endpoint; empty where `server.mcp` is off."""
        return [Route(PATH, self, methods=["POST"])] if self._settings.server.mcp == "on" else []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origins = self._settings.server.cors_origins
        origin = header(scope, b"origin")
        if is_foreign(scope) and "*" not in origins and origin not in origins:
            raise errors.Forbidden("A page of another site may not ask: server.cors_origins does not name its origin.")
        got = await received(scope, receive, self._auth, min(MAX_BYTES, self._settings.server.max_body_bytes))
        if _has_invalid_id(got.raw):
            await send_json(send, 400, {"jsonrpc": "2.0", "id": None, "error": INVALID_ID})
            return
        server = await self._made()
        is_here = exposure.is_loopback(self._settings.server.host.strip("[]")) and is_local(scope)
        is_one = is_here or not is_unnamed(got.caller)
        own = {**scope, ASKER: McpCaller(got.caller.tenant, is_one, got.caller.user)}
        own["headers"] = [pair for pair in scope["headers"] if pair[0] != b"origin"]  # it was checked above
        await server.handle(own, _again(got.raw, receive), send)

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()

    async def _made(self) -> "McpServer":
        async with self._making:
            if self._server is None:
                self._server = await self._make()
            return self._server

    async def _make(self) -> "McpServer":
        """Raises McpNotInstalled: the package is not there."""
        try:
            made = await asyncio.to_thread(_load)  # streams run meanwhile
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in PACKAGES:
                raise McpNotInstalled from None
            raise
        settings = self._settings
        on_loopback = not settings.auth.wants_keys and exposure.is_loopback(settings.server.host.strip("[]"))
        server, tools = made
        own = tools(self._past, self._things, settings.memory.things_days)
        found: McpServer = server(own, on_loopback=on_loopback, max_bytes=MAX_BYTES)
        return found


def _load() -> tuple[Any, Any]:
    from gateway.api.mcp import server, tools

    return server.McpServer, tools.McpTools


def _has_invalid_id(raw: bytes) -> bool:
    """Returns whether a request has an id that MCP does not allow: the package `mcp` would take it for a notification,
    which is not answered. What is no message at all is left to the package."""
    try:
        message = jsons.loads_exact(raw)
    except ValueError:
        return False
    if not isinstance(message, dict) or "method" not in message or "id" not in message:
        return False
    return not isinstance(message["id"], int | str) or isinstance(message["id"], bool)


def _again(raw: bytes, receive: Receive) -> Receive:
    """Returns the body that was read already, then the messages that follow."""
    rest: list[Any] = [{"type": "http.request", "body": raw, "more_body": False}]

    async def next_message() -> Any:
        return rest.pop() if rest else await receive()

    return next_message
