"""A mock upstream that costs far less than what is measured in front of it: canned bytes, no JSON, no tasks.

    python -m benchmarks.upstream PORT

What it answers is chosen by a mark in the last 4 KB of the request, the last one, as `traffic.mark` writes it:
`[bench chunks=200 spacing=5]` a stream of 200 content chunks 5 ms apart (0: all at once; with ` together=32`, the first
chunk at once and the others when 32 such streams are open), `[bench status=429]` an error, `[bench call=17]` a tool
call of that number; without one, a small completion. `GET /stats` tells what it has seen, as `Stats` names it.
"""

import asyncio
import functools
import json
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, cast

import httptools
import uvloop

MARK = re.compile(rb"\[bench (chunks|status|call)=(\d+)(?: spacing=(\d+))?(?: together=(\d+))?\]")
TAIL = 4096
PATIENCE = 60.0
"""Seconds after which a stream no longer waits for others."""
JSON_HEAD = b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ANSWER = (
    b'{"id":"chatcmpl-bench","object":"chat.completion","created":1760000000,"model":"bench-model",'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":"The harbour was quiet that morning, and the '
    b'ledger on the table was open at the page where the last entry had been made in a careful hand.",'
    b'"refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,'
    b'"completion_tokens":32,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},'
    b'"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}},"service_tier":"default",'
    b'"system_fingerprint":"fp_bench"}'
)
CALL = (
    b'{"id":"chatcmpl-bench","object":"chat.completion","created":1760000000,"model":"bench-model",'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_%010d","type":'
    b'"function","function":{"name":"read","arguments":"{\\"path\\":\\"notes/%010d.md\\"}"}}],"refusal":null},'
    b'"logprobs":null,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":%d,"completion_tokens":24,'
    b'"total_tokens":%d},"service_tier":"default","system_fingerprint":"fp_bench"}'
)
ERROR = b'{"error":{"message":"Refused by the mock.","type":"invalid_request_error","param":null,"code":"refused"}}'
CHUNK = (
    b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1760000000,"model":"bench-model",'
    b'"service_tier":"default","system_fingerprint":"fp_bench","choices":[{"index":0,"delta":%s,"logprobs":null,'
    b'"finish_reason":%s}]%s}\n\n'
)
LAST = (
    b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1760000000,"model":"bench-model",'
    b'"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}\n\n'
)
WORDS = (b" the", b" harbour", b" was", b" quiet", b" and", b" ledger", b" lay", b" open")


@dataclass
class Stats:
    """What the mock has seen; `cut` streams are those whose caller left before the end."""

    connections: int = 0
    requests: int = 0
    streams: int = 0
    whole: int = 0
    cut: int = 0


def framed(payload: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(payload), payload)


@functools.cache
def content_frames(count: int) -> tuple[bytes, ...]:
    """`count` framed content chunks of about 250 bytes, then the one with the finish reason."""
    deltas = [b'{"content":"%s"}' % WORDS[i % len(WORDS)] for i in range(count)]
    deltas[0] = b'{"role":"assistant","content":"%s","refusal":null}' % WORDS[0]
    chunks = [CHUNK % (delta, b"null", b"") for delta in deltas]
    return tuple(framed(chunk) for chunk in (*chunks, CHUNK % (b"{}", b'"stop"', b"")))


@functools.cache
def joined(count: int) -> bytes:
    """All of `content_frames` in one piece, behind the head."""
    return SSE_HEAD + b"".join(content_frames(count))


def call_frames(number: int) -> bytes:
    """A streamed tool call, its arguments in three pieces."""
    named = b'{"index":0,"id":"call_%010d","type":"function","function":{"name":"read","arguments":""}}' % number
    pieces = (b'{\\"path\\":', b'\\"notes/%010d' % number, b'.md\\"}')
    further = [b'{"index":0,"function":{"arguments":"%s"}}' % piece for piece in pieces]
    first = CHUNK % (b'{"role":"assistant","content":null,"tool_calls":[%s]}' % named, b"null", b"")
    chunks = [CHUNK % (b'{"tool_calls":[%s]}' % each, b"null", b"") for each in further]
    return b"".join(map(framed, (first, *chunks, CHUNK % (b"{}", b'"tool_calls"', b""))))


class Upstream(asyncio.Protocol):
    """One connection. Requests on it come one after another; pipelining is not expected."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stats: Stats, waiting: set["Upstream"]) -> None:
        self._loop = loop
        self._stats = stats
        self._waiting = waiting
        self._frames: Iterator[bytes] | None = None
        self._parser: Any = httptools.HttpRequestParser(self)
        self._url = b""
        self._body: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast(asyncio.Transport, transport)
        self._stats.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._stats.connections -= 1
        self._waiting.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._frames is not None:
            self._frames = None
            self._stats.streams -= 1
            self._stats.cut += 1

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """See httptools."""
        self._url = url

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        body = b"".join(self._body)
        self._body.clear()
        if self._url == b"/stats":
            return self._json(200, json.dumps(asdict(self._stats)).encode())
        self._stats.requests += 1
        if self._url.endswith(b"/responses"):  # it speaks chat completions alone
            return self._json(404, ERROR)
        mark = MARK.match(body, max(0, body.rfind(b"[bench ", len(body) - TAIL)))
        tokens = len(body) // 5
        if mark is None:
            return self._json(200, ANSWER % (tokens, tokens + 32))
        if mark[1] == b"status":
            return self._json(int(mark[2]), ERROR)
        count = int(mark[2])
        if mark[1] == b"call" and b'"stream":true' not in body:
            return self._json(200, CALL % (count, count, tokens, tokens + 24))
        usage = framed(LAST % (tokens, count, tokens + count)) if b'"include_usage"' in body else b""
        end = usage + framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        if mark[1] == b"call":
            return self._transport.write(SSE_HEAD + call_frames(count) + end)
        return self._stream(count, int(mark[3] or 0), int(mark[4] or 0), end)

    def _json(self, status: int, body: bytes) -> None:
        self._transport.write(JSON_HEAD % (status, len(body)) + body)

    def _stream(self, count: int, spacing: int, together: int, end: bytes) -> None:
        if not spacing:
            self._stats.whole += 1
            self._transport.write(joined(count) + end)
            return None
        self._stats.streams += 1
        self._spacing = spacing / 1000
        self._frames = chain(content_frames(count), (end,))
        self._transport.write(SSE_HEAD)
        if not together:
            return self._start()
        self._transport.write(next(self._frames))
        self._waiting.add(self)
        self._timer = self._loop.call_later(PATIENCE, self._start)
        if len(self._waiting) == together:
            for stream in tuple(self._waiting):
                stream._start()
        return None

    def _start(self) -> None:
        self._waiting.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        # Streams that begin together do not tick together: each has a phase of its own.
        self._due = self._loop.time() + self._spacing * random.random()
        self._timer = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        frame = next(self._frames, None) if self._frames is not None else None
        if frame is not None:
            self._transport.write(frame)
            self._due += self._spacing
            self._timer = self._loop.call_at(self._due, self._tick)
            return
        self._timer = self._frames = None
        self._stats.streams -= 1
        self._stats.whole += 1


async def main(port: int) -> None:
    """Serves until it is killed."""
    loop = asyncio.get_running_loop()
    stats = Stats()
    waiting: set[Upstream] = set()
    server = await loop.create_server(lambda: Upstream(loop, stats, waiting), "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
