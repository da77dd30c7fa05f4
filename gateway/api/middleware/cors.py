"""Pages of other origins as clients, where `server.cors_origins` names them: Starlette's middleware around the edge.

Headers are added outside of the edge, so that errors have them, too; preflights are answered inside of it, so that they
have an id and a line in the log like every request.
"""

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware

from gateway.api.server.fast_router import App, Receive, Scope, Send, send_start

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
ALL = "*"


class CorsPreflights:
    """Answers preflights of these origins; all other requests go on to the application."""

    def __init__(self, app: App, origins: Sequence[str]) -> None:
        self._app = app
        self._rules = _rules(app, origins)

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


class CrossOrigin:
    """Lets pages of these origins read answers. Requests without an `Origin` go on as they are."""

    def __init__(self, app: App, origins: Sequence[str]) -> None:
        self._app = app
        self._rules = _rules(app, origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self._rules.simple_response(scope, receive, send, request_headers=Headers(scope=scope))


def _rules(app: App, origins: Sequence[str]) -> CORSMiddleware:
    """No cookies: clients authenticate by a header, which a page must know."""
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=METHODS,
        allow_headers=(ALL,),
        expose_headers=(ALL,),
        max_age=600,
    )
