"""Reads an OpenAI-compatible answer, whole or in chunks, within its limits of size and time.

`HttpUpstream` makes the calls.
"""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

import httpx

from gateway.core import errors, jsons
from gateway.core.formats import stream_record
from gateway.core.formats.stream_record import StreamRecord
from gateway.core.frozen_records import record
from gateway.core.types import chat, upstreams
from gateway.core.types.chat import JsonAnswer, ModelDeployment, StreamOpener
from gateway.upstream.http.mending import (
    BYTE_ORDER_MARK,
    MAX_ERROR_BYTES,
    ErrorData,
    EventParser,
    StreamMender,
    check_choices,
    failure_in,
    fault_of,
    refusal,
    relayed_headers,
    says_something,
    thinks_in_parts,
    usage_in,
    whole_mended,
    with_thoughts_as_parts,
)
from gateway.upstream.http_client import (
    END,
    HTTPX_FAULTS,
    TOO_LONG,
    Answering,
    ConnectionOrigin,
    ConnectionPool,
    UpstreamConnection,
    address,
    request_head,
    translated,
    translation,
)

MAX_STREAM_BYTES = 256 * 2**20
"""Limit of a streamed answer, whose text is held until it is stored: its framing takes several times as much."""
RELAYED_STARTS = (b"x-", b"op", b"re", b"an")
"""First letters of headers that may be returned to the client; most answers have many others."""
DONE = b"[DONE]"
CLOSED = "The upstream closed the stream before the answer was finished."
LEADING_BLANKS = BYTE_ORDER_MARK + b" \t\r\n"
SSE_FIELD_PREFIXES = (b"data:", b"event:", b"id:", b"retry:", b"error:", b":")
"""Prefixes of the first line of a stream."""
DELIVERED = ("delta", "logprobs")
"""Fields of a choice that a record of a stream holds beside the choice's end."""

MAX_PIECE_BYTES = 2**18
"""Decompressed bytes returned at a time, however small the input: the reader decides whether to go on."""
ANY_HEADER, NO_HEADER = 47, -15
"""zlib's `wbits`: gzip's or zlib's header; no header at all."""


class Replayed:
    """A body of which the beginning has been read already."""

    def __init__(self, raw: bytes, rest: "UpstreamConnection | InflatedBody | Replayed | None" = None) -> None:
        self._raw = raw
        self._rest = rest

    async def read(self, seconds: float | None) -> bytes:
        """Returns the bytes that were read already, then what the rest returns, then `b""`."""
        raw, self._raw = self._raw, END
        return raw if raw or self._rest is None else await self._rest.read(seconds)


class InflatedBody:
    """A connection's body, decompressed as it arrives: gzip in any number of members, or deflate with or without zlib's
    header."""

    def __init__(self, connection: UpstreamConnection) -> None:
        self._connection = connection
        self._inflate = zlib.decompressobj(ANY_HEADER)
        self._waiting = b""
        self._begun = False
        self._more = False

    async def read(self, seconds: float | None) -> bytes:
        """Returns the next bytes, `b""` at the end; raises as `UpstreamConnection.read` does.
        Raises UpstreamInvalidResponse: the body is not compressed as its header says."""
        clock = asyncio.get_running_loop().time
        due = None if seconds is None else clock() + seconds
        while True:
            if self._more:
                await asyncio.sleep(0)  # a small input that inflates to much must not hold up other requests
            if not (self._waiting or self._more):
                self._waiting = await self._connection.read(due and max(due - clock(), 0))
                if not self._waiting:
                    return END
            if piece := self._next():
                return piece
            if due is not None and clock() >= due:  # bytes arrive and inflate to nothing
                raise httpx.ReadTimeout("The upstream fell silent.")

    def _next(self) -> bytes:
        if self._inflate.eof:
            self._inflate = zlib.decompressobj(ANY_HEADER)
        try:
            piece = self._inflate.decompress(self._waiting, MAX_PIECE_BYTES)
        except zlib.error:
            if self._begun:
                raise errors.UpstreamInvalidResponse("The upstream's answer is not compressed as it says.") from None
            self._inflate, self._begun = zlib.decompressobj(NO_HEADER), True
            return self._next()
        self._begun = True
        self._more = len(piece) == MAX_PIECE_BYTES  # zlib may hold back part of its input
        self._waiting = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        return piece


Source = UpstreamConnection | InflatedBody | Replayed
"""A body that is read piece by piece."""


async def read_body(
    connection: UpstreamConnection,
    deployment: ModelDeployment,
    max_bytes: int | None = None,
    within: float | None = None,
    source: Source | None = None,
    arrived: list[bytes] | None = None,
) -> bytes:
    """Reads the whole body, decompressed. Blanks before it, which providers send while a model thinks, do not stop
    `first_byte`; after them it is the longest silence. Complete JSON ends the body, whatever else is awaited.
    `max_bytes`: at most; by default as many as the deployment's answers may have; `within`: seconds for the whole body,
    where it is no answer, or not the one that was requested; `source`: `body_of` the connection, where it may be a
    stream after all: of a stream only the first piece is read; `arrived`: gets the pieces as they come.
    Raises UpstreamInvalidResponse: it exceeds `max_bytes`, or its encoding is unknown; UpstreamTimeout: it took too
    long."""
    most = deployment.max_answer_bytes if max_bytes is None else max_bytes
    body, until_events = source or body_of(connection), source is not None
    try:
        patience = deployment.first_byte_timeout
        return await read_all(body, patience, most, within, until_events=until_events, arrived=arrived)
    except HTTPX_FAULTS as error:
        raise translation(error, begun=True, origin=connection.origin) from error


def body_of(connection: UpstreamConnection) -> Source:
    """Returns the body of a response without its `content-encoding`: web servers before local models compress unasked.
    Raises UpstreamInvalidResponse: the encoding is unknown here."""
    encoding = header(connection, b"content-encoding")
    if encoding in (b"", b"identity"):
        return connection
    if encoding not in (b"gzip", b"x-gzip", b"deflate"):
        raise errors.UpstreamInvalidResponse("The upstream compressed its answer although nobody asked for it.")
    return InflatedBody(connection)


def whole_within(deployment: ModelDeployment) -> float:
    """Returns the seconds for an answer that comes whole where a stream was requested: signs of life may reach its
    client for so long."""
    return deployment.first_byte_timeout + deployment.idle_timeout


async def read_all(
    source: Source,
    patience: float,
    most: int,
    within: float | None = None,
    begun: bytes = b"",
    *,
    until_events: bool = False,
    arrived: list[bytes] | None = None,
) -> bytes:
    """Reads the rest of a body after `begun`; see `read_body`."""
    clock = asyncio.get_running_loop().time
    due: float | None = None if begun and within is None else clock() + (patience if within is None else within)
    pieces = [] if arrived is None else arrived
    pieces.append(begun)
    size, looked_at = len(begun), 0
    while True:
        seconds = patience if due is None else max(due - clock(), 0)
        if pieces[-1][-4:].rstrip().endswith(b"}") and size > 2 * looked_at:
            try:
                async with asyncio.timeout(stream_record.END_SECONDS):
                    piece = await source.read(seconds)
            except TimeoutError:
                looked_at = size
                if _is_json(b"".join(pieces)):  # nothing can follow, though nothing marks the end
                    break
                continue
        else:
            piece = await source.read(seconds)
        if piece is END:
            break
        if due is not None and clock() >= due:
            raise errors.UpstreamTimeout(TOO_LONG)
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise errors.UpstreamAnswerTooLong(f"The upstream's answer exceeds {most} bytes.")
        if within is None and not piece.isspace():
            if due is not None and until_events and piece.lstrip(LEADING_BLANKS).startswith(SSE_FIELD_PREFIXES):
                break
            due = None
    return pieces[1] if len(pieces) == 2 and not begun else b"".join(pieces)


def _is_json(raw: bytes) -> bool:
    try:
        jsons.loads_answer(raw.removeprefix(BYTE_ORDER_MARK))
    except jsons.JSONDecodeError:
        return False
    return True


def header(connection: UpstreamConnection, name: bytes) -> bytes:
    """Returns a header of the response in lower case, empty if it is missing."""
    for key, value in connection.headers:
        if key == name:
            return value.lower()
    return b""


def relayable_headers(connection: UpstreamConnection) -> dict[str, str]:
    """Returns the response's headers that may be returned to the client; `relayed_headers` selects among them."""
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in connection.headers
        if name[:2] in RELAYED_STARTS
    }


class HttpChunkStream:
    """The chunks of one streamed answer, mended."""

    def __init__(self, connection: UpstreamConnection, deployment: ModelDeployment, body: Mapping[str, Any]) -> None:
        """`body`: of the request."""
        self._source: Source = body_of(connection)
        self._origin = connection.origin
        self._status = connection.status
        self._said_headers = relayable_headers(connection)
        self._deployment = deployment
        self._body = body
        self._first: list[dict[str, Any]] = []
        self._begun = self._is_stream = False
        self._parser = EventParser()
        self._sign = chat.SIGNS.get()
        self._mender = StreamMender(deployment, body)
        self._patience = _PiecePatience(deployment)
        self._size = 0
        self._fault: Exception | None = None
        """The fault of the stream after the chunks that were returned last."""
        self._rest = self._read()
        self.headers = relayed_headers(self._said_headers, deployment)
        self.done = False
        self.when_thought_in_parts: Callable[[], object] | None = None
        """Called once thoughts came as parts of the content, before the client has them."""

    def replay(self, raw: bytes, rest: Source | None = None) -> None:
        """Makes the stream read again what has been read of the connection, and then the rest."""
        self._source = Replayed(raw, rest)

    def take_whole(self, raw: bytes) -> None:
        """Converts a whole answer, which came in place of a stream, to the events that it would have been.
        Raises UpstreamRefused: it reports a failure; UpstreamInvalidResponse: it is no answer."""
        try:
            said = jsons.loads_answer(raw.removeprefix(BYTE_ORDER_MARK))
        except jsons.JSONDecodeError:
            said = None
        events = self._events_of(said, raw) if isinstance(said, dict) else []
        if not events:
            if isinstance(said, dict | list) and "error" in said:
                raise refusal(self._status, raw, self._said_headers, self._deployment)
            fault = errors.UpstreamInvalidResponse("The upstream answered a stream request with something else.")
            fault.usage = usage_in(said)
            raise fault
        self._is_stream = True
        written = (each if isinstance(each, bytes) else jsons.dumps(each) for each in events)
        self.replay(b"".join(b"data: %b\n\n" % each for each in written))

    def _events_of(self, answer: dict[str, Any], raw: bytes) -> list[Any]:
        """Returns the events that a whole answer would have been, none if it is no answer; an API with other events
        overrides this.
        Raises as `take_whole`."""
        if not (answer.get("choices") or failure_in(answer)):
            return []
        self._mender.thinks_in_parts = thinks_in_parts(answer.get("choices"), "message")
        answer = whole_mended(answer, self._body, self._deployment, raw, self._said_headers)
        top = {k: v for k, v in answer.items() if k != "usage"} | {"object": "chat.completion.chunk"}
        begun, ended = [], []
        for choice in answer["choices"]:
            delta = dict(choice["message"])
            if delta.get("tool_calls"):
                delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(delta["tool_calls"])]
            rest = {name: value for name, value in choice.items() if name != "message"}
            begun.append({**rest, "delta": delta, "finish_reason": None})
            ended.append({"index": choice["index"], "delta": {}, "finish_reason": choice.get("finish_reason")})
        usage = {"usage": answer["usage"]} if answer.get("usage") else {}
        return [{**top, "choices": begun}, {**top, "choices": ended, **usage}, DONE]

    async def gathered(self, arrived: list[bytes] | None = None) -> dict[str, Any]:
        """Reads a whole stream, which came in place of a whole answer, as the completion that it would have been.
        `arrived`: gets, if that breaks off, the completion so far.
        Raises as `begin` and `batches`."""
        await self.begin()
        most = min(stream_record.MAX_STREAM_CHARS, self._deployment.max_answer_bytes)
        asked = self._body.get("n")
        record, ends = StreamRecord(asked if isinstance(asked, int) else 1, most), dict[int, dict[str, Any]]()
        batches = self.batches()
        try:
            while (batch := await stream_record.next_batch(batches, record)) is not None:
                for chunk in batch:
                    record.add(chunk)
                    finished = [choice for choice in chunk.get("choices") or () if choice.get("finish_reason")]
                    ends |= {c["index"]: {k: v for k, v in c.items() if k not in DELIVERED} for c in finished}
        except errors.UpstreamError as fault:
            if not (
                record.begun_are_finished and isinstance(fault, errors.UpstreamInterrupted | errors.UpstreamTimeout)
            ):
                fault.may_be_charged = True
                fault.usage = fault.usage or record.usage
                raise
        finally:
            if arrived is not None:
                arrived[:] = [jsons.dumps(record.completion())]
        if not (self.done or record.begun_are_finished):
            raise errors.UpstreamInterrupted(CLOSED)
        if missing := record.missing_finishes():
            record.add({"choices": missing})
        completion = record.completion()
        completion["choices"] = [{**choice, **ends.get(choice["index"], {})} for choice in completion["choices"]]
        return completion | ({"usage": record.usage} if record.usage is not None else {})

    async def begin(self) -> None:
        """Waits until a choice carries content: a fault before that is an answer with its own status, which can be
        retried, fitted again or sent to another model, not an event in a stream that has begun.
        Raises UpstreamInvalidResponse, UpstreamInterrupted: the stream ends without any, by `[DONE]` or otherwise."""
        async for batch in self._rest:
            self._first += batch
            if any(map(says_something, batch)):
                self._begun = True
                return
        if self.done and any(chunk.get("choices") for chunk in self._first):
            return
        ended = errors.UpstreamInvalidResponse("The upstream ended its stream without any choices.")
        fault = ended if self.done else errors.UpstreamInterrupted(CLOSED)
        fault.usage = next(filter(None, map(usage_in, reversed(self._first))), None)
        raise fault

    async def batches(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Yields chunks as they arrive together, until `[DONE]`, or until the connection is closed in good order.
        Raises UpstreamInterrupted, UpstreamTimeout: it broke off, or fell silent; UpstreamInvalidResponse: an event is
        not a JSON object; UpstreamRefused: upstream sent an error event."""
        if self._first:
            yield self._first
        async for batch in self._rest:
            yield batch

    async def push(self, take: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Passes chunks to `take` as they arrive (`ChunkStream.push`). A compressed stream can only be read."""
        if self.done or self._fault is not None or not isinstance(self._source, UpstreamConnection):
            return

        def arrived(piece: bytes) -> bool:
            chunks = self._chunks(piece)
            try:
                goes_on = bool(chunks) and take(chunks)
            except Exception as fault:  # noqa: BLE001 - the fault is raised where the stream is awaited
                self._fault, goes_on = fault, False
            return goes_on and self._fault is None and not self.done

        with translated(begun=True, origin=self._origin):
            await self._source.push(arrived, self._patience.seconds)
        if self._fault is not None:
            raise self._fault

    async def _read(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        try:
            with translated(begun=True, origin=self._origin):
                while not self.done and (piece := await self._source.read(self._patience.seconds)) is not END:
                    if not self._is_stream:
                        said = piece.lstrip(LEADING_BLANKS)
                        self._is_stream = bool(said)
                        if said.startswith(b"{"):
                            seconds, most = whole_within(self._deployment), self._deployment.max_answer_bytes
                            self.take_whole(await read_all(self._source, seconds, most, seconds, said))
                            continue
                    if chunks := self._chunks(piece):
                        yield chunks
                    if self._fault is not None:
                        raise self._fault
        except (errors.UpstreamInterrupted, errors.UpstreamTimeout):
            self._end()  # the upstream may have said why
            raise
        self._end()

    def _end(self) -> None:
        """Raises UpstreamRefused: the upstream's last event was no part of an answer, which was not finished."""
        if self._mender.notice is not None:
            raise self._mender.notice

    def _chunks(self, piece: bytes) -> list[dict[str, Any]]:
        """Returns the chunks that a piece completes, also those before a fault."""
        chunks: list[dict[str, Any]] = []
        self._size += len(piece)
        try:
            if self._size > MAX_STREAM_BYTES:
                raise errors.UpstreamInvalidResponse(f"The upstream's answer exceeds {MAX_STREAM_BYTES} bytes.")
            for data in self._parser.feed(piece):
                if data == DONE or data.strip() == DONE:
                    self.done = True
                    break
                if isinstance(data, ErrorData):
                    self._fail(data)
                if data and not data.isspace():
                    self._add(chunks, data)
                    if self.done:
                        break
            if self.done:
                chunks += self._mender.rest()
                self._end()
            if chunks:
                self._patience.event_came()
            elif not self.done:
                self._patience.no_event_came(self._parser)
        except errors.UpstreamError as fault:
            self._fault = fault
        if self._parser.signs:
            self._tell_signs(alone=not chunks)
        return chunks

    def _tell_signs(self, *, alone: bool) -> None:
        """Reports the signs of life in a piece; empty lines are one if nothing else came."""
        signs, self._parser.signs = self._parser.signs, []
        held = not self._begun and (self._first or not alone)  # the chunks about to be sent are a sign themselves
        if self._sign is not None and not self.done and not held:
            for said in [each for each in signs if each] or ([b""] if alone else []):
                self._sign(said)

    def _add(self, chunks: list[dict[str, Any]], data: bytes) -> None:
        """Adds the chunks of an event; an API with other events sets `done` where one of them ends the answer.
        Raises UpstreamInvalidResponse, UpstreamRefused: as `batches`."""
        chunk = event_object(data)
        choices = chunk.get("choices")
        if choices and (isinstance(choices, list) or failure_in(chunk) is None):
            check_choices(choices, "delta")
        self._take(chunks, chunk, data)

    def _take(self, chunks: list[dict[str, Any]], chunk: dict[str, Any], data: bytes) -> None:
        """Adds a chunk, mended. Raises UpstreamRefused: the chunk reports a failure."""
        chunks += self._mender.mended(chunk, data)
        if self._mender.thinks_in_parts and self.when_thought_in_parts is not None:
            self.when_thought_in_parts()
        if self._mender.notice is not None:
            self._parser.comments += 1  # a sign of life, at least
        if self._mender.fault is not None:
            raise self._mender.fault

    def _fail(self, data: bytes) -> None:
        """Raises UpstreamRefused: always, as the event's name is `error`, whatever it holds."""
        data = bytes(data)  # of no subclass, which orjson does not read
        try:
            said = event_object(data)
        except errors.UpstreamInvalidResponse:
            said = {"message": data.decode("utf-8", "replace")}
        is_shaped = bool(said.get("error")) or str(said.get("type")).endswith(("error", "failed"))
        self._add([], data if is_shaped else jsons.dumps({"error": said}))
        raise fault_of({"error": said}, self._deployment)


def event_object(data: bytes) -> dict[str, Any]:
    """Parses an event as an object. Raises UpstreamInvalidResponse: it is none."""
    try:
        found = jsons.loads_answer(data)
    except jsons.JSONDecodeError as error:
        raise errors.UpstreamInvalidResponse("The upstream sent an event that is not JSON.") from error
    if not isinstance(found, dict):
        raise errors.UpstreamInvalidResponse("The upstream sent an event that is no object.")
    return found


class _PiecePatience:
    """How many `seconds` the next piece of a stream may take.

    Until the first event `first_byte` runs from the beginning, and comments do not stop it. Afterwards `idle` is the
    longest silence. A comment breaks the silence; a part of an event or of a comment does not: from its first byte it
    has `idle` to be complete. Comments alone keep a stream alive for the longer of both.
    """

    def __init__(self, deployment: ModelDeployment) -> None:
        self._idle = deployment.idle_timeout
        self._longest = max(deployment.first_byte_timeout, deployment.idle_timeout)
        self._clock = asyncio.get_running_loop().time
        self._event_due: float | None = self._clock() + deployment.first_byte_timeout
        self._whole_due: float | None = None
        self._comments = 0
        self._begun = False
        self.seconds = deployment.first_byte_timeout

    def event_came(self) -> None:
        """Restarts the time without an event."""
        if self._event_due is not None:
            self._begun, self._event_due, self._whole_due, self.seconds = True, None, None, self._idle

    def no_event_came(self, parser: EventParser) -> None:
        """Updates the deadline after a piece without a whole event. Raises UpstreamTimeout: none came for too long."""
        now = self._clock()
        if self._event_due is None:
            self._event_due = now + self._longest
        if parser.comments != self._comments:
            self._comments, self._whole_due = parser.comments, None
        if self._whole_due is None and (self._begun or parser.is_inside):
            self._whole_due = now + self._idle
        due = self._event_due if self._whole_due is None else min(self._event_due, self._whole_due)
        if now >= due:
            raise errors.UpstreamTimeout(TOO_LONG)
        self.seconds = due - now


COMPLETIONS_PATH = "chat/completions"
MISTRAL = "mistral"
"""The provider whose models return thoughts as parts of the content, by LiteLLM's name, and in its address."""
JSON, STREAM = b"application/json", b"text/event-stream"
NO_STREAM = (JSON, b"text/html", b"application/problem+json")
OWN_HEADERS = {b"content-type": b"application/json", b"accept-encoding": b"identity", b"user-agent": b"context-gateway"}


Reader = Callable[[UpstreamConnection, ModelDeployment, dict[str, Any]], HttpChunkStream]


@record
class WholeAnswer:
    """A whole answer as it came: its JSON, its bytes, its status and the headers that may be relayed; `completion` is
    set if the answer came as a stream."""

    value: Any
    raw: bytes
    status: int
    headers: dict[str, str]
    completion: dict[str, Any] | None = None


class HttpUpstream:
    """Calls providers (an `Upstream`). It retries a connection that failed before any byte once, and nothing else."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._think_in_parts: set[tuple[str, str]] = set()
        """Upstreams and models beside Mistral's whose answers had thoughts as parts of the content."""

    async def complete(self, deployment: ModelDeployment, request: upstreams.UpstreamRequest) -> JsonAnswer:
        body = self._taken(deployment, request.body)
        headers, arrived = request.headers, request.arrived
        answered = await self.whole(deployment, COMPLETIONS_PATH, body, headers, HttpChunkStream, arrived)
        if isinstance(answered.value, dict) and thinks_in_parts(answered.value.get("choices"), "message"):
            self._think_in_parts.add(_model_of(deployment))
        answer = answered.completion or whole_mended(
            answered.value, request.body, deployment, answered.raw, answered.headers
        )
        return JsonAnswer(answer, relayed_headers(answered.headers, deployment))

    async def whole(
        self,
        deployment: ModelDeployment,
        path: str,
        body: dict[str, Any],
        headers: dict[str, str],
        reader: Reader,
        arrived: list[bytes] | None = None,
    ) -> WholeAnswer:
        """Requests a whole answer of any endpoint and parses it; `reader` reads it if it comes as a stream after all.
        `arrived`: see `UpstreamRequest`.
        Raises UpstreamError: see `core/errors`."""
        connection = await self._open(deployment, path, body, headers)
        told, value, raw, completion = relayable_headers(connection), None, b"", None
        try:
            if _kind(connection) == STREAM:
                completion = await reader(connection, deployment, body).gathered(arrived)
            else:
                source = body_of(connection)
                raw = await read_body(connection, deployment, source=source, arrived=arrived)
                value = jsons.loads_answer(raw.removeprefix(BYTE_ORDER_MARK))
        except jsons.JSONDecodeError as error:
            if not raw.lstrip(LEADING_BLANKS).startswith(SSE_FIELD_PREFIXES):
                raise errors.UpstreamInvalidResponse("The upstream's answer is not JSON.") from error
            stream = reader(connection, deployment, body)
            stream.replay(raw, source)
            completion = await stream.gathered(arrived)
        finally:
            connection.close(linger=completion is not None)
        return WholeAnswer(value, raw, connection.status, told, completion)

    async def post(self, deployment: ModelDeployment, path: str, body: dict[str, Any], max_bytes: int) -> bytes:
        """Requests an endpoint other than the completions and returns its answer unchanged.
        Raises UpstreamError: see `core/errors`; also if the answer exceeds `max_bytes`."""
        connection = await self._open(deployment, path, body, {})
        try:
            return await read_body(connection, deployment, max_bytes)
        finally:
            connection.close()

    def stream(self, deployment: ModelDeployment, request: upstreams.UpstreamRequest) -> StreamOpener:
        return self.events(
            deployment, COMPLETIONS_PATH, self._taken(deployment, request.body), request.headers, HttpChunkStream
        )

    def _taken(self, deployment: ModelDeployment, body: dict[str, Any]) -> dict[str, Any]:
        """Returns the body, with thoughts as parts of the content where this upstream accepts them so."""
        is_mistral = deployment.provider == MISTRAL or f"{MISTRAL}.ai" in deployment.api_base
        takes = is_mistral or _model_of(deployment) in self._think_in_parts
        return with_thoughts_as_parts(body) if takes else body

    @contextlib.asynccontextmanager
    async def events(
        self, deployment: ModelDeployment, path: str, body: dict[str, Any], headers: dict[str, str], reader: Reader
    ) -> AsyncIterator[HttpChunkStream]:
        """Opens the stream of any endpoint, which `reader` reads; also where the answer comes whole.
        Raises UpstreamError: see `core/errors`; also where there is no answer."""
        connection = await self._open(deployment, path, body, headers)
        done = False
        try:
            stream = reader(connection, deployment, body)
            stream.when_thought_in_parts = partial(self._think_in_parts.add, _model_of(deployment))
            if (kind := _kind(connection)) in NO_STREAM:
                seconds = whole_within(deployment) if kind == JSON else deployment.idle_timeout
                stream.take_whole(await read_body(connection, deployment, within=seconds))
            await stream.begin()
            try:
                yield stream
            finally:
                done = stream.done
        finally:
            connection.close(linger=done)

    async def _open(
        self, deployment: ModelDeployment, path: str, body: dict[str, Any], headers: dict[str, str]
    ) -> UpstreamConnection:
        """Opens a connection whose response has begun, with a status that promises an answer."""
        content = jsons.dumps(body)
        origin, target, host = address(deployment.url(path))
        try:
            head = request_head(b"POST", target, _fields(deployment, headers, host, len(content)))
        except HTTPX_FAULTS as error:
            raise translation(error, begun=False, origin=origin) from error
        try:
            connection = await self._answered(origin, head, content, deployment, fresh=False)
        except errors.UpstreamUnreachable:
            connection = await self._answered(origin, head, content, deployment, fresh=True)
        if connection.status >= 300:
            try:
                raise await _refused(connection, deployment)
            finally:
                connection.close()
        return connection

    async def _answered(
        self, origin: ConnectionOrigin, head: bytes, content: bytes, deployment: ModelDeployment, *, fresh: bool
    ) -> UpstreamConnection:
        seconds = deployment.first_byte_timeout
        try:
            connection = await self._pool.take(origin, deployment.connect_timeout, seconds, fresh=fresh)
            with Answering(connection):
                connection.begin(head, content)
                await connection.response(seconds)
        except HTTPX_FAULTS as error:
            raise translation(error, begun=False, origin=origin) from error
        return connection


def _model_of(deployment: ModelDeployment) -> tuple[str, str]:
    return deployment.api_base, deployment.provider_model


async def _refused(connection: UpstreamConnection, deployment: ModelDeployment) -> errors.UpstreamError:
    if connection.status < 400:
        return errors.UpstreamInvalidResponse(f"The upstream answered with status {connection.status}.")
    try:
        raw = await read_body(connection, deployment, MAX_ERROR_BYTES, within=deployment.idle_timeout)
    except errors.UpstreamError:  # whatever is wrong with the body, the status is known
        raw = b""
    return refusal(connection.status, raw, relayable_headers(connection), deployment)


def _kind(connection: UpstreamConnection) -> bytes:
    return header(connection, b"content-type").partition(b";")[0].strip()


def _fields(
    deployment: ModelDeployment, headers: dict[str, str], host: bytes, length: int
) -> list[tuple[bytes, bytes]]:
    """Returns the request's headers: the deployment's outrank the client's."""
    fields = {**OWN_HEADERS}
    for source in (headers, deployment.headers) if deployment.headers else (headers,):
        for name, value in source.items():
            fields[name.lower().encode("latin-1", "replace")] = value.encode("latin-1", "replace")
    for name, value in deployment.authorization.items():
        fields[name.encode()] = value.encode("latin-1", "replace")
    fields[b"host"] = host
    fields[b"content-length"] = b"%d" % length
    return list(fields.items())
