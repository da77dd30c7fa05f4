"""OpenTelemetry's SDK: exports spans and metrics in its own threads; this module limits what it logs about that.

The SDK queues at most 2,048 spans for a collector; further ones are lost. It reads its other settings itself under
their standard names, such as `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_BSP_MAX_QUEUE_SIZE`.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Meter, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import NoOpTracerProvider, Tracer

from gateway import __version__
from gateway.core import ids
from gateway.core.config import setting_sections
from gateway.core.instrumentation import logs

log = logs.get_logger("gateway.operations.otel")
SCOPE_NAME = "gateway"
"""The instrumentation scope."""
QUIET_SECONDS = 60.0
"""Between two log lines about failed exports."""
REACH_SECONDS = 3.0
"""How long `gateway check` waits for a collector."""
MAX_REASON = 300
"""Characters of a reason in the log."""
SDK_LOGGER = "opentelemetry"
"""The parent of all loggers of the SDK."""


class OtelProviders:
    """The providers of tracers and meters of this process.

    Each of several workers exports its own data with its own `service.instance.id`; a collector adds them up.
    """

    def __init__(self, settings: setting_sections.TelemetrySettings) -> None:
        endpoint, headers = settings.otlp_endpoint or "", dict(settings.header_fields)
        resource = Resource.create(
            {
                "service.name": settings.service_name,
                "service.version": __version__,
                "service.instance.id": ids.new_id("gw_"),
            }
        )
        self._shutdowns: list[Callable[[], object]] = []
        self.tracer: Tracer = NoOpTracerProvider().get_tracer(SCOPE_NAME)
        self.meter: Meter = NoOpMeterProvider().get_meter(SCOPE_NAME)
        if settings.traces:
            ratio = settings.sample_ratio
            sampler = None if ratio is None else ParentBased(TraceIdRatioBased(ratio))
            traces = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
            spans = OTLPSpanExporter(f"{endpoint}/v1/traces", headers=headers, session=_session())
            traces.add_span_processor(BatchSpanProcessor(spans))
            self.tracer = traces.get_tracer(SCOPE_NAME, __version__)
            self._shutdowns.append(traces.shutdown)
        if settings.metrics:
            figures = OTLPMetricExporter(f"{endpoint}/v1/metrics", headers=headers, session=_session())
            reader = PeriodicExportingMetricReader(figures, export_interval_millis=1000 * settings.metric_interval)
            meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
            self.meter = meters.get_meter(SCOPE_NAME, __version__)
            self._shutdowns.append(meters.shutdown)

    def close(self, seconds: float) -> bool:
        """Exports pending data; returns whether that finished within the given number of seconds."""
        running = [threading.Thread(target=_at_the_end(each), daemon=True) for each in self._shutdowns]
        for thread in running:
            thread.start()
        end = time.monotonic() + seconds
        for thread in running:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in running)


def reach(settings: setting_sections.TelemetrySettings) -> str | None:
    """Sends one empty export to the collector; returns the problem, or None."""
    endpoint, headers = settings.otlp_endpoint or "", dict(settings.header_fields)
    told = _LoggedOnce()
    logger = logging.getLogger(SDK_LOGGER)
    logger.handlers[:], logger.propagate = [told], False
    if settings.traces:
        spans = OTLPSpanExporter(f"{endpoint}/v1/traces", headers=headers, timeout=REACH_SECONDS, session=_session())
        done = spans.export([]) is SpanExportResult.SUCCESS
    else:
        figures = OTLPMetricExporter(
            f"{endpoint}/v1/metrics", headers=headers, timeout=REACH_SECONDS, session=_session()
        )
        done = figures.export(MetricsData([])) is MetricExportResult.SUCCESS
    return None if done else logs.masked(told.last)[:MAX_REASON]


def _session() -> requests.Session:
    """Makes a session whose redirects are errors: the SDK follows none, and takes each for a success."""
    made = requests.Session()
    made.hooks["response"] = [_refuse_redirect]
    return made


def _refuse_redirect(answer: requests.Response, *_: Any, **__: Any) -> None:
    if 300 <= answer.status_code < 400:
        raise requests.HTTPError(f"HTTP {answer.status_code}: a redirect, which is not followed")


class _LoggedOnce(logging.Handler):
    """Stores the last logged message."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = "not reached"

    def emit(self, record: logging.LogRecord) -> None:
        """Stores the message of a log record."""
        self.last = record.getMessage()


class QuietLog(logging.Handler):
    """Handles the SDK's log records: reports a collector that is down at most once a minute, in one line."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._monotonic = monotonic
        self._next = 0.0
        self._untold = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Logs a record, or counts it as untold if a line was written within the last `QUIET_SECONDS`."""
        now = self._monotonic()
        if now < self._next:
            self._untold += 1
            return
        self._next = now + QUIET_SECONDS
        untold, self._untold = self._untold, 0
        log.warning("telemetry_not_exported", reason=logs.masked(record.getMessage())[:MAX_REASON], untold=untold)


def quieten() -> None:
    """Redirects the SDK's log records to a `QuietLog`."""
    logger = logging.getLogger(SDK_LOGGER)
    logger.handlers[:] = [QuietLog()]
    logger.propagate = False


def _at_the_end(shutdown: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        try:
            shutdown()
        except Exception as fault:  # noqa: BLE001 - the process ends, even if pending data was not exported
            log.fault("telemetry_failed", fault)

    return run
