"""OpenTelemetry: traces and metrics by OTLP (guarantee §13.5). `opening` loads the SDK where it is configured."""
