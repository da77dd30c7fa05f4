"""A client's connection, cheap: requests are bytes made elsewhere, of answers only what is measured is looked at."""

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import httptools

HEAD = (
    b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n"
    b"Content-Type: application/json\r\nUser-Agent: OpenAI/Python 2.0.0\r\nAuthorization: Bearer sk-bench-0000\r\n"
    b"Content-Length: %d\r\n\r\n"
)
EVENT = b'data: {"'
ENDS = (b"data: [DONE]", b"event: response.completed", b"event: message_stop")
"""What the end of a whole stream has, by chat completions, Responses and Messages."""
LAST_BYTES = 2**14
"""In which one of them is found."""
ID = re.compile(rb'"id":"(resp_\w+)"')


@dataclass
class Answer:
    """What came of one request. Times are seconds since it was asked; `reads`: when each piece of a
    stream arrived, from its first event on."""

    status: int = 0
    whole: bool = False
    dropped: bool = False
    events: int = 0
    seconds: float = 0.0
    reads: list[float] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """Keep-alive, one request at a time, to `path`; usable while `open`. `answered` is the id of the
    last response.

    `on_read` is told of each read of a stream from its first event on: whether it is the first, and its events.
    """

    def __init__(self) -> None:
        self.open = False
        self.path = "/v1/chat/completions"
        self.answered = ""
        self.on_read: Callable[[bool, int], None] | None = None
        self._answer: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast(asyncio.Transport, transport)
        self.open = True

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self.open = False
        self._finish()

    def close(self) -> None:
        """End the connection."""
        self.open = False
        self._transport.abort()

    async def ask(self, body: bytes, drop_after: int | None = None) -> Answer:
        """Send a request and wait for its end; `drop_after`: hang up after that many reads of the body, or with 0 a
        moment after it is sent."""
        self._now = Answer()
        self._drop_after = drop_after
        self._stream = self._complete = False
        self._tail = b""
        self._parser: Any = httptools.HttpResponseParser(self)
        self._answer = asyncio.get_running_loop().create_future()
        self._asked = time.perf_counter()
        self._transport.write(HEAD % (self.path.encode(), len(body)) + body)
        if drop_after == 0:
            asyncio.get_running_loop().call_later(0.005, self._drop, self._answer)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        if self._answer is None:
            return
        if (found := ID.search(data)) is not None:
            self.answered = found[1].decode()
        self._parser.feed_data(data)
        now = self._now
        if self._stream:
            self._read(data.count(EVENT))
            self._tail = (self._tail + data)[-LAST_BYTES:]
        if self._complete:
            now.whole = not self._stream or any(end in self._tail for end in ENDS)
            self._finish()
        elif self._drop_after and len(now.reads) >= self._drop_after:
            self._drop(self._answer)

    def _read(self, events: int) -> None:
        now = self._now
        if not events and not now.reads:
            return  # a head that came alone
        now.events += events
        if self.on_read is not None:
            self.on_read(not now.reads, events)
        now.reads.append(time.perf_counter() - self._asked)

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        if name.lower() == b"content-type":
            self._stream = value.startswith(b"text/event-stream")

    def on_message_complete(self) -> None:
        """See httptools."""
        self._complete = True

    def _drop(self, answer: asyncio.Future[Answer]) -> None:
        if self._answer is answer:
            self._now.dropped = True
            self.close()
            self._finish()

    def _finish(self) -> None:
        answer, self._answer = self._answer, None
        if answer is None or answer.done():
            return
        self._now.status = self._parser.get_status_code()
        self._now.seconds = time.perf_counter() - self._asked
        answer.set_result(self._now)
