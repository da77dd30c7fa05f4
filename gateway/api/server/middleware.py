"""The middleware around every endpoint: an id, errors in OpenAI's shape, one log line without content or keys; the
origin of a request, this machine or another site's page (guarantee §10.12, §13.2); and CORS for the pages of other
origins that `server.cors_origins` names.

CORS headers are added outside of the edge, so that errors have them, too; preflights are answered inside of it, so that
they have an id and a line in the log like every request.
"""

import asyncio
import ipaddress
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Match, Route

from gateway.api.server.asgi import (
    App,
    ClientDisconnected,
    Message,
    Receive,
    Scope,
    Send,
    came_by_messages,
    send_json,
    send_start,
)
from gateway.core import errors, ids, ports
from gateway.core.clock import SystemClock
from gateway.core.config import exposure
from gateway.core.formats.anthropic import message_events
from gateway.core.instrumentation import logs, metrics, refusals
from gateway.core.instrumentation.metrics import GatewayMetrics
from gateway.core.types import chat
from gateway.core.types.chat import RequestCaller

log = logs.get_logger("gateway.api")
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
"""What the caller was probably looking for, by the first segment of a path that is not served."""
NOTHING_SENT = 499
"""Status in logs and metrics of a request whose client left before its answer began."""
FORWARDED = frozenset((b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"))
"""Headers that only a proxy adds: what comes by one does not come from this machine."""
PRIVATE = (".localhost", ".internal", ".local", ".lan", ".home.arpa")
"""Endings of host names that nobody on the internet can make resolve to this machine."""
ANY_ORIGIN = "*"
ORIGIN_SAFE_METHODS = ("GET", "HEAD")
"""Methods with which browsers send no `Origin` to the page's own host."""
STRICTER = ("/ui", "/mcp", "/health/")
"""Paths that check the origin of a request themselves, or spend nothing and disclose nothing."""
MAX_HOSTS = 100
"""Values of `Host` that are remembered."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
ALL = "*"


class ShutdownState:
    """Whether the server is shutting down (guarantee §9)."""

    def __init__(self) -> None:
        self.begun = False

    def admit(self, path: str) -> None:
        """Raises ShuttingDown: the server takes no new requests, other than for `/health/`."""
        if self.begun and not path.startswith("/health/"):
            raise errors.ShuttingDown


class FastRouter:
    """Sends POST requests to endpoints directly, without the router, which tries its patterns one after the other.

    A path of ours with a trailing slash is unknown: a redirect would send key and prompt again, to wherever `Host`
    points.
    """

    def __init__(self, posted: Mapping[str, App], others: App, routes: Sequence[Route] = ()) -> None:
        """`posted`: the endpoints by their paths; `routes`: every path of the gateway."""
        self._posted = posted
        self._others = others
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._others
        if scope["type"] == "http":
            if scope["path"].endswith("/"):
                self._without_slash(scope)
            if scope["method"] == "POST" and (found := self._posted.get(scope["path"])) is not None:
                scope["path_params"] = {}  # as the router sets it for whole paths
                endpoint = found
        try:
            await endpoint(scope, receive, send)
        except HTTPException as error:
            if error.status_code != 405:
                raise
            methods = {each for route in self._routes_at(scope) for each in route.methods or ()}
            raise errors.MethodNotAllowed(methods) from None

    def _without_slash(self, scope: Scope) -> None:
        bare = {**scope, "path": scope["path"].rstrip("/")}
        if any(self._routes_at(bare)) and not any(self._routes_at(scope)):
            scope["path"], scope["raw_path"] = bare["path"], scope["raw_path"].rstrip(b"/")

    def _routes_at(self, scope: Scope) -> Iterator[Route]:
        """Yields the routes of a path, with whatever method."""
        return (route for route in self._routes if route.matches(scope)[0] is not Match.NONE)


REQUEST_ID_NAMES = (b"x-request-id", b"request-id")
"""Headers with a request's id: OpenAI's, then Anthropic's."""


class EdgeMiddleware:
    def __init__(
        self,
        app: App,
        draining: ShutdownState,
        metrics: GatewayMetrics,
        refused: refusals.RefusedRequests | None = None,
        clock: ports.Clock | None = None,
    ) -> None:
        """`refused`: where requests are noted that are refused before a model is called."""
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
                names = REQUEST_ID_NAMES if came_by_messages(scope) else REQUEST_ID_NAMES[:1]
                headers = [pair for pair in message.get("headers", ()) if pair[0].lower() not in names]
                message["headers"] = [*headers, *[(name, request_id.encode()) for name in names]]
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
            log_facts["error_code"] = errors.CLIENT_LEFT
        except Exception as error:  # the last place where a fault can still become an answer
            fault = as_gateway_error(error, request_id, scope["path"])
            note_fault(log_facts, fault)
            note_refused(self._refused, self._clock, scope, fault)
            if begun:
                raise  # the answer has begun: all that is left is to break the connection
            await send_json(marked, fault.status, _worded(fault, scope), fault.headers)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.ended(scope["method"], scope["path"], status, seconds, log_facts)
            duration = round(1000 * seconds, 1)
            line = {"method": scope["method"], "path": scope["path"], "status": status, "duration_ms": duration}
            log.info("request", **line, **log_facts)


def note_refused(
    refused: refusals.RefusedRequests, clock: ports.Clock, scope: Scope, fault: errors.GatewayError
) -> None:
    """Notes a request for a model that is refused before the model is called: it leaves no bill."""
    was_asked = fault.has_bill or isinstance(fault, errors.UpstreamError)
    if scope["method"] != "POST" or not 400 <= fault.status < 500 or was_asked:
        return
    facts, endpoint = scope["gateway"], metrics.endpoint_of(scope["path"])
    if endpoint in (metrics.OTHER, metrics.PAGE_LABEL):
        return
    told = {"field": refusals.field_of(fault.param), "key_id": facts.get("key_id")}
    who = facts.get("tenant", refusals.NO_TENANT)
    refused.note(
        refusals.RefusedRequest(
            facts["request_id"], clock.now(), who, endpoint, fault.status, fault.code or fault.type, **told
        )
    )


def _worded(fault: errors.GatewayError, scope: Scope) -> dict[str, Any]:
    """Returns an error in the form of the API that the request came by."""
    return message_events.error_body(fault, scope["gateway"]["request_id"]) if came_by_messages(scope) else fault.body()


def note_caller(log_facts: dict[str, Any], caller: RequestCaller) -> None:
    """Adds the caller to the log line of its request: the tenant, and the id of a key of the gateway."""
    log_facts["tenant"] = caller.tenant
    if caller.key is not None and caller.key_id is not None:
        log_facts["key_id"] = caller.key_id


def note_fault(log_facts: dict[str, Any], fault: errors.GatewayError) -> None:
    """Adds an error to the log line of its request."""
    log_facts["error_code"] = fault.code
    if fault.is_logged:
        log_facts["reason"] = fault.message
    if isinstance(fault, errors.UpstreamError) and fault.host:
        log_facts["upstream"] = fault.host


def as_gateway_error(error: Exception, request_id: str, path: str = "") -> errors.GatewayError:
    """Returns the error that a client gets for `error`. An unforeseen one is logged, with its traceback."""
    if isinstance(error, errors.GatewayError):
        return error
    if isinstance(error, HTTPException):
        return nothing_at(path)
    log.fault("request_failed", error, request_id=request_id)
    return errors.InternalError("The gateway failed to answer this request.")


def nothing_at(path: str) -> errors.NotFound:
    """Returns the 404 of a path that is not served, with what its caller was probably looking for."""
    first, _, _ = path.strip("/").partition("/")
    meant = next((text for names, text in NEARBY.items() if first.lower() in names), "")
    return errors.NotFound(f"There is nothing at this path{meant}.")


class OriginCheck:
    """Refuses other sites' pages as `check_near` does. Nearly all requests have no `Origin` and name a host that was
    checked before."""

    def __init__(self, app: App, origins: Sequence[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._known: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and ANY_ORIGIN not in self._origins and not scope["path"].startswith(STRICTER):
            self._check(scope["headers"], scope["method"])
        await self._app(scope, receive, send)

    def _check(self, headers: chat.Headers, method: str) -> None:
        named = dict(headers)
        host = named.get(b"host")
        if b"origin" not in named and host in self._known:
            return
        check_near(headers, self._origins, method)
        is_plain = not any(name == b"origin" or name in FORWARDED for name, _ in headers)
        if host is not None and is_plain and len(self._known) < MAX_HOSTS:
            self._known.add(host)


def check_near(headers: chat.Headers, origins: AbstractSet[str], method: str) -> None:
    """Raises Forbidden: a page of another site is behind the request, where anybody on this machine may spend an
    operator's key (guarantee §10.16). Such a page is known by its `Origin`, which browsers send with all but plain
    reads, and no page can leave out; a page whose name was made to resolve to this machine (DNS rebinding), by its
    `Host`. A request through a proxy may have any `Host`, unless it only reads: a rebound page sends no `Origin` with
    that, and may set the headers of proxies itself.
    `origins`: those whose pages are allowed."""
    named = {name: value.decode("latin-1") for name, value in headers}
    origin, host = named.get(b"origin"), named.get(b"host", "")
    if origin is not None and origin not in origins and not exposure.is_loopback(host_of(origin)):
        text = f"A page of {origin[:100]} may not ask: server.cors_origins does not name it."
        raise errors.Forbidden(text, param="origin")
    is_configured = any(each.partition("://")[2] == host for each in origins)
    by_proxy = method not in ORIGIN_SAFE_METHODS and not FORWARDED.isdisjoint(named)
    if not (is_configured or by_proxy or _is_private(host_of(f"//{host}"))):
        ways = "set auth.keys, or name its origin in server.cors_origins"
        text = f"The host {host[:100]} is not this machine's: ask by a loopback address, {ways}."
        raise errors.Forbidden(text, param="host")


def _is_private(host: str) -> bool:
    """Returns whether a host is an address, or a name that no foreign page can have."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." not in host.rstrip(".") or host.rstrip(".").lower().endswith(PRIVATE)
    return True


def is_local(scope: Scope) -> bool:
    """Returns whether a request comes from this machine, through no proxy, and names a loopback host: a foreign page
    whose name resolves to this machine (DNS rebinding) names its own."""
    names = [value for name, value in scope["headers"] if name == b"host"]
    if len(names) != 1 or any(name in FORWARDED for name, _ in scope["headers"]):
        return False
    return exposure.is_loopback(host_of(f"//{names[0].decode('latin-1')}")) and _is_loopback_peer(scope.get("client"))


def is_foreign(scope: Scope) -> bool:
    """Returns whether another site's page is behind a request: by `Sec-Fetch-Site`, which browsers send to loopback and
    by TLS and no page can set, else by `Origin`. `server.cors_origins` lets such pages call the API, never the web UI.

    A link of another site may be followed. A form of the web UI has the `Origin` `null`, since the UI sends no
    referrer:
    without `Sec-Fetch-Site` only the form's token proves its origin.
    """
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    is_link = scope["method"] in ("GET", "HEAD")
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site == "same-origin":
        return False
    if site not in (None, "none") and not (is_link and headers.get(b"sec-fetch-mode") == "navigate"):
        return True
    if origin is None or (origin == "null" and not is_link):
        return False
    return str(origin).partition("://")[2].lower() != str(headers.get(b"host", "")).lower()


def host_of(address: str) -> str:
    """Returns the host that an address names, without its port; empty if it names none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _is_loopback_peer(client: tuple[str, int] | None) -> bool:
    """Returns whether a connection comes from this machine, as far as is known."""
    try:
        return client is None or ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return True  # not by an address: a socket of this machine


class _CorsOrigins:
    """What CORS allows to pages of these origins: no cookies, as clients authenticate by a header, which a page must
    know."""

    def __init__(self, app: App, origins: Sequence[str]) -> None:
        self._app = app
        self._rules = CORSMiddleware(
            app,
            allow_origins=list(origins),
            allow_methods=METHODS,
            allow_headers=(ALL,),
            expose_headers=(ALL,),
            max_age=600,
        )


class CorsPreflights(_CorsOrigins):
    """Answers preflights of these origins; passes all other requests to the application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "OPTIONS":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if "origin" not in headers or "access-control-request-method" not in headers:
            await self._app(scope, receive, send)
            return
        answer = self._rules.preflight_response(headers)
        allowed = {name: value for name, value in answer.headers.items() if not name.startswith("content-")}
        await send_start(send, answer.status_code, {**allowed, "content-length": "0"})
        await send({"type": "http.response.body", "body": b""})


class CrossOrigin(_CorsOrigins):
    """Lets pages of these origins read answers. Requests without an `Origin` pass unchanged."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self._rules.simple_response(scope, receive, send, request_headers=Headers(scope=scope))
