"""Streams that were compressed although nobody asked for it, as a web server before a local model does."""

import zlib

from gateway.errors import UpstreamInvalidResponse
from gateway.upstream.connection import END, Connection

MOST_AT_ONCE = 2**18
"""Bytes given out at a time, however little they were made of: whoever reads decides whether to go on."""
ANY_HEADER, NO_HEADER = 47, -15
DEFLATED = (b"gzip", b"x-gzip", b"deflate")
PLAIN = (b"", b"identity")


def inflated(connection: Connection, encoding: bytes) -> "Connection | Inflated":
    """The connection's body as it was before it was encoded.

    Raises:
        UpstreamInvalidResponse: it is encoded in a way that nobody asked for and that is not known here.
    """
    if encoding in PLAIN:
        return connection
    if encoding not in DEFLATED:
        raise UpstreamInvalidResponse("The upstream compressed a stream although nobody asked for it.")
    return Inflated(connection)


class Inflated:
    """Reads what a connection brings, decompressed as it comes: gzip in any number of members, or deflate with or
    without zlib's header."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._inflate = zlib.decompressobj(ANY_HEADER)
        self._waiting = b""
        self._begun = False
        self._more = False

    async def read(self, seconds: float | None) -> bytes:
        """As `Connection.read`.

        Raises:
            UpstreamInvalidResponse: it is not compressed as it says.
        """
        while True:
            if not (self._waiting or self._more):
                self._waiting = await self._connection.read(seconds)
                if not self._waiting:
                    return END
            if piece := self._next():
                return piece

    def _next(self) -> bytes:
        if self._inflate.eof:
            self._inflate = zlib.decompressobj(ANY_HEADER)
        try:
            piece = self._inflate.decompress(self._waiting, MOST_AT_ONCE)
        except zlib.error:
            if self._begun:
                raise UpstreamInvalidResponse("The upstream's answer is not compressed as it says.") from None
            self._inflate, self._begun = zlib.decompressobj(NO_HEADER), True
            return self._next()
        self._begun = True
        self._more = len(piece) == MOST_AT_ONCE  # zlib may hold back a part of what it has taken in
        self._waiting = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        return piece
