"""A streamed answer on its way to the client; turn and bill are committed before its last chunk (guarantee §3.6)."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from gateway.accounting.stream import ChunkRelay
from gateway.errors import UpstreamInterrupted, UpstreamInvalidResponse, UpstreamTimeout
from gateway.models.exchange import ChunkStream
from gateway.turn.exchange import Exchange, Outcome
from gateway.turn.settlement import Settlement

Chunks = list[dict[str, Any]]
USAGE_SECONDS = 10.0
"""How long a finished answer is held for the upstream's usage."""
END_SECONDS = 1.0
"""How long it is held once usage is known, for an upstream that neither says that it is done nor leaves."""


@dataclass(slots=True)
class StreamedAnswer:
    """An answer that has begun: relayed headers, and the chunks still to come."""

    headers: dict[str, str]
    conversation_id: str | None
    batches: AsyncGenerator[Chunks, None] = field(repr=False)
    _close: Callable[[], Awaitable[None]] = field(repr=False)

    async def aclose(self) -> None:
        """Ends the upstream call, wherever it is, and keeps what it cost; to be called in any case."""
        await self.batches.aclose()
        await self._close()


async def relayed(
    exchange: Exchange, opened: ChunkStream, stack: AsyncExitStack, settlement: Settlement, settled: Callable[[], None]
) -> AsyncGenerator[Chunks, None]:
    """Chunks for the client: those that arrive together, together.

    Args:
        stack: holds the upstream call open.
        settled: called once turn and bill are committed.
    """
    request = exchange.request
    relay = ChunkRelay(exchange.completion_id, request.choices, request.include_usage)
    batches = opened.batches()

    def first_fields() -> dict[str, Any]:
        settlement.metrics.first_chunk(request.model, settlement.clock.monotonic() - request.started)
        return settlement.first_chunk_fields(exchange)

    async with stack, settlement.recording_failure(exchange, relay.record):
        while (batch := await _next(batches, relay)) is not None:
            if exchange.upstream_id is None:
                exchange.upstream_id = next((chunk["id"] for chunk in batch if chunk.get("id")), None)
            if sent := relay.push(batch, first_fields):
                yield sent
                exchange.delivered = True
        if opened.done and not relay.record.begun:
            raise UpstreamInvalidResponse("The upstream ended its stream without any choices.")
        if not (relay.record.begun_are_finished or opened.done):
            raise UpstreamInterrupted("The upstream closed the stream before the answer was finished.")
        relay.conclude()
        bill = await settlement.settle(exchange, Outcome.of_stream(relay.record))
    settled()
    yield relay.final(bill.fields(), bill.usage)


async def _next(batches: AsyncGenerator[Chunks, None], relay: ChunkRelay) -> Chunks | None:
    """The next chunks, or None at the end. Once every choice is finished, no fault and no silence of the upstream keeps
    the answer from its client."""
    if not relay.record.asked_are_finished:
        return await anext(batches, None)
    try:
        async with asyncio.timeout(USAGE_SECONDS if relay.record.usage is None else END_SECONDS):
            return await anext(batches, None)
    except (TimeoutError, UpstreamInterrupted, UpstreamTimeout):
        return None
