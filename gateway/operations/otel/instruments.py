"""Metrics by OTLP: histograms of the conventions, and what `/metrics` counts under the same names (guarantee §13.5).

The counts are read on the event loop, where they are written, when an export is due. Labels are those of `/metrics`, so
no metric names a tenant, and unlisted models are few.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import datetime

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from gateway.core.instrumentation.metrics import (
    COUNTED_METHODS,
    SECONDS,
    SHARES,
    GatewayMetrics,
    MetricCounts,
    endpoint_of,
    families,
    share_of_window,
)
from gateway.core.types.chat import ModelDeployment
from gateway.core.types.turn import LedgerEntry
from gateway.operations.otel.attributes import Attributes
from gateway.operations.otel.spans import CURRENT, ModelCall, answered, harmless

OPERATION_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Boundaries that the conventions want for `gen_ai.client.operation.duration`."""
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
OF_CALLS = ("gen_ai.operation.name", "gen_ai.provider.name", "server.address", "server.port")
READ_SECONDS = 2.0
"""How long an export waits for the event loop; a loop that is busy for longer is not asked this time."""
FRESH_SECONDS = 1.0
"""One look at the counts serves all instruments of an export."""


class OtelInstruments:
    """The histograms of this process."""

    def __init__(self, meter: Meter) -> None:
        self.label: Callable[[str], str] = str
        """The label of a model, as `/metrics` has it."""
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", explicit_bucket_boundaries_advisory=OPERATION_SECONDS
        )
        self._first_chunk = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk", "s", explicit_bucket_boundaries_advisory=OPERATION_SECONDS
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", explicit_bucket_boundaries_advisory=TOKENS
        )
        self.requests = meter.create_histogram(
            "http.server.request.duration", "s", explicit_bucket_boundaries_advisory=SECONDS
        )
        self.first_chunks = meter.create_histogram(
            "gateway_time_to_first_chunk", "s", explicit_bucket_boundaries_advisory=SECONDS
        )
        self.windows = meter.create_histogram("gateway_context_window", "1", explicit_bucket_boundaries_advisory=SHARES)

    def called(self, call: ModelCall, deployment: ModelDeployment) -> None:
        """A call of a model is over."""
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
    """The counts of `/metrics`, which also tell the spans of requests and the instruments what they count."""

    def __init__(self, listed: Iterable[str], now: Callable[[], datetime], instruments: OtelInstruments) -> None:
        super().__init__(listed, now)
        self._instruments = instruments
        instruments.label = self.label

    def ended(self, method: str, path: str, status: int, seconds: float, facts: dict[str, object]) -> None:
        """A request has its answer."""
        super().ended(method, path, status, seconds, facts)
        with harmless():
            answered(status, facts)
            known: Attributes = {
                "http.request.method": method if method in COUNTED_METHODS else "_OTHER",
                "http.response.status_code": status,
                "http.route": endpoint_of(path),
                "url.scheme": "http",
            }
            self._instruments.requests.record(seconds, known)

    def first_chunk(self, model: str, seconds: float) -> None:
        """A stream's first chunk is about to be sent."""
        super().first_chunk(model, seconds)
        with harmless():
            self._instruments.first_chunks.record(seconds, {"model": self.label(model)})

    def billed(self, entry: LedgerEntry) -> None:
        super().billed(entry)
        used = entry.metadata.get("context_utilization") or {}
        if (share := share_of_window(used)) is not None:
            with harmless():
                self._instruments.windows.record(share, {"model": self.label(entry.model)})
        if (spans := CURRENT.get()) is not None:
            with harmless():
                spans.billed(entry)


class CountsByOtlp:
    """All counters and gauges of `/metrics`, observed when an export is due."""

    def __init__(self, meter: Meter, snapshot: Callable[[], MetricCounts]) -> None:
        """To be made on the event loop that is counted on."""
        self._snapshot = snapshot
        self._loop = asyncio.get_running_loop()
        self._read_at = -FRESH_SECONDS
        self._samples: dict[str, list[Observation]] = {}
        for family in families(MetricCounts()):
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
            for family in families(counts)
            if family.type in ("counter", "gauge")
        }

    async def _read(self) -> MetricCounts:
        return self._snapshot()
