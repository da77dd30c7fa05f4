"""Freeform tools at upstreams that are not known to take them (guarantee §1.11)."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from gateway.models.exchange import ChunkStream, Deployment, JsonAnswer, StreamAround, StreamOpener
from gateway.ports import Upstream
from gateway.upstream.routing.deployments import RESPONSES
from gateway.upstream.routing.protocols import takes_freeform
from gateway.wire.freeform import FreeformChunks, names_of, with_freeform, without_freeform

Json = dict[str, Any]


class FreeformUpstream:
    """Calls upstreams with functions in the place of freeform tools, where they have to be (an `Upstream`)."""

    def __init__(self, inner: Upstream) -> None:
        self._inner = inner

    async def complete(self, deployment: Deployment, body: Json, headers: dict[str, str]) -> JsonAnswer:
        """One whole answer."""
        names = frozenset[str]() if takes_freeform(deployment) else names_of(body)
        answer = await self._inner.complete(deployment, _taken(deployment, body), headers)
        return JsonAnswer(with_freeform(answer.body, names), answer.headers) if names else answer

    def stream(self, deployment: Deployment, body: Json, headers: dict[str, str]) -> StreamOpener:
        """An answer in chunks."""
        opener = self._inner.stream(deployment, _taken(deployment, body), headers)
        names = frozenset[str]() if takes_freeform(deployment) else names_of(body)
        return _freeform(opener, names) if names else opener


def _taken(deployment: Deployment, body: Json) -> Json:
    """The body as the upstream takes it: the same one where it says nothing of freeform tools."""
    if takes_freeform(deployment) or "messages" not in body:
        return body
    choice = body.get("tool_choice")
    calls = (call for message in body["messages"] for call in message.get("tool_calls") or ())
    chosen = isinstance(choice, dict) and choice.get("type") != "function"
    if not (chosen or names_of(body) or any("custom" in call for call in calls)):
        return body
    return without_freeform(body, keeps_allowed=deployment.protocol == RESPONSES)


@asynccontextmanager
async def _freeform(opener: StreamOpener, names: frozenset[str]) -> AsyncIterator[ChunkStream]:
    async with opener as opened:
        yield _FreeformStream(opened, names)


class _FreeformStream(StreamAround):
    """A stream whose calls of these tools are freeform again."""

    def __init__(self, opened: ChunkStream, names: frozenset[str]) -> None:
        super().__init__(opened)
        self._chunks = FreeformChunks(names)

    async def batches(self) -> AsyncGenerator[list[Json], None]:
        """See `ChunkStream.batches`."""
        async with aclosing(self._opened.batches()) as batches:
            async for batch in batches:
                yield [*map(self._chunks.of, batch)]

    async def push(self, take: Callable[[list[Json]], bool]) -> None:
        """See `ChunkStream.push`."""
        await self._opened.push(lambda batch: take([*map(self._chunks.of, batch)]))
