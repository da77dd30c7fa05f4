"""Chooses what the application wires: OpenTelemetry if it is configured, else nothing (guarantee §13.5)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING

from gateway.core import ports
from gateway.core.config import setting_sections
from gateway.core.config.config_file import ConfigurationError
from gateway.core.instrumentation.metrics import GatewayMetrics, MetricCounts
from gateway.upstream import ConnectionPool, HttpUpstream, PassthroughClient

if TYPE_CHECKING:
    from gateway.operations.otel.telemetry import OpenTelemetry

App = Callable[..., Awaitable[None]]
"""An ASGI application."""
TELEMETRY_EXTRA = "context-gateway[telemetry]"


class NoTelemetry:
    """Stands in for `OpenTelemetry` if it is not configured: leaves every part unwrapped."""

    def metrics(self, listed: Iterable[str], now: Callable[[], datetime]) -> GatewayMetrics:
        return GatewayMetrics(listed, now)

    def upstream(self, upstream: ports.Upstream) -> ports.Upstream:
        return upstream

    def http(self, pool: ConnectionPool) -> HttpUpstream:
        return HttpUpstream(pool)

    def passthrough(self, pool: ConnectionPool) -> PassthroughClient:
        return PassthroughClient(pool)

    def app(self, app: App) -> App:
        return app

    @property
    def spans(self) -> ports.Spans:
        """A context manager without effect."""
        return nullcontext

    def start(self, snapshot: Callable[[], MetricCounts]) -> None:
        """Does nothing: there is nothing to start."""

    async def close(self) -> None:
        """Does nothing: there is nothing to export."""


def open_telemetry(settings: setting_sections.TelemetrySettings) -> "NoTelemetry | OpenTelemetry":
    """Creates OpenTelemetry as configured, without connecting yet.
    Raises ConfigurationError: it is configured, but its packages are not installed."""
    if not settings.is_on:
        return NoTelemetry()
    with _installed():
        from gateway.operations.otel.telemetry import OpenTelemetry
    return OpenTelemetry(settings)


async def reach_collector(settings: setting_sections.TelemetrySettings) -> str | None:
    """Checks the collector for `gateway check`; returns the problem, or None.
    Raises ConfigurationError: the packages of OpenTelemetry are not installed."""
    with _installed():
        from gateway.operations.otel.sdk import reach
    return await asyncio.to_thread(reach, settings)


@contextmanager
def _installed() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        text = f"needs a package that is not installed ({error.name}): install {TELEMETRY_EXTRA}"
        raise ConfigurationError(f"telemetry.otlp_endpoint: {text}") from None
