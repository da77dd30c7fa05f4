"""Receives a request body within its limits, and notices when the client leaves."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from gateway import jsons
from gateway.errors import InvalidRequest, RequestTimeout, RequestTooLarge, UnsupportedMediaType
from gateway.http.edge import ClientDisconnected, Receive, Scope

T = TypeVar("T")


async def read_body(scope: Scope, receive: Receive, max_bytes: int, seconds: float) -> bytes:
    """The whole body.

    Raises:
        RequestTooLarge: by its declared length before it is read, else as soon as it is too long.
        RequestTimeout: it did not arrive in time.
        ClientDisconnected: the client left before it was complete.
    """
    declared = header(scope, b"content-length")
    if declared and declared.isdigit() and int(declared) > max_bytes:
        raise RequestTooLarge(f"The request body exceeds {max_bytes} bytes.")
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                piece = message.get("body", b"")
                size += len(piece)
                if size > max_bytes:
                    raise RequestTooLarge(f"The request body exceeds {max_bytes} bytes.")
                pieces.append(piece)
                if not message.get("more_body"):
                    return b"".join(pieces)
    except TimeoutError:
        raise RequestTimeout(f"The request did not arrive within {seconds:g} seconds.") from None


def json_object(raw: bytes, scope: Scope) -> dict[str, Any]:
    """The body as a JSON object.

    Raises:
        InvalidRequest: it is none.
        UnsupportedMediaType: it is compressed.
    """
    try:
        body = jsons.loads_exact(raw)
    except jsons.JSONDecodeError as error:
        encoding = header(scope, b"content-encoding")
        if encoding and encoding.lower() != "identity":
            raise UnsupportedMediaType("Request bodies may not be compressed.", param="content-encoding") from None
        raise InvalidRequest(f"The request body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(body, dict):
        raise InvalidRequest("The request body must be a JSON object.", code="invalid_json")
    return body


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
    task = asyncio.ensure_future(work)
    listener = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({task, listener}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnected
    finally:
        listener.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
