"""Bytes, ends and silences as no provider means them, and what has to come of each at any edge."""

import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.support.faults.words import CHAT, Words
from tests.support.raw import LAST, SSE_HEAD, End, Forever, Step, event, head, piece, whole

Steps = tuple[Step, ...]
INVALID, CUT_OFF, LATE = "upstream_invalid_response", "upstream_interrupted", "upstream_timeout"
BOTH = (False, True)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What an upstream does, and what is to come of it.

    With `status` 200 and no `code` it is an answer all the same; with 200 and a code, a stream that ends with an error
    behind `TEXT`. `said` is the upstream's own message, which the client is to read; `original` its error as JSON.
    """

    steps: Steps
    streamed: tuple[bool, ...] = BOTH
    calls: int = 1
    status: int = 502
    code: str | None = None
    charged: bool = False
    said: str | None = None
    original: Any = None
    headers: dict[str, str | None] = field(default_factory=dict)
    """Those that the answer has, or has not."""
    or_late: bool = False
    """Whether it may as well be too slow: which limit it meets first depends on the machine."""
    anyhow: bool = False
    """Whether it is an answer is open: the client gets one, or a 502, and never a fault of the gateway's."""


Table = dict[str, Fault]


def no_answer(words: Words) -> Table:
    """What is no answer at all is a 502, what is too late a 504; a connection that fails before any byte is tried once
    more; a redirect is never followed."""
    body = words.body

    def lost(*steps: Step) -> Fault:
        return Fault(steps=steps, calls=2, code="upstream_unreachable")

    def invalid(*steps: Step) -> Fault:
        return Fault(steps=steps, code=INVALID, charged=True)

    def cut(*steps: Step) -> Fault:
        return Fault(steps=steps, code=CUT_OFF, charged=True)

    def late(*steps: Step) -> Fault:
        return Fault(steps=steps, status=504, code=LATE, charged=True)

    begun = b"HTTP/1.1 200 OK\r\n"
    lengths = b"content-length: 5\r\ncontent-length: 900\r\n\r\n"
    elsewhere = {"location": "http://elsewhere.invalid/v1"}
    return {
        "malformed JSON": invalid(whole(body[:-1]), End.KEEP),
        "a reset": lost(End.RESET),
        "a close": lost(End.CLOSE),
        "silence": late(End.HANG),
        "half a status line, then a close": cut(b"HTTP/1.1 2", End.CLOSE),
        "half a head, then a close": cut(begun + b"conte", 0.05, End.CLOSE),
        "half a head, then silence": late(begun + b"conte", End.HANG),
        "another protocol": invalid(b"SSH-2.0-OpenSSH_9.6\r\n", End.HANG),
        "a TLS alert": invalid(b"\x15\x03\x01\x00\x02\x02\x16", End.CLOSE),
        "a head that never ends": invalid(begun, Forever(b"x-pad: " + b"y" * 4000 + b"\r\n")),
        "a length that is none": invalid(head(content_length="many"), End.HANG),
        "two lengths": invalid(begun + lengths, body, End.HANG),
        "a length below nothing": invalid(head(content_length="-5"), End.HANG),
        "a header that is none": invalid(begun + b"no colon\r\n\r\n", End.HANG),
        "another HTTP": invalid(b"HTTP/9.9 200 OK\r\n\r\n", End.HANG),
        "100 for ever": late(Forever(head(100, None), 0.02)),
        "a head letter by letter": late(begun + b"x: ", Forever(b"y", 0.02)),
        "a redirect": invalid(whole(b"", 302, **elsewhere), End.KEEP),
        "a permanent redirect": invalid(whole(b"{}", 308, **elsewhere), End.KEEP),
        "not modified": invalid(head(304), End.KEEP),
        "no content": invalid(head(204), End.KEEP),
        "other protocols": invalid(head(101, upgrade="websocket", connection="upgrade"), End.HANG),
        "a thousand brackets": invalid(whole(b"[" * 100_000), End.KEEP),
        "compressed rubbish": invalid(whole(b"\x1f\x8b rubbish", content_encoding="gzip"), End.KEEP),
        "HTML": invalid(whole(b"<html>login</html>", kind="text/html"), End.KEEP),
        "an empty body": invalid(whole(b""), End.KEEP),
        "JSON that is no object": invalid(whole(b"[1]"), End.KEEP),
        "JSON null": invalid(whole(b"null"), End.KEEP),
        "an object of nothing": invalid(whole(b"{}"), End.KEEP),
    }


def cut(words: Words) -> Table:
    """An answer that has begun is not asked for again, and what it may have cost is on the bill."""
    body = words.body

    def cut_off(*steps: Step, code: str = CUT_OFF) -> Fault:
        return Fault(steps=steps, streamed=(False,), status=504 if code == LATE else 502, code=code, charged=True)

    long, chunked = head(content_length="900"), head(transfer_encoding="chunked")
    packed = head(content_length="900", content_encoding="gzip")
    return {
        "a length that is not reached, a close": cut_off(long, body[:40], End.CLOSE),
        "a length that is not reached, a reset": cut_off(long, body[:40], 0.05, End.RESET),
        "chunked without its end": cut_off(chunked, piece(body), End.CLOSE),
        "half a chunk": cut_off(chunked, piece(body)[:60], End.CLOSE),
        "a chunk size that is none": cut_off(chunked, b"what?\r\n", End.HANG, code=INVALID),
        "half a JSON and a close without any length": cut_off(head(), body[:40], End.CLOSE, code=INVALID),
        "a head and silence": cut_off(long, End.HANG, code=LATE),
        "half a JSON and silence": cut_off(long, body[:40], End.HANG, code=LATE),
        "compressed and cut": cut_off(packed, gzip.compress(body)[:40], End.CLOSE),
    }


def cut_streams(words: Words) -> Table:
    """An error event and the end, and never the sign of a whole answer; the turn is `partial`."""
    begun, finish = words.begun, words.finish

    def broken(*steps: Step, code: str = CUT_OFF) -> Fault:
        return Fault(steps=(begun, *steps), streamed=(True,), status=200, code=code, charged=True)

    def rubbish(data: Any) -> Fault:
        return broken(event(data), finish, End.KEEP, code=INVALID)

    no_blank = piece(b"data: {}\ndata: {}\n\n")
    table = {
        "a close after an event": broken(End.CLOSE),
        "a reset after an event": broken(0.05, End.RESET),
        "half a chunk": broken(event(words.more)[:30], End.CLOSE),
        "a good end of the body, not of the answer": broken(LAST, End.KEEP),
        "half an event and a good end": broken(piece(b'data: {"id": "up'), LAST, End.KEEP),
        "silence": broken(End.HANG, code=LATE),
        "half an event and silence": broken(piece(b'data: {"id": "up'), End.HANG, code=LATE),
        "comments for ever": broken(Forever(piece(b": ping\n\n"), 0.05), code=LATE),
        "lines without data for ever": broken(Forever(piece(b"event: ping\n\n"), 0.05), code=LATE),
        "no JSON": rubbish(b"{'one': two}"),
        "JSON that is no object": rubbish([1]),
        "null": rubbish(None),
        "no blank line between two events": broken(no_blank, finish, End.KEEP, code=INVALID),
        "HTML": rubbish(b"<html>"),
    }
    if words is CHAT:
        table["choices that are none"] = rubbish({"choices": "x"})
    plain = (head(kind="text/event-stream"), words.begun_plain, End.CLOSE)
    table["a close where no length was given"] = Fault(
        steps=plain, streamed=(True,), status=200, code=CUT_OFF, charged=True
    )
    return table


def nothing_yet(words: Words) -> Table:
    """Comments are no answer: the first event must come within `first_byte`. It is not asked again."""

    def never(*steps: Step, code: str = CUT_OFF) -> Fault:
        return Fault(steps=steps, streamed=(True,), status=504 if code == LATE else 502, code=code, charged=True)

    odd = head(kind="text/event-stream", content_encoding="br")
    return {
        "a head and a close": never(SSE_HEAD, End.CLOSE),
        "a head and a reset": never(SSE_HEAD, 0.05, End.RESET),
        "a head and silence": never(SSE_HEAD, End.HANG, code=LATE),
        "comments for ever": never(SSE_HEAD, Forever(piece(b": PROCESSING\n\n"), 0.05), code=LATE),
        "an empty stream": never(SSE_HEAD, LAST, End.KEEP),
        "an end and nothing before it": never(SSE_HEAD, event(b"[DONE]"), LAST, End.KEEP, code=INVALID),
        "a stream compressed in an unknown way": never(odd, words.stream, End.CLOSE, code=INVALID),
        "rubbish": never(SSE_HEAD, event(b"rubbish"), End.HANG, code=INVALID),
    }


def odd_answers(words: Words) -> Table:
    """What can be understood is understood."""
    body = words.body

    def odd(*steps: Step) -> Fault:
        return Fault(steps=steps, streamed=(False,), status=200)

    trailers = (
        head(transfer_encoding="chunked"), b"5;x=y\r\n" + body[:5] + b"\r\n", piece(body[5:]),
        b"0\r\nx-trailer: 1\r\n\r\n", End.KEEP,
    )  # fmt: skip
    bytewise = (body[i : i + 1] for i in range(len(body)))
    early = (head(100, None), head(103, None, link="<x>; rel=preload"))
    beyond = whole(body, openai_note="gr\xf6\xdfer", x_ratelimit_y="\xff")
    return {
        "compressed although identity was asked": odd(
            whole(gzip.compress(body), content_encoding="gzip"), End.KEEP
        ),
        "100 and 103 before it": odd(*early, whole(body), End.KEEP),
        "no content type": odd(whole(body, kind=None), End.KEEP),
        "a wrong content type": odd(whole(body, kind="text/html; charset=latin-1"), End.KEEP),
        "status 201": odd(whole(body, 201), End.KEEP),
        "no length": odd(head(), body, End.CLOSE),
        "byte by byte": odd(head(content_length=str(len(body))), *bytewise, End.KEEP),
        "invalid UTF-8": odd(whole(body.replace(b'"id": "', b'"id": "\xff', 1)), End.KEEP),
        "a number that is none": odd(whole(body[:-1] + b', "service_tier": NaN}'), End.KEEP),
        "a line feed in a text": odd(whole(body.replace(b'"id": "', b'"id": "\n', 1)), End.KEEP),
        "a stream": odd(head(kind="text/event-stream"), words.stream, End.CLOSE),
        "a stream that is called JSON": odd(whole(b": ping\n\n" + words.stream), End.KEEP),
        "a stream, and silence behind its end": odd(words.begun, words.ending, End.HANG),
        "a byte order mark and white space": odd(whole(b"\xef\xbb\xbf \n" + body + b"\n\n"), End.KEEP),
        "HTTP/1.0": odd(head().replace(b"1.1", b"1.0"), body, End.CLOSE),
        "bytes beyond ASCII in headers": odd(beyond, End.KEEP),
        "chunk extensions and trailers": odd(*trailers),
        "a reason beyond ASCII": odd(whole(body).replace(b"Raw", b"f\xfcr"), End.KEEP),
    }  # fmt: skip


def odd_streams(words: Words) -> Table:
    """The same, and nothing that comes behind the end is waited for."""
    begun, finish, ending, stream = words.begun, words.finish, words.ending, words.stream

    def odd(*steps: Step) -> Fault:
        return Fault(steps=steps, streamed=(True,), status=200)

    def packed(wbits: int, encoding: str) -> Fault:
        packer = zlib.compressobj(wbits=wbits)
        content = packer.compress(stream) + packer.flush()
        return odd(whole(content, kind="text/event-stream", content_encoding=encoding), End.KEEP)

    flushed = zlib.compressobj(wbits=31)
    open_end = flushed.compress(stream) + flushed.flush(zlib.Z_SYNC_FLUSH)
    zipped = head(kind="text/event-stream", content_encoding="gzip")
    members = head(kind="text/event-stream", content_encoding="x-gzip")
    plain, ping = head(kind="text/event-stream"), piece(b": ping\n\n")
    rest = begun.removeprefix(SSE_HEAD)
    return {
        "gzip": packed(31, "gzip"),
        "invalid UTF-8": odd(begun, event(b'{"choices": [], "id": "\xff"}'), finish, End.KEEP),
        "a number that is none": odd(begun, event(b'{"choices": [], "service_tier": NaN}'), finish, End.KEEP),
        "a whole answer": odd(whole(words.body), End.KEEP),
        "a whole answer that is called a stream": odd(whole(b" \n" + words.body, kind="text/event-stream"), End.KEEP),
        "a whole answer without a type, byte by byte": odd(
            head(kind=None), *(b"%c" % byte for byte in words.body), End.CLOSE
        ),
        "silence behind the end": odd(begun, ending, End.HANG),
        "more and more behind the end": odd(begun, ending, Forever(event(words.more))),
        "a close behind the end": odd(plain, stream, End.CLOSE),
        "byte by byte": odd(plain, *(b"%c" % byte for byte in stream), End.CLOSE),
        "a wrong content type": odd(whole(stream, kind="text/plain"), End.KEEP),
        "no content type": odd(whole(stream, kind=None), End.KEEP),
        "empty data as a sign of life": odd(begun, piece(b"data:\n\n"), piece(b"data\n\n"), finish, End.KEEP),
        "comments for a while": odd(SSE_HEAD, ping, 0.1, ping, 0.1, rest, finish, End.KEEP),
        "gzip byte by byte": odd(zipped, *(b"%c" % byte for byte in gzip.compress(stream)), End.CLOSE),
        "gzip in two members": odd(
            members, *(gzip.compress(part) for part in (stream[:150], stream[150:])), End.CLOSE
        ),
        "gzip that is flushed, then silence": odd(zipped, open_end, End.HANG),
        "deflate": packed(15, "deflate"),
        "deflate without a header": packed(-15, "deflate"),
        "unknown fields": odd(begun, piece(b"what: ever\n: and ever\nid\nretry: x\n\n"), finish, End.KEEP),
        "a named event": odd(begun, piece(b"event: any\n") + finish, End.KEEP),
        "line ends of another system": odd(whole(stream.replace(b"\n", b"\r\n"), kind="text/event-stream"), End.KEEP),
    }  # fmt: skip


@cache
def desert() -> tuple[bytes, bytes]:
    """The beginning of gzip'ed zeros, and 16 MB of them that may be repeated for ever in 16 KB each."""
    packer = zlib.compressobj(wbits=31)
    first, again = (packer.compress(bytes(2**24)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first, again


def floods(words: Words) -> Table:
    """Giant or endless: an error, in bounded memory, and the upstream call is ended."""

    def flood(*steps: Step, streamed: bool = True, begun: bool = False) -> Fault:
        status = 200 if begun else 502
        return Fault(steps=steps, streamed=(streamed,), status=status, code=INVALID, charged=True, or_late=True)

    sand, wind = desert()
    more = Forever(piece(b"y" * 2**18))
    error = Fault(
        steps=(head(500, "text/plain"), Forever(b"y" * 2**18)), streamed=(False,), status=500, code="upstream_500"
    )
    dry = (head(content_encoding="gzip"), sand, Forever(wind))
    dry_stream = (head(kind="text/event-stream", content_encoding="gzip"), sand, Forever(wind))
    return {
        "an event without end": flood(words.begun, piece(b'data: {"x": "'), more, begun=True),
        "a comment without end": flood(words.begun, piece(b": "), more, begun=True),
        "a first event without end": flood(SSE_HEAD, piece(b"data: "), more),
        "an event of many lines": flood(words.begun, Forever(piece(b"data: yyyyyyyy\n" * 2**14)), begun=True),
        "JSON without end": flood(head(transfer_encoding="chunked"), piece(b'{"x": "'), more, streamed=False),
        "a page without end": flood(head(kind="text/html"), b"<html>", Forever(b"y" * 2**18)),
        "an error without end": error,
        "a compressed flood of a stream": flood(*dry_stream),
        "a compressed desert": flood(*dry, streamed=False),
    }


BYTES: dict[str, Callable[[Words], Table]] = {
    "no answer": no_answer,
    "cut": cut,
    "cut streams": cut_streams,
    "nothing yet": nothing_yet,
    "odd answers": odd_answers,
    "odd streams": odd_streams,
    "floods": floods,
}
"""By class. The first of each class stands for all of it in a selection."""
