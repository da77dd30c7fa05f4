"""`GET /openapi.json`, and `GET /`, which names the gateway and its entry points. Neither needs a key."""

import asyncio
from functools import cache
from typing import Any

from gateway import __version__
from gateway.api.server.asgi import Receive, Scope, Send, send_json, send_start
from gateway.core import jsons

ABOUT = "A context-managing gateway in front of OpenAI-compatible models: set OPENAI_BASE_URL to …/v1."
LINKS = {
    "openapi": "/openapi.json",
    "models": "/v1/models",
    "health": "/health/ready",
    "metrics": "/metrics",
    "page": "/ui",
}


@cache
def document() -> bytes:
    """Renders the OpenAPI description as JSON. It is made at the first request, since nothing else needs it."""
    from gateway.api.openapi import component_schemas, paths

    schemas = component_schemas.ComponentSchemas()
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "context-gateway", "version": __version__, "description": ABOUT},
        "security": [{"key": []}],
        "paths": paths.paths(schemas),
        "components": {"schemas": schemas.made(), "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }
    return jsons.dumps(found)


class OpenApiEndpoint:
    """Serves `GET /openapi.json`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        content = await asyncio.to_thread(document)
        await send_start(send, 200, {"content-type": "application/json", "content-length": str(len(content))})
        await send({"type": "http.response.body", "body": content})


class RootEndpoint:
    """Serves `GET /`."""

    def __init__(self, *, metrics: bool, page: bool) -> None:
        served = {"metrics": metrics, "page": page}
        links = {name: path for name, path in LINKS.items() if served.get(name, True)}
        self._body = {"name": "context-gateway", "version": __version__, "description": ABOUT, "links": links}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(send, 200, self._body)
