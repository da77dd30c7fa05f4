"""The chunks of one streamed answer, and how long they may be waited for."""

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import Any

import httpx

from gateway.base import jsons
from gateway.errors import UpstreamError, UpstreamInvalidResponse, UpstreamTimeout
from gateway.models.exchange import Deployment
from gateway.upstream.http.client import PLAIN, Inflated, inflated
from gateway.upstream.http.connection import END, Connection
from gateway.upstream.openai.faults import refusal, relayed_headers, translated

# Reading an answer within its limits, and what all later steps rely on in it.


MAX_ANSWER_BYTES = 64 * 2**20
MAX_CHOICES = 128
RELAYED_STARTS = (b"x-", b"op", b"re")


async def read_body(connection: Connection, deployment: Deployment, most: int = MAX_ANSWER_BYTES) -> bytes:
    """The whole body.

    Raises:
        UpstreamInvalidResponse: it exceeds `most` bytes.
    """
    pieces: list[bytes] = []
    size = 0
    with translated(begun=True):
        while (piece := await connection.read(deployment.first_byte_timeout)) is not END:
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise UpstreamInvalidResponse(f"The upstream's answer exceeds {most} bytes.")
    raw = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    encoding = header(connection, b"content-encoding")
    return await asyncio.to_thread(_decoded, raw, encoding) if encoding not in PLAIN else raw


def _decoded(raw: bytes, encoding: bytes) -> bytes:
    """An answer that was compressed although nobody asked for it; small pieces, so that a bomb is noticed early."""
    pieces = (raw[at : at + 2**14] for at in range(0, len(raw), 2**14))
    response = httpx.Response(200, headers=[(b"content-encoding", encoding)], content=pieces)
    decoded: list[bytes] = []
    size = 0
    with translated(begun=True):
        for piece in response.iter_bytes():
            decoded.append(piece)
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise UpstreamInvalidResponse(f"The upstream's answer exceeds {MAX_ANSWER_BYTES} bytes.")
    return b"".join(decoded)


def header(connection: Connection, name: bytes) -> bytes:
    """A header of the response in lower case, empty if it is not there."""
    return next((value for key, value in connection.headers if key == name), b"").lower()


def named(connection: Connection) -> dict[str, str]:
    """The headers among which those are that go back to the client; most answers have many others."""
    known = (pair for pair in connection.headers if pair[0][:2] in RELAYED_STARTS)
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in known}


def check_choices(choices: Any, part: str) -> None:
    """What all later steps rely on; a missing index is the choice's position.

    Raises:
        UpstreamInvalidResponse: choices, their messages or tool calls are not what OpenAI's protocol says.
    """
    if not isinstance(choices, list):
        raise UpstreamInvalidResponse("The upstream's choices are no list.")
    for position, choice in enumerate(choices):
        message = choice.get(part) if isinstance(choice, dict) else False
        if message is not None:
            if not isinstance(message, dict):
                raise UpstreamInvalidResponse("The upstream's answer holds a choice that is none.")
            calls = message.get("tool_calls")
            if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
                raise UpstreamInvalidResponse("The upstream's answer holds tool calls that are none.")
        index = choice.get("index")
        if type(index) is not int or not 0 <= index < MAX_CHOICES:
            choice["index"] = position


# Server-sent events, as the HTML standard says: any line ending, comments, fields, several `data` lines an event.


MAX_EVENT_BYTES = 32 * 2**20
MARK = b"\xef\xbb\xbf"
LINE_END = re.compile(rb"\r\n|\n|\r")
BETWEEN = b"\n\ndata: "


class EventParser:
    """Turns the pieces of a stream into the data of its events. Names of events are passed over: nothing in OpenAI's
    protocol depends on them. An event that the end of the stream cuts off never comes."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._data: list[bytes] = []
        self._event_bytes = 0
        self._after_cr = False
        self._first = True

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of all events that this piece completes.

        Raises:
            UpstreamInvalidResponse: one event exceeds 32 MB.
        """
        if not self._waiting_bytes and not self._data and piece[:6] == b"data: " and piece[-2:] == b"\n\n":
            # Whole events of one line each, as nearly every provider sends them.
            whole = piece[6:-2].split(BETWEEN)
            if piece.count(b"\n") == 2 * len(whole) and b"\r" not in piece:
                self._after_cr = self._first = False
                self._event_bytes = 0
                return whole
        return self._slowly(piece)

    def _slowly(self, piece: bytes) -> list[bytes]:
        events: list[bytes] = []
        for line in self._lines(piece):
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data))
                self._data, self._event_bytes = [], 0
                continue
            self._event_bytes = _checked(self._event_bytes + len(line))
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
        return events

    def _lines(self, raw: bytes) -> list[bytes]:
        """Complete lines without their ends. A piece is looked through once: a line in many pieces costs its length,
        not its square."""
        piece = raw[1:] if self._after_cr and raw.startswith(b"\n") else raw  # the other half of \r\n
        self._after_cr = raw.endswith(b"\r") if raw else self._after_cr
        if b"\n" not in piece and b"\r" not in piece:
            self._waiting.append(piece)
            self._waiting_bytes = _checked(self._waiting_bytes + len(piece))
            return []
        head, *lines = LINE_END.split(piece)
        lines.insert(0, b"".join((*self._waiting, head)))
        rest = lines.pop()
        self._waiting, self._waiting_bytes = [rest], len(rest)
        if self._first:
            self._first, lines[0] = False, lines[0].removeprefix(MARK)
        return lines


def _checked(size: int) -> int:
    if size > MAX_EVENT_BYTES:
        raise UpstreamInvalidResponse("The upstream sent an event of more than 32 MB.")
    return size


DONE = b"[DONE]"


class HttpChunkStream:
    """Chunks of one streamed answer."""

    def __init__(self, connection: Connection, deployment: Deployment) -> None:
        self._connection = connection
        self._source: Connection | Inflated = connection
        if encoding := header(connection, b"content-encoding"):
            self._source = inflated(connection, encoding)
        self._deployment = deployment
        self.done = False
        self._first: list[dict[str, Any]] = []
        self._rest = self._read()

    @property
    def headers(self) -> dict[str, str]:
        return relayed_headers(named(self._connection))

    async def begin(self) -> None:
        """Returns once the first chunks are there: what goes wrong before them is an answer with a status of its own,
        which a client can try again and which can be fitted anew, not an event in a stream that has begun."""
        self._first = await anext(self._rest, [])

    async def batches(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Chunks as they come together, until `[DONE]`, or until the connection is closed in good order.

        Raises:
            UpstreamInterrupted, UpstreamTimeout: it broke off, or fell silent.
            UpstreamInvalidResponse: an event is not a JSON object.
            UpstreamRefused: upstream sent an error event.
        """
        if self._first:
            yield self._first
        async for batch in self._rest:
            yield batch

    async def _read(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        parser = EventParser()
        patience = _Patience(self._deployment)
        with translated(begun=True):
            while (piece := await self._source.read(patience.seconds)) is not END:
                chunks: list[dict[str, Any]] = []
                try:
                    for data in parser.feed(piece):
                        if data == DONE or data.strip() == DONE:
                            self.done = True
                            break
                        if data and not data.isspace():
                            chunks.append(self._chunk(data))
                except UpstreamError:
                    if chunks:
                        yield chunks  # what came before the fault was said all the same
                    raise
                if chunks:
                    patience.rewarded()
                    yield chunks
                else:
                    patience.tried()
                if self.done:
                    return

    def _chunk(self, data: bytes) -> dict[str, Any]:
        try:
            chunk = jsons.loads_answer(data)
        except jsons.JSONDecodeError as error:
            raise UpstreamInvalidResponse("The upstream sent an event that is not JSON.") from error
        if not isinstance(chunk, dict):
            raise UpstreamInvalidResponse("The upstream sent an event that is no object.")
        choices = chunk.get("choices")
        if chunk.get("error") and not choices:
            raise refusal(200, data, {}, self._deployment)
        if choices:
            check_choices(choices, "delta")
        return chunk


class _Patience:
    """How long a stream may be waited for. Until its first event `first_byte` counts from the beginning, and comments
    do not stop that clock; afterwards `idle` is the longest silence, and the longer of both the longest time without
    an event: comments alone do not keep a stream alive for ever."""

    def __init__(self, deployment: Deployment) -> None:
        self._idle = deployment.idle_timeout
        self._most = max(deployment.first_byte_timeout, deployment.idle_timeout)
        self._clock = asyncio.get_running_loop().time
        self._due: float | None = self._clock() + deployment.first_byte_timeout
        self._begun = False
        self.seconds = deployment.first_byte_timeout

    def rewarded(self) -> None:
        """An event came."""
        if self._due is not None:
            self._begun, self._due, self.seconds = True, None, self._idle

    def tried(self) -> None:
        """Something came that was no event.

        Raises:
            UpstreamTimeout: that has been going on for too long.
        """
        now = self._clock()
        if self._due is None:
            self._due = now + self._most
        if now >= self._due:
            raise UpstreamTimeout("The upstream took too long.")
        self.seconds = min(self._idle if self._begun else self._most, self._due - now)
