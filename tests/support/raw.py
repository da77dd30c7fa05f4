"""Answers of an upstream without manners, written down byte for byte: what goes out, when, and how it ends."""

import asyncio
import json
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


class End(Enum):
    """How a connection ends, or does not."""

    CLOSE = auto()
    """A FIN; the default after the last step."""
    RESET = auto()
    HANG = auto()
    """Silence for as long as the peer stays."""
    KEEP = auto()
    """The next request may come on this connection."""


@dataclass(frozen=True)
class Forever:
    """The same bytes again and again, with a pause after each, for as long as the peer takes them."""

    data: bytes
    pause: float = 0.0


Step = bytes | float | Forever | End
"""Bytes to write, seconds to wait, or the end."""


class BrokenOffError(ConnectionError):
    """We broke the connection ourselves; the peer did nothing wrong."""


async def perform(steps: Sequence[Step], writer: asyncio.StreamWriter) -> int:
    """Does what the script says; the number of bytes written.

    Raises:
        BrokenOffError: the script ends the connection.
        ConnectionError: the peer has gone.
    """
    sent = 0
    for step in steps:
        match step:
            case bytes():
                sent += await _write(writer, step)
            case float() | int():
                await asyncio.sleep(step)
            case Forever(data, pause):
                while True:
                    sent += await _write(writer, data)
                    await asyncio.sleep(pause)
            case End.HANG:
                await asyncio.Event().wait()
            case End.KEEP:
                return sent
            case End.RESET | End.CLOSE:
                break_off(writer, reset=step is End.RESET)
    break_off(writer)
    raise AssertionError("unreachable")


async def _write(writer: asyncio.StreamWriter, data: bytes) -> int:
    writer.write(data)
    await writer.drain()
    return len(data)


def break_off(writer: asyncio.StreamWriter, *, reset: bool = False) -> None:
    """Closes the connection now, by a reset if asked for (the peer may then lose what it has not read yet).

    Raises:
        BrokenOffError: always.
    """
    if reset:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    raise BrokenOffError


def head(status: int = 200, kind: str | None = "application/json", **fields: str) -> bytes:
    """A status line and headers; underscores in names become hyphens. Without a length the body ends with the FIN."""
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    lines = [f"HTTP/1.1 {status} Raw", *([f"content-type: {kind}"] if kind else [])]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in named.items()), "", ""]).encode("latin-1")


def whole(body: bytes, status: int = 200, kind: str | None = "application/json", **fields: str) -> bytes:
    """An answer with its length, after which the connection may be used again (`End.KEEP`)."""
    return head(status, kind, content_length=str(len(body)), **fields) + body


SSE_HEAD = head(200, "text/event-stream", transfer_encoding="chunked")
LAST = b"0\r\n\r\n"
"""The end of a chunked body."""


def piece(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: Any) -> bytes:
    """One event of a stream, as a chunk of a chunked body."""
    return piece(b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n")
