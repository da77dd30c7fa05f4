"""What is wired around the parts of the gateway where OpenTelemetry is configured, in the place of `NoTelemetry`."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from datetime import datetime

from gateway.config.telemetry import TelemetrySettings
from gateway.ports import Spans, Upstream
from gateway.telemetry.logs import get_logger, tell_also
from gateway.telemetry.metrics import Counts, Metrics
from gateway.telemetry.otel.calls import ModelCalls, TracedHttp, TracedPassthrough, TracedUpstream
from gateway.telemetry.otel.instruments import CountsByOtlp, Instruments, ToldMetrics
from gateway.telemetry.otel.sdk import Exports, quieten
from gateway.telemetry.otel.spans import App, Tracing, trace_fields
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.openai.chat import HttpUpstream
from gateway.upstream.openai.passthrough import Passthrough

log = get_logger("gateway.telemetry.otel")
FLUSH_SECONDS = 3.0
"""Most seconds that an end waits for what is left to export."""


class OpenTelemetry:
    """Traces and metrics of one process."""

    def __init__(self, settings: TelemetrySettings) -> None:
        quieten()
        self._settings = settings
        self._exports = Exports(settings)
        self._tracing = Tracing(self._exports.tracer)
        self._instruments = Instruments(self._exports.meter)
        self._calls = ModelCalls(self._tracing, self._instruments, content=settings.content)

    def metrics(self, listed: Iterable[str], now: Callable[[], datetime]) -> Metrics:
        """Counts that are exported, too."""
        return ToldMetrics(listed, now, self._instruments)

    def upstream(self, upstream: Upstream) -> Upstream:
        """With a span around each call."""
        return TracedUpstream(upstream, self._calls)

    def http(self, pool: ConnectionPool) -> HttpUpstream:
        """With a span around each call of an embedder."""
        return TracedHttp(pool, self._calls)

    def passthrough(self, pool: ConnectionPool) -> Passthrough:
        """With a span around each call."""
        return TracedPassthrough(pool, self._tracing) if self._settings.traces else Passthrough(pool)

    def app(self, app: App) -> App:
        """With a span around each request."""
        return self._tracing.app(app) if self._settings.traces else app

    @property
    def spans(self) -> Spans:
        """With a span around each step, where traces are told."""
        return self._tracing.step if self._settings.traces else nullcontext

    def start(self, snapshot: Callable[[], Counts]) -> None:
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
