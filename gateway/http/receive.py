"""Receives a request body within its limits, and notices when the client leaves."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from gateway.base import jsons
from gateway.errors import InvalidRequest, RequestTooLarge, UnsupportedMediaType
from gateway.http.chat.messages import plain_messages
from gateway.http.edge import ClientDisconnected, Receive, Scope
from gateway.models.exchange import PlainMessages

# Server-sent events as chat clients take them: `data:` alone, never a name (guarantee §6).


EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


def event(data: object) -> bytes:
    """One event."""
    return b"data: " + jsons.dumps(data) + b"\n\n"


T = TypeVar("T")
LISTEN_AFTER = 0.1


async def read_body(scope: Scope, receive: Receive, max_bytes: int) -> bytes:
    """The whole body. How long it may take is the protocol's to watch (`http/protocol.py`).

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


def chat_body(raw: bytes, scope: Scope) -> tuple[dict[str, Any], PlainMessages | None]:
    """The body of a chat request as a JSON object; its messages apart, where they are plain.

    Raises:
        InvalidRequest: it is no JSON object.
        UnsupportedMediaType: it is compressed.
    """
    try:
        body = jsons.loads(raw)
        plain = plain_messages(body.get("messages")) if isinstance(body, dict) else None
        if plain is None:
            body = jsons.checked(raw, body)
        else:  # texts are neither deep nor numbers: only what stands beside them is looked at
            rest = {name: value for name, value in body.items() if name != "messages"}
            if jsons.checked(raw, rest, small=False) is not rest:
                body = jsons.loads_exact(raw)
    except jsons.JSONDecodeError as error:
        raise _no_json(scope, error) from None
    return _an_object(body), plain


def json_body(raw: bytes, scope: Scope) -> dict[str, Any]:
    """A body as a JSON object; without any it is an empty one.

    Raises:
        InvalidRequest: it is no JSON object.
        UnsupportedMediaType: it is compressed.
    """
    try:
        return _an_object(jsons.loads_exact(raw or b"{}"))
    except jsons.JSONDecodeError as error:
        raise _no_json(scope, error) from None


def _an_object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise InvalidRequest("The request body must be a JSON object.", code="invalid_json")
    return body


def _no_json(scope: Scope, error: Exception) -> InvalidRequest:
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

    Whether the client is still there is looked at from `LISTEN_AFTER` seconds on: what is answered sooner would pay
    more for listening than it could save.

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
