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
    name = ""
    data: list[bytes] = []
    size = 0
    async for line in _lines(source):
        if not line:
            if data:
                yield name or "message", b"\n".join(data)
            name, data, size = "", [], 0
            continue
        size = _checked(size + len(line))
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")


async def _lines(source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Complete lines without their ends. A piece is looked through once: a line in many pieces costs its length, not
    its square."""
    waiting: list[bytes] = []
    size = 0
    after_cr = False
    first = True
    async for raw in source:
        piece = raw[1:] if after_cr and raw.startswith(b"\n") else raw  # the other half of \r\n
        after_cr = raw.endswith(b"\r") if raw else after_cr
        if b"\n" not in piece and b"\r" not in piece:
            waiting.append(piece)
            size = _checked(size + len(piece))
            continue
        head, *lines = LINE_END.split(piece)
        lines.insert(0, b"".join((*waiting, head)))
        rest = lines.pop()
        waiting, size = [rest], len(rest)
        if first:
            first, lines[0] = False, lines[0].removeprefix(MARK)
        for line in lines:
            yield line


def _checked(size: int) -> int:
    if size > MAX_EVENT_BYTES:
        raise UpstreamInvalidResponse("The upstream sent an event of more than 32 MB.")
    return size
