"""Mirrors gateway/telemetry."""
