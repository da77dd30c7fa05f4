"""A network between a client and a port of this machine, for those that spoil what it carries."""

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class ForwardingProxy(ABC):
    """Forwards connections to `to`; a subclass says how what is answered gets back."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._start(self._accept)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._server, *self._sockets):
            hang_up(each)
            each.close()
        for thread in self._threads:
            thread.join(10)

    @abstractmethod
    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        """Carries the answers of one connection, until it ends."""

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
                for each in (client, server):  # else every answer would wait for the one before to be confirmed
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._start(self._ask, client, server)
                self._start(self._answer, server, client)

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := client.recv(65536):
                server.sendall(piece)
        hang_up(server)


def hang_up(sock: socket.socket) -> None:
    """Ends both directions of a connection, if it still has any."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
