"""The spans of a request: one of the server, below it one for each step and each call of a model (guarantee §13.5).

A span says what its bill says, and a bill may come after the answer: when a client leaves, it is recorded behind its
back. So the spans that tell it wait for it; they end with the time at which their work ended.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextvars import ContextVar
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode, Tracer, get_current_span, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.core.formats.stream_record import StreamRecord
from gateway.core.instrumentation import logs, metrics
from gateway.core.types import turn
from gateway.core.types.chat import JsonAnswer
from gateway.operations.otel.attributes import (
    Attributes,
    error_type,
    of_answer,
    of_bill,
    of_cost,
    of_output,
    of_session,
    of_usage,
)

log = logs.get_logger("gateway.operations.otel")
Chunks = list[dict[str, Any]]
Json = dict[str, Any]
SECOND = 1_000_000_000
"""Nanoseconds."""
Scope = MutableMapping[str, Any]
App = Callable[..., Awaitable[None]]
BILL_SECONDS = 5.0
"""How long the spans of a request that is over wait for its bill."""
CLIENT_LEFT = "client_disconnected"
"""`error.type` of a request whose client left: no fault of the server's."""
UNTRACED = ("/health/live", "/health/ready", "/metrics")
INTERNAL_PURPOSES = ("planner", "summarizer", "embedder")
PARENTS = (b"traceparent", b"tracestate")
CONTEXT = TraceContextTextMapPropagator()
"""W3C's `traceparent` and `tracestate`, whatever else OTEL_PROPAGATORS names."""
CURRENT: ContextVar["RequestSpans | None"] = ContextVar("gateway_spans", default=None)
PURPOSE: ContextVar[str | None] = ContextVar("gateway_purpose", default=None)
"""For what a call of a model is made; None: to answer the client."""


@contextlib.contextmanager
def harmless() -> Iterator[None]:
    """Whatever goes wrong with telemetry costs what it would have told, never the answer (guarantee §13.5)."""
    try:
        yield
    except Exception as fault:  # noqa: BLE001 - see above
        log.fault("telemetry_failed", fault)


def failed(span: Span, error: BaseException) -> None:
    """Marks a span's work as failed, without the words of the error: they may hold content."""
    kind = error_type(error)
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


class ModelCall:
    """One call under way, and what has come of it. Whatever goes wrong here costs what it would have told."""

    def __init__(self, span: Span, attributes: Attributes, *, content: bool) -> None:
        self.span = span
        self.attributes = attributes
        self.waits = False
        """Whether its span is ended by the request, which has the bill; else it ends with the call."""
        self.over: int | None = None
        """When it ended, in nanoseconds, once nothing more is to come."""
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
        self._ended()
        if self._content:
            with harmless():
                self.span.set_attributes(of_output(answer.body))
        return answer

    def saw(self, chunks: Chunks) -> None:
        """These chunks have come."""
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

    def streamed(self) -> None:
        """The stream has come to its end."""
        self._ended()

    def failed(self, error: BaseException) -> None:
        """It was given up or broke off; nothing, if it had come to its end."""
        if self._over is None:
            self.error = error_type(error)
            failed(self.span, error)

    def end(self) -> None:
        """Nothing more is to come. The span ends, unless a bill is to come."""
        self._ended()
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

    def _ended(self) -> None:
        if self._over is None:
            self._over = time.time_ns()
            self.seconds = (time.perf_counter_ns() - self._begun) / SECOND


class RequestSpans:
    """The span of a request, and those of its calls that wait for its bill."""

    def __init__(self, span: Span, facts: Callable[[], Attributes], done: Callable[["RequestSpans"], None]) -> None:
        """`facts` are what the edge knows of the request; `done` is called once nothing waits any more."""
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
        """Whether its content may be exported, where content is: not with `store: false`."""
        return self._facts().get("store") is not False

    def called(self, call: ModelCall) -> None:
        """A call of the primary model has begun: its span waits for the bill, unless the request is complete."""
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
        """No bill has come; that of a call that goes on without its client is still to come."""
        if any(call.over is None for call in self._calls):
            asyncio.get_running_loop().call_later(BILL_SECONDS, self._give_up)
        else:
            self.finish()

    def finish(self) -> None:
        """Ends what waits, whatever is still missing."""
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
        """A step of a request (`ports.Spans`)."""
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
        """Ends what still waits for a bill."""
        for each in list(self._open):
            each.finish()

    def app(self, app: App) -> App:
        """The application with a span around each request, but for health and metrics."""

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
    """Whether what happens now is traced: it is no part of a request that nobody traces."""
    spans = CURRENT.get()
    return spans is None or spans.sampled


def answered(status: int, facts: Attributes) -> None:
    """The request of the current span has its answer; `facts` are the edge's."""
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
    if status >= 500 or (status < 400 and found.get("error.type", CLIENT_LEFT) != CLIENT_LEFT):
        spans.span.set_status(Status(StatusCode.ERROR))


def trace_fields() -> dict[str, Any]:
    """The ids of the current span, for lines of the log; empty outside of one."""
    context = get_current_span().get_span_context()
    if context is INVALID_SPAN.get_span_context() or not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
