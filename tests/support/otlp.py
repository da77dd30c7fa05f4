"""A collector for tests: receives OTLP over HTTP, and keeps spans and metrics as they came."""

import gzip
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Wire

from tests.support.http_server import Answer, Record, ThreadedHttpServer
from tests.support.process import Closing, wait_until

TRACES, METRICS = "/v1/traces", "/v1/metrics"
SERVER, CLIENT, INTERNAL = Wire.SPAN_KIND_SERVER, Wire.SPAN_KIND_CLIENT, Wire.SPAN_KIND_INTERNAL
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
"""The environment of a gateway whose spans a test waits for."""


@dataclass(frozen=True)
class Span:
    """One span; times in nanoseconds, ids in hexadecimal."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    began: int
    ended: int
    failed: bool
    attributes: dict[str, Any]
    events: int
    resource: dict[str, Any] = field(repr=False)


class Collector(Closing):
    """Listens from the moment it is made until `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server = ThreadedHttpServer(self._respond)
        self._server.start()
        self.spans: list[Span] = []
        self.metrics: dict[str, list[Any]] = {}
        """Data points by the metric's name, those of the latest export."""
        self.raw: list[bytes] = []
        """All bodies, to look for what must not be in them."""
        self.headers: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.port}"

    def close(self) -> None:
        self._server.stop()

    def clear(self) -> None:
        """Forgets what came until now."""
        with self._lock:
            self.spans, self.metrics, self.raw, self.headers = [], {}, [], []

    def trace(self, request_id: str, *, least: int = 1) -> list[Span]:
        """The spans of a request, by the time at which they began, once its server span is there and `least` in all."""
        found: list[Span] = []

        def is_there() -> bool:
            known = list(self.spans)
            ids = {span.trace_id for span in known if span.attributes.get("gateway.request_id") == request_id}
            found[:] = sorted((span for span in known if span.trace_id in ids), key=lambda span: span.began)
            return len(found) >= least

        wait_until(is_there, f"the spans of {request_id}: {[span.name for span in self.spans]}")
        return found

    def one(self, wanted: Callable[[Span], bool]) -> Span:
        """The one span that is wanted, once it is there."""
        wait_until(lambda: any(map(wanted, list(self.spans))), "a span")
        (found,) = filter(wanted, list(self.spans))
        return found

    def _respond(self, record: Record) -> Answer:
        body = gzip.decompress(record.raw) if record.headers.get("content-encoding") == "gzip" else record.raw
        with self._lock:
            self.raw.append(body)
            self.headers.append(record.headers)
            if record.path == TRACES:
                known = {span.span_id for span in self.spans}  # an exporter that waited too long sends them again
                self.spans += [span for span in _spans(body) if span.span_id not in known]
            elif record.path == METRICS:
                self.metrics = self.metrics | _points(body)
        return Answer(200, [("content-type", "application/x-protobuf")], [b""])


def tree(spans: list[Span]) -> dict[str, Any]:
    """The names of spans below each other, in the order in which they began: `{"POST …": {"rebuild": {}}}`. A name that
    stands twice below one span has a number behind it the second time."""
    known = {span.span_id for span in spans}

    def below(parent: str | None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for span in spans:
            is_child = span.parent_id == parent if parent else span.parent_id not in known
            if is_child:
                same = sum(name.partition(" #")[0] == span.name for name in found)
                found[f"{span.name} #{same + 1}" if same else span.name] = below(span.span_id)
        return found

    return below(None)


def _spans(body: bytes) -> list[Span]:
    return [
        Span(
            name=span.name,
            kind=span.kind,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            began=span.start_time_unix_nano,
            ended=span.end_time_unix_nano,
            failed=span.status.code == 2,
            attributes=_attributes(span.attributes),
            events=len(span.events),
            resource=_attributes(group.resource.attributes),
        )
        for group in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _points(body: bytes) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        for scope in group.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                points = getattr(metric, str(kind)).data_points
                found[metric.name] = [(_attributes(point.attributes), point) for point in points]
    return found


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None
