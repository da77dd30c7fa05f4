"""Answers that are compressed although the gateway asks for none of it, as web servers before local models do."""

import asyncio
import zlib

import httpx

from gateway.core.errors import UpstreamInvalidResponse
from gateway.upstream.http.connection import END, UpstreamConnection

MAX_PIECE_BYTES = 2**18
"""Decompressed bytes given out at a time, however few they were made of: the reader decides whether to go on."""
PLAIN = (b"", b"identity")
DEFLATED = (b"gzip", b"x-gzip", b"deflate")
ANY_HEADER, NO_HEADER = 47, -15
"""zlib's `wbits`: gzip's or zlib's header; no header at all."""


def decompressed(connection: UpstreamConnection, encoding: bytes) -> "UpstreamConnection | InflatedBody":
    """The connection's body without its `content-encoding`.

    Raises:
        UpstreamInvalidResponse: the encoding is unknown here.
    """
    if encoding in PLAIN:
        return connection
    if encoding not in DEFLATED:
        raise UpstreamInvalidResponse("The upstream compressed its answer although nobody asked for it.")
    return InflatedBody(connection)


class Replayed:
    """A body that was read already, as far as it goes."""

    def __init__(self, raw: bytes, rest: "UpstreamConnection | InflatedBody | Replayed | None" = None) -> None:
        self._raw = raw
        self._rest = rest

    async def read(self, seconds: float | None) -> bytes:
        """All of it, then what the rest gives, then `b""`."""
        raw, self._raw = self._raw, END
        return raw if raw or self._rest is None else await self._rest.read(seconds)


class InflatedBody:
    """A connection's body, decompressed as it comes: gzip in any number of members, or deflate with or without zlib's
    header."""

    def __init__(self, connection: UpstreamConnection) -> None:
        self._connection = connection
        self._inflate = zlib.decompressobj(ANY_HEADER)
        self._waiting = b""
        self._begun = False
        self._more = False

    async def read(self, seconds: float | None) -> bytes:
        """The next bytes, `b""` at the end; raises as `UpstreamConnection.read` does.

        Raises:
            UpstreamInvalidResponse: the body is not compressed as its header says.
        """
        clock = asyncio.get_running_loop().time
        due = None if seconds is None else clock() + seconds
        while True:
            if self._more:
                await asyncio.sleep(0)  # a little that grows to much must not hold up other requests
            if not (self._waiting or self._more):
                self._waiting = await self._connection.read(due and max(due - clock(), 0))
                if not self._waiting:
                    return END
            if piece := self._next():
                return piece
            if due is not None and clock() >= due:  # bytes come, and become nothing
                raise httpx.ReadTimeout("The upstream fell silent.")

    def _next(self) -> bytes:
        if self._inflate.eof:
            self._inflate = zlib.decompressobj(ANY_HEADER)
        try:
            piece = self._inflate.decompress(self._waiting, MAX_PIECE_BYTES)
        except zlib.error:
            if self._begun:
                raise UpstreamInvalidResponse("The upstream's answer is not compressed as it says.") from None
            self._inflate, self._begun = zlib.decompressobj(NO_HEADER), True
            return self._next()
        self._begun = True
        self._more = len(piece) == MAX_PIECE_BYTES  # zlib may hold back a part of what it has taken in
        self._waiting = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        return piece


def decompressed_at_once(raw: bytes, encoding: str, max_bytes: int) -> bytes | None:
    """The first `max_bytes` of a body that was read as it came; None if its encoding is unknown or not kept."""
    if encoding.encode("latin-1", "replace") in PLAIN:
        return raw
    if encoding not in ("gzip", "deflate"):
        return None
    try:
        return zlib.decompressobj(ANY_HEADER).decompress(raw, max_bytes)
    except zlib.error:
        return None
