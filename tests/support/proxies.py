"""Networks that spoil what they carry: between a client and a port of this machine, or before PostgreSQL."""

import contextlib
import itertools
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from tests.support.process import Closing

PIECE_BYTES = 65536
Moment = Literal["within", "before the commit", "after the commit", "commit on its way"]


class ForwardingProxy(Closing):
    """Forwards connections to `port`; a subclass says how requests and answers are carried."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._to = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._start(self._accept)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Break all connections and stop listening."""
        for each in (self._listener, *self._sockets):
            hang_up(each)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def refuses(self) -> bool:
        """Whether new connections are closed at once."""
        return False

    def connected(self) -> socket.socket:
        """A new connection to the server.

        Raises:
            OSError: there is none.
        """
        return socket.create_connection(self._to, timeout=30)

    def carry(self, client: socket.socket, server: socket.socket) -> None:
        """Begin to carry what comes on a new connection, both ways."""
        self._start(self._request, client, server)
        self._start(self._answer, server, client)

    def _request(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := client.recv(PIECE_BYTES):
                self.sees(piece)
                server.sendall(piece)
        hang_up(server)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        """Carry the answers of one connection until it ends."""
        with contextlib.suppress(OSError):
            while piece := server.recv(PIECE_BYTES):
                if self.passes(piece, client):
                    client.sendall(piece)
        hang_up(client)
        hang_up(server)

    def sees(self, piece: bytes) -> None:
        """A piece of a request, before it is sent on."""

    def passes(self, piece: bytes, client: socket.socket) -> bool:
        """Whether a piece of an answer reaches the client.

        Raises:
            ConnectionError: the connection ends here.
        """
        return True

    def _start(self, work: Callable[..., None], *args: socket.socket) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                self._sockets.append(client)
                try:
                    if self.refuses():
                        raise ConnectionRefusedError
                    server = self.connected()
                except OSError:  # as where nobody listens
                    client.close()
                    continue
                self._sockets.append(server)
                for each in (client, server):  # else every answer would wait for the one before to be confirmed
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.carry(client, server)


class DelayingProxy(ForwardingProxy):
    """Each piece of an answer arrives `seconds` after it was sent; `seconds` may change at any time.

    What clients sent is kept, see `take_requests`.
    """

    seconds = 0.0

    def __init__(self, port: int) -> None:
        self._requests: list[bytes] = []
        super().__init__(port)

    @property
    def url(self) -> str:
        """What a Redis client takes."""
        return f"redis://127.0.0.1:{self.port}/0"

    def sees(self, piece: bytes) -> None:
        """Kept."""
        self._requests.append(piece)

    def take_requests(self) -> list[bytes]:
        """The pieces that clients have sent since this was last asked."""
        found, self._requests = self._requests, []
        return found

    def take_commands(self) -> int:
        """How many commands with a key have come since this, or `take_requests`, was last asked."""
        return len(re.findall(rb"\r\n(?:EVAL|MGET|GET|SET)\r\n", b"".join(self.take_requests())))

    def passes(self, piece: bytes, client: socket.socket) -> bool:
        """Every piece, later."""
        if self.seconds:
            time.sleep(self.seconds)
        return True


class Balancer(ForwardingProxy):
    """Shares new connections out among `ports` in turn; a port that refuses one is passed over, as nginx does it.

    `ports` may change at any time. What is sent is never sent again.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports = list(ports)
        self._turn = itertools.count()
        super().__init__(0)

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    def connected(self) -> socket.socket:
        """To the first that accepts, beginning with another each time."""
        ports, begin = list(self.ports), next(self._turn)
        for number in range(len(ports)):
            with contextlib.suppress(ConnectionRefusedError):
                return socket.create_connection(("127.0.0.1", ports[(begin + number) % len(ports)]), timeout=30)
        raise ConnectionRefusedError


class CuttingProxy(ForwardingProxy):
    """Before PostgreSQL: cuts a connection at a chosen moment of a transaction that stores a turn.

    It understands as much of the wire protocol as shows when such a transaction is committed. `cut(moment)` is for one
    transaction: "within" it, its COMMIT not forwarded ("before"), its COMMIT's answer withheld ("after"), or its COMMIT
    held back until `release` though the client's connection is gone ("on its way").
    """

    SECONDS = 20.0

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._moment: Moment | None = None
        self._then_refuse = self._refusing = False
        self.has_cut = threading.Event()
        self.released = threading.Event()
        self.forwarded = threading.Event()
        super().__init__(parts.port or 0, parts.hostname or "")
        self.url = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{self.port}"))

    def cut(self, moment: Moment, *, then_refuse: bool = False) -> None:
        """Arm it. With `then_refuse` no new connection is let through after the cut, until `let_through`."""
        for event in (self.has_cut, self.released, self.forwarded):
            event.clear()
        self._then_refuse = then_refuse
        self._moment = moment

    def let_through(self) -> None:
        """Take new connections again."""
        self._refusing = False

    def release(self) -> None:
        """Forward the COMMIT that was held back, and wait until the server has answered it."""
        self.released.set()
        assert self.forwarded.wait(self.SECONDS)

    def take(self, *moments: Moment) -> Moment | None:
        """Disarm it, if it is armed for one of these."""
        moment = self._moment
        if moment not in moments:
            return None
        self._moment = None
        self._refusing = self._then_refuse
        return moment

    def close(self) -> None:
        self.released.set()
        self.forwarded.set()
        super().close()

    def refuses(self) -> bool:
        """After a cut that said so."""
        return self._refusing

    def carry(self, client: socket.socket, server: socket.socket) -> None:
        """Message by message."""
        link = _Link(self, client, server)
        self._start(link.up)
        self._start(link.down)


class _Link:
    """One connection of a client to PostgreSQL through the proxy."""

    MARK = "INSERT INTO messages"
    STARTUP_VERSION = 196608

    def __init__(self, proxy: CuttingProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._named: dict[bytes, str] = {}
        self._stores = False
        self._muted = False

    def down(self) -> None:
        """The server's answers."""
        with contextlib.suppress(OSError):
            while data := self._server.recv(PIECE_BYTES):
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
        elif sql.startswith(self.MARK):
            self._stores = True
            if self._proxy.take("within"):
                self._end()
                self._proxy.has_cut.set()
                return False
        elif sql.startswith("COMMIT") and self._stores:
            moment = self._proxy.take("before the commit", "after the commit", "commit on its way")
            if moment is not None:
                self._cut(moment, message)
                return False
        self._server.sendall(message)
        return True

    def _cut(self, moment: Moment, message: bytes) -> None:
        if moment != "before the commit":
            self._muted = True
            if moment == "commit on its way":
                _shut(self._client)
                self._proxy.has_cut.set()
                self._proxy.released.wait(self._proxy.SECONDS)
            self._server.sendall(message)
            self._proxy.forwarded.wait(self._proxy.SECONDS)
        self._end()
        self._proxy.has_cut.set()

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
            if code == self.STARTUP_VERSION:
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


def hang_up(sock: socket.socket) -> None:
    """Ends both directions of a connection, if it still has any."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _shut(connection: socket.socket) -> None:
    hang_up(connection)
    connection.close()
