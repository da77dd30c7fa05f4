"""Wrappers around parts of the gateway if OpenTelemetry is configured, instead of `NoTelemetry`: spans that propagate
`traceparent` (guarantee §13.5), and the client metrics of the conventions.

A request has a server span, with a child span for each step and each model call. Spans carry figures of the bill, which
may be written after the answer, for instance if the client disconnects. So those spans wait for the bill; their end
time is still the time at which their work ended.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import aclosing, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime
from typing import Any

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation
from opentelemetry.trace import (
    INVALID_SPAN,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
    use_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.core import errors, ports
from gateway.core.config import setting_sections
from gateway.core.formats.stream_record import StreamRecord
from gateway.core.instrumentation import logs, metrics
from gateway.core.instrumentation.metrics import GatewayMetrics, MetricCounts
from gateway.core.jsons import Json
from gateway.core.types import turn, upstreams
from gateway.core.types.chat import ChunkStream, JsonAnswer, ModelDeployment, StreamAround
from gateway.operations.otel.attributes import (
    RELAYED_OPERATIONS,
    Attributes,
    error_type,
    of_answer,
    of_bill,
    of_cost,
    of_input,
    of_output,
    of_request,
    of_server,
    of_session,
    of_usage,
    provider_of,
)
from gateway.operations.otel.sdk import OtelProviders, quieten
from gateway.upstream import (
    ConnectionPool,
    HttpUpstream,
    PassthroughClient,
    RawAnswer,
    UpstreamPassage,
    UpstreamWrapper,
)

log = logs.get_logger("gateway.operations.otel")
Chunks = list[dict[str, Any]]
SECOND = 1_000_000_000
"""Nanoseconds."""
Scope = MutableMapping[str, Any]
App = Callable[..., Awaitable[None]]
BILL_SECONDS = 5.0
"""How long the spans of a finished request wait for its bill."""
UNTRACED = ("/health/live", "/health/ready", "/metrics")
INTERNAL_PURPOSES = ("planner", "summarizer", "embedder")
PARENTS = (b"traceparent", b"tracestate")
CONTEXT = TraceContextTextMapPropagator()
"""W3C's `traceparent` and `tracestate`, whatever else OTEL_PROPAGATORS names."""
CURRENT: ContextVar["RequestSpans | None"] = ContextVar("gateway_spans", default=None)
PURPOSE: ContextVar[str | None] = ContextVar("gateway_purpose", default=None)
"""The purpose of a model call; None: to answer the client."""


@contextlib.contextmanager
def harmless() -> Iterator[None]:
    """Suppresses and logs every fault of telemetry, so that it never costs an answer (guarantee §13.5)."""
    try:
        yield
    except Exception as fault:  # noqa: BLE001 - see above
        log.fault("telemetry_failed", fault)


def failed(span: Span, error: BaseException) -> None:
    """Marks a span as failed, without the error's message: it may hold content."""
    kind = error_type(error)
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


class ModelCall:
    """A model call in progress, and the data received so far. A fault here costs telemetry only."""

    def __init__(self, span: Span, attributes: Attributes, *, content: bool) -> None:
        self.span = span
        self.attributes = attributes
        self.waits = False
        """Whether the request ends the span of the call after the bill; else it ends with the call."""
        self.over: int | None = None
        """When the call ended, in nanoseconds; None until `end`."""
        self._begun = time.perf_counter_ns()
        self._over: int | None = None
        self.seconds = 0.0
        self.first_chunk: float | None = None
        self.error: str | None = None
        self.answer: Json = {}
        self._reasons: dict[int, Any] = {}
        self._record = StreamRecord(1) if content else None
        self._content = content

    async def answered(self, answer: JsonAnswer) -> JsonAnswer:
        self.answer = answer.body
        self.ended()
        if self._content:
            with harmless():
                self.span.set_attributes(of_output(answer.body))
        return answer

    def saw(self, chunks: Chunks) -> None:
        """Records chunks of the stream, and the time of the first one."""
        if self.first_chunk is None:
            self.first_chunk = (time.perf_counter_ns() - self._begun) / SECOND
        with harmless():
            for chunk in chunks:
                self._saw(chunk)

    def _saw(self, chunk: Json) -> None:
        answer = self.answer
        if not answer:
            answer |= {name: chunk.get(name) for name in ("id", "model")}
        if chunk.get("usage"):
            answer["usage"] = chunk["usage"]
        for choice in chunk.get("choices") or ():
            if choice.get("finish_reason"):
                self._reasons[choice.get("index", 0)] = choice["finish_reason"]
        if self._record is not None:
            self._record.add(chunk)

    def failed(self, error: BaseException) -> None:
        """Marks the call as failed or cancelled, unless it has already ended."""
        if self._over is None:
            self.error = error_type(error)
            failed(self.span, error)

    def end(self) -> None:
        """Completes the call's attributes; ends its span unless that waits for a bill."""
        self.ended()
        if self._reasons:
            self.answer["choices"] = [{"finish_reason": reason} for _, reason in sorted(self._reasons.items())]
        if self.span.is_recording():
            self.span.set_attributes(of_answer(self.answer))
            if self.first_chunk is not None:
                self.span.set_attribute("gen_ai.response.time_to_first_chunk", self.first_chunk)
            if self._record is not None and self._record.begun:
                self.span.set_attributes(of_output(self._record.completion()))
        self.over = self._over
        if not self.waits:
            self.span.end(self.over)

    def ended(self) -> None:
        """Records the end of the answer."""
        if self._over is None:
            self._over = time.time_ns()
            self.seconds = (time.perf_counter_ns() - self._begun) / SECOND


class RequestSpans:
    """The span of a request, and those of its calls that wait for its bill."""

    def __init__(self, span: Span, facts: Callable[[], Attributes], done: Callable[["RequestSpans"], None]) -> None:
        """`facts`: what the HTTP edge knows of the request; `done`: called when nothing waits for the bill any more."""
        self.span = span
        self.sampled = span.is_recording()
        """Whether anything of the request is traced."""
        self._facts = facts
        self._done = done
        self._calls: list[ModelCall] = []
        self._unbilled = False
        self._over: int | None = None

    @property
    def keeps_content(self) -> bool:
        """Whether `telemetry.content` may export the request's content: not with `store: false`."""
        return self._facts().get("store") is not False

    def called(self, call: ModelCall) -> None:
        """Registers a call of the primary model: its span waits for the bill, unless the request is complete."""
        if self.sampled and not (self._over is not None and not self._unbilled):
            self._unbilled = call.waits = True
            self._calls.append(call)

    def billed(self, entry: turn.LedgerEntry) -> None:
        self._unbilled = False
        try:
            if self.span.is_recording():
                self._tell(entry)
        finally:
            if self._over is not None:
                self.finish()

    def _tell(self, entry: turn.LedgerEntry) -> None:
        self.span.set_attributes(of_bill(entry))
        for call in self._calls:
            call.span.set_attributes(of_session(entry))
        primary = next((each for each in entry.calls if each.purpose == "primary"), None)
        if primary is not None and self._calls:
            self._calls[-1].span.set_attributes(of_usage(primary.usage) | of_cost(primary))

    def close(self) -> None:
        self._over = time.time_ns()
        if self._unbilled:
            asyncio.get_running_loop().call_later(BILL_SECONDS, self._give_up)
        else:
            self.finish()

    def _give_up(self) -> None:
        """Ends the spans without a bill; waits on while a call still runs without its client: its bill will come."""
        if any(call.over is None for call in self._calls):
            asyncio.get_running_loop().call_later(BILL_SECONDS, self._give_up)
        else:
            self.finish()

    def finish(self) -> None:
        """Ends all waiting spans, even without a bill."""
        calls, self._calls, self._unbilled = self._calls, [], False
        for call in calls:
            call.waits = False
            if call.over is not None:
                call.span.end(call.over)
        if self.span.is_recording():
            self.span.end(self._over)
        self._done(self)


class RequestTracing:
    """Makes the spans of requests and of their steps."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self._open: set[RequestSpans] = set()

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Opens a span around a request's step (`ports.Spans`); for an internal model, only sets the calls' purpose."""
        if name in INTERNAL_PURPOSES:
            token = PURPOSE.set(name)
            try:
                yield
            finally:
                PURPOSE.reset(token)
            return
        if not is_sampled():
            yield
            return
        with self.tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as span:
            try:
                yield
            except BaseException as error:
                failed(span, error)
                raise

    def close(self) -> None:
        """Ends all spans that still wait for a bill."""
        for each in list(self._open):
            each.finish()

    def app(self, app: App) -> App:
        """Wraps the application with a span around each request, except health and metrics."""

        async def traced(scope: Scope, receive: Any, send: Any) -> None:
            if scope["type"] != "http" or scope["path"] in UNTRACED:
                await app(scope, receive, send)
                return
            spans = self._begun(scope)
            if spans is None:
                await app(scope, receive, send)
                return
            token = CURRENT.set(spans)
            try:
                with use_span(spans.span, record_exception=False, set_status_on_exception=False):
                    await app(scope, receive, send)
            finally:
                CURRENT.reset(token)
                with harmless():
                    spans.close()

        return traced

    def _begun(self, scope: Scope) -> RequestSpans | None:
        try:
            return self._begin(scope)
        except Exception as fault:  # noqa: BLE001 - as in `harmless`
            log.fault("telemetry_failed", fault)
            return None

    def _begin(self, scope: Scope) -> RequestSpans:
        endpoint, method = metrics.endpoint_of(scope["path"]), scope["method"]
        carrier = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"] if k in PARENTS}
        attributes: Attributes = {"http.request.method": method, "url.scheme": scope.get("scheme", "http")}
        if endpoint != metrics.OTHER:
            attributes["http.route"] = endpoint
        if scope["path"] in metrics.COUNTED_ENDPOINTS:  # other paths hold ids and names, which clients may have given
            attributes["url.path"] = scope["path"]
        name = method if endpoint == metrics.OTHER else f"{method} {endpoint}"
        parent = CONTEXT.extract(carrier, Context())
        span = self.tracer.start_span(name, parent, SpanKind.SERVER, attributes)
        spans = RequestSpans(span, lambda: scope.get("gateway") or {}, self._open.discard)
        self._open.add(spans)
        return spans


def is_sampled() -> bool:
    """Returns whether the current work is traced: only work within an unsampled request is not."""
    spans = CURRENT.get()
    return spans is None or spans.sampled


def answered(status: int, facts: Attributes) -> None:
    """Marks the span of the current request with its status. `facts`: what the HTTP edge knows of the request."""
    spans = CURRENT.get()
    if spans is None or not spans.span.is_recording():
        return
    found: Attributes = {"http.response.status_code": status}
    if facts.get("error_code"):
        found["error.type"] = str(facts["error_code"])
    elif status >= 500:
        found["error.type"] = str(status)
    if facts.get("tenant"):
        found["gateway.tenant"] = facts["tenant"]
    spans.span.set_attributes(found)
    # a client that left is no server error
    if status >= 500 or (status < 400 and found.get("error.type", errors.CLIENT_LEFT) != errors.CLIENT_LEFT):
        spans.span.set_status(Status(StatusCode.ERROR))


def trace_fields() -> dict[str, Any]:
    """Returns the ids of the current span for log lines; empty outside a span."""
    context = get_current_span().get_span_context()
    if context is INVALID_SPAN.get_span_context() or not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


FLUSH_SECONDS = 3.0
"""The longest wait, in seconds, for pending exports at shutdown."""
OPERATION_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Boundaries that the conventions recommend for `gen_ai.client.operation.duration`."""
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
OF_CALLS = ("gen_ai.operation.name", "gen_ai.provider.name", "server.address", "server.port")
READ_SECONDS = 2.0
"""How long an export waits for the event loop; if it is busy for longer, this export repeats the last counts."""
FRESH_SECONDS = 1.0
"""For which counts are reused: one read serves all instruments of an export."""


# Metrics by OTLP: histograms of the conventions, and the counts of `/metrics` under the same names. An export reads the
# counts on the event loop, where they are written. Labels are those of `/metrics`: no metric names a tenant, and the
# number of labels for unlisted models is bounded.


class OtelInstruments:
    """The histograms of this process."""

    def __init__(self, meter: Meter) -> None:
        self.label: Callable[[str], str] = str
        """The label of a model, as `/metrics` has it."""

        def histogram(name: str, unit: str, boundaries: tuple[float, ...]) -> Histogram:
            return meter.create_histogram(name, unit, explicit_bucket_boundaries_advisory=boundaries)

        self._duration = histogram("gen_ai.client.operation.duration", "s", OPERATION_SECONDS)
        self._first_chunk = histogram("gen_ai.client.operation.time_to_first_chunk", "s", OPERATION_SECONDS)
        self._tokens = histogram("gen_ai.client.token.usage", "{token}", TOKENS)
        self.requests = histogram("http.server.request.duration", "s", metrics.SECONDS_BUCKETS)
        self.first_chunks = histogram("gateway_time_to_first_chunk", "s", metrics.SECONDS_BUCKETS)
        self.windows = histogram("gateway_context_window", "1", metrics.SHARE_BUCKETS)

    def called(self, call: ModelCall, deployment: ModelDeployment) -> None:
        """Records the duration, first chunk and tokens of a finished model call."""
        about = {name: call.attributes[name] for name in OF_CALLS if name in call.attributes}
        about["gen_ai.request.model"] = self.label(deployment.model)
        ended = about if call.error is None else {**about, "error.type": call.error}
        self._duration.record(call.seconds, ended)
        if call.first_chunk is not None:
            self._first_chunk.record(call.first_chunk, about)
        usage = call.answer.get("usage") or {}
        for kind, name in (("input", "prompt_tokens"), ("output", "completion_tokens")):
            if isinstance(usage.get(name), int):
                self._tokens.record(usage[name], {**about, "gen_ai.token.type": kind})


class ToldMetrics(GatewayMetrics):
    """The counts of `/metrics`; also passes each event to the spans of requests and to the instruments."""

    def __init__(self, listed: Iterable[str], now: Callable[[], datetime], instruments: OtelInstruments) -> None:
        super().__init__(listed, now)
        self._instruments = instruments
        instruments.label = self.label

    def ended(self, method: str, path: str, status: int, seconds: float, facts: dict[str, object]) -> None:
        """Counts an answered request, and records its duration."""
        super().ended(method, path, status, seconds, facts)
        with harmless():
            answered(status, facts)
            known: Attributes = {
                "http.request.method": method if method in metrics.COUNTED_METHODS else "_OTHER",
                "http.response.status_code": status,
                "http.route": metrics.endpoint_of(path),
                "url.scheme": "http",
            }
            self._instruments.requests.record(seconds, known)

    def first_chunk(self, model: str, seconds: float) -> None:
        """Records the time to a stream's first chunk, which is about to be sent."""
        super().first_chunk(model, seconds)
        with harmless():
            self._instruments.first_chunks.record(seconds, {"model": self.label(model)})

    def billed(self, entry: turn.LedgerEntry) -> None:
        super().billed(entry)
        used = entry.metadata.get("context_utilization") or {}
        if (share := metrics.share_of_window(used)) is not None:
            with harmless():
                self._instruments.windows.record(share, {"model": self.label(entry.model)})
        if (spans := CURRENT.get()) is not None:
            with harmless():
                spans.billed(entry)


class CountsByOtlp:
    """All counters and gauges of `/metrics`, observed when an export is due."""

    def __init__(self, meter: Meter, snapshot: Callable[[], MetricCounts]) -> None:
        """Must be created on the event loop that writes the counts."""
        self._snapshot = snapshot
        self._loop = asyncio.get_running_loop()
        self._read_at = -FRESH_SECONDS
        self._samples: dict[str, list[Observation]] = {}
        for family in metrics.families(MetricCounts()):
            if family.type == "counter":
                meter.create_observable_counter(family.name, [self._observer(family.name)], "", family.documentation)
            elif family.type == "gauge":
                meter.create_observable_gauge(family.name, [self._observer(family.name)], "", family.documentation)

    def _observer(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observed(_: CallbackOptions) -> Iterable[Observation]:
            self._refresh()
            return self._samples.get(name, [])

        return observed

    def _refresh(self) -> None:
        if time.monotonic() - self._read_at < FRESH_SECONDS:
            return
        self._read_at = time.monotonic()
        try:
            counts = asyncio.run_coroutine_threadsafe(self._read(), self._loop).result(READ_SECONDS)
        except (TimeoutError, RuntimeError):  # busy, or closed
            return
        self._samples = {
            family.name: [Observation(sample.value, dict(sample.labels)) for sample in family.samples]
            for family in metrics.families(counts)
            if family.type in ("counter", "gauge")
        }

    async def _read(self) -> MetricCounts:
        return self._snapshot()


class ModelCalls:
    """Wraps each model call in a span, and measures it."""

    def __init__(self, tracing: RequestTracing, instruments: OtelInstruments, *, content: bool) -> None:
        self._tracing = tracing
        self._instruments = instruments
        self._content = content

    @contextlib.contextmanager
    def call(
        self, deployment: ModelDeployment, body: Json, operation: str = "chat", purpose: str | None = None
    ) -> Iterator[ModelCall]:
        """Opens a span around a model call. `purpose`: what the call is for; by default, the purpose of the step."""
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
        call = ModelCall(span, attributes, content=kept and span.is_recording())
        if request is not None and purpose is None:
            request.called(call)
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
    """An `Upstream` that traces its calls."""

    def __init__(self, inner: ports.Upstream, calls: ModelCalls) -> None:
        super().__init__(inner)
        self._calls = calls

    @contextlib.asynccontextmanager
    async def passing(
        self, deployment: ModelDeployment, request: upstreams.UpstreamRequest
    ) -> AsyncIterator[UpstreamPassage]:
        """Opens a span (see `UpstreamWrapper`); sends `traceparent` upstream, to litellm as a deployment header."""
        with self._calls.call(deployment, request.body) as call:
            carrier = _carrier(call.span)
            if carrier and deployment.protocol == "litellm":
                deployment = replace(deployment, headers={**deployment.headers, **carrier})
            request = replace(request, headers={**request.headers, **carrier})
            yield UpstreamPassage(deployment, request, call.answered, lambda stream: WatchedStream(stream, call))


class TracedHttp(HttpUpstream):
    """An `HttpUpstream` that traces calls of an embedder; `TracedUpstream` traces chats."""

    def __init__(self, pool: ConnectionPool, calls: ModelCalls) -> None:
        super().__init__(pool)
        self._calls = calls

    async def post(self, deployment: ModelDeployment, path: str, body: Json, max_bytes: int) -> bytes:
        """Posts to an endpoint other than completions within a span; returns the body of the answer."""
        with self._calls.call(deployment, {}, path, "embedder") as call:
            headers = {**deployment.headers, **_carrier(call.span)}
            return await super().post(replace(deployment, headers=headers), path, body, max_bytes)


class WatchedStream(StreamAround):
    """A `ChunkStream` that reports its chunks to its call."""

    def __init__(self, opened: ChunkStream, call: ModelCall) -> None:
        super().__init__(opened)
        self._call = call

    async def batches(self) -> AsyncGenerator[Chunks, None]:
        """Yields the batches of `ChunkStream.batches`, and reports each to the call."""
        async with aclosing(self._opened.batches()) as batches:
            async for batch in batches:
                self._call.saw(batch)
                yield batch
        self._call.ended()

    async def push(self, take: Callable[[Chunks], bool]) -> None:
        """Pushes batches as `ChunkStream.push` does, and reports each to the call."""

        def arrived(batch: Chunks) -> bool:
            self._call.saw(batch)
            return take(batch)

        await self._opened.push(arrived)


class TracedPassthrough(PassthroughClient):
    """A `PassthroughClient` that traces its calls."""

    def __init__(self, pool: ConnectionPool, tracing: RequestTracing) -> None:
        super().__init__(pool)
        self._tracing = tracing

    @contextlib.asynccontextmanager
    async def open(self, deployment: ModelDeployment, call: upstreams.RelayedCall) -> AsyncIterator[RawAnswer]:
        """Opens a relayed call within a span; yields the answer when it has begun."""
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


def _operation(call: upstreams.RelayedCall) -> str | None:
    path = call.target.partition("?")[0].strip("/")
    return RELAYED_OPERATIONS.get(path) if call.method == "POST" else None


def _name(deployment: ModelDeployment, call: upstreams.RelayedCall) -> str:
    operation = _operation(call)
    return f"{operation} {deployment.provider_model}".strip() if operation else call.method


def _relayed(deployment: ModelDeployment, call: upstreams.RelayedCall) -> Attributes:
    found: Attributes = {"http.request.method": call.method, "gateway.purpose": "relayed", **of_server(deployment)}
    if (operation := _operation(call)) is not None:
        found |= {"gen_ai.operation.name": operation, "gen_ai.provider.name": provider_of(deployment)}
        if deployment.provider_model:
            found["gen_ai.request.model"] = deployment.provider_model
    return found


def _carrier(span: Span) -> dict[str, str]:
    """Returns `traceparent` and `tracestate` for calls below a span; empty without a trace."""
    carrier: dict[str, str] = {}
    with harmless():
        CONTEXT.inject(carrier, set_span_in_context(span))
    return carrier


class OpenTelemetry:
    """Traces and metrics of one process."""

    def __init__(self, settings: setting_sections.TelemetrySettings) -> None:
        quieten()
        self._settings = settings
        self._exports = OtelProviders(settings)
        self._tracing = RequestTracing(self._exports.tracer)
        self._instruments = OtelInstruments(self._exports.meter)
        self._calls = ModelCalls(self._tracing, self._instruments, content=settings.content)

    def metrics(self, listed: Iterable[str], now: Callable[[], datetime]) -> GatewayMetrics:
        """Creates metrics that are also exported."""
        return ToldMetrics(listed, now, self._instruments)

    def upstream(self, upstream: ports.Upstream) -> ports.Upstream:
        """Wraps an upstream with a span around each call."""
        return TracedUpstream(upstream, self._calls)

    def http(self, pool: ConnectionPool) -> HttpUpstream:
        """Creates an HTTP upstream with a span around each call of an embedder."""
        return TracedHttp(pool, self._calls)

    def passthrough(self, pool: ConnectionPool) -> PassthroughClient:
        """Creates a passthrough client, with a span around each call if traces are configured."""
        return TracedPassthrough(pool, self._tracing) if self._settings.traces else PassthroughClient(pool)

    def app(self, app: App) -> App:
        """Wraps the application with a span around each request, if traces are configured."""
        return self._tracing.app(app) if self._settings.traces else app

    @property
    def spans(self) -> ports.Spans:
        """A span around each step if traces are configured, else nothing."""
        return self._tracing.step if self._settings.traces else nullcontext

    def start(self, snapshot: Callable[[], MetricCounts]) -> None:
        """Starts to add trace ids to log lines, and to export counts, as far as each is configured."""
        if self._settings.traces:
            logs.tell_also(trace_fields)
        if self._settings.metrics:
            CountsByOtlp(self._exports.meter, snapshot)

    async def close(self) -> None:
        """Ends spans that wait for a bill, and exports pending data."""
        self._tracing.close()
        if not await asyncio.to_thread(self._exports.close, FLUSH_SECONDS):
            log.warning("telemetry_lost", seconds=FLUSH_SECONDS)
