"""Receives a request body within its limits, and notices when the client leaves."""

import asyncio
from collections.abc import Coroutine
from io import BytesIO
from typing import Any, TypeVar

from gateway.api.server.admission import BodySlot
from gateway.api.server.fast_router import ClientDisconnected, Receive, Scope
from gateway.core import jsons
from gateway.core.errors import InvalidRequest, RequestTooLarge, UnsupportedMediaType

T = TypeVar("T")
LISTEN_AFTER = 0.1
"""Seconds after which a running request's connection is watched: most are answered sooner, and watching costs time."""
LARGE_BODY = 2**20
"""Bytes from which a body is parsed, checked and digested in a thread: streams of other requests must not wait."""


async def read_body(scope: Scope, receive: Receive, max_bytes: int, place: BodySlot | None = None) -> bytes:
    """The whole body. `api/server/protocol.py` limits how long it may take.
    `place`: what it holds of the budget for large bodies.
    Raises Overloaded: it is large, and there is no room for it; UnsupportedMediaType: it is encoded, whatever it then
    holds; RequestTooLarge: by its declared length before it is read, else as soon as it is too long;
    ClientDisconnected: the client left before it was complete."""
    check_encoding(scope)
    declared = header(scope, b"content-length")
    expected = int(declared) if declared and declared.isdigit() else max_bytes
    if expected > max_bytes:
        raise RequestTooLarge(f"The request body exceeds {max_bytes} bytes.")
    whole: BytesIO | None = None
    piece: bytes
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        piece = message.get("body", b"")
        size += len(piece)
        if size > max_bytes:
            raise RequestTooLarge(f"The request body exceeds {max_bytes} bytes.")
        if whole is None:
            if not message.get("more_body"):
                return piece
            whole = BytesIO()
        if place is not None:
            await place.grow(size, expected)
        whole.write(piece)
        if not message.get("more_body"):
            return whole.getvalue()  # without a copy, which joined pieces would be


def json_body(raw: bytes) -> dict[str, Any]:
    """A body as a JSON object, halves of characters mended (guarantee §1.9); no body is an empty one.
    Raises InvalidRequest: it is no JSON object."""
    try:
        return an_object(jsons.loads_mended(raw or b"{}"))
    except jsons.JSONDecodeError as error:
        raise no_json(error) from None


def an_object(body: Any) -> dict[str, Any]:
    """Raises InvalidRequest: the body is no JSON object."""
    if not isinstance(body, dict):
        raise InvalidRequest("The request body must be a JSON object.", code="invalid_json")
    return body


def no_json(error: Exception) -> InvalidRequest:
    """The error for a body that cannot be parsed."""
    return InvalidRequest(f"The request body is not valid JSON: {error}.", code="invalid_json")


def check_encoding(scope: Scope) -> None:
    """No encoding is decoded, and what says that it is encoded is not taken for plain text.
    Raises UnsupportedMediaType: it says so."""
    if b"content-encoding" not in dict(scope["headers"]):
        return
    for name, value in scope["headers"]:
        encoding = value.strip().lower() if name == b"content-encoding" else b""
        if encoding not in (b"", b"identity"):
            text = "The Content-Encoding of the request is not decoded here; send the body as it is (identity)."
            error = UnsupportedMediaType(text, param="content-encoding")
            error.headers = {"accept-encoding": "identity"}
            raise error


def header(scope: Scope, name: bytes) -> str | None:
    """The first header of that (lower-case) name."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return None


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled as soon as the client leaves.
    Raises ClientDisconnected: the client left first."""
    listener = _LeaveListener(receive)
    try:
        return await work
    except asyncio.CancelledError:
        if listener.heard and listener.task.uncancel() == 0:
            raise ClientDisconnected from None
        raise
    finally:
        listener.stop()


class _LeaveListener:
    """Cancels the task that made it once the client has left."""

    def __init__(self, receive: Receive) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request is answered by a task")
        self.task = task
        self.heard = False
        self._receive = receive
        self._listening: asyncio.Task[None] | None = None
        self._start = loop.call_later(LISTEN_AFTER, self._listen)

    def stop(self) -> None:
        self._start.cancel()
        if self._listening is not None:
            self._listening.cancel()

    def _listen(self) -> None:
        self._listening = asyncio.ensure_future(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.heard = True
        self.task.cancel()
