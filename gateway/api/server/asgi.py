"""What endpoints receive and send: bodies within their limits, answers and events, keepalives of streams.

Large bodies share a budget of bytes: each takes several times its size while it is read, fitted or sent. Where nothing
of a streamed answer was sent for `server.keepalive` seconds, the gateway sends a keepalive itself (guarantee §1.8).
"""

import asyncio
import ctypes
import gc
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from decimal import Decimal
from functools import lru_cache
from io import BytesIO
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from gateway.core import errors, jsons
from gateway.core.fair_queue import SharedRoom

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
T = TypeVar("T")

EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
STREAM_END = b"data: [DONE]\n\n"
CHAT_PATH = "/v1/chat/completions"
MESSAGES_PATH = "/v1/messages"
PATHS_OF_BOTH = ("/v1/models", "/v1/files")
"""What clients of OpenAI's and of Anthropic's API ask for by the same path."""
ANTHROPIC_VERSION_HEADER = b"anthropic-version"
"""The header that every client of Anthropic's API sends."""
CLIENT = "gateway.client"
"""The key of the scope under which a request finds its `ClientConnection`, if the server has one."""
SENDING = "gateway.send"
"""The key of the scope under which a streamed answer is sent, which a keepalive may have begun."""
LARGE_BYTES = 8 * 2**20
"""Bytes from which a body is large: smaller ones never wait."""
LISTEN_AFTER = 0.1
"""Seconds after which a running request's connection is watched: most are answered sooner, and watching costs time."""
LARGE_BODY = 2**20
"""Bytes from which a body is parsed, checked and digested in a thread: streams of other requests must not wait."""
HELD = 20
"""Keepalives of an upstream that are held back before the answer begins; further ones are dropped."""
RARELY = 1.0
"""Seconds within which an upstream's empty lines count as one keepalive."""
SIGN_CHARS = 200
KEEPALIVE_UNPRINTABLE = re.compile(rb"[^ -~]")


class ClientDisconnected(Exception):
    """The client has left."""


class ClientConnection(Protocol):
    """The connection of a request, which can be queried and written to without waiting."""

    def has_left(self) -> bool: ...

    def write(self, piece: bytes) -> bool:
        """Sends a piece of a body that has begun and is not complete; returns whether more can be taken now. Bytes that
        the client does not take at once stay in memory."""


def came_by_messages(scope: Scope) -> bool:
    """Returns whether a request is one of Anthropic's API: by its path, or at a shared path by its header."""
    path = scope.get("path", "")
    if path.startswith(PATHS_OF_BOTH):
        return any(name == ANTHROPIC_VERSION_HEADER for name, _ in scope["headers"])
    return bool(path == MESSAGES_PATH or path.startswith(MESSAGES_PATH + "/"))


class LargeBodies(SharedRoom):
    """Admits large bodies in order of arrival, those of several tenants in turn.
    `max_bytes`: of all large bodies that are processed at the same time. A larger one is processed alone. `patience`:
    seconds after which a waiting body is refused."""

    def __init__(self, max_bytes: int, patience: float) -> None:
        super().__init__(max_bytes)
        self._patience = patience
        self._give_back = _giving_back()

    def place(self, tenant: str) -> "BodySlot":
        """Returns a slot for one body of a tenant, which is released at the end of a `with` block."""
        return BodySlot(self, tenant)

    def occupied(self, size: int) -> "BodySlot":
        """Charges a large answer to the budget while it is sent, to the end of a `with` block: requests wait for its
        memory. The answer never waits, since it is paid for."""
        held = size if size >= LARGE_BYTES else 0
        self._used += held
        return BodySlot(self, "", held)

    async def admitted(self, tenant: str, size: int) -> None:
        """Waits until `size` bytes are free. Raises Overloaded: they are not free within `patience` seconds."""
        try:
            await self.acquire(tenant, size, self._patience)
        except TimeoutError:
            raise errors.Overloaded from None

    def release(self, size: int = 1) -> None:
        """Releases `size` of the budget, and returns free memory to the system: it is that of many small objects, which
        Python's allocator would hold for the next request of this size."""
        super().release(size)
        if self._give_back is not None and not self._used:
            asyncio.get_running_loop().run_in_executor(None, self._give_back)


class BodySlot:
    """The share that one body holds of the budget: none as long as the body is small."""

    def __init__(self, bodies: LargeBodies, tenant: str, size: int = 0) -> None:
        self._bodies = bodies
        self._tenant = tenant
        self._size = size

    async def grow(self, size: int, expected: int) -> None:
        """Takes a share of the budget when the body becomes large; to be called as it arrives.
        `size`: bytes that have arrived; `expected`: bytes that it may have in the end.
        Raises Overloaded: the body is large, and the budget is used up."""
        if not self._size and size >= LARGE_BYTES:
            await self._bodies.admitted(self._tenant, expected)
            self._size = expected

    def release(self) -> None:
        """Releases the share after the body has been worked on. Harmless when repeated."""
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
    """Returns the function that returns freed memory to the system; None where the C library has no such call."""
    if sys.platform != "linux":
        return None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return None

    def give_back() -> None:
        gc.collect()
        trim(0)

    return give_back


async def read_body(scope: Scope, receive: Receive, max_bytes: int, place: BodySlot | None = None) -> bytes:
    """Reads the whole body. `api/server/protocol.py` limits how long it may take.
    `place`: the body's share of the budget for large bodies.
    Raises Overloaded: it is large, and the budget is used up; UnsupportedMediaType: it has a content encoding, whatever
    its content; RequestTooLarge: by its declared length before it is read, else as soon as it is too long;
    ClientDisconnected: the client left before it was complete."""
    check_encoding(scope)
    declared = header(scope, b"content-length")
    expected = int(declared) if declared and declared.isdecimal() else max_bytes
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
    """Parses a body as a JSON object, with lone surrogates replaced (guarantee §1.9); no body is an empty object.
    Raises InvalidRequest: it is no JSON object."""
    try:
        return an_object(jsons.loads_mended(raw or b"{}"))
    except jsons.JSONDecodeError as error:
        text = f"The request body is not valid JSON: {error}."
        raise errors.InvalidRequest(text, code="invalid_json") from None


def an_object(body: Any) -> dict[str, Any]:
    """Returns the body. Raises InvalidRequest: it is no JSON object."""
    if not isinstance(body, dict):
        raise errors.InvalidRequest("The request body must be a JSON object.", code="invalid_json")
    return body


def check_encoding(scope: Scope) -> None:
    """Raises UnsupportedMediaType: the request has a content encoding. None is decoded, and encoded content is not read
    as plain text."""
    if b"content-encoding" not in dict(scope["headers"]):
        return
    for name, value in scope["headers"]:
        encoding = value.strip().lower() if name == b"content-encoding" else b""
        if encoding not in (b"", b"identity"):
            text = "The Content-Encoding of the request is not decoded here; send the body as it is (identity)."
            headers = {"accept-encoding": "identity"}
            raise errors.UnsupportedMediaType(text, param="content-encoding", headers=headers)


def header(scope: Scope, name: bytes) -> str | None:
    """Returns the first header of that (lower-case) name; None without one."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return None


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Awaits `work`, and cancels it as soon as the client leaves; returns its result.
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
    """Cancels the task that made it when the client has left."""

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
        self._listening = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.heard = True
        self.task.cancel()


async def send_json(send: Send, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
    await send_json_bytes(send, status, jsons.dumps(body), headers)


async def send_json_bytes(send: Send, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
    described = {"content-type": "application/json", "content-length": str(len(content))}
    await send_start(send, status, {**(headers or {}), **described})
    await send({"type": "http.response.body", "body": content})


async def send_start(send: Send, status: int, headers: dict[str, str]) -> None:
    """Sends status and headers of an answer whose body follows."""
    encoded = [(_name(name), value.encode("latin-1", "replace")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


@lru_cache(maxsize=256)
def _name(header: str) -> bytes:
    return header.lower().encode()


def event(data: object) -> bytes:
    """Encodes a server-sent event for chat clients: `data:` alone, never a name (guarantee §6).

    Line separators and control characters are escaped: many clients split the stream at them, too.
    """
    content = jsons.dumps(data)
    if not content.isascii() or b"\x7f" in content:
        content = jsons.LINE_SEPARATORS.sub(jsons.escaped, content)
    return b"data: " + content + b"\n\n"


def named_event(data: dict[str, Any]) -> bytes:
    """Encodes a server-sent event named by its `type`, as Responses and Messages have them; never in a chat."""
    return b"event: " + str(data["type"]).encode() + b"\n" + event(data)


def answer_headers(conversation_id: str | None, cost: Decimal | None = None) -> dict[str, str]:
    """Returns the headers with an answer's conversation, if any, and its cost in USD, if known (guarantee §6)."""
    headers = {"x-conversation-id": conversation_id} if conversation_id else {}
    return headers if cost is None else {**headers, "x-gateway-response-cost": f"{cost:f}"}


def comment(said: bytes) -> bytes:
    """Encodes a comment of an event stream, which every client ignores."""
    return b":" + (KEEPALIVE_UNPRINTABLE.sub(b"", said)[:SIGN_CHARS] or b" keepalive") + b"\n\n"


class KeptAlive:
    """Sends the messages of a streamed answer (a `Send`). When a keepalive has begun the answer, its status is 200, and
    a second beginning is dropped: headers that are known later are not sent.

    No message waits for a keepalive: while another message is being sent, or a keepalive is, there is none.
    """

    def __init__(self, send: Send, seconds: float, worded: Callable[[bytes], bytes]) -> None:
        """`worded`: renders a keepalive in the form of the API, from an upstream's comment or from nothing."""
        self._send = send
        self._seconds = seconds
        self._worded = worded
        self._loop = asyncio.get_running_loop()
        self._is_sending = False
        self._held: list[bytes] = []
        self._over = False
        self._signing: asyncio.Task[None] | None = None
        self._sent_at = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._look) if seconds else None
        self.begun = False

    async def __call__(self, message: Message) -> None:
        while self._signing is not None and not self._signing.done():
            await asyncio.wait({self._signing})
        self._is_sending = True
        try:
            await self._forward(message)
        finally:
            self._is_sending = False

    @property
    def is_under_way(self) -> bool:
        """Whether the answer has begun and its end has not been sent."""
        return self.begun and not self._over

    def sent(self) -> None:
        """Records that something was written past this object."""
        self._sent_at = self._loop.time()

    def heard(self, said: bytes) -> None:
        """Passes on an upstream's keepalive: a comment, a `ping`, an empty line (`said` is empty). Before the answer
        has begun, a keepalive is held back: a failure may still become a status."""
        if not self.begun:
            if said and len(self._held) < HELD:
                self._held.append(said)
        elif said or self._loop.time() - self._sent_at >= RARELY:
            self._sign(said)

    def close(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()

    async def _forward(self, message: Message) -> None:
        self.sent()
        if message["type"] != "http.response.start":
            self._over = self._over or not message.get("more_body", False)
            await self._send(message)
        elif not self.begun:
            self.begun = True
            await self._send(message)
            held, self._held = b"".join(map(self._worded, self._held)), []
            if held:
                await self._send({"type": "http.response.body", "body": held, "more_body": True})

    def _look(self) -> None:
        now = self._loop.time()
        due = self._sent_at + self._seconds
        if now >= due - 0.001:
            self._sign(b"")
            due = now + self._seconds
        self._timer = self._loop.call_at(due, self._look)

    def _sign(self, said: bytes) -> None:
        if self._over or self._is_sending or (self._signing is not None and not self._signing.done()):
            return
        self._signing = asyncio.create_task(self._signed(said))
        self._signing.add_done_callback(lambda done: done.cancelled() or done.exception())  # the client has left

    async def _signed(self, said: bytes) -> None:
        if self._over:
            return
        if not self.begun:
            await send_start(self._forward, 200, EVENT_STREAM)
        await self._forward({"type": "http.response.body", "body": self._worded(said), "more_body": True})
