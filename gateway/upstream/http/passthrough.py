"""A provider's other endpoints, relayed byte by byte (guarantee §1), and what is read of the bodies that pass: the
model, its user, and the usage (guarantee §13.8).

A short body is held whole; of a longer one its beginning and its end, by reference. Brackets are counted from the
nearer end to find how deep a member is: what lies between need not be known.
"""

import asyncio
import contextlib
import re
import zlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
from dataclasses import KW_ONLY, field, replace
from functools import partial
from itertools import islice
from typing import Any

import httpx

from gateway.core import errors, jsons
from gateway.core.frozen_records import record
from gateway.core.types import upstreams
from gateway.core.types.chat import Headers, ModelDeployment
from gateway.core.types.content_parts import dicts_of
from gateway.upstream.http.mending import MAX_ERROR_BYTES, check_refusal, failure_in, fit_headers
from gateway.upstream.http_client import (
    CONTENT_LENGTH,
    END,
    Answering,
    ConnectionPool,
    UpstreamConnection,
    address,
    request_head,
    translated,
)

CHUNKED = (b"transfer-encoding", b"chunked")
BODILESS_METHODS = ("GET", "HEAD", "OPTIONS", "DELETE")
Sending = asyncio.Task[None] | None


class PassthroughClient:
    """Opens relayed calls; retries a connection that failed before any byte once, and nothing else."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    @contextlib.asynccontextmanager
    async def open(self, deployment: ModelDeployment, call: upstreams.RelayedCall) -> AsyncIterator["RawAnswer"]:
        """Opens a call and yields its answer when it has begun; leaving the context closes the connection.
        Raises UpstreamError: see `core/errors`; error answers in OpenAI's shape are answers."""
        answer = await self._send(deployment, call)
        try:
            if not 200 <= answer.status < 600:
                raise errors.UpstreamInvalidResponse(f"The upstream answered with status {answer.status}.")
            if answer.status >= 400:
                await answer.check(call.method)
            yield answer
        finally:
            await answer.aclose()

    async def _send(self, deployment: ModelDeployment, call: upstreams.RelayedCall) -> "RawAnswer":
        streamed = call.body is not None and not isinstance(call.body, bytes)
        try:
            # A body that can be sent only once is not sent over a connection that upstream may be closing just now.
            return await self._answered(deployment, call, fresh=streamed)
        except errors.UpstreamUnreachable as error:
            if streamed and not isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
                raise
        return await self._answered(deployment, call, fresh=True)

    async def _answered(self, deployment: ModelDeployment, call: upstreams.RelayedCall, *, fresh: bool) -> "RawAnswer":
        seconds = deployment.first_byte_timeout
        origin, base, host = address(f"{deployment.api_base}/")
        with translated(begun=False, origin=origin):
            fields = _fields(deployment, call, host)
            head = request_head(call.method.encode(), base + call.target.encode(), fields)
            connection = await self._pool.take(origin, deployment.connect_timeout, seconds, fresh=fresh)
            sending: Sending = None
            with Answering(connection):
                whole = call.body if isinstance(call.body, bytes) else b""
                connection.begin(head, whole, bodiless=call.method == "HEAD")
                if call.body is not None and not isinstance(call.body, bytes):
                    sending = await _uploaded(connection, call.body, deployment, chunked=CHUNKED in fields)
                await connection.response(seconds)
            return RawAnswer(connection, deployment, sending)


class RawAnswer:
    """One answer; an error is read before it is relayed."""

    def __init__(self, connection: UpstreamConnection, deployment: ModelDeployment, sending: Sending) -> None:
        self._connection = connection
        self._deployment = deployment
        self._sending = sending
        self._held: bytes | None = None
        self.refusal: errors.UpstreamRefused | None = None
        """The answer as an error, if it is one."""
        self.status = connection.status
        self.headers: Headers = fit_headers(connection.headers, deployment)

    async def check(self, method: str) -> None:
        """Checks that an error answer may be relayed. Raises UpstreamError: what the client gets instead."""
        raw, size = [], 0
        async for piece in self.pieces():
            raw.append(piece)
            size += len(piece)
            if size > MAX_ERROR_BYTES:
                break
        self._held = b"".join(raw)
        named = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.headers}
        self.refusal = check_refusal(method, self.status, self._held, named, self._deployment)
        if method != "HEAD":
            kept = [pair for pair in self.headers if pair[0] != CONTENT_LENGTH]
            self.headers = [*kept, (CONTENT_LENGTH, b"%d" % size)]

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yields the body as it arrives. Raises UpstreamInterrupted, UpstreamTimeout: it broke off, or fell silent."""
        if self._held is not None:
            yield self._held
            return
        seconds = self._deployment.first_byte_timeout  # headers alone are no sign that the answer has begun
        while True:
            with translated(begun=True, origin=self._connection.origin):
                piece = await self._connection.read(seconds)
            if piece is END:
                break
            yield piece
            seconds = self._deployment.idle_timeout
        if self._sending is not None and self._sending.done() and self._sending.exception() is not None:
            raise errors.UpstreamInterrupted("The request broke off before its answer was complete.")

    async def aclose(self) -> None:
        """Ends the call in any state."""
        if self._sending is not None:
            await _cancel(self._sending)
        self._connection.close()


async def _uploaded(
    connection: UpstreamConnection, body: AsyncIterable[bytes], deployment: ModelDeployment, *, chunked: bool
) -> Sending:
    """Sends a body in pieces, to its end or until upstream answers; returns None, or the task that is still sending."""
    sending = asyncio.create_task(connection.upload(body, chunked=chunked, seconds=deployment.idle_timeout))
    answering = asyncio.create_task(connection.response(None))
    try:
        await asyncio.wait({sending, answering}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
            return None
        if answering.exception() is None and connection.status < 400:
            sending.add_done_callback(lambda task: connection.abort() if _failed(task) else None)
            return sending
        await _cancel(sending)
        return None
    except BaseException:
        await _cancel(sending)
        raise
    finally:
        await _cancel(answering)


def _failed(task: asyncio.Task[None]) -> bool:
    return not task.cancelled() and task.exception() is not None


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _fields(deployment: ModelDeployment, call: upstreams.RelayedCall, host: bytes) -> Headers:
    """Returns the request's headers: the deployment's outrank the client's."""
    own = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in deployment.headers.items()]
    own += [(name.encode(), value.encode("latin-1", "replace")) for name, value in deployment.authorization.items()]
    names = {name for name, _ in own}
    fields = [(b"host", host), *(pair for pair in call.headers if pair[0] not in names), *own]
    if isinstance(call.body, bytes):
        return [*fields, (CONTENT_LENGTH, b"%d" % len(call.body))]
    if any(name == CONTENT_LENGTH for name, _ in fields):
        return fields
    if call.body is not None:
        return [*fields, CHUNKED]
    return fields if call.method in BODILESS_METHODS else [*fields, (CONTENT_LENGTH, b"0")]


END_BYTES = 2**16
"""Bytes that are held of each end of a long body."""
WHOLE_BYTES = 2**17
"""Bytes up to which a body is held whole; a longer one is shortened to its ends."""
PASSTHROUGH_PIECE_BYTES = 2**18
MAX_DECODED = 2**28
"""Bytes of a decompressed body that are searched; a larger one is not read."""
READABLE_ENCODINGS = ("identity", "gzip", "x-gzip", "deflate")
"""Encodings that can be read."""
JSON_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
"""A string, which may be cut off, or a bracket."""
COLON = re.compile(rb"\s*:\s*")
STEP = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}


class BodySample:
    """Both ends of a body, of `end` bytes at least, or all of it while it is not longer than `whole` bytes."""

    __slots__ = ("_end", "_gone", "_head", "_held", "_pieces", "_whole")

    def __init__(self, whole: int = WHOLE_BYTES, end: int = END_BYTES) -> None:
        self._whole = whole
        self._end = end
        self._head: bytes | None = None
        self._pieces: deque[bytes] = deque()
        self._held = self._gone = 0

    def add(self, piece: bytes) -> None:
        """Adds the next piece that has passed."""
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held > self._whole:
            self._shorten()

    @property
    def size(self) -> int:
        """Bytes that have passed."""
        return self._gone + self._held

    @property
    def whole(self) -> bytes | None:
        """The whole body; None if it was too long."""
        return b"".join(self._pieces) if self._head is None else None

    @property
    def head(self) -> bytes:
        """The body's beginning, or all of it."""
        return b"".join(self._pieces) if self._head is None else self._head

    @property
    def tail(self) -> bytes:
        """The body's end, or all of it."""
        return b"".join(self._pieces)

    def _shorten(self) -> None:
        """Drops what belongs to neither end."""
        pieces, held = self._pieces, self._held
        if self._head is None:
            self._head = b"".join(pieces)[: self._end]
        while (rest := held - len(pieces[0])) >= self._end:
            pieces.popleft()
            held = rest
        if held > self._whole:  # one piece that is long by itself
            pieces[0] = pieces[0][held - self._end :]
            held = self._end
        self._gone += self._held - held
        self._held = held


class UnpackingSample:
    """A sample of a body that may be compressed."""

    def __init__(self, encoding: str, whole: int = WHOLE_BYTES) -> None:
        self.sample = BodySample(whole)
        self.readable = encoding in READABLE_ENCODINGS
        """Whether the sample shows the body's content."""
        packed = self.readable and encoding != "identity"
        self._unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32) if packed else None

    @property
    def is_packed(self) -> bool:
        """Whether adding a piece takes computing time, to decompress it."""
        return self._unpacker is not None and self.readable

    def add(self, piece: bytes) -> None:
        """Adds the next piece that has passed, decompressed."""
        if not self.readable:
            return
        if self._unpacker is None:
            self.sample.add(piece)
            return
        try:
            while piece and self.readable:
                self.sample.add(self._unpacker.decompress(piece, PASSTHROUGH_PIECE_BYTES))
                piece = self._unpacker.unconsumed_tail
                self.readable = self.sample.size <= MAX_DECODED
        except zlib.error:
            self.readable = False


class SampledMembers:
    """The members of the JSON object in a body, so far as its sample shows them."""

    def __init__(self, sample: BodySample) -> None:
        self._sample = sample
        whole = sample.whole
        value = _parsed(whole) if whole is not None else None
        self.all: dict[str, Any] | None = value if isinstance(value, dict) else None
        """All members, if the body is short enough to be held whole."""

    def get(self, name: str) -> Any:
        """Returns a string, a number or an object; None where the member is missing, or amid a long body."""
        if self.all is not None:
            return self.all.get(name)
        found = from_end(self._sample.tail.rstrip(), name, (1,))
        return found if found is not None else from_start(self._sample.head, name)


def from_end(text: bytes, name: str, depths: tuple[int, ...]) -> Any:
    """Returns the last member of that name at one of these depths of a JSON object, given its end; None without one.

    A quoted name that no backslash precedes and a colon follows is a key, wherever the text begins: in a string its
    quotes would be escaped.
    """
    key = b'"%s"' % name.encode()
    start = text.find(key, 1)  # an object's key is not its first byte
    while start > 0 and text[start - 1 : start] == b"\\":
        start = text.find(key, start + 1)
    if start < 0:
        return None
    depth, found = 0, []
    for token in JSON_TOKEN.finditer(text, start):
        said = token.group()
        if said == key and (colon := COLON.match(text, token.end())):
            found.append((depth, colon.end()))
        depth += STEP.get(said, 0)
    for at, value in reversed(found):
        if at - depth in depths and (read := _value(text, value)) is not None:
            return read
    return None


def from_start(text: bytes, name: str) -> Any:
    """Returns the member of that name of a JSON object, given its beginning; None if there is none."""
    key, depth = b'"%s"' % name.encode(), 0
    for token in JSON_TOKEN.finditer(text):
        said = token.group()
        if depth == 1 and said == key and (colon := COLON.match(text, token.end())):
            return _value(text, colon.end())
        depth += STEP.get(said, 0)
    return None


def _value(text: bytes, start: int) -> Any:
    """Parses the value that begins at `start`; None if it is null, or does not end in the text."""
    first = text[start : start + 1]
    if first in STEP:
        depth = 0
        for token in JSON_TOKEN.finditer(text, start):
            depth += STEP.get(token.group(), 0)
            if depth == 0:
                return _parsed(text[start : token.end()])
        return None
    string = JSON_TOKEN.match(text, start) if first == b'"' else None
    return _parsed(string.group() if string else re.split(rb"[,}\]\s]", text[start : start + 64], maxsplit=1)[0])


def _parsed(text: bytes) -> Any:
    try:
        return jsons.loads_exact(text)
    except jsons.JSONDecodeError:
        return None


def last_events(sample: BodySample) -> Iterator[bytes]:
    """Yields the data of a stream's events, from the last one backwards as far as they are held; the earliest may lack
    its beginning."""
    text, cut = sample.tail, sample.whole is None
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    end = len(text)
    while end >= 0:
        start = text.rfind(b"\n", 0, end)
        line, end = text[start + 1 : end], start
        if line.startswith(b"data:"):
            yield line[5:].strip()
        elif line and ((cut and start < 0) or not line.startswith((b":", b"event:", b"id:", b"retry:"))):
            yield line  # the rest of a long event


LAST_EVENT = b"[DONE]"
END_EVENTS = 4
"""Events at the end of a stream of which one reports a failure, if there was one: its usage may follow, and the end."""
FAILURE_BYTES = 2**14
"""Bytes that such an event has at most."""
OF_AN_EVENT = (1, 2)
"""Depths of `usage` in an event: by itself, or in its `response`."""
FIELD = re.compile(
    rb'content-disposition:[^\r\n]{0,200}\bname="?(model|user|n)"?(?=[;\r\n])[^\r\n]{0,200}\r\n'
    rb"(?:[^\r\n]{1,200}\r\n){0,8}\r\n([^\r\n]{1,512})\r\n",
    re.IGNORECASE,
)
"""A field of a form that has one short line."""
SOUGHT_FIELDS = ("model", "user", "safety_identifier", "n")
"""Members that are searched in a request that is too long to be held."""
ANSWER_NAMES = ("id", "model", "service_tier")
"""Members with which an answer describes itself."""
ANSWER_NAME_CHARS = 256
LAST_EVENT_ENDS = (".completed", ".incomplete", ".failed", ".done")
"""Suffixes of the types of events that may be the last of their answer."""


@record
class PassthroughRequest:
    """A request: the members or fields that could be read; `is_whole`: it has no others."""

    fields: dict[str, Any]
    is_whole: bool

    @property
    def model(self) -> str | None:
        """The model that it names."""
        name = self.fields.get("model")
        return name if isinstance(name, str) and name else None


@record
class PassthroughUsage:
    """An answer: its usage, None where it reports none; `named`: its members among `ANSWER_NAMES`; `duration`: its
    member of that name, for a recording the seconds; `is_ended`: its last event came, whatever its connection did then;
    `is_pending`: the model goes on after it; `is_failed`: it reports a failure, whatever its status."""

    usage: dict[str, Any] | None = None
    _: KW_ONLY
    named: Mapping[str, str] = field(default_factory=dict)
    duration: Any = None
    is_ended: bool = False
    is_pending: bool = False
    is_failed: bool = False


def asked(sample: BodySample, *, form: bool) -> PassthroughRequest:
    """Reads the members of a request; `form`: it is a multipart form, in which files are no fields."""
    if form:
        found = [*FIELD.finditer(sample.head), *FIELD.finditer(sample.tail)]
        named = {match.group(1).decode().lower(): match.group(2).decode("utf-8", "replace") for match in found}
        return PassthroughRequest(named, is_whole=False)
    members = SampledMembers(sample)
    if members.all is not None:
        return PassthroughRequest(members.all, is_whole=True)
    return PassthroughRequest({name: members.get(name) for name in SOUGHT_FIELDS}, is_whole=False)


def told(sample: BodySample, *, stream: bool) -> PassthroughUsage:
    """Reads the usage of an answer, from its end if it is a stream."""
    if stream:
        return _of_events(sample)
    members = SampledMembers(sample)
    usage, status = members.get("usage"), members.get("status")
    return PassthroughUsage(
        usage if isinstance(usage, dict) else None,
        named=_named(members.get),
        duration=members.get("duration"),
        is_pending=status in ("queued", "in_progress"),
        is_failed=_reports_failure({name: members.get(name) for name in ("error", "choices")}),
    )


def texts(sample: BodySample, *, stream: bool) -> tuple[list[str], float] | None:
    """Returns the texts of an answer, and the factor by which they stand for all of it: of a long stream only the end
    is held. None where they cannot be read."""
    if not stream:
        found = SampledMembers(sample).all
        return (list(_said(found)), 1.0) if found is not None else None
    values = [value for event in last_events(sample) if (value := jsons.object_in(event)) is not None]
    said = [text for value in reversed(values) for text in _said(value)]
    return said, max(1.0, sample.size / max(1, len(sample.tail)))


def _of_events(sample: BodySample) -> PassthroughUsage:
    ended, usage = False, None
    short = (event for event in islice(last_events(sample), END_EVENTS) if len(event) <= FAILURE_BYTES)
    failed = any(map(_reports_failure, map(jsons.object_in, short)))
    for number, event in enumerate(last_events(sample)):
        if event == LAST_EVENT:
            ended = True
            continue
        usage = _told_by(event) if b'"usage"' in event else None
        ended = ended or (number == 0 and usage is not None and usage.is_ended)
        if usage is not None:
            break
    return replace(usage or PassthroughUsage(), is_ended=ended and not failed, is_failed=failed)


def _reports_failure(said: Mapping[str, Any] | None) -> bool:
    return said is not None and failure_in(said) is not None


def _told_by(event: bytes) -> PassthroughUsage | None:
    """Reads an event that has a usage and may lack its beginning."""
    value = jsons.object_in(event)
    get: Callable[[str], Any]
    if value is None:
        depth = next((each for each in OF_AN_EVENT if isinstance(from_end(event, "usage", (each,)), dict)), 0)
        get, kind = partial(from_end, event, depths=(depth,)), from_end(event, "type", (1,))
    else:
        inner = value.get("response")
        holder = value if isinstance(value.get("usage"), dict) or not isinstance(inner, dict) else inner
        get, kind = holder.get, value.get("type")
    usage = get("usage")
    if not isinstance(usage, dict):
        return None
    return PassthroughUsage(usage, named=_named(get), is_ended=str(kind).endswith(LAST_EVENT_ENDS))


def _named(get: Callable[[str], Any]) -> dict[str, str]:
    found = {name: get(name) for name in ANSWER_NAMES}
    return {name: value[:ANSWER_NAME_CHARS] for name, value in found.items() if isinstance(value, str) and value}


def _said(value: dict[str, Any]) -> Iterator[str]:
    """Yields the texts of an answer, or of one of its events: of completions and of responses."""
    for choice in dicts_of(value.get("choices")):
        yield from _strings(choice.get("text"))
    if str(value.get("type")).endswith(".delta"):
        yield from _strings(value.get("delta"))
    for item in dicts_of(value.get("output")):
        yield from _strings(item.get("arguments"), item.get("input"))
        for part in (*dicts_of(item.get("content")), *dicts_of(item.get("summary"))):
            yield from _strings(part.get("text"), part.get("refusal"))


def _strings(*values: Any) -> list[str]:
    return [value for value in values if isinstance(value, str) and value]
