"""`api/server/middleware.py`, `app.py`: what is posted to a whole path passes the router by."""

import asyncio
from typing import Any

import pytest
from starlette.routing import Match, Route, Router

from gateway.api.server.asgi import App
from gateway.api.server.middleware import FastRouter, ShutdownState
from gateway.app import Gateway
from gateway.core.config.settings import Settings


def endpoint(name: str, taken: list[str]) -> App:
    async def take(scope: Any, receive: Any, send: Any) -> None:
        taken.append(f"{name} {scope['path']}")

    return take


ROUTES = [
    Route(path, endpoint("a route", [])) for path in ("/", "/v1/messages", "/v1/conversations", "/v1/{a}/{b}/items")
]


@pytest.mark.parametrize(
    ("method", "path", "taken"),
    [
        ("POST", "/v1/messages", "own /v1/messages"),
        ("POST", "/v1/messages/", "own /v1/messages"),
        ("GET", "/v1/messages", "others /v1/messages"),
        ("POST", "/v1/files", "others /v1/files"),
        ("POST", "/v1/files/", "others /v1/files/"),
        ("GET", "/v1/conversations/", "others /v1/conversations"),
        ("GET", "/v1/conversations/x/items//", "others /v1/conversations/x/items"),
        ("GET", "/", "others /"),
    ],
)
def test_only_what_is_posted_to_the_path_goes_past_the_router(method: str, path: str, taken: str) -> None:
    found: list[str] = []
    direct = FastRouter({"/v1/messages": endpoint("own", found)}, endpoint("others", found), ROUTES)
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": []}
    nothing: Any = None
    asyncio.run(direct(scope, nothing, nothing))
    assert found == [taken]


def test_each_such_path_is_served_as_the_router_would_serve_it() -> None:
    api = Gateway(Settings()).api
    routes = api.routes(ShutdownState())
    router = Router(routes, default=api.relay)
    paths = api.posted(routes)
    assert {"/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"} <= paths.keys()
    for path, served in paths.items():
        scope = {"type": "http", "method": "POST", "path": path.rstrip("/"), "root_path": "", "headers": []}
        full = (route.app for route in routes if route.matches(scope)[0] == Match.FULL)
        assert served is next(full, router.default), path
