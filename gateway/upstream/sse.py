"""Server-sent events, as the HTML standard says: any line ending, comments, fields, several `data` lines an event."""

import re
from collections.abc import AsyncIterator

from gateway.errors import UpstreamInvalidResponse

MAX_EVENT_BYTES = 32 * 2**20
MARK = b"\xef\xbb\xbf"
LINE_END = re.compile(rb"\r\n|\n|\r")


async def events(source: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, bytes]]:
    """Events as (name, data) in order; the name is "message" when none is given. An event that the end of the stream
    cuts off is passed over.

    Raises:
        UpstreamInvalidResponse: one event exceeds 32 MB.
    """
    buffer = b""
    name = ""
    data: list[bytes] = []
    size = 0
    begun = False
    async for piece in source:
        buffer += piece
        if not begun:
            if len(buffer) < len(MARK) and MARK.startswith(buffer):
                continue
            begun, buffer = True, buffer.removeprefix(MARK)
        held = b"\r" if buffer.endswith(b"\r") else b""  # perhaps half of \r\n
        *lines, rest = LINE_END.split(buffer[: len(buffer) - len(held)])
        buffer = rest + held
        size += len(piece)
        for line in lines:
            if not line:
                if data:
                    yield name or "message", b"\n".join(data)
                name, data, size = "", [], len(buffer)
                continue
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value.decode("utf-8", "replace")
        if size > MAX_EVENT_BYTES:
            raise UpstreamInvalidResponse("The upstream sent an event of more than 32 MB.")
