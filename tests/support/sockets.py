"""Both ends of a connection played by hand, byte by byte: a client of the gateway, and an upstream behind it."""

import contextlib
import json
import re
import socket
import struct
from typing import Any

from tests.support.gateway_process import GatewayProcess
from tests.support.process import PATIENCE, Closing

PIECE_BYTES = 65536


class Connection(Closing):
    """One TCP connection; `received` is all that has been read. Reading gives up after `timeout` seconds."""

    def __init__(self, sock: socket.socket, timeout: float = 30.0) -> None:
        sock.settimeout(timeout)
        self.socket = sock
        self.received = b""

    def send(self, data: bytes) -> None:
        """All of it; what the peer no longer takes is dropped, since it may have answered already."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def read_until(self, mark: bytes) -> bytes:
        """Everything received so far, once `mark` is in it."""
        while mark not in self.received:
            piece = self.socket.recv(PIECE_BYTES)
            assert piece, f"the peer closed the connection before {mark!r} came: {self.received!r}"
            self.received += piece
        return self.received

    def read_all(self) -> bytes:
        """Everything received until the peer closes the connection."""
        while piece := self.socket.recv(PIECE_BYTES):
            self.received += piece
        return self.received

    def wait_for_end(self) -> None:
        """Until the peer ends the connection; what it still sends is dropped. TimeoutError if it does not."""
        self.socket.settimeout(PATIENCE)
        with contextlib.suppress(ConnectionResetError):
            while self.socket.recv(PIECE_BYTES):
                pass

    def close(self) -> None:
        """With a FIN."""
        self.socket.close()

    def reset(self) -> None:
        """Closes with a RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def connect(port: int, timeout: float = 10.0) -> Connection:
    """A client played by hand."""
    return Connection(socket.create_connection(("127.0.0.1", port)), timeout)


class Listener(Closing):
    """An upstream played by hand: listens on 127.0.0.1 from the start; `accept` gives the next connection."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(10)
        self._open: list[Connection] = []

    @property
    def base_url(self) -> str:
        """What goes into `api_base`."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    def accept(self) -> Connection:
        """The next connection."""
        connection = Connection(self._socket.accept()[0])
        self._open.append(connection)
        return connection

    def hang_up(self) -> None:
        """Closes all connections, so that the next call needs a new one."""
        while self._open:
            self._open.pop().close()

    def close(self) -> None:
        self.hang_up()
        self._socket.close()


class RawAnswer:
    """One HTTP/1.1 answer."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def error(self) -> dict[str, Any]:
        """The error object of OpenAI's shape; fails if the body is anything else."""
        found: dict[str, Any] = json.loads(self.body)["error"]
        assert set(found) == {"message", "type", "param", "code"}
        return found


class RawClient(Connection):
    """A client of a gateway that sends whatever bytes a test likes, and reads the answers one by one."""

    def __init__(self, at: GatewayProcess, timeout: float = 30.0) -> None:
        super().__init__(socket.create_connection(("127.0.0.1", at.port)), timeout)
        self._rest = b""

    def ask(self, data: bytes) -> RawAnswer:
        """Sends, and reads one answer."""
        self.send(data)
        return self.answer()

    def answer(self) -> RawAnswer:
        """The next answer; an interim `100 Continue` counts as one."""
        head = self._until(b"\r\n\r\n").decode("latin-1")
        line, *fields = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        if headers.get("transfer-encoding") == "chunked":
            return RawAnswer(int(line.split()[1]), headers, self._chunked())
        return RawAnswer(int(line.split()[1]), headers, self._take(int(headers.get("content-length", "0"))))

    def _chunked(self) -> bytes:
        body = b""
        while size := int(self._until(b"\r\n"), 16):
            body += self._take(size)
            self._take(2)
        self._take(2)
        return body

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._rest:
            self._read()
        found, _, self._rest = self._rest.partition(mark)
        return found

    def _take(self, size: int) -> bytes:
        while len(self._rest) < size:
            self._read()
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def _read(self) -> None:
        data = self.socket.recv(PIECE_BYTES)
        if not data:
            raise EOFError(f"the server ended the connection after {self._rest[-200:]!r}")
        self._rest += data


def post(body: bytes, *fields: str, path: str = "/v1/chat/completions", length: bool = True) -> bytes:
    """A POST with `fields` as further header lines."""
    lines = [f"POST {path} HTTP/1.1", "host: gateway", "content-type: application/json", *fields]
    if length:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def get(path: str, *fields: str) -> bytes:
    """A GET with `fields` as further header lines."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "host: gateway", *fields, "", ""]).encode("latin-1")


def request_id_in(received: bytes) -> str | None:
    """The `x-request-id` of an answer's head, if that has come."""
    found = re.search(rb"x-request-id: (\S+)", received)
    return found.group(1).decode() if found else None
