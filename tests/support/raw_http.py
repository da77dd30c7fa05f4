"""A client that sends whatever bytes a test likes, as slowly as it likes, and reads the answers one by one."""

import json
import socket
import time
from types import TracebackType
from typing import Any, Self

from tests.support.gateway_process import GatewayProcess


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


class RawClient:
    """One TCP connection to a gateway. Reading gives up after `timeout` seconds with TimeoutError."""

    def __init__(self, at: GatewayProcess, timeout: float = 5.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", at.port), timeout)
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """All of it; what the server no longer takes is dropped, since it may have answered already."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

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

    def seconds_to_end(self) -> float:
        """How long until the server ends the connection; what it still sends is dropped."""
        began = time.monotonic()
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return time.monotonic() - began

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
        data = self.socket.recv(65536)
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
