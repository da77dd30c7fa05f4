"""A network that takes its time: each piece of an answer arrives `seconds` after it was sent."""

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self


class DelayingProxy:
    """Forwards connections to `port`; `seconds` may change at any time."""

    def __init__(self, port: int, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self._to = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._start(self._accept)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.getsockname()[1])

    @property
    def url(self) -> str:
        """What a Redis client takes."""
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._server, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._server.accept()[0]
                self._sockets.append(client)
                try:
                    server = socket.create_connection(("127.0.0.1", self._to), timeout=30)
                except OSError:  # as where nobody listens
                    client.close()
                    continue
                self._sockets.append(server)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._start(self._carry, client, server, False)
                self._start(self._carry, server, client, True)

    def _carry(self, source: socket.socket, target: socket.socket, late: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                if late and self.seconds:
                    time.sleep(self.seconds)
                target.sendall(piece)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
