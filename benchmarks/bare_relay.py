"""What the gateway is compared with: a relay of chat completions as one writes it with Starlette and httpx.

    python -m benchmarks.bare_relay PORT UPSTREAM CONNECTIONS

It parses nothing, stores nothing and counts nothing. With 0 for CONNECTIONS its pool is httpx's default (100, of which
20 are kept), otherwise of that size: the default could not hold 512 streams at once.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

FORWARDED = ("authorization", "content-type", "accept")
DEFAULT = httpx.Limits(max_connections=100, max_keepalive_connections=20)
RELAYED = ("content-type", "openai-organization", "x-request-id")


def create_app(upstream: str, limits: httpx.Limits) -> Starlette:
    """An application that sends `POST /v1/chat/completions` to the same path of `upstream`."""
    client = httpx.AsyncClient(base_url=upstream, timeout=None, limits=limits)

    async def relay(request: Request) -> Response:
        headers = {name: request.headers[name] for name in FORWARDED if name in request.headers}
        sent = client.build_request("POST", request.url.path, content=await request.body(), headers=headers)
        answer = await client.send(sent, stream=True)
        kept = {name: answer.headers[name] for name in RELAYED if name in answer.headers}
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            closing = BackgroundTask(answer.aclose)
            return StreamingResponse(answer.aiter_raw(), answer.status_code, kept, background=closing)
        content = await answer.aread()
        return Response(content, answer.status_code, kept)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    ready = Route("/health/ready", lambda request: JSONResponse({"status": "ok"}))
    return Starlette(routes=[Route("/v1/chat/completions", relay, methods=["POST"]), ready], lifespan=lifespan)


if __name__ == "__main__":
    size = int(sys.argv[3])
    pool = httpx.Limits(max_connections=size, max_keepalive_connections=size) if size else DEFAULT
    app = create_app(sys.argv[2], pool)
    # As the gateway's server runs: connections are not closed while a slow machine brings 512 of them into being.
    uvicorn.run(
        app,
        port=int(sys.argv[1]),
        log_level="error",
        access_log=False,
        http="httptools",
        loop="uvloop",
        timeout_keep_alive=75,
    )
