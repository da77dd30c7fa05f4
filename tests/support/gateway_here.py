"""Whole gateways and their providers in this process, without sockets, servers and processes.

Requests of httpx, and so of the SDKs, to the address of a gateway go into its ASGI application; what a gateway sends
to the address of a provider comes to that one's protocol over a pair of transports in memory. All else is as an
operator's: the configuration is read, the application is the whole one, the storage is a real one. What a process, a
port or uvicorn has a part in (signals, logs, broken HTTP) is for `GatewayProcess`.
"""

import asyncio
import errno
import functools
import itertools
import json
import logging
import queue
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import BytesIO
from types import FrameType
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote

import httpx
import httpx2
import pytest

from gateway.api.server.asgi import CLIENT, App
from gateway.api.server.middleware import ShutdownState
from gateway.app import create_app
from gateway.core.config.loading import load_settings
from gateway.core.instrumentation.logs import LineHandler, json_line
from gateway.documents import sandbox_worker
from gateway.documents.document import DocumentFile, Reading, ReadOptions, UnreadableDocument
from gateway.documents.process import TOO_MUCH_TEXT, DocumentReader
from gateway.operations.warm_up import WarmUp
from tests.support.gateway_process import GatewayProcess
from tests.support.http_server import ThreadedHttpServer
from tests.support.mock_upstream import MockUpstream
from tests.support.process import PATIENCE, wait_until
from tests.support.raw import End

Message = MutableMapping[str, Any]
T = TypeVar("T")
PORTS = itertools.count(1024)
"""Ports below those that tests listen at, and above those at which tests say that nobody is."""
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost"})
CUT_SECONDS = 2.0


class MemoryTransport(asyncio.Transport):
    """One end of a connection; what is written comes to the protocol of the other end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop, self._reads = loop, protocol
        self.peer: MemoryTransport | None = None
        self._closing = self._paused = False
        self._held: list[bytes | End] = []
        """What came while nothing was to be read."""
        self.resets = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name == "socket" else default

    def setsockopt(self, *_: Any) -> None:
        """The one option that is ever set: its end is a reset."""
        self.resets = True

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._reads

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: Any) -> None:
        if self.peer is not None and data and not self._closing:
            self._loop.call_soon(self.peer.take, bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is kept back."""

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._reads.connection_lost, None)
            if self.peer is not None:
                self._loop.call_soon(self.peer.take, End.RESET if self.resets else End.CLOSE)

    abort = close

    def is_reading(self) -> bool:
        return not self._paused

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        held, self._held = self._held, []
        for each in held:
            self.take(each)

    def take(self, data: bytes | End) -> None:
        """What the other end has written, or how it has gone."""
        if self._closing:
            return
        if self._paused:
            self._held.append(data)
        elif data is End.RESET:
            self._closing = True
            self._reads.connection_lost(ConnectionResetError())
        elif data is End.CLOSE:
            self._reads.eof_received()
            self.close()
        elif isinstance(data, bytes):
            self._reads.data_received(data)


class MemoryLoop(asyncio.SelectorEventLoop):
    """Connects to what is served in memory as to anything else."""

    def __init__(self) -> None:
        super().__init__()
        self.served: dict[int, Callable[[], asyncio.Protocol] | None] = {}
        """What accepts connections, by its port; None: it has stopped."""

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any) -> Any:
        if host not in LOCAL_HOSTS or port not in self.served:
            return await super().create_connection(protocol_factory, host, port, **more)
        accept = self.served[port]
        if accept is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "It has stopped.")
        ends = [MemoryTransport(self, made) for made in (protocol_factory(), accept())]
        for end, peer in (ends, ends[::-1]):
            end.peer = peer
        for end in reversed(ends):
            end.get_protocol().connection_made(end)
        return ends[0], ends[0].get_protocol()


@functools.cache
def memory_loop() -> MemoryLoop:
    """The loop of all gateways and providers of this process, in a thread of its own."""
    loop = MemoryLoop()
    threading.Thread(target=loop.run_forever, name="gateways-in-memory", daemon=True).start()
    return loop


def on_loop(work: Coroutine[Any, Any, T], timeout: float = PATIENCE) -> T:
    """What becomes of `work` on that loop."""
    return asyncio.run_coroutine_threadsafe(work, memory_loop()).result(timeout)


@dataclass(slots=True)
class LoopLines:
    """Lines of the gateway that ran on that loop between two chances for other requests: now, and the most."""

    now: int = 0
    most: int = 0

    def begin(self, frame: FrameType, _event: str, _: Any) -> Any:
        """Traces a function of the gateway; what the loop calls next begins anew."""
        if frame.f_code is asyncio.Handle._run.__code__:
            self.now = 0
        return self.count if frame.f_globals.get("__name__", "").startswith("gateway.") else None

    def count(self, _frame: FrameType, event: str, _: Any) -> Any:
        """Counts a line."""
        self.now += event == "line"
        self.most = max(self.most, self.now)
        return self.count


@contextmanager
def lines_at_once() -> Iterator[LoopLines]:
    """Counts them: how long a request may keep others waiting, whatever the machine does beside."""

    async def trace(function: Any) -> None:
        sys.settrace(function)

    counted = LoopLines()
    on_loop(trace(counted.begin))
    try:
        yield counted
    finally:
        on_loop(trace(None))


class MemoryServer(ThreadedHttpServer):
    """The server of a provider, in memory."""

    def start(self) -> None:
        self.port = self.port or next(PORTS)
        self._loop = loop = memory_loop()
        loop.served[self.port] = self.protocol

    def stop(self) -> None:
        memory_loop().served[self.port] = None
        on_loop(self._cut())

    async def _cut(self) -> None:
        running = [*self._tasks, *self._gates.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._gates.clear()


class UpstreamHere(MockUpstream):
    """The mock upstream, in memory."""

    server = MemoryServer


class Exchange:
    """A request in an application, and what comes of it (also the request's `Client`)."""

    def __init__(self, app: App, request: httpx.Request, body: bytes, http: Any) -> None:
        """`request`: as `http` would send it (httpx, or its next version), its `body` read already."""
        self._app, self._body, self._http = app, body, http
        self._is_read = False
        self._came: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._seconds = request.extensions.get("timeout", {}).get("read")
        self._left = asyncio.Event()
        raw_path, _, query = request.url.raw_path.partition(b"?")
        headers = [(name.lower(), value) for name, value in request.headers.raw]
        self._scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": unquote(raw_path.decode("ascii")),
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", request.url.port),
            "state": {},
            CLIENT: self,
        }

    async def run(self) -> None:
        """Ends with the application's work for the request."""
        try:
            await self._app(self._scope, self._receive, self._send)
        except Exception:  # as a server does: the log has it, and the connection breaks
            logging.getLogger("gateway.in_memory").exception("broken")
            self._came.put({"type": "broken"})
        finally:
            self._came.put(None)

    async def _receive(self) -> Message:
        if not self._is_read:
            self._is_read = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self._came.put(message)

    def has_left(self) -> bool:
        return self._left.is_set()

    def write(self, piece: bytes) -> bool:
        self._came.put({"type": "http.response.body", "body": piece, "more_body": True})
        return True

    def leave(self) -> None:
        """The client goes."""
        memory_loop().call_soon_threadsafe(self._left.set)

    def next(self) -> Message | None:
        """
        Raises:
            httpx.ReadTimeout: nothing came in the request's time.
            httpx.RemoteProtocolError: the answer breaks off.
        """
        try:
            came = self._came.get(timeout=self._seconds)
        except queue.Empty:
            self.leave()
            raise self._http.ReadTimeout("Nothing came.") from None
        if came is not None and came["type"] == "broken":
            raise self._http.RemoteProtocolError("The answer breaks off.")
        return came

    def response(self) -> httpx.Response:
        """The head of the answer, with its body to come."""
        while (head := self.next()) is not None and head["type"] != "http.response.start":
            pass
        if head is None:
            raise self._http.RemoteProtocolError("There is no answer.")
        stream = _body_class(self._http)(self)
        found: httpx.Response = self._http.Response(head["status"], headers=head["headers"], stream=stream)
        return found

    def rest(self) -> tuple[bytes, bool]:
        """The next piece of the body, and whether it is the last."""
        message = self.next()
        if message is None:
            raise self._http.RemoteProtocolError("peer closed connection without sending complete message body")
        return bytes(message.get("body", b"")), not message.get("more_body", False)


class _Body:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._is_whole = False

    def __iter__(self) -> Iterator[bytes]:
        while not self._is_whole:
            yield self._next()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self._is_whole:
            yield await asyncio.to_thread(self._next)

    def _next(self) -> bytes:
        piece, self._is_whole = self._exchange.rest()
        return piece

    def close(self) -> None:
        if not self._is_whole:
            self._exchange.leave()

    async def aclose(self) -> None:
        self.close()


@functools.cache
def _body_class(http: Any) -> Callable[[Exchange], Any]:
    """A body as `http` wants it."""
    return type("Body", (_Body, http.SyncByteStream, http.AsyncByteStream), {})


class WarmUpOnce(WarmUp):
    """That of the first gateway alone: what it has loaded is there for all others of this process."""

    is_done = False

    async def run(self) -> None:
        if not WarmUpOnce.is_done:
            await super().run()
            WarmUpOnce.is_done = True


class GatewayHere(GatewayProcess):
    """A gateway without a process of its own, with the handle of one that has."""

    def __init__(self, config: Any, env: Any = None, **more: Any) -> None:
        super().__init__(config, env, port=next(PORTS), **more)
        self._app: App | None = None
        self._draining = ShutdownState()
        self._running: set[asyncio.Future[None]] = set()
        self._ends: asyncio.Event | None = None
        self._life: asyncio.Future[None] | None = None
        self._handler: LineHandler | None = None

    @property
    def alive(self) -> bool:
        return self._app is not None

    def start(self) -> None:
        """Reads the configuration and returns once requests can be answered."""
        if self.config is not None:
            self.config_path.write_text(json.dumps(self.config, indent=1), encoding="utf-8")
        settings = load_settings(None if self.config is None else str(self.config_path), self.env)
        self._handler = LineHandler(self.log.open("a", encoding="utf-8"), json_line)
        logging.getLogger().addHandler(self._handler)
        logging.getLogger("gateway").setLevel(logging.INFO)
        self._draining = ShutdownState()
        self._app = on_loop(self._open(create_app, settings))
        HERE[self.port] = self
        with httpx.Client(base_url=self.url, trust_env=False) as client:
            wait_until(lambda: client.get("/health/ready").status_code == 200, "the gateway")

    async def _open(self, create: Callable[..., App], settings: Any) -> App:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gateway.app.WarmUp", WarmUpOnce)
            app = create(settings, self._draining)
        self._ends, begun = asyncio.Event(), asyncio.get_running_loop().create_future()
        received = iter(("lifespan.startup", "lifespan.shutdown"))
        ends = self._ends

        async def receive() -> Message:
            kind = next(received)
            if kind == "lifespan.shutdown":
                await ends.wait()
            return {"type": kind}

        async def send(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                begun.set_result(None)
            elif message["type"] == "lifespan.startup.failed":
                begun.set_exception(RuntimeError(message.get("message", "")))

        self._life = asyncio.ensure_future(app({"type": "lifespan", "state": {}}, receive, send))
        await begun
        return app

    def terminate(self, timeout: float = 20.0) -> int:
        """An orderly end, in which running requests are cut."""
        if self._app is not None:
            self._draining.begun = True
            self._app = None
            on_loop(self._close(), timeout)
            assert self._handler is not None
            logging.getLogger().removeHandler(self._handler)
            self._handler.stream.close()
        return 0

    async def _close(self) -> None:
        assert self._ends is not None
        assert self._life is not None
        if running := set(self._running):
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=CUT_SECONDS)
        self._ends.set()
        await self._life

    def close(self) -> None:
        self.terminate()

    def kill9(self) -> NoReturn:
        raise NotImplementedError("this is no process of its own")

    def exchange(self, request: httpx.Request, body: bytes, http: Any) -> Exchange:
        """A request that is under way from now on."""
        if self._app is None:
            raise http.ConnectError("It has ended.")
        made = Exchange(self._app, request, body, http)
        memory_loop().call_soon_threadsafe(self._begin, made)
        return made

    def _begin(self, made: Exchange) -> None:
        task = asyncio.ensure_future(made.run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)


HERE: dict[int, GatewayHere] = {}
"""The gateways that answer requests of this process, by their ports; also those that have ended."""


def _gateway_at(url: Any) -> "GatewayHere | None":
    """Find what answers an address in memory; a provider's own host (a test mocks it) is none, whatever its port."""
    return HERE.get(url.port or 80) if url.scheme == "http" and url.host in LOCAL_HOSTS else None


@contextmanager
def documents_read_here() -> Iterator[None]:
    """Meanwhile documents are read in this process, by what a process of their own runs: its start takes a hundred
    times as long as most documents do."""
    one_at_a_time = threading.Lock()  # PDFium is for one thread

    def found(file: DocumentFile, options: ReadOptions) -> Reading:
        order = {"kind": file.kind, "name": file.name, "options": asdict(options)}
        with one_at_a_time:
            return Reading.from_json(json.loads(json.dumps(sandbox_worker._read(order, BytesIO(file.raw)))))

    async def read_here(_self: DocumentReader, file: DocumentFile, options: ReadOptions, _progress: object) -> Reading:
        try:
            return await asyncio.to_thread(found, file, options)
        except MemoryError:
            raise UnreadableDocument(TOO_MUCH_TEXT) from None
        except UnreadableDocument:
            raise
        except Exception as error:
            raise UnreadableDocument(f"it is no readable {file.kind.upper()}") from error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DocumentReader, "_read_apart", read_here)
        yield


@functools.cache
def answer_in_memory() -> None:
    """From now on what is sent to a gateway in memory, by httpx or its next version, goes there."""
    for http in (httpx, httpx2):
        _answer(http)


def _answer(http: Any) -> None:
    over_network, async_over_network = http.HTTPTransport.handle_request, http.AsyncHTTPTransport.handle_async_request

    def handle_request(self: Any, request: Any) -> Any:
        gateway = _gateway_at(request.url)
        if gateway is None:
            return over_network(self, request)
        return gateway.exchange(request, request.read(), http).response()

    async def handle_async_request(self: Any, request: Any) -> Any:
        gateway = _gateway_at(request.url)
        if gateway is None:
            return await async_over_network(self, request)
        exchange = gateway.exchange(request, await request.aread(), http)
        try:
            return await asyncio.to_thread(exchange.response)
        except asyncio.CancelledError:
            exchange.leave()
            raise

    http.HTTPTransport.handle_request = handle_request
    http.AsyncHTTPTransport.handle_async_request = handle_async_request
