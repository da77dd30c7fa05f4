"""A TCP proxy before PostgreSQL that cuts a connection at a chosen moment of a transaction that stores a turn."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

Moment = Literal["within", "before the commit", "after the commit", "commit on its way"]
STARTUP_VERSION = 196608
MARK = "INSERT INTO messages"
SECONDS = 20.0


class CuttingProxy:
    """Understands as much of the wire protocol as tells it when a transaction that stores a turn is committed.

    `cut(moment)` is for one transaction: "within" it, its COMMIT not forwarded ("before"), its COMMIT's answer
    withheld ("after"), or its COMMIT held back until `release` though the client's connection is gone ("on its way").
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "", parts.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}"))
        self._moment: Moment | None = None
        self._then_refuse = False
        self._refusing = False
        self.has_cut = threading.Event()
        self.released = threading.Event()
        self.forwarded = threading.Event()
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def cut(self, moment: Moment, *, then_refuse: bool = False) -> None:
        """Arms it. With `then_refuse` no new connection is let through after the cut, until `let_through`."""
        for event in (self.has_cut, self.released, self.forwarded):
            event.clear()
        self._then_refuse = then_refuse
        self._moment = moment

    def let_through(self) -> None:
        """Takes new connections again."""
        self._refusing = False

    def release(self) -> None:
        """Forwards the COMMIT that was held back, and waits until the server has answered it."""
        self.released.set()
        assert self.forwarded.wait(SECONDS)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refusing:
                    client.close()
                    continue
                server = socket.create_connection(self._target)
                for each in (client, server):  # else every answer would wait for the one before to be confirmed
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link = _Link(self, client, server)
                self._run(link.up)
                self._run(link.down)

    def _run(self, target: object) -> None:
        thread = threading.Thread(target=target, daemon=True)  # type: ignore[arg-type]
        thread.start()
        self._threads.append(thread)

    def take(self, *moments: Moment) -> Moment | None:
        """Disarms it, if it is armed for one of these."""
        moment = self._moment
        if moment not in moments:
            return None
        self._moment = None
        self._refusing = self._then_refuse
        return moment

    def close(self) -> None:
        self.released.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class _Link:
    """One connection of a client through the proxy."""

    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._named: dict[bytes, str] = {}
        self._stores = False
        self._muted = False

    def down(self) -> None:
        """The server's answers."""
        with contextlib.suppress(OSError):
            while data := self._server.recv(65536):
                if self._muted:
                    self._proxy.forwarded.set()
                    break
                self._client.sendall(data)
        self._end()

    def up(self) -> None:
        """What the client says, message by message."""
        with contextlib.suppress(OSError, EOFError):
            for message in self._messages():
                if not self._pass(message):
                    break
        if not self._muted:
            self._end()

    def _pass(self, message: bytes) -> bool:
        sql = self._sql(message)
        if sql.startswith("BEGIN"):
            self._stores = False
        elif sql.startswith(MARK):
            self._stores = True
            if self._proxy.take("within"):
                self._end()
                self._proxy.has_cut.set()
                return False
        elif sql.startswith("COMMIT") and self._stores:
            moment = self._proxy.take("before the commit", "after the commit", "commit on its way")
            if moment is not None:
                return self._cut(moment, message)
        self._server.sendall(message)
        return True

    def _cut(self, moment: Moment, message: bytes) -> bool:
        if moment == "before the commit":
            self._end()
            self._proxy.has_cut.set()
            return False
        self._muted = True
        if moment == "commit on its way":
            _shut(self._client)
            self._proxy.has_cut.set()
            self._proxy.released.wait(SECONDS)
        self._server.sendall(message)
        self._proxy.forwarded.wait(SECONDS)
        self._end()
        self._proxy.has_cut.set()
        return False

    def _sql(self, message: bytes) -> str:
        """The statement that a message begins, "" if it does not."""
        kind, body = message[:1], message[5:]
        if kind == b"Q":
            return body.decode(errors="replace")
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._named[name] = text.decode(errors="replace")
        if kind == b"B":
            return self._named.get(body.split(b"\0", 2)[1], "")
        return ""

    def _messages(self) -> Iterator[bytes]:
        while True:  # the beginning has no type byte: a question for TLS, then the startup message
            (size, code) = struct.unpack("!II", begun := self._exactly(8))
            yield begun + self._exactly(size - 8)
            if code == STARTUP_VERSION:
                break
        while True:
            begun = self._exactly(5)
            yield begun + self._exactly(struct.unpack("!I", begun[1:])[0] - 4)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._client.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def _end(self) -> None:
        _shut(self._client)
        _shut(self._server)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
