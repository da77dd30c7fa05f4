"""Settings of OpenTelemetry: where traces and metrics go, and how much of them (guarantee §13.5)."""

import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from gateway.core.config.settings_fields import Seconds, SettingsSection

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)


def _collector(text: str) -> str:
    """
    Raises:
        ValueError: it is no address.
    """
    parts = urlsplit(text.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must read 'http://HOST:PORT' or 'https://HOST', with a path where the collector has one")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("takes no credentials and no query; telemetry.headers carry a key")
    return text.strip().rstrip("/")


def _headers(value: Any) -> Any:
    """A mapping as it is; a text as `OTEL_EXPORTER_OTLP_HEADERS` has it: `name=value,name=value`, percent-encoded."""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if not isinstance(value, str):
        return value
    found = {}
    for pair in filter(None, map(str.strip, value.split(","))):
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError("must read 'name=value', several with commas between")
        found[unquote(name.strip())] = unquote(text.strip())
    return found


def _header_names(headers: dict[str, SecretStr] | None) -> dict[str, SecretStr] | None:
    for name, value in (headers or {}).items():
        text = value.get_secret_value()
        if not HEADER_NAME.fullmatch(name) or not text.isascii() or not text.isprintable():
            raise ValueError("holds a name or a value that no HTTP header may have")
    return headers


Collector = Annotated[str, AfterValidator(_collector)]
SecretHeaders = Annotated[dict[str, SecretStr] | None, BeforeValidator(_headers), AfterValidator(_header_names)]


class TelemetrySettings(SettingsSection):
    """Traces and metrics by OTLP; nothing is exported, or loaded for it, while no endpoint is named."""

    otlp_endpoint: Collector | None = Field(
        None, description="Base address of an OTLP receiver over HTTP; `/v1/traces` and `/v1/metrics` are added."
    )
    headers: SecretHeaders = Field(None, description="Headers of every export, such as a key; names and values.")
    service_name: str = Field("context-gateway", min_length=1, description="The resource's `service.name`.")
    traces: bool = Field(True, description="Export traces.")
    metrics: bool = Field(True, description="Export metrics.")
    sample_ratio: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Share of requests that are traced, where the caller has not decided; null: as "
        "`OTEL_TRACES_SAMPLER` says, else all.",
    )
    content: bool = Field(False, description="Put what users and models wrote on the spans of model calls, too.")
    metric_interval: Seconds = Field(60.0, description="Seconds between two exports of metrics.")

    @property
    def is_on(self) -> bool:
        """Whether anything is exported."""
        return self.otlp_endpoint is not None and (self.traces or self.metrics)

    @property
    def header_fields(self) -> Mapping[str, str]:
        """The headers as they are sent."""
        return {name: value.get_secret_value() for name, value in (self.headers or {}).items()}
