"""A network that loses answers: it takes a request to the gateway, and the whole answer to nobody."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

ENDS = (b"0\r\n\r\n", b"data: [DONE]\n\n")


class LossyProxy:
    """Forwards connections to `port`; of the next `lose` requests the answers come in whole, and no further."""

    def __init__(self, port: int) -> None:
        self.lose = 0
        self.lost: list[bytes] = []
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._start(self._accept)

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"http://127.0.0.1:{self._server.getsockname()[1]}/v1"

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
        thread = threading.Thread(target=work, args=args)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._server.accept()[0]
                gateway = socket.create_connection(("127.0.0.1", self._port), timeout=30)
                self._sockets += [client, gateway]
                self._start(self._carry, client, gateway)
                self._start(self._answer, gateway, client)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                target.sendall(piece)
        _hang_up(target)

    def _answer(self, gateway: socket.socket, client: socket.socket) -> None:
        held = b""
        with contextlib.suppress(OSError):
            while piece := gateway.recv(65536):
                if not self.lose:
                    client.sendall(piece)
                    continue
                held += piece
                if _whole(held):
                    self.lose -= 1
                    self.lost.append(held)
                    break
        _hang_up(client)
        _hang_up(gateway)


def _whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return answer.endswith(ENDS)


def _hang_up(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
