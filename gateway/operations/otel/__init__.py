"""OpenTelemetry: traces and metrics by OTLP (guarantee §13.5). `factory` loads the SDK only where it is configured."""
