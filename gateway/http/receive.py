"""Receives a request body within its limits, and notices when the client leaves."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from gateway.base import jsons
from gateway.errors import InvalidRequest, RequestTooLarge, UnsupportedMediaType
from gateway.http.edge import ClientDisconnected, Receive, Scope

T = TypeVar("T")
LISTEN_AFTER = 0.1
"""Seconds after which a running request's connection is watched: most are answered sooner, and watching costs time."""
LARGE_BODY = 2**20
"""Bytes from which a body is parsed, checked and digested in a thread: streams of other requests must not wait."""


async def read_body(scope: Scope, receive: Receive, max_bytes: int) -> bytes:
    """The whole body. `http/protocol.py` limits how long it may take.

    Raises:
        RequestTooLarge: by its declared length before it is read, else as soon as it is too long.
        ClientDisconnected: the client left before it was complete.
    """
    declared = header(scope, b"content-length")
    if declared and declared.isdigit() and int(declared) > max_bytes:
        raise RequestTooLarge(f"The request body exceeds {max_bytes} bytes.")
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        piece = message.get("body", b"")
        size += len(piece)
        if size > max_bytes:
            raise RequestTooLarge(f"The request body exceeds {max_bytes} bytes.")
        if not message.get("more_body"):
            return b"".join((*pieces, piece)) if pieces else piece
        pieces.append(piece)


def json_body(raw: bytes, scope: Scope) -> dict[str, Any]:
    """A body as a JSON object; no body is an empty one.

    Raises:
        InvalidRequest: it is no JSON object.
        UnsupportedMediaType: it is compressed.
    """
    try:
        return an_object(jsons.loads_exact(raw or b"{}"))
    except jsons.JSONDecodeError as error:
        raise no_json(scope, error) from None


def an_object(body: Any) -> dict[str, Any]:
    """
    Raises:
        InvalidRequest: the body is no JSON object.
    """
    if not isinstance(body, dict):
        raise InvalidRequest("The request body must be a JSON object.", code="invalid_json")
    return body


def no_json(scope: Scope, error: Exception) -> InvalidRequest:
    """The error for a body that cannot be parsed: it may be compressed."""
    encoding = header(scope, b"content-encoding")
    if encoding and encoding.lower() != "identity":
        return UnsupportedMediaType("Request bodies may not be compressed.", param="content-encoding")
    return InvalidRequest(f"The request body is not valid JSON: {error}.", code="invalid_json")


def header(scope: Scope, name: bytes) -> str | None:
    """The first header of that (lower-case) name."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return None


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled as soon as the client leaves.

    Raises:
        ClientDisconnected: the client left first.
    """
    listener = _Listener(receive)
    try:
        return await work
    except asyncio.CancelledError:
        if listener.heard and listener.task.uncancel() == 0:
            raise ClientDisconnected from None
        raise
    finally:
        listener.stop()


class _Listener:
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
        """The work is done."""
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
