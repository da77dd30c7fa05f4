"""What is wired around the parts of the gateway where OpenTelemetry is configured, in the place of `NoTelemetry`.

Calls of models with a span around each, `traceparent` on their way, and the client metrics of the conventions.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, nullcontext
from dataclasses import replace
from datetime import datetime
from typing import Any

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

from gateway.core.config.setting_sections import TelemetrySettings
from gateway.core.instrumentation.logs import get_logger, tell_also
from gateway.core.instrumentation.metrics import GatewayMetrics, MetricCounts
from gateway.core.ports import Spans, Upstream
from gateway.core.types.chat import ChunkStream, ModelDeployment, StreamAround
from gateway.core.types.upstreams import RelayedCall, UpstreamRequest
from gateway.operations.otel.attributes import OPERATIONS, Attributes, of_request, of_server, provider_of
from gateway.operations.otel.instruments import CountsByOtlp, OtelInstruments, ToldMetrics
from gateway.operations.otel.recorded_content import of_input
from gateway.operations.otel.sdk import OtelProviders, quieten
from gateway.operations.otel.spans import (
    CONTEXT,
    CURRENT,
    PARENTS,
    PURPOSE,
    App,
    ModelCall,
    RequestTracing,
    failed,
    harmless,
    trace_fields,
)
from gateway.upstream.http_client import ConnectionPool
from gateway.upstream.openai.answers import HttpUpstream
from gateway.upstream.openai.passthrough import PassthroughClient, RawAnswer
from gateway.upstream.wrapper import UpstreamPassage, UpstreamWrapper

Chunks = list[dict[str, Any]]
Json = dict[str, Any]


class ModelCalls:
    """Puts a span around each call of a model, and measures it."""

    def __init__(self, tracing: RequestTracing, instruments: OtelInstruments, *, content: bool) -> None:
        self._tracing = tracing
        self._instruments = instruments
        self._content = content

    @contextlib.contextmanager
    def call(
        self, deployment: ModelDeployment, body: Json, operation: str = "chat", purpose: str | None = None
    ) -> Iterator[ModelCall]:
        """The call while it lasts. `purpose` is what it is made for; by default, that of the step."""
        purpose, request, attributes = purpose or PURPOSE.get(), CURRENT.get(), Attributes()
        kept = self._content and operation == "chat" and request is not None and request.keeps_content
        with harmless():
            attributes = of_request(deployment, body, operation)
        if request is not None and not request.sampled:
            span = request.span
        else:
            told = {**attributes, "gateway.purpose": purpose or "primary"}
            with harmless():
                told |= of_input(body) if kept else {}
            name = f"{operation} {deployment.provider_model}"
            span = self._tracing.tracer.start_span(name, kind=SpanKind.CLIENT, attributes=told)
        waiting = request.called(span) if request is not None and purpose is None else None
        call = ModelCall(span, waiting, attributes, content=kept and span.is_recording())
        try:
            yield call
        except BaseException as error:
            call.failed(error)
            raise
        finally:
            with harmless():
                call.end()
            with harmless():
                self._instruments.called(call, deployment)


class TracedUpstream(UpstreamWrapper):
    """An `Upstream` whose calls are told."""

    def __init__(self, inner: Upstream, calls: ModelCalls) -> None:
        super().__init__(inner)
        self._calls = calls

    @contextlib.asynccontextmanager
    async def passing(self, deployment: ModelDeployment, request: UpstreamRequest) -> AsyncIterator[UpstreamPassage]:
        """See `UpstreamWrapper`. `traceparent` goes with the call, to litellm as a header of the deployment."""
        with self._calls.call(deployment, request.body) as call:
            carrier = _carrier(call.span)
            if carrier and deployment.protocol == "litellm":
                deployment = replace(deployment, headers={**deployment.headers, **carrier})
            request = replace(request, headers={**request.headers, **carrier})
            yield UpstreamPassage(deployment, request, call.answered, lambda stream: WatchedStream(stream, call))


class TracedHttp(HttpUpstream):
    """An `HttpUpstream` whose calls of an embedder are told; those of chats are told by `TracedUpstream`."""

    def __init__(self, pool: ConnectionPool, calls: ModelCalls) -> None:
        super().__init__(pool)
        self._calls = calls

    async def post(self, deployment: ModelDeployment, path: str, body: Json, max_bytes: int) -> bytes:
        """The answer of another endpoint beside the completions."""
        with self._calls.call(deployment, {}, path, "embedder") as call:
            headers = {**deployment.headers, **_carrier(call.span)}
            return await super().post(replace(deployment, headers=headers), path, body, max_bytes)


class WatchedStream(StreamAround):
    """A `ChunkStream` that tells its call what it brings."""

    def __init__(self, opened: ChunkStream, call: ModelCall) -> None:
        super().__init__(opened)
        self._call = call

    async def batches(self) -> AsyncGenerator[Chunks, None]:
        """See `ChunkStream.batches`."""
        async with aclosing(self._opened.batches()) as batches:
            async for batch in batches:
                self._call.saw(batch)
                yield batch
        self._call.streamed()

    async def push(self, take: Callable[[Chunks], bool]) -> None:
        """See `ChunkStream.push`."""

        def arrived(batch: Chunks) -> bool:
            self._call.saw(batch)
            return take(batch)

        await self._opened.push(arrived)


class TracedPassthrough(PassthroughClient):
    """A `PassthroughClient` whose calls are told."""

    def __init__(self, pool: ConnectionPool, tracing: RequestTracing) -> None:
        super().__init__(pool)
        self._tracing = tracing

    @contextlib.asynccontextmanager
    async def open(self, deployment: ModelDeployment, call: RelayedCall) -> AsyncIterator[RawAnswer]:
        """The answer once it has begun."""
        name, about = call.method, Attributes()
        with harmless():
            name, about = _name(deployment, call), _relayed(deployment, call)
        span = self._tracing.tracer.start_span(name, kind=SpanKind.CLIENT, attributes=about)
        if carrier := _carrier(span):
            kept = [pair for pair in call.headers if pair[0] not in PARENTS]
            call = replace(call, headers=[*kept, *((k.encode(), v.encode("latin-1")) for k, v in carrier.items())])
        try:
            async with super().open(deployment, call) as answer:
                span.set_attribute("http.response.status_code", answer.status)
                if answer.status >= 400:
                    span.set_attribute("error.type", str(answer.status))
                    span.set_status(Status(StatusCode.ERROR))
                yield answer
        except BaseException as error:
            failed(span, error)
            raise
        finally:
            span.end()


def _operation(call: RelayedCall) -> str | None:
    path = call.target.partition("?")[0].strip("/")
    return OPERATIONS.get(path) if call.method == "POST" else None


def _name(deployment: ModelDeployment, call: RelayedCall) -> str:
    operation = _operation(call)
    return f"{operation} {deployment.provider_model}".strip() if operation else call.method


def _relayed(deployment: ModelDeployment, call: RelayedCall) -> Attributes:
    found: Attributes = {"http.request.method": call.method, "gateway.purpose": "relayed", **of_server(deployment)}
    if (operation := _operation(call)) is not None:
        found |= {"gen_ai.operation.name": operation, "gen_ai.provider.name": provider_of(deployment)}
        if deployment.provider_model:
            found["gen_ai.request.model"] = deployment.provider_model
    return found


def _carrier(span: Span) -> dict[str, str]:
    """`traceparent` and `tracestate` for what is below a span; empty where nothing is traced."""
    carrier: dict[str, str] = {}
    with harmless():
        CONTEXT.inject(carrier, set_span_in_context(span))
    return carrier


log = get_logger("gateway.operations.otel")
FLUSH_SECONDS = 3.0
"""Most seconds that an end waits for what is left to export."""


class OpenTelemetry:
    """Traces and metrics of one process."""

    def __init__(self, settings: TelemetrySettings) -> None:
        quieten()
        self._settings = settings
        self._exports = OtelProviders(settings)
        self._tracing = RequestTracing(self._exports.tracer)
        self._instruments = OtelInstruments(self._exports.meter)
        self._calls = ModelCalls(self._tracing, self._instruments, content=settings.content)

    def metrics(self, listed: Iterable[str], now: Callable[[], datetime]) -> GatewayMetrics:
        """Counts that are exported, too."""
        return ToldMetrics(listed, now, self._instruments)

    def upstream(self, upstream: Upstream) -> Upstream:
        """With a span around each call."""
        return TracedUpstream(upstream, self._calls)

    def http(self, pool: ConnectionPool) -> HttpUpstream:
        """With a span around each call of an embedder."""
        return TracedHttp(pool, self._calls)

    def passthrough(self, pool: ConnectionPool) -> PassthroughClient:
        """With a span around each call."""
        return TracedPassthrough(pool, self._tracing) if self._settings.traces else PassthroughClient(pool)

    def app(self, app: App) -> App:
        """With a span around each request."""
        return self._tracing.app(app) if self._settings.traces else app

    @property
    def spans(self) -> Spans:
        """With a span around each step, where traces are told."""
        return self._tracing.step if self._settings.traces else nullcontext

    def start(self, snapshot: Callable[[], MetricCounts]) -> None:
        """From here on lines of the log name their trace, and counts are read."""
        if self._settings.traces:
            tell_also(trace_fields)
        if self._settings.metrics:
            CountsByOtlp(self._exports.meter, snapshot)

    async def close(self) -> None:
        """Ends what waits for a bill, and exports what is left."""
        self._tracing.close()
        if not await asyncio.to_thread(self._exports.close, FLUSH_SECONDS):
            log.warning("telemetry_lost", seconds=FLUSH_SECONDS)
