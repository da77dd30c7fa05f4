"""What the edge answers while the server is shutting down (guarantee §9)."""

import asyncio
from typing import Any

import pytest

from gateway.api.operations import ReadyEndpoint
from gateway.api.server.middleware import EdgeMiddleware, ShutdownState
from gateway.core import jsons
from gateway.core.clock import SystemClock
from gateway.core.instrumentation.metrics import GatewayMetrics


async def ask(edge: EdgeMiddleware, path: str) -> list[dict[str, Any]]:
    """The messages that a request is answered with."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    await edge({"type": "http", "method": "GET", "path": path, "headers": []}, receive, send)
    return sent


async def answers(scope: Any, receive: Any, send: Any) -> None:
    """An application that is well."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    if scope["path"] == "/v1/slow":
        await asyncio.sleep(10)
    await send({"type": "http.response.body", "body": b"whole"})


class Store:
    """A storage that is there."""

    async def ready(self) -> bool:
        return True


async def test_new_requests_are_turned_away_and_their_connection_closed() -> None:
    """503 `shutting_down`; an SDK tries again elsewhere."""
    draining = ShutdownState()
    edge = EdgeMiddleware(answers, draining, GatewayMetrics(()))
    assert (await ask(edge, "/v1/models"))[0]["status"] == 200
    draining.begun = True
    start, body = await ask(edge, "/v1/models")
    assert start["status"] == 503
    assert (b"connection", b"close") in start["headers"]
    assert jsons.loads(body["body"])["error"]["code"] == "shutting_down"
    assert (await ask(edge, "/health/live"))[0]["status"] == 200


async def test_not_ready_while_draining() -> None:
    """`/health/ready` says why."""
    draining = ShutdownState()
    edge = EdgeMiddleware(ReadyEndpoint(Store(), draining, SystemClock()), draining, GatewayMetrics(()))  # type: ignore[arg-type]
    assert (await ask(edge, "/health/ready"))[0]["status"] == 200
    draining.begun = True
    start, body = await ask(edge, "/health/ready")
    assert (start["status"], jsons.loads(body["body"])["reason"]) == (503, "shutting_down")


async def test_an_answer_that_has_begun_stays_without_its_end() -> None:
    """Cut in mid-stream: nothing more is sent, so that the server breaks the connection."""
    draining = ShutdownState()
    task = asyncio.ensure_future(ask(EdgeMiddleware(answers, draining, GatewayMetrics(())), "/v1/slow"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    draining.begun = True
    task.cancel()
    sent = await task
    assert [message.get("more_body") for message in sent] == [None, True]


async def test_a_cancelled_request_is_cancelled_otherwise() -> None:
    """Only an end of the server is turned into an answer."""
    task = asyncio.ensure_future(ask(EdgeMiddleware(answers, ShutdownState(), GatewayMetrics(())), "/v1/slow"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
