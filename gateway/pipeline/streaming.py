"""A streamed answer on its way to the client; turn and bill are committed before its last chunk (guarantee §3.6)."""

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from gateway.billing.stream import ChunkRelay
from gateway.core.errors import UpstreamInterrupted, UpstreamInvalidResponse
from gateway.core.formats.stream_record import Chunks, next_batch
from gateway.core.types.chat import ChunkStream
from gateway.pipeline.billing import first_fields
from gateway.pipeline.settlement import RequestSettlement
from gateway.pipeline.stages import RequestRun, UpstreamOutcome


class StreamReceiver(Protocol):
    """Whom a stream is for."""

    @property
    def writes_at_once(self) -> bool:
        """Whether `write` may be called."""
        ...

    async def send(self, chunks: Chunks) -> None:
        """Sends chunks; waits for a client that reads slowly."""
        ...

    def write(self, chunks: Chunks) -> bool:
        """Sends chunks without waiting; returns whether more can be written now."""
        ...


@dataclass(slots=True)
class StreamedAnswer:
    """An answer that has begun: relayed headers, and the chunks still to come."""

    headers: dict[str, str]
    conversation_id: str | None
    send_to: Callable[[StreamReceiver], Coroutine[Any, Any, None]] = field(repr=False)
    """Sends all chunks; see `relay`."""
    aclose: Callable[[], Awaitable[None]] = field(repr=False)
    """Ends the upstream call, wherever it is, and keeps what it cost; to be called in any case."""


async def relay(
    receiver: StreamReceiver,
    run: RequestRun,
    opened: ChunkStream,
    stack: AsyncExitStack,
    settlement: RequestSettlement,
    on_committed: Callable[[], None],
) -> None:
    """Sends chunks to the client: those that arrive together, together. Those between the first and the last are
    written where their bytes arrive, as long as the client reads as fast as they come.
    `stack`: holds the upstream call open; `on_committed`: called once turn and bill are committed.
    Raises GatewayError: the stream broke off; what it cost is in the ledger by then."""
    request = run.asked
    chunks = ChunkRelay(run.completion_id, request.choices, request.include_usage)
    record = chunks.record
    batches = opened.batches()

    def first() -> dict[str, Any]:
        now = settlement.clock.monotonic()
        settlement.metrics.first_chunk(request.model, now - request.started)
        return first_fields(run.attempted(), now)

    def passed(batch: Chunks) -> Chunks:
        if run.upstream_id is None and (name := next((chunk["id"] for chunk in batch if chunk.get("id")), None)):
            run.named(name)
        return chunks.push(batch, first)

    def written(batch: Chunks) -> bool:
        sent = passed(batch)
        goes_on = True
        if sent:
            goes_on = receiver.write(sent)
            run.delivered()
        return goes_on and not record.asked_are_finished

    run.hears(partial(UpstreamOutcome.of_stream, record, "partial"))
    async with stack, settlement.recording_failure(run, record):
        while (batch := await next_batch(batches, record)) is not None:
            if sent := passed(batch):
                await receiver.send(sent)
                run.delivered()
                if receiver.writes_at_once and not record.asked_are_finished:
                    await opened.push(written)
        if opened.done and not record.begun:
            raise UpstreamInvalidResponse("The upstream ended its stream without any choices.")
        if not (record.begun_are_finished or opened.done):
            raise UpstreamInterrupted("The upstream closed the stream before the answer was finished.")
        chunks.conclude()
        settled = await settlement.settle(run, UpstreamOutcome.of_stream(record))
    on_committed()
    await receiver.send(chunks.final(settled.fields(), settled.usage))
