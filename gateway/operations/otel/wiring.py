"""What is wired around the parts of the gateway where OpenTelemetry is configured, in the place of `NoTelemetry`."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from datetime import datetime

from gateway.core.config.setting_sections import TelemetrySettings
from gateway.core.instrumentation.logs import get_logger, tell_also
from gateway.core.instrumentation.metrics import GatewayMetrics, MetricCounts
from gateway.core.ports import Spans, Upstream
from gateway.operations.otel.instruments import CountsByOtlp, OtelInstruments, ToldMetrics
from gateway.operations.otel.sdk import OtelProviders, quieten
from gateway.operations.otel.spans import App, RequestTracing, trace_fields
from gateway.operations.otel.traced_calls import ModelCalls, TracedHttp, TracedPassthrough, TracedUpstream
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.openai.chat_calls import HttpUpstream
from gateway.upstream.openai.passthrough import PassthroughClient

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
