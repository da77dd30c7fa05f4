"""The section `telemetry`: addresses, headers as text or a mapping, and keys that are never shown (guarantee §13.5)."""

from pathlib import Path

import pytest

from gateway.core.config.loading import ConfigurationError, load_settings
from gateway.core.config.setting_sections import TelemetrySettings

BASE = "http://127.0.0.1:4318"


def test_nothing_is_exported_by_default() -> None:
    settings = load_settings(None, {}).telemetry
    assert not settings.is_on
    assert not settings.content
    assert settings.header_fields == {}


@pytest.mark.parametrize(
    ("traces", "metrics", "on"), [(True, True, True), (True, False, True), (False, True, True), (False, False, False)]
)
def test_either_signal_alone_is_on(traces: bool, metrics: bool, on: bool) -> None:
    assert TelemetrySettings(otlp_endpoint=BASE, traces=traces, metrics=metrics).is_on is on
    assert not TelemetrySettings(traces=traces, metrics=metrics).is_on


def test_the_standard_names_of_the_environment() -> None:
    """Ours outrank them."""
    standard = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"{BASE}/",
        "OTEL_EXPORTER_OTLP_HEADERS": " authorization=Basic%20YTpi==, x-a=1,",
        "OTEL_SERVICE_NAME": "shop",
    }
    settings = load_settings(None, standard).telemetry
    assert settings.otlp_endpoint == BASE
    assert settings.header_fields == {"authorization": "Basic YTpi==", "x-a": "1"}
    assert settings.service_name == "shop"
    own = load_settings(None, {**standard, "GATEWAY_TELEMETRY_SERVICE_NAME": "ours"}).telemetry
    assert own.service_name == "ours"


def test_headers_of_a_file_may_come_from_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "telemetry: {otlp_endpoint: 'https://x.example.org/otel', headers: {Authorization: os.environ/KEY}}"
    )
    settings = load_settings(str(path), {"KEY": "Basic of-somebody"})
    assert settings.telemetry.header_fields == {"Authorization": "Basic of-somebody"}
    assert "of-somebody" not in repr(settings)
    assert "of-somebody" not in settings.model_dump_json()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTLP_ENDPOINT", "localhost:4317"),
        ("OTLP_ENDPOINT", "grpc://localhost:4317"),
        ("OTLP_ENDPOINT", "http://"),
        ("OTLP_ENDPOINT", "http://me:of-somebody@host"),
        ("OTLP_ENDPOINT", "http://host/?key=of-somebody"),
        ("HEADERS", "of-somebody"),
        ("HEADERS", "a b=of-somebody"),
        ("HEADERS", "a=of-somebody%0d%0ab"),
        ("SAMPLE_RATIO", "1.5"),
        ("METRIC_INTERVAL", "0"),
    ],
)
def test_what_cannot_be_used_is_named_and_not_shown(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(None, {f"GATEWAY_TELEMETRY_{name}": value})
    assert f"telemetry.{name.lower()}" in str(caught.value)
    assert "of-somebody" not in str(caught.value)
