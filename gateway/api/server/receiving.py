"""Receives a request body within its limits, and notices when the client leaves.

Large bodies share a budget of bytes: each takes several times its size while it is read, fitted or sent.
"""

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable, Coroutine
from io import BytesIO
from types import TracebackType
from typing import Any, Self, TypeVar

from gateway.api.server.fast_router import ClientDisconnected, Receive, Scope
from gateway.core import errors, jsons
from gateway.core.fair_queue import SharedRoom

LARGE_BYTES = 8 * 2**20
"""Bytes from which a body is large: smaller ones are never kept waiting."""


class LargeBodies(SharedRoom):
    """Admits large bodies in the order in which they come, those of tenants by turns.
    `max_bytes`: of all large bodies that are worked on at once. A larger one is worked on alone. `patience`: seconds
    after which a body that waits is refused."""

    def __init__(self, max_bytes: int, patience: float) -> None:
        super().__init__(max_bytes)
        self._patience = patience
        self._give_back = _giving_back()

    def place(self, tenant: str) -> "BodySlot":
        """A place for one body of a tenant's, which is given back at the end of a `with` block."""
        return BodySlot(self, tenant)

    def occupied(self, size: int) -> "BodySlot":
        """Counts a large answer while it is sent, to the end of a `with` block: requests wait for its room. It never
        waits itself, as it is paid."""
        held = size if size >= LARGE_BYTES else 0
        self._used += held
        return BodySlot(self, "", held)

    async def admitted(self, tenant: str, size: int) -> None:
        """Waits until there is room for `size` bytes. Raises Overloaded: there is none after `patience` seconds."""
        try:
            await self.acquire(tenant, size, self._patience)
        except TimeoutError:
            raise errors.Overloaded from None

    def release(self, size: int = 1) -> None:
        """Gives the room back, and the memory to the system: it is that of many small objects, which Python's allocator
        would keep for the next request of this size."""
        super().release(size)
        if self._give_back is not None and not self._used:
            asyncio.get_running_loop().run_in_executor(None, self._give_back)


class BodySlot:
    """What one body holds of the budget: nothing as long as it is small."""

    def __init__(self, bodies: LargeBodies, tenant: str, size: int = 0) -> None:
        self._bodies = bodies
        self._tenant = tenant
        self._size = size

    async def grow(self, size: int, expected: int) -> None:
        """To be called as the body arrives.
        `size`: bytes that have arrived; `expected`: bytes that it may have in the end.
        Raises Overloaded: it is large, and there is no room for it."""
        if not self._size and size >= LARGE_BYTES:
            await self._bodies.admitted(self._tenant, expected)
            self._size = expected

    def release(self) -> None:
        """The body has been worked on. Harmless when repeated."""
        size, self._size = self._size, 0
        if size:
            self._bodies.release(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _giving_back() -> Callable[[], None] | None:
    """What gives freed memory back to the system; None where the C library has no such call."""
    if sys.platform != "linux":
        return None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return None

    def give_back() -> None:
        gc.collect()
        trim(0)

    return give_back


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
        raise errors.RequestTooLarge(f"The request body exceeds {max_bytes} bytes.")
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
            raise errors.RequestTooLarge(f"The request body exceeds {max_bytes} bytes.")
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
        raise errors.InvalidRequest("The request body must be a JSON object.", code="invalid_json")
    return body


def no_json(error: Exception) -> errors.InvalidRequest:
    """The error for a body that cannot be parsed."""
    return errors.InvalidRequest(f"The request body is not valid JSON: {error}.", code="invalid_json")


def check_encoding(scope: Scope) -> None:
    """No encoding is decoded, and what says that it is encoded is not taken for plain text.
    Raises UnsupportedMediaType: it says so."""
    if b"content-encoding" not in dict(scope["headers"]):
        return
    for name, value in scope["headers"]:
        encoding = value.strip().lower() if name == b"content-encoding" else b""
        if encoding not in (b"", b"identity"):
            text = "The Content-Encoding of the request is not decoded here; send the body as it is (identity)."
            error = errors.UnsupportedMediaType(text, param="content-encoding")
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
