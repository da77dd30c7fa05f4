"""An upstream that a test plays by hand, byte by byte: what has arrived so far, and what goes out next."""

import socket
from types import TracebackType
from typing import Self


class Connection:
    """One accepted connection; reads wait for ten seconds at most."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(10)
        self.sock = sock
        self.received = b""

    def read_until(self, mark: bytes) -> bytes:
        """Everything received so far, once `mark` is in it."""
        while mark not in self.received:
            piece = self.sock.recv(65536)
            assert piece, f"the peer closed the connection before {mark!r} came: {self.received!r}"
            self.received += piece
        return self.received

    def send(self, data: bytes) -> None:
        """Sends bytes as they are."""
        self.sock.sendall(data)

    def wait_closed(self, seconds: float) -> None:
        """Returns when the peer closes the connection; TimeoutError if it does not in time."""
        self.sock.settimeout(seconds)
        try:
            while self.sock.recv(65536):
                pass
        except ConnectionResetError:
            pass

    def close(self) -> None:
        """Breaks it."""
        self.sock.close()


class Listener:
    """Listens on 127.0.0.1 from the start; `accept` gives the next connection."""

    def __init__(self) -> None:
        self._sock = socket.create_server(("127.0.0.1", 0))
        self._sock.settimeout(10)
        self._open: list[Connection] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hang_up()
        self._sock.close()

    def hang_up(self) -> None:
        """Closes all connections, so that the next call needs a new one."""
        while self._open:
            self._open.pop().close()

    @property
    def base_url(self) -> str:
        """What goes into `api_base`."""
        return f"http://127.0.0.1:{self._sock.getsockname()[1]}/v1"

    def accept(self) -> Connection:
        """The next connection."""
        connection = Connection(self._sock.accept()[0])
        self._open.append(connection)
        return connection


def connect(port: int) -> Connection:
    """A client played by hand."""
    return Connection(socket.create_connection(("127.0.0.1", port), timeout=10))
