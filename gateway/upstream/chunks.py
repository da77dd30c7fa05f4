"""The chunks of one streamed answer, and how long they may be waited for."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from gateway import jsons
from gateway.errors import UpstreamError, UpstreamInvalidResponse, UpstreamTimeout
from gateway.models.exchange import Deployment
from gateway.upstream.answers import check_choices, header, named
from gateway.upstream.connection import END, Connection
from gateway.upstream.faults import refusal, relayed_headers, translated
from gateway.upstream.inflate import Inflated, inflated
from gateway.upstream.sse import EventParser

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
