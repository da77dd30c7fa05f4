"""Tools that are no functions at upstreams that are not known to take them (guarantee §1.11)."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

from gateway.core.formats.tool_calls import (
    FreeformChunks,
    Names,
    names_of,
    with_freeform,
    without_freeform,
    without_typed,
)
from gateway.core.ports import Upstream
from gateway.core.types.chat import ChunkStream, JsonAnswer, ModelDeployment, StreamAround, StreamOpener
from gateway.core.types.items import CUSTOM, TYPED
from gateway.core.types.upstreams import UpstreamRequest
from gateway.upstream.routing.deployments import RESPONSES
from gateway.upstream.routing.protocols import takes_freeform

Json = dict[str, Any]


class FreeformUpstream:
    """Calls upstreams (an `Upstream`) with functions in the place of other tools, where they have to be."""

    def __init__(self, inner: Upstream) -> None:
        self._inner = inner

    async def complete(self, deployment: ModelDeployment, request: UpstreamRequest) -> JsonAnswer:
        sent, names = _sent(deployment, request)
        answer = await self._inner.complete(deployment, sent)
        return JsonAnswer(with_freeform(answer.body, names), answer.headers) if names else answer

    def stream(self, deployment: ModelDeployment, request: UpstreamRequest) -> StreamOpener:
        sent, names = _sent(deployment, request)
        opener = self._inner.stream(deployment, sent)
        return _freeform(opener, names) if names else opener


@asynccontextmanager
async def _freeform(opener: StreamOpener, names: Names) -> AsyncIterator[ChunkStream]:
    async with opener as opened:
        yield _FreeformStream(opened, names)


def _sent(deployment: ModelDeployment, request: UpstreamRequest) -> tuple[UpstreamRequest, Names]:
    """What goes up, and the tools in it that go up as functions."""
    body = request.body
    called = [message for message in body.get("messages") or () if message.get("tool_calls")]
    if not called and not body.get("tools") and body.get("tool_choice") is None:
        return request, {}
    taken = _taken(deployment, body)
    return request if taken is body else replace(request, body=taken), _translated(deployment, body)


def _translated(deployment: ModelDeployment, body: Json) -> Names:
    """The tools that go up as functions: chats that take freeform tools still have none of types of their own."""
    names = names_of(body)
    if not names or not takes_freeform(deployment):
        return names
    return {} if deployment.protocol == RESPONSES else {n: kind for n, kind in names.items() if kind != CUSTOM}


def _taken(deployment: ModelDeployment, body: Json) -> Json:
    """The body as the upstream takes it: the same one where it says nothing of such tools."""
    takes = takes_freeform(deployment)
    if (takes and deployment.protocol == RESPONSES) or "messages" not in body:
        return body
    choice = body.get("tool_choice")
    calls = [call for message in body["messages"] for call in message.get("tool_calls") or ()]
    typed = any(isinstance(each, dict) and TYPED in each for each in (*calls, *(body.get("tools") or ())))
    if takes:
        return without_typed(body) if typed else body
    chosen = isinstance(choice, dict) and choice.get("type") != "function"
    if not (typed or chosen or names_of(body) or any("custom" in call for call in calls)):
        return body
    return without_freeform(body, keeps_allowed=deployment.protocol == RESPONSES)


class _FreeformStream(StreamAround):
    """A stream whose calls of these tools are what they were."""

    def __init__(self, opened: ChunkStream, names: Names) -> None:
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
