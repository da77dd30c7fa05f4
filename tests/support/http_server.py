"""A small HTTP/1.1 server in a background thread whose every byte a test controls.

A web framework hides what these tests are about: the moment the peer goes away, a connection that breaks
between two bytes, a stream that falls silent. So the mock upstream speaks HTTP itself, on asyncio streams.
"""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.process import PATIENCE
from tests.support.raw import BrokenOffError, Step, break_off, perform

_MAX_HEAD_BYTES = 1 << 20
_GATE_POLL_SECONDS = 0.005


@dataclass(eq=False)
class Record:
    """One request as it arrived, and what became of its answer."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    raw: bytes
    body: Any
    """The parsed JSON of `raw`, or None."""
    arrived: float
    """`time.monotonic()` once the whole body was read."""
    disconnected: threading.Event = field(default_factory=threading.Event)
    """Set when the peer closed the connection before the answer was finished."""
    done: threading.Event = field(default_factory=threading.Event)
    """Set when the exchange is over: answered, cut as scripted, or disconnected."""
    pieces_sent: int = 0
    """How many SSE events (or writes of a plain body) went out."""


@dataclass(frozen=True)
class Answer:
    """Bytes and their timing; `cut_after` and `stall_after` count `pieces`."""

    status: int
    headers: Sequence[tuple[str, str]]
    pieces: Sequence[bytes]
    streamed: bool = False
    delay_first: float = 0.0
    delay_body: float = 0.0
    piece_delay: float = 0.0
    cut_after: int | None = None
    stall_after: int | None = None
    stall_until: threading.Event | None = None
    gate: threading.Event | None = None
    reset: bool = False
    raw: Sequence[Step] | None = None
    """Instead of all that: exactly these bytes, pauses and ends."""


class _Reader(asyncio.StreamReader):
    """Tells at once when the peer is gone, also while nobody reads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=_MAX_HEAD_BYTES, loop=loop)
        self.gone = False
        self.on_gone: Callable[[], object] = lambda: None

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone = True
        self.on_gone()

    def set_exception(self, exc: BaseException) -> None:
        super().set_exception(exc)  # type: ignore[arg-type]
        self.gone = True
        self.on_gone()


class ThreadedHttpServer:
    """Serves `respond(record) -> Answer` on 127.0.0.1; `respond` runs on the loop and must not block."""

    def __init__(self, respond: Callable[[Record], Answer]) -> None:
        self._respond = respond
        self.port = 0
        self.connections_opened = 0
        self.connections_open = 0
        self.resets_at_accept = 0
        self.in_flight = 0
        self.max_in_flight = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._gates: dict[threading.Event, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Listen; after a `stop` on the same port as before."""
        listener = socket.create_server(("127.0.0.1", self.port), backlog=2048)
        # Head and body are written apart: without this each body would wait 40 ms for its head's acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = listener.getsockname()[1]
        listening = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main(listener, listening)), name="mock-upstream", daemon=True
        )
        self._thread.start()
        if not listening.wait(PATIENCE):
            raise RuntimeError("the mock upstream does not start")

    def stop(self) -> None:
        """Break every connection and close the port: from now on connections are refused."""
        if self._thread is None or self._loop is None or self._stopping is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)
        self._thread = None

    async def _main(self, listener: socket.socket, listening: threading.Event) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await self._loop.create_server(self.protocol, sock=listener)
        listening.set()
        await self._stopping.wait()
        server.close()
        for task in [*self._tasks, *self._gates.values()]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._gates.values(), return_exceptions=True)
        self._gates.clear()
        await asyncio.sleep(0)  # aborted transports close their sockets in a callback

    def protocol(self) -> asyncio.StreamReaderProtocol:
        loop = asyncio.get_running_loop()
        reader = _Reader(loop)

        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections_opened += 1
            if self.resets_at_accept:
                self.resets_at_accept -= 1
                with contextlib.suppress(BrokenOffError):
                    break_off(writer, reset=True)
                return
            task = loop.create_task(self._serve(reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return asyncio.StreamReaderProtocol(reader, connected, loop=loop)

    async def _serve(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        # Nothing is buffered here, so that a drained piece is in the kernel's hands before a cut.
        writer.transport.set_write_buffer_limits(high=0)
        self.connections_open += 1
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while not reader.gone:
                    await self._exchange(await _read_request(reader), reader, writer)
        finally:
            self.connections_open -= 1
            writer.transport.abort()

    async def _exchange(self, record: Record, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        answer = self._respond(record)
        sending = asyncio.get_running_loop().create_task(self._send(answer, record, writer))
        reader.on_gone = sending.cancel
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            if reader.gone:
                sending.cancel()
            await sending
        except BrokenOffError:
            raise
        except (asyncio.CancelledError, ConnectionError):
            if not reader.gone:
                raise
            record.disconnected.set()
        finally:
            self.in_flight -= 1
            reader.on_gone = lambda: None
            record.done.set()

    async def _send(self, answer: Answer, record: Record, writer: asyncio.StreamWriter) -> None:
        if answer.gate is not None:
            await self._opened(answer.gate)
        await asyncio.sleep(answer.delay_first)
        if answer.raw is not None:
            await perform(answer.raw, writer)
            return
        if answer.cut_after is not None and answer.cut_after < 0:
            break_off(writer, reset=answer.reset)
        length = ("transfer-encoding", "chunked")
        if answer.status in (204, 304):
            length = ("connection", "keep-alive")
        elif not answer.streamed:
            length = ("content-length", str(sum(map(len, answer.pieces))))
        head = [f"HTTP/1.1 {answer.status} Mock", *(f"{k}: {v}" for k, v in [*answer.headers, length])]
        writer.write("\r\n".join([*head, "", ""]).encode("latin-1"))
        await writer.drain()
        await asyncio.sleep(answer.delay_body)
        if record.method == "HEAD" or answer.status in (204, 304):
            return
        for number, piece in enumerate([*answer.pieces, b""]):
            if number == answer.cut_after:
                break_off(writer, reset=answer.reset)
            if number == answer.stall_after and answer.stall_until is not None:
                await self._opened(answer.stall_until)
            if piece:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if answer.streamed else piece)
                await writer.drain()
                record.pieces_sent += 1
                await asyncio.sleep(answer.piece_delay)
        if answer.streamed:
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    async def _opened(self, gate: threading.Event) -> None:
        """Wait for a thread's event; one poller serves all the streams that wait for the same one."""

        async def poll() -> None:
            while not gate.is_set():  # noqa: ASYNC110 - the event belongs to another thread
                await asyncio.sleep(_GATE_POLL_SECONDS)
            self._gates.pop(gate, None)

        if gate.is_set():
            return
        if gate not in self._gates:
            self._gates[gate] = asyncio.ensure_future(poll())
        await asyncio.shield(self._gates[gate])


async def _read_request(reader: asyncio.StreamReader) -> Record:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head[:-4].split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name, value = name.strip().lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    raw = b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        parts: list[bytes] = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
        await reader.readuntil(b"\r\n")
        raw = b"".join(parts)
    elif "content-length" in headers:
        raw = await reader.readexactly(int(headers["content-length"]))
    body: Any = None
    with contextlib.suppress(ValueError):
        body = json.loads(raw)
    path, _, query = target.partition("?")
    return Record(method, path, query, headers, raw, body, time.monotonic())
