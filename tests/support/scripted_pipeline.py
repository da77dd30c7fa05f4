"""The pipeline over an upstream and a store that do what a test says."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gateway.api.request.validation import RequestArrival, parse_chat_request
from gateway.core.formats.stream_record import Chunks
from gateway.core.ids import new_id
from gateway.core.types.chat import ChatRequest, ChunkStream, JsonAnswer, ModelDeployment, ModelFacts, RequestCaller
from gateway.core.types.turn import LedgerEntry
from gateway.core.types.upstreams import UpstreamRequest
from gateway.pipeline.pipeline import WholeCompletion
from gateway.pipeline.stages import not_paused
from tests.support.in_process import InProcess

Json = dict[str, Any]


PRICES = {"input_cost_per_token": Decimal("0.01"), "output_cost_per_token": Decimal("0.1")}


FACTS = {
    name: ModelFacts(name, max_input_tokens=window, tokenizer="o200k_base", prices=PRICES)
    for name, window in (("small", 200), ("m", 20_000), ("other", 20_000))
}


USAGE = {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}


class Pieces:
    """A streamed answer (a `ChunkStream`): each piece of text or message, then an error or its end. `waits`: before the
    end."""

    def __init__(self, said: list[str | Json], error: Exception | None, waits: asyncio.Event | None) -> None:
        self.headers: dict[str, str] = {}
        self.done = False
        self._said, self._error, self._waits = said, error, waits

    async def batches(self) -> AsyncGenerator[Chunks, None]:
        for each in self._said:
            delta = {"content": each} if isinstance(each, str) else each
            yield [{"id": "up-1", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}]
        if self._waits is not None:
            await self._waits.wait()
        if self._error is not None:
            raise self._error
        yield [{"id": "up-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
        yield [{"id": "up-1", "choices": [], "usage": USAGE}]
        self.done = True

    async def push(self, take: Callable[[Chunks], bool]) -> None:
        """`batches` tells all."""


class Script:
    """A provider (an `Upstream`) that says one thing after the other: an error, a message, or a stream; then "ok"."""

    def __init__(self, *said: Exception | Json | Pieces) -> None:
        self.said = list(said)
        self.sent: list[tuple[str, Json]] = []
        self.usage: Json = USAGE

    def _next(self, deployment: ModelDeployment, request: UpstreamRequest) -> Json | Pieces:
        self.sent.append((deployment.model, request.body))
        said = self.said.pop(0) if self.said else {"content": "ok"}
        if isinstance(said, Exception):
            raise said
        return said

    async def complete(self, deployment: ModelDeployment, request: UpstreamRequest) -> JsonAnswer:
        message = self._next(deployment, request)
        assert isinstance(message, dict)
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
        return JsonAnswer({"id": "up-1", "choices": [choice], "usage": dict(self.usage)}, {})

    def stream(self, deployment: ModelDeployment, request: UpstreamRequest) -> AbstractAsyncContextManager[ChunkStream]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[ChunkStream]:
            said = self._next(deployment, request)
            yield said if isinstance(said, Pieces) else Pieces(["ok"], None, None)

        return opened()


class Client:
    """Who gets a stream (a `Receiver`). `leaves`: once it has got so many batches."""

    writes_at_once = False

    def __init__(self, leaves: int | None = None) -> None:
        self.got: Chunks = []
        self._leaves = leaves

    async def send(self, chunks: Chunks) -> None:
        if self._leaves == 0:
            raise asyncio.CancelledError
        self._leaves = None if self._leaves is None else self._leaves - 1
        self.got += chunks

    def write(self, chunks: Chunks) -> bool:
        raise NotImplementedError

    @property
    def text(self) -> str:
        return "".join(choice["delta"].get("content") or "" for c in self.got for choice in c["choices"])


class World:
    """A pipeline over a script."""

    def __init__(self, inside: InProcess, script: Script) -> None:
        self.inside, self.script, self.pipeline = inside, script, inside.pipeline
        self.pipeline._attempts.sender._upstream = script

    def request(self, content: str = "hello", model: str = "m", **fields: Any) -> ChatRequest:
        body = {"model": model, "messages": [{"role": "user", "content": content}], **fields}
        arrival = RequestArrival(new_id("req_"), datetime.now(UTC), time.monotonic(), len(content) + 100)
        return parse_chat_request(body, {}, RequestCaller("t"), self.inside.settings, arrival, None)

    async def answer(self, request: ChatRequest) -> WholeCompletion:
        return not_paused(await self.pipeline.answer(request))

    async def stream(self, request: ChatRequest, client: Client) -> None:
        """As the edge does it: whatever happens, the stream is closed."""
        answer = not_paused(await self.pipeline.stream(request))
        try:
            await answer.send_to(client)
        finally:
            await answer.aclose()

    async def bill(self, request: ChatRequest) -> LedgerEntry | None:
        """What the ledger has of a request once all is written."""
        await self.pipeline.settlement._tasks.finish()
        found = await self.inside.store.find_completion("t", request.request_id)
        return found.ledger if found is not None else None
