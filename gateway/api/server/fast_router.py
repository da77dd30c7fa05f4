"""What every request gets: an id, errors in OpenAI's shape, one log line without content or keys."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Protocol

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match

from gateway.core import errors, ids, jsons, ports
from gateway.core.clock import SystemClock
from gateway.core.formats.anthropic import message_events
from gateway.core.instrumentation import logs, metrics, refusals
from gateway.core.instrumentation.metrics import GatewayMetrics
from gateway.core.types.chat import RequestCaller

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logs.get_logger("gateway.api")
EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
STREAM_END = b"data: [DONE]\n\n"
CHAT_PATH = "/v1/chat/completions"
MESSAGES_PATH = "/v1/messages"
MODELS_PATH = "/v1/models"
NEARBY: dict[frozenset[str], str] = {
    frozenset({"health", "healthz", "healthcheck", "livez", "readyz", "ping", "status"}): (
        ": /health/live says whether the process runs, /health/ready whether it can answer"
    ),
    frozenset({"docs", "redoc", "swagger", "openapi", "openapi.yaml", "schema"}): (
        ": the API is described at /openapi.json, and GET / says what else there is"
    ),
    frozenset({"chat", "responses", "messages", "models", "embeddings", "completions", "files", "conversations"}): (
        ": the API is below /v1, so a client's base URL ends with it (http://HOST:PORT/v1)"
    ),
    frozenset({"dashboard", "admin", "login", "console"}): ": the page for operators is at /ui",
    frozenset({"v1"}): (
        ": a client's base URL ends with /v1 once (with Anthropic's SDK it ends without), and its path follows"
    ),
}
"""What somebody was probably looking for, by the first segment of a path that is not served."""
ANTHROPIC_VERSION_HEADER = b"anthropic-version"
"""The header that every client of Anthropic's API sends."""
CLIENT = "gateway.client"
"""The key of the scope under which a request finds its `ClientConnection`, if the server has one."""
SENDING = "gateway.send"
"""The key of the scope under which a streamed answer is sent, as signs of life may have begun it."""
NOTHING_SENT = 499
"""Status in logs and metrics of a request whose client left before its answer began."""


class ClientDisconnected(Exception):
    """The client has left."""


class ClientConnection(Protocol):
    """The connection of a request, as far as it can be asked and written to without waiting."""

    def has_left(self) -> bool: ...

    def write(self, piece: bytes) -> bool:
        """Sends a piece of a body that has begun and is not complete; returns whether more can be taken now. What the
        client does not take at once is kept in memory."""
        ...


class ShutdownState:
    """Whether the server is shutting down (guarantee §9)."""

    def __init__(self) -> None:
        self.begun = False

    def admit(self, path: str) -> None:
        """Raises ShuttingDown: the server takes no new requests, other than for `/health/`."""
        if self.begun and not path.startswith("/health/"):
            raise errors.ShuttingDown


class FastRouter:
    """Takes what is posted to endpoints past the router, whose patterns are tried one after the other.

    A slash behind a path of ours is none: a redirect would send key and prompt again, to wherever the `Host` says.
    """

    def __init__(self, posted: Mapping[str, App], others: App, routes: Sequence[BaseRoute] = ()) -> None:
        """`posted`: the endpoints by their paths; `routes`: every path of ours."""
        self._posted = posted
        self._others = others
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._others
        if scope["type"] == "http":
            if scope["path"].endswith("/"):
                self._without_slash(scope)
            if scope["method"] == "POST" and (found := self._posted.get(scope["path"])) is not None:
                scope["path_params"] = {}  # as the router says it of whole paths
                endpoint = found
        await endpoint(scope, receive, send)

    def _without_slash(self, scope: Scope) -> None:
        bare = {**scope, "path": scope["path"].rstrip("/")}
        if self._is_ours(bare) and not self._is_ours(scope):
            scope["path"], scope["raw_path"] = bare["path"], scope["raw_path"].rstrip(b"/")

    def _is_ours(self, scope: Scope) -> bool:
        return any(route.matches(scope)[0] is not Match.NONE for route in self._routes)


class EdgeMiddleware:
    def __init__(
        self,
        app: App,
        draining: ShutdownState,
        metrics: GatewayMetrics,
        refused: refusals.RefusedRequests | None = None,
        clock: ports.Clock | None = None,
    ) -> None:
        """`refused`: where requests are noted that are refused before a model is asked."""
        self._app = app
        self._metrics = metrics
        self._refused = refusals.RefusedRequests() if refused is None else refused
        self._clock = clock or SystemClock()
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})  # WebSockets are not relayed (guarantee §1)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        request_id = ids.new_id("req_")
        log_facts: dict[str, Any] = {"request_id": request_id}
        scope["gateway"] = log_facts
        scope["app"] = None  # makes Starlette's router raise instead of answering in plain text
        status, begun = NOTHING_SENT, False
        self._metrics.began()

        async def marked(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                headers = [pair for pair in message.get("headers", ()) if pair[0].lower() != b"x-request-id"]
                message["headers"] = [*headers, (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            self._draining.admit(scope["path"])
            await self._app(scope, receive, marked)
        except asyncio.CancelledError:
            log_facts["error_code"] = errors.ShuttingDown.code
            if not self._draining.begun:
                raise
            if not begun:  # an answer that has begun stays without its end, and the connection is broken
                late = errors.ShuttingDown()
                await send_json(marked, late.status, _worded(late, scope), late.headers)
        except ClientDisconnected:
            log_facts["error_code"] = "client_disconnected"
        except Exception as error:  # the last place where a fault can still become an answer
            fault = as_gateway_error(error, request_id, scope["path"])
            note_fault(log_facts, fault)
            self._note_refused(scope, fault)
            if begun:
                raise  # the answer has begun: all that is left is to break the connection
            await send_json(marked, fault.status, _worded(fault, scope), fault.headers)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.ended(scope["method"], scope["path"], status, seconds, log_facts)
            duration = round(1000 * seconds, 1)
            line = {"method": scope["method"], "path": scope["path"], "status": status, "duration_ms": duration}
            log.info("request", **line, **log_facts)

    def _note_refused(self, scope: Scope, fault: errors.GatewayError) -> None:
        """Notes what asks for a model and is refused before one is asked: that leaves no bill."""
        was_asked = fault.has_bill or isinstance(fault, errors.UpstreamError)
        if scope["method"] != "POST" or not 400 <= fault.status < 500 or was_asked:
            return
        facts, endpoint = scope["gateway"], metrics.endpoint_of(scope["path"])
        if endpoint in (metrics.OTHER, metrics.PAGE_LABEL):
            return
        told = {"field": refusals.field_of(fault.param), "key_id": facts.get("key_id")}
        who = facts.get("tenant", refusals.NO_TENANT)
        self._refused.note(
            refusals.RefusedRequest(
                facts["request_id"], self._clock.now(), who, endpoint, fault.status, fault.code or fault.type, **told
            )
        )


def came_by_messages(scope: Scope) -> bool:
    """Whether a request is one of Anthropic's API: by its path, or at a path that both have by its header."""
    path = scope.get("path", "")
    if path.startswith(MODELS_PATH):
        return any(name == ANTHROPIC_VERSION_HEADER for name, _ in scope["headers"])
    return bool(path == MESSAGES_PATH or path.startswith(MESSAGES_PATH + "/"))


def _worded(fault: errors.GatewayError, scope: Scope) -> dict[str, Any]:
    """An error in the words of the API that the request came by."""
    return message_events.error_body(fault, scope["gateway"]["request_id"]) if came_by_messages(scope) else fault.body()


def note_caller(log_facts: dict[str, Any], caller: RequestCaller) -> None:
    """Puts on its request's line of the log who asks: the tenant, and the id of a key of ours."""
    log_facts["tenant"] = caller.tenant
    if caller.key is not None and caller.key_id is not None:
        log_facts["key_id"] = caller.key_id


def note_fault(log_facts: dict[str, Any], fault: errors.GatewayError) -> None:
    """Puts an error on its request's line of the log."""
    log_facts["error_code"] = fault.code
    if fault.is_logged:
        log_facts["reason"] = fault.message
    if isinstance(fault, errors.UpstreamError) and fault.host:
        log_facts["upstream"] = fault.host


def as_gateway_error(error: Exception, request_id: str, path: str = "") -> errors.GatewayError:
    """Returns what a client is told of an error. One that nobody foresaw is in the log, with its traceback."""
    if isinstance(error, errors.GatewayError):
        return error
    if isinstance(error, HTTPException):
        if error.status_code == 405:
            return errors.MethodNotAllowed("This method is not allowed here.")
        return nothing_at(path)
    log.fault("request_failed", error, request_id=request_id)
    return errors.InternalError("The gateway failed to answer this request.")


def nothing_at(path: str) -> errors.NotFound:
    """Returns the 404 of a path that is not served, with what its caller was probably looking for."""
    first, _, _ = path.strip("/").partition("/")
    meant = next((text for names, text in NEARBY.items() if first.lower() in names), "")
    return errors.NotFound(f"There is nothing at this path{meant}.")


async def send_json(send: Send, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
    await send_json_bytes(send, status, jsons.dumps(body), headers)


async def send_json_bytes(send: Send, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
    described = {"content-type": "application/json", "content-length": str(len(content))}
    await send_start(send, status, {**(headers or {}), **described})
    await send({"type": "http.response.body", "body": content})


async def send_start(send: Send, status: int, headers: dict[str, str]) -> None:
    """Status and headers of an answer whose body is still to be sent."""
    encoded = [(_name(name), value.encode("latin-1", "replace")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


@lru_cache(maxsize=256)
def _name(header: str) -> bytes:
    return header.lower().encode()


def event(data: object) -> bytes:
    """A server-sent event as chat clients take it: `data:` alone, never a name (guarantee §6).

    Line separators and control characters are escaped: many clients split the stream at them, too.
    """
    content = jsons.dumps(data)
    if not content.isascii() or b"\x7f" in content:
        content = jsons.LINE_SEPARATORS.sub(jsons.escaped, content)
    return b"data: " + content + b"\n\n"


def named_event(data: dict[str, Any]) -> bytes:
    """A server-sent event under the name of its `type`, as Responses and Messages have them; never on a chat."""
    return b"event: " + str(data["type"]).encode() + b"\n" + event(data)


def answer_headers(conversation_id: str | None, cost: Decimal | None = None) -> dict[str, str]:
    """The headers with an answer's conversation, if it has one, and its cost in USD, if it is known (guarantee §6)."""
    headers = {"x-conversation-id": conversation_id} if conversation_id else {}
    return headers if cost is None else {**headers, "x-gateway-response-cost": f"{cost:f}"}
