"""A wrapper around an upstream: one base for guards, telemetry and whatever else changes or watches calls."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from gateway.core import ports
from gateway.core.frozen_records import record
from gateway.core.types import upstreams
from gateway.core.types.chat import ChunkStream, JsonAnswer, ModelDeployment


async def _same(answer: JsonAnswer) -> JsonAnswer:
    return answer


@record
class UpstreamPassage:
    """One call on its way through a wrapper: what is sent on, and how its answer or stream is returned."""

    deployment: ModelDeployment
    request: upstreams.UpstreamRequest
    answered: Callable[[JsonAnswer], Awaitable[JsonAnswer]] = _same
    opened: Callable[[ChunkStream], ChunkStream] = lambda stream: stream


class UpstreamWrapper:
    """An `Upstream` around another. A subclass defines in `passing` what a call goes through."""

    def __init__(self, inner: ports.Upstream) -> None:
        self._inner = inner

    def passing(
        self, deployment: ModelDeployment, request: upstreams.UpstreamRequest
    ) -> AbstractAsyncContextManager[UpstreamPassage]:
        """Returns the passage of one call, a context that lasts as long as the call."""
        raise NotImplementedError

    async def complete(self, deployment: ModelDeployment, request: upstreams.UpstreamRequest) -> JsonAnswer:
        async with self.passing(deployment, request) as way:
            return await way.answered(await self._inner.complete(way.deployment, way.request))

    @asynccontextmanager
    async def stream(
        self, deployment: ModelDeployment, request: upstreams.UpstreamRequest
    ) -> AsyncIterator[ChunkStream]:
        async with self.passing(deployment, request) as way, self._inner.stream(way.deployment, way.request) as opened:
            yield way.opened(opened)
